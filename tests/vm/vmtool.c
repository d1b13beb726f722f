// SPDX-License-Identifier: MIT OR Apache-2.0
// The guest's load and its reader, in one static program that shares no code with Tidegate.
// clang-format off
//   vmtool burn [SECONDS]                    takes all the CPU it gets (for ever without SECONDS)
//   vmtool count FILE                        burns, and counts its turns of 10 us in FILE, which the
//                                            readers take for a group: what it really ran
//   vmtool threads N                         N threads that burn
//   vmtool duty PERCENT PERIOD_US [SECONDS]  takes PERCENT of one CPU in each period of a schedule
//   vmtool step P1 P2 PERIOD_US AFTER_S SECONDS FILE
//                                            duty at P1, then P2; FILE gets the moment (monotonic, ns)
//   vmtool watch SECONDS GROUP...            prints "idle=I GROUP=G ...", percent of all CPUs
//   vmtool settled SECONDS GROUP...          the same, 1.5 s after its own start, which is a burst of main
//   vmtool clock SECONDS GROUP...            the same by perf's clock and not by cpu.stat (perfclock.h)
//   vmtool wave P1 P2 PERIOD_US HALF_S SECONDS
//                                            duty at P1 and P2 in turn, HALF_S seconds each
//   vmtool floor SECONDS                     prints "idle=I idle_least=L": L over the worst whole second
//   vmtool wake SECONDS INTERVAL_US WORK_US [SEED]
//                                            as cyclictest: sleeps, measures how late it wakes, works; with SEED
//                                            the sleeps are exponentially distributed; prints "wakes=N mean_us=V p50_us=W p99_us=Y max_us=Z" and,
//                                            from when it was to wake to its work's end, "done_p50_us= done_p99_us=",
//                                            and how many took over 1 ms longer than the work, "done_late="
//   vmtool slice PID...                      each thread's slice as the kernel has it, ns, one a line
//   vmtool sliced NS COMMAND...              runs it with a slice of its own
//   vmtool niced N COMMAND...                runs it with a nice level
//   vmtool idle COMMAND...                   runs it as SCHED_IDLE
//   vmtool realtime PRIORITY COMMAND...      runs it as SCHED_FIFO
//   vmtool lock hold KIND FILE HOLD_US REST_US
//                                            holds a lock for so much CPU, rests, and again; KIND is flock,
//                                            fcntl or ofd
//   vmtool lock wait KIND FILE SECONDS REST_US
//                                            waits for it just after it was taken; prints "waits=N mean_ms=..."
//   vmtool series SECONDS INTERVAL_US GROUP  prints "monotonic_ns usage_us" at each interval
//   vmtool clocks SECONDS INTERVAL_US GROUP  the same by perf events (perfclock.h)
//   vmtool nofile PID N                      from now on the process may have N descriptors
//   vmtool hackbench, schbench, build        ordinary work: vmwork.c
//   vmtool serve, apart                      where main's tasks are put: vmplace.c
//   vmtool places, cores                     who runs beside whom: vmcores.c
//   vmtool stress, heart                     torment, and whose fault a stall is: vmstress.c, vmheart.c
//   vmtool inside                            a lock of the kernel's: vminside.c
//   vmtool bound                             what a group uses beyond a rate: vmbound.c
// clang-format on
//
// Burning is done in long runs of no-operations: under -icount each counts as one instruction of
// virtual time and costs the emulator next to nothing, so busy seconds pass quickly for the person
// who waits.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "vmwork.h"

#define CGROUPS "/sys/fs/cgroup"
#define GROUPS_MAX 16
#define SETTLE_NS 1500000000ULL
#define SAMPLES_MAX 200000

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// About 10 µs at the guest's one instruction a nanosecond.
static void burn_a_little(void)
{
	for (int i = 0; i < 10; i++)
		__asm__ volatile(".rept 1000\n\tnop\n\t.endr");
}

void burn_cpu_ns(uint64_t cpu_ns)
{
	uint64_t end = clock_ns(CLOCK_THREAD_CPUTIME_ID) + cpu_ns;

	while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < end)
		burn_a_little();
}

#include "locks.h"

static void *burn_for_ever(void *unused)
{
	for (;;)
		burn_a_little();
	return unused;
}

// Takes its share of each period of a schedule fixed in advance; a period in which it was held up
// is made up for as soon as it can, as a server's queue would be. Returns the schedule's end.
static uint64_t duty(double percent, uint64_t period_ns, uint64_t start_ns, uint64_t span_ns)
{
	uint64_t busy_ns = (uint64_t)((double)period_ns * percent / 100);
	uint64_t at_ns = start_ns;

	for (; at_ns - start_ns < span_ns; at_ns += period_ns) {
		sleep_until_ns(at_ns);
		burn_cpu_ns(busy_ns);
	}
	return at_ns;
}

// What the kernel says of a CPU's use can be wrong (7.3 tells half of what tasks of sched_ext ran);
// turns of a loop cannot.
static void count_turns(const char *path)
{
	int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
	volatile uint64_t *turns = MAP_FAILED;

	if (file >= 0 && !ftruncate(file, 4096))
		turns = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (turns == MAP_FAILED)
		die(path);
	for (;;) {
		burn_a_little();
		++*turns;
	}
}

static uint64_t counted_us(const char *path)
{
	uint64_t turns = 0;
	FILE *file = fopen(path, "r");

	if (!file || fread(&turns, sizeof(turns), 1, file) != 1)
		die(path);
	fclose(file);
	return turns * 10;
}

#include "perfclock.h"

static int by_perf;

static uint64_t usage_us(const char *group)
{
	char path[512], line[128];
	unsigned long long value = 0;
	FILE *file;

	if (group[0] == '/')
		return counted_us(group);
	if (by_perf)
		return perf_clock_us(group);
	snprintf(path, sizeof(path), CGROUPS "/%s/cpu.stat", group);
	file = fopen(path, "r");
	if (!file)
		die(path);
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "usage_usec %llu", &value) == 1)
			break;
	fclose(file);
	return value;
}

// The CPU time of all groups just below the root; what runs in the root itself (kernel threads) is
// not in it.
static uint64_t all_usage_us(void)
{
	uint64_t sum = 0;
	struct dirent *entry;
	DIR *root = opendir(CGROUPS);

	if (!root)
		die(CGROUPS);
	while ((entry = readdir(root)))
		if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
			sum += usage_us(entry->d_name);
	closedir(root);
	return sum;
}

static void watch(double seconds, uint64_t settle_ns, int count, char **groups)
{
	uint64_t before[GROUPS_MAX], all, start_ns;
	double whole_us;

	if (count > GROUPS_MAX)
		count = GROUPS_MAX;
	all_usage_us(); // Opens what it reads by.
	sleep_until_ns(clock_ns(CLOCK_MONOTONIC) + settle_ns);
	for (int i = 0; i < count; i++)
		before[i] = usage_us(groups[i]);
	all = all_usage_us();
	start_ns = clock_ns(CLOCK_MONOTONIC);
	sleep_until_ns(start_ns + (uint64_t)(seconds * 1e9));
	all = all_usage_us() - all;
	whole_us = (double)(clock_ns(CLOCK_MONOTONIC) - start_ns) / 1e3 *
		   (double)sysconf(_SC_NPROCESSORS_ONLN);
	printf("idle=%.2f", 100 - 100 * (double)all / whole_us);
	for (int i = 0; i < count; i++)
		printf(" %s=%.2f", groups[i],
		       100 * (double)(usage_us(groups[i]) - before[i]) / whole_us);
	printf("\n");
}

static void series(double seconds, uint64_t interval_ns, const char *group)
{
	static uint64_t when_ns[SAMPLES_MAX], used_us[SAMPLES_MAX];
	uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
	size_t count = (size_t)(seconds * 1e9 / (double)interval_ns);

	if (count > SAMPLES_MAX)
		count = SAMPLES_MAX;
	for (size_t i = 0; i < count; i++) {
		sleep_until_ns(start_ns + i * interval_ns);
		used_us[i] = usage_us(group);
		when_ns[i] = clock_ns(CLOCK_MONOTONIC);
	}
	for (size_t i = 0; i < count; i++)
		printf("%llu %llu\n", (unsigned long long)when_ns[i],
		       (unsigned long long)used_us[i]);
}

// Samples every 10 ms, so that "any second" means any of them and not only those that start on the
// clock's.
static void lowest(double seconds)
{
	static uint64_t when_ns[SAMPLES_MAX], used_us[SAMPLES_MAX];
	uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
	double cpus = (double)sysconf(_SC_NPROCESSORS_ONLN), least = 100;
	size_t count = (size_t)(seconds * 100) + 1;

	if (count > SAMPLES_MAX)
		count = SAMPLES_MAX;
	for (size_t i = 0; i < count; i++) {
		sleep_until_ns(start_ns + i * 10000000u);
		used_us[i] = all_usage_us();
		when_ns[i] = clock_ns(CLOCK_MONOTONIC);
	}
	for (size_t i = 100; i < count; i++) {
		double span_us = (double)(when_ns[i] - when_ns[i - 100]) / 1e3 * cpus;
		double idle = 100 - 100 * (double)(used_us[i] - used_us[i - 100]) / span_us;

		if (idle < least)
			least = idle;
	}
	printf("idle=%.2f idle_least=%.2f\n",
	       100 - 1e5 * (double)(used_us[count - 1] - used_us[0]) /
			 ((double)(when_ns[count - 1] - when_ns[0]) * cpus),
	       least);
}

static void wave(char **words)
{
	uint64_t period_ns = (uint64_t)(atof(words[2]) * 1e3);
	uint64_t half_ns = (uint64_t)(atof(words[3]) * 1e9);
	uint64_t start_ns = clock_ns(CLOCK_MONOTONIC), at_ns = start_ns;
	uint64_t span_ns = (uint64_t)(atof(words[4]) * 1e9);

	for (int turn = 0; at_ns - start_ns < span_ns; turn++)
		at_ns = duty(atof(words[turn % 2]), period_ns, at_ns, half_ns);
}

static void step(char **words)
{
	uint64_t period_ns = (uint64_t)(atof(words[2]) * 1e3);
	uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
	uint64_t after_ns = (uint64_t)(atof(words[3]) * 1e9);
	uint64_t span_ns = (uint64_t)(atof(words[4]) * 1e9);
	uint64_t at_ns = duty(atof(words[0]), period_ns, start_ns, after_ns);
	FILE *file = fopen(words[5], "w");

	if (!file)
		die(words[5]);
	fprintf(file, "%llu\n", (unsigned long long)at_ns);
	fclose(file);
	duty(atof(words[1]), period_ns, at_ns, span_ns - after_ns);
}

// Exponentially distributed with that mean, as the time between events of a Poisson process.
static uint64_t exponential_ns(uint64_t mean_ns)
{
	return (uint64_t)(-log(1 - drand48()) * (double)mean_ns);
}

static void wake(double seconds, uint64_t interval_ns, uint64_t work_ns, const char *seed)
{
	static uint64_t late_ns[SAMPLES_MAX], done_ns[SAMPLES_MAX];
	uint64_t end_ns = clock_ns(CLOCK_MONOTONIC) + (uint64_t)(seconds * 1e9);
	uint64_t sum_ns = 0;
	size_t count = 0, late = 0;

	if (seed)
		srand48(atol(seed));
	for (;;) {
		uint64_t rest_ns = seed ? exponential_ns(interval_ns) : interval_ns;
		uint64_t due_ns = clock_ns(CLOCK_MONOTONIC) + rest_ns;

		if (due_ns >= end_ns || count == SAMPLES_MAX)
			break;
		sleep_until_ns(due_ns);
		late_ns[count] = clock_ns(CLOCK_MONOTONIC) - due_ns;
		burn_cpu_ns(work_ns);
		done_ns[count] = clock_ns(CLOCK_MONOTONIC) - due_ns;
		late += done_ns[count++] > work_ns + 1000000;
	}
	if (!count)
		die("wake: no time for it");
	qsort(late_ns, count, sizeof(*late_ns), ascending);
	qsort(done_ns, count, sizeof(*done_ns), ascending);
	for (size_t i = 0; i < count; i++)
		sum_ns += late_ns[i];
	printf("wakes=%zu mean_us=%.1f p50_us=%.1f p99_us=%.1f max_us=%.1f "
	       "done_p50_us=%.1f done_p99_us=%.1f done_late=%zu\n",
	       count, (double)sum_ns / (double)count / 1e3, (double)late_ns[count / 2] / 1e3,
	       (double)late_ns[count * 99 / 100] / 1e3, (double)late_ns[count - 1] / 1e3,
	       (double)done_ns[count / 2] / 1e3, (double)done_ns[count * 99 / 100] / 1e3, late);
}

// The first version of struct sched_attr (include/uapi/linux/sched/types.h).
struct attr {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime_ns, deadline_ns, period_ns;
};

static void slices(const char *pid)
{
	struct attr attr;
	struct dirent *entry;
	char path[64];
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%.20s/task", pid);
	tasks = opendir(path);
	if (!tasks)
		die(path);
	while ((entry = readdir(tasks)))
		if (entry->d_name[0] != '.' &&
		    !syscall(SYS_sched_getattr, atoi(entry->d_name), &attr, sizeof(attr), 0))
			printf("%llu\n", (unsigned long long)attr.runtime_ns);
	closedir(tasks);
}

static _Noreturn void scheduled(struct attr attr, char **command)
{
	attr.size = sizeof(attr);
	if (syscall(SYS_sched_setattr, 0, &attr, 0))
		die("sched_setattr");
	execvp(command[0], command);
	die(command[0]);
}

static void threads(int count)
{
	pthread_t thread;

	for (int i = 1; i < count; i++)
		if ((errno = pthread_create(&thread, NULL, burn_for_ever, NULL)))
			die("pthread_create");
	burn_for_ever(NULL);
}

// The hard limit stays, so that the soft one can be raised again.
static void nofile(pid_t pid, rlim_t most)
{
	struct rlimit limit;

	if (prlimit(pid, RLIMIT_NOFILE, NULL, &limit))
		die("prlimit");
	limit.rlim_cur = most;
	if (prlimit(pid, RLIMIT_NOFILE, &limit, NULL))
		die("prlimit");
}

int main(int count, char **words)
{
	const char *verb = count > 1 ? words[1] : "";

	if (!strcmp(verb, "burn") && count == 2)
		burn_for_ever(NULL);
	else if (!strcmp(verb, "burn") && count == 3)
		burn_cpu_ns((uint64_t)(atof(words[2]) * 1e9));
	else if (!strcmp(verb, "threads") && count == 3)
		threads(atoi(words[2]));
	else if (!strcmp(verb, "duty") && (count == 4 || count == 5))
		duty(atof(words[2]), (uint64_t)(atof(words[3]) * 1e3), clock_ns(CLOCK_MONOTONIC),
		     count == 5 ? (uint64_t)(atof(words[4]) * 1e9) : UINT64_MAX);
	else if (!strcmp(verb, "count") && count == 3)
		count_turns(words[2]);
	else if (!strcmp(verb, "step") && count == 8)
		step(words + 2);
	else if (!strcmp(verb, "wave") && count == 7)
		wave(words + 2);
	else if (!strcmp(verb, "floor") && count == 3)
		lowest(atof(words[2]));
	else if ((!strcmp(verb, "watch") || !strcmp(verb, "clock")) && count >= 3) {
		by_perf = !strcmp(verb, "clock");
		watch(atof(words[2]), 0, count - 3, words + 3);
	} else if (!strcmp(verb, "settled") && count >= 3) {
		watch(atof(words[2]), SETTLE_NS, count - 3, words + 3);
	} else if (!strcmp(verb, "wake") && (count == 5 || count == 6))
		wake(atof(words[2]), (uint64_t)(atof(words[3]) * 1e3),
		     (uint64_t)(atof(words[4]) * 1e3), count == 6 ? words[5] : NULL);
	else if (!strcmp(verb, "slice") && count >= 3)
		for (int i = 2; i < count; i++)
			slices(words[i]);
	else if (!strcmp(verb, "sliced") && count >= 4)
		scheduled((struct attr){.runtime_ns = strtoull(words[2], NULL, 10),
					.nice = getpriority(PRIO_PROCESS, 0)},
			  words + 3);
	else if (!strcmp(verb, "niced") && count >= 4)
		scheduled((struct attr){.nice = atoi(words[2])}, words + 3);
	else if (!strcmp(verb, "idle") && count >= 3)
		scheduled((struct attr){.policy = SCHED_IDLE}, words + 2);
	else if (!strcmp(verb, "realtime") && count >= 4)
		scheduled((struct attr){.policy = SCHED_FIFO, .priority = (uint32_t)atoi(words[2])},
			  words + 3);
	else if (!strcmp(verb, "lock") && count == 7 && !strcmp(words[2], "hold"))
		lock_hold(words + 3);
	else if (!strcmp(verb, "lock") && count == 7 && !strcmp(words[2], "wait"))
		lock_wait(words + 3);
	else if ((!strcmp(verb, "series") || !strcmp(verb, "clocks")) && count == 5) {
		by_perf = !strcmp(verb, "clocks");
		series(atof(words[2]), (uint64_t)(atof(words[3]) * 1e3), words[4]);
	} else if (!strcmp(verb, "heart") && count == 3)
		heart(words[2]);
	else if (!strcmp(verb, "nofile") && count == 4)
		nofile(atoi(words[2]), (rlim_t)atol(words[3]));
	else if (!ordinary(count, words) && !torments(count, words) && !places(count, words) &&
		 !crowded(count, words) && !inside(count, words) && !bounds(count, words)) {
		fprintf(stderr, "vmtool: its comment tells how it is used\n");
		return 2;
	}
	return 0;
}
