// SPDX-License-Identifier: MIT OR Apache-2.0
// A heart that tells whose fault a stall is; part of vmtool (vmtool.c).
// clang-format off
//   vmtool heart FILE                        a real-time task that looks at the clock each 200 ms; a line "uptime_s late_s busy_s"
//                                            in FILE for each time that it was more than a second late: busy_s is what the guest's
//                                            CPUs were busy meanwhile, so that a host that stands is told from a guest that does;
//                                            and where a scheduler has been coming or going for a minute, or RCU stalls, what
//                                            each CPU and task does then, on the console, once
// clang-format on
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/klog.h>
#include <time.h>
#include <unistd.h>

#include "vmwork.h"

#define BEAT_NS 200000000ULL
#define LATE_NS 1000000000ULL
#define BETWEEN_BEATS 300
#define LOG_BEATS 25

// What the guest's CPUs were busy with so far, in seconds: counted by ticks, which stand still with
// the host.
static double busy_s(void)
{
	unsigned long long user = 0, nice = 0, system = 0, irq = 0, softirq = 0;
	FILE *file = fopen("/proc/stat", "r");

	if (!file || fscanf(file, "cpu %llu %llu %llu %*u %*u %llu %llu", &user, &nice, &system,
			    &irq, &softirq) != 5)
		die("/proc/stat");
	fclose(file);
	return (double)(user + nice + system + irq + softirq) / (double)sysconf(_SC_CLK_TCK);
}

// A scheduler that neither is nor is not: the kernel enables or disables it.
static int between(void)
{
	char state[16] = "";
	FILE *file = fopen("/sys/kernel/sched_ext/state", "r");

	if (!file)
		return 0;
	if (!fgets(state, sizeof(state), file))
		*state = 0;
	fclose(file);
	return !strncmp(state, "enabling", 8) || !strncmp(state, "disabling", 9);
}

static int rcu_stalls(void)
{
	static char log[1 << 16];
	int bytes = klogctl(3, log, sizeof(log) - 1);

	log[bytes > 0 ? bytes : 0] = 0;
	return strstr(log, "detected stall") || strstr(log, "detected expedited stall");
}

// CPUs, tasks that wait uninterruptibly, all tasks.
static void tell_all(void)
{
	for (const char *key = "8lwt"; *key; key++) {
		FILE *file = fopen("/proc/sysrq-trigger", "w");

		if (!file)
			return;
		fputc(*key, file);
		fclose(file);
	}
}

void heart(const char *path)
{
	int beats_between = 0, beats = 0, told = 0;
	FILE *file = fopen(path, "a");
	uint64_t due_ns = now_ns();
	double busy = busy_s();
	struct sched_param param = {.sched_priority = 50};

	if (!file)
		die(path);
	if (sched_setscheduler(0, SCHED_FIFO, &param))
		die("sched_setscheduler");
	for (;;) {
		uint64_t late_ns;
		double busy_now;

		due_ns += BEAT_NS;
		sleep_until_ns(due_ns);
		late_ns = now_ns() - due_ns;
		busy_now = busy_s();
		if (late_ns > LATE_NS) {
			fprintf(file, "%.2f %.2f %.2f\n", (double)now_ns() / 1e9,
				(double)late_ns / 1e9, busy_now - busy);
			fflush(file);
			due_ns = now_ns();
		}
		busy = busy_now;
		beats_between = between() ? beats_between + 1 : 0;
		if (!told && (beats_between == BETWEEN_BEATS ||
			      (++beats % LOG_BEATS == 0 && rcu_stalls()))) {
			told = 1;
			tell_all();
		}
	}
}
