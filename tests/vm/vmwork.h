// SPDX-License-Identifier: GPL-2.0-only
// What vmtool.c and vmwork.c have of each other.
#ifndef VMWORK_H
#define VMWORK_H

#include <stdint.h>

// Uses that much CPU time.
void burn_cpu_ns(uint64_t cpu_ns);

// Does `words` if it is ordinary work; 0: it is not.
int ordinary(int count, char **words);

#endif
