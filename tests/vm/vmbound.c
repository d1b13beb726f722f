// SPDX-License-Identifier: MIT OR Apache-2.0
// How far a group goes beyond a rate in any window; part of vmtool (vmtool.c).
// clang-format off
//   vmtool bound SECONDS GROUP PERMILLE [N]  a real-time task that reads the group each millisecond by perf's clock; prints
//                                            "mean=P over_us=W": its mean rate in permille of a CPU, and the most that it
//                                            used in any window beyond PERMILLE of it. N hogs start in the group after
//                                            100 ms, 300 us apart, and are ended
// clang-format on
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "vmwork.h"

#define CGROUPS "/sys/fs/cgroup"
#include "perfclock.h"

#define STEP_NS 1000000
#define SAMPLES_MAX 20000
#define HOGS_FROM 100
#define HOGS_APART_NS 300000
#define HOGS_MAX 16

struct bounded {
	const char *group;
	double permille;
	double at_us[SAMPLES_MAX], used_us[SAMPLES_MAX];
};

static void read_group(struct bounded *b, int at)
{
	uint64_t before_ns = now_ns();

	b->used_us[at] = (double)perf_clock_us(b->group);
	b->at_us[at] = (double)(before_ns + now_ns()) / 2e3;
}

static void tell(const struct bounded *b, int samples)
{
	double over_us = 0, worst_us = 0;
	double span_us = b->at_us[samples - 1] - b->at_us[0];

	for (int i = 1; i < samples; i++) {
		double used_us = b->used_us[i] - b->used_us[i - 1];

		over_us += used_us - (b->at_us[i] - b->at_us[i - 1]) * b->permille / 1000;
		over_us = over_us > 0 ? over_us : 0;
		worst_us = over_us > worst_us ? over_us : worst_us;
	}
	printf("mean=%.2f over_us=%.0f\n",
	       1000 * (b->used_us[samples - 1] - b->used_us[0]) / span_us, worst_us);
}

static pid_t hog(const char *group)
{
	char folder[300];
	pid_t child = fork();

	if (child < 0)
		die("fork");
	if (child)
		return child;
	snprintf(folder, sizeof(folder), CGROUPS "/%s", group);
	if (!put_text(folder, "cgroup.procs", "0"))
		die(folder);
	for (;;)
		burn_cpu_ns(1000000000);
}

static void hogs_start(pid_t *hogs, int count, const char *group)
{
	struct timespec apart = {.tv_nsec = HOGS_APART_NS};

	for (int i = 0; i < count; i++) {
		hogs[i] = hog(group);
		nanosleep(&apart, NULL);
	}
}

int bounds(int count, char **words)
{
	static struct bounded b;
	// What it forks is of an ordinary class.
	struct sched_param param = {.sched_priority = 99};
	int samples, hogs = count == 6 ? atoi(words[5]) : 0;
	uint64_t start_ns;
	pid_t started[HOGS_MAX];

	if ((count != 5 && count != 6) || strcmp(words[1], "bound") || hogs > HOGS_MAX)
		return 0;
	samples = (int)(atof(words[2]) * 1000);
	if (samples > SAMPLES_MAX)
		samples = SAMPLES_MAX;
	b.group = words[3];
	b.permille = atof(words[4]);
	perf_clock_us(b.group);
	if (sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &param))
		die("sched_setscheduler");
	start_ns = now_ns();
	for (int at = 0; at < samples; at++) {
		read_group(&b, at);
		if (at == HOGS_FROM)
			hogs_start(started, hogs, b.group);
		sleep_until_ns(start_ns + (uint64_t)(at + 1) * STEP_NS);
	}
	tell(&b, samples);
	for (int i = 0; i < hogs; i++) {
		kill(started[i], SIGKILL);
		waitpid(started[i], NULL, 0);
	}
	return 1;
}
