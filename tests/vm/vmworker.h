// SPDX-License-Identifier: MIT OR Apache-2.0
// The workers of `vmtool stress`: vmworker.c.
#ifndef VMWORKER_H
#define VMWORKER_H

#include <stdint.h>

enum work { HOG, SLEEPER, FORKER, EXECER, THREADER, PIPER, WORKS };

// Lives such a life for ever, and counts its turns.
_Noreturn void work(enum work work, volatile uint64_t *turns);

// It makes tasks, and holds locks meanwhile that all who fork and move wait for.
int forks(enum work work);

// While a scheduler is taken out, new tasks and those with a new policy are the fair class's
// already, and come before all that are not: two hogs of that kind keep two CPUs, and the kernel
// waits for its own threads, and for others to let go of its locks. So nothing of that is done.
int calm(void);

// While the kernel's own scheduler is in charge no CPU goes (cpuhp/1 stood for minutes, and the
// guest with it), and nobody is of the idle class or in a group of it: it
// leaves whom it finds idle twice, beside hogs, without a turn for minutes, and everybody waits for
// the locks that he forks and moves under (6.18: one held the cgroups' mutex for 120 s).
int fair(void);

#endif
