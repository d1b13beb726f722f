// SPDX-License-Identifier: MIT OR Apache-2.0
// What vmtool.c and its other files have of each other.
#ifndef VMWORK_H
#define VMWORK_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static inline uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static inline void sleep_until_ns(uint64_t when_ns)
{
	struct timespec t = {
	    .tv_sec = (time_t)(when_ns / 1000000000u),
	    .tv_nsec = (long)(when_ns % 1000000000u),
	};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

// For qsort.
static inline int ascending(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

// `errno` says why.
static inline _Noreturn void die(const char *what)
{
	fprintf(stderr, "vmtool: %s: %s\n", what, strerror(errno));
	exit(1);
}

// Uses that much CPU time.
void burn_cpu_ns(uint64_t cpu_ns);

// Writes into the file `name` in `folder`; 0: it was refused.
int put_text(const char *folder, const char *name, const char *text);
int put_number(const char *folder, const char *name, long number);

// Does `words` if it is ordinary work; 0: it is not.
int ordinary(int count, char **words);

// Does `words` if it is torment (vmstress.c); 0: it is not.
int torments(int count, char **words);

// Does `words` if it is about places (vmplace.c); 0: it is not.
int places(int count, char **words);

// Does `words` if it is about shared cores (vmcores.c); 0: it is not.
int crowded(int count, char **words);

// Does `words` if it is about a lock inside the kernel (vminside.c); 0: it is not.
int inside(int count, char **words);

// Does `words` if it is about what a group uses beyond a rate (vmbound.c); 0: it is not.
int bounds(int count, char **words);

// Beats for ever, and writes to the file at `path` when it was late (vmheart.c).
void heart(const char *path);

#endif
