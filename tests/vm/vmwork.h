// SPDX-License-Identifier: GPL-2.0-only
// What vmtool.c, vmwork.c and vmstress.c have of each other.
#ifndef VMWORK_H
#define VMWORK_H

#include <stdint.h>

// Uses that much CPU time.
void burn_cpu_ns(uint64_t cpu_ns);

// Does `words` if it is ordinary work; 0: it is not.
int ordinary(int count, char **words);

// Does `words` if it is torment (vmstress.c); 0: it is not.
int torments(int count, char **words);

// Beats for ever, and writes to the file at `path` when it was late (vmheart.c).
void heart(const char *path);

#endif
