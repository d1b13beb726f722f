// SPDX-License-Identifier: GPL-2.0-only
// The workers of `vmtool stress`: vmworker.c.
#ifndef VMWORKER_H
#define VMWORKER_H

#include <stdint.h>

enum work { HOG, SLEEPER, FORKER, EXECER, THREADER, PIPER, WORKS };

// Lives such a life for ever, and counts its turns.
_Noreturn void work(enum work work, volatile uint64_t *turns);

// While a scheduler is taken out, new tasks and those with a new policy are the fair class's
// already, and come before all that are not: two hogs of that kind keep two CPUs, and the kernel
// waits for its own threads, and for others to let go of its locks. So nothing of that is done.
int calm(void);

#endif
