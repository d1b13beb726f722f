// SPDX-License-Identifier: MIT OR Apache-2.0
// A lock of the kernel's that is held by who does not run; part of vmtool (vmtool.c).
// clang-format off
//   vmtool inside hold FILE BYTES GROUP      goes there and writes so many bytes at once, again and again: all
//                                            the while it has the file's lock in the kernel (1 MB: some 1 ms)
//   vmtool inside wait FILE SECONDS          writes one byte, 20 ms later the next; prints
//                                            "waits=N worst_ms=W", of those that took 1 ms and more
// clang-format on
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "vmwork.h"

#define WAITED_NS 1000000u
#define REST_NS 20000000u

static int file(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT, 0600);

	if (fd < 0)
		die(path);
	return fd;
}

static _Noreturn void hold(const char *path, size_t bytes, const char *group)
{
	int fd = file(path);
	char *from = calloc(1, bytes);

	if (!from)
		die("inside hold: memory");
	// The pages of both are made before.
	memset(from, 1, bytes);
	for (int round = 0;; round++) {
		if (pwrite(fd, from, bytes, 0) < 0)
			die("inside hold: write");
		if (!round && !put_number(group, "cgroup.procs", 0))
			die(group);
	}
}

static void wait_for(const char *path, double seconds)
{
	uint64_t end_ns = now_ns() + (uint64_t)(seconds * 1e9), worst_ns = 0;
	struct timespec rest = {.tv_nsec = REST_NS};
	int fd = file(path);
	uint32_t waits = 0;

	while (now_ns() < end_ns) {
		uint64_t from_ns = now_ns(), waited_ns;

		if (pwrite(fd, "x", 1, 0) != 1)
			die("inside wait: write");
		waited_ns = now_ns() - from_ns;
		waits += waited_ns >= WAITED_NS;
		if (waited_ns > worst_ns)
			worst_ns = waited_ns;
		nanosleep(&rest, NULL);
	}
	printf("waits=%u worst_ms=%.1f\n", waits, (double)worst_ns / 1e6);
}

int inside(int count, char **words)
{
	if (count < 5 || strcmp(words[1], "inside"))
		return 0;
	if (!strcmp(words[2], "hold") && count == 6)
		hold(words[3], (size_t)atol(words[4]), words[5]);
	else if (!strcmp(words[2], "wait") && count == 5)
		wait_for(words[3], atof(words[4]));
	else
		return 0;
	return 1;
}
