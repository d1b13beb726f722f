// SPDX-License-Identifier: MIT OR Apache-2.0
// kernelbed SCENARIOS BED SPAN_MAX_MS runs exported scenarios and prints their figures:
//   vm, host   the kernel's own scheduler
//   ext        the ext engine, in a machine whose kernel counts rightly what its tasks run
//   ext-own    the same where it does not (7.3): shares are of what the tasks say they burnt
//   gates      runs nothing: makes the scenarios' groups and prints their gates
// `kernelbed costs [ext]` prints what the kernel's own paths cost here (under the ext engine).
#include "bed.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define SILO_SLICE "/proc/sys/kernel/sched_cfs_bandwidth_slice_us"

static struct bed_scenario scenario;
static long silo_slice_found_us, span_max_ns;
static bool own_count; // shares are of what the tasks have burnt, not of what the kernel says
static volatile sig_atomic_t stopped;

static void set_silo_slice(long value_us)
{
	FILE *file = fopen(SILO_SLICE, "w");

	if (!file || fprintf(file, "%ld\n", value_us) < 0 || fclose(file))
		fprintf(stderr, "kernelbed: " SILO_SLICE ": %s\n", strerror(errno));
}

static long silo_slice_us(void)
{
	long value_us = 0;
	FILE *file = fopen(SILO_SLICE, "r");

	if (!file || fscanf(file, "%ld", &value_us) != 1)
		die(SILO_SLICE, "cannot be read");
	fclose(file);
	return value_us;
}

static void clean(void)
{
	tasks_kill();
	groups_remove(&scenario);
	if (silo_slice_found_us && silo_slice_us() != silo_slice_found_us)
		set_silo_slice(silo_slice_found_us);
}

_Noreturn void die(const char *what, const char *why)
{
	static bool dying;

	fprintf(stderr, "kernelbed: %s: %s\n", what, why);
	if (!dying && scenario.name[0]) {
		dying = true;
		clean();
	}
	exit(1);
}

static void on_signal(int signal)
{
	stopped = signal;
}

void measure(const char *name, const char *what, const char *of, double value, const char *unit)
{
	printf("@@tg %.2f measure check %s.%s%s%s %.3f %s\n", (double)clock_now_ns() / 1e9, name,
	       what, of[0] ? "." : "", of, value, unit);
	fflush(stdout);
}

static int ascending(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static void print_latency(const struct bed_read *read)
{
	static const struct {
		const char *name[2];
		double part;
	} points[] = {
	    {{"p50", "done_p50"}, 0.5}, {{"p90", "done_p90"}, 0.9}, {{"p99", "done_p99"}, 0.99}};
	uint32_t count = shared->task[read->task].samples, *ns;
	bool done;

	if (!count)
		die(read->name, "it was never woken");
	done = read->what == READ_DONE;
	ns = done ? shared->task[read->task].done_ns : shared->task[read->task].latency_ns;
	qsort(ns, count, sizeof(uint32_t), ascending);
	for (int i = 0; i < 3; i++) {
		uint32_t at = (uint32_t)(points[i].part * (double)(count - 1) + 0.5);

		measure(scenario.name, points[i].name[done], read->name, ns[at] / 1e3, "us");
	}
}

static bool is_below(int group, int above)
{
	for (; group >= 0; group = scenario.groups[group].parent)
		if (group == above)
			return true;
	return false;
}

// By what the tasks themselves say.
static struct bed_stat own_reading(const struct bed_read *read)
{
	struct bed_stat stat = {0};

	for (int i = 0; i < scenario.task_count; i++)
		if (read->task >= 0 ? i == read->task
				    : is_below(scenario.tasks[i].group, read->group))
			stat.usage_ns += tasks_burnt_ns(&scenario.tasks[i]);
	return stat;
}

// What a read of usage or of counters says now.
static struct bed_stat reading(const struct bed_read *read)
{
	if (own_count)
		return own_reading(read);
	if (read->task >= 0)
		return (struct bed_stat){.usage_ns = tasks_usage_ns(&scenario.tasks[read->task])};
	return groups_stat(&scenario, read->group);
}

static void print_read(const struct bed_read *read, struct bed_stat before, struct bed_stat after,
		       double span_ns)
{
	int task = read->task;

	switch (read->what) {
	case READ_SHARE:
		measure(scenario.name, "share", read->name,
			100 * (double)(after.usage_ns - before.usage_ns) / span_ns, "%");
		break;
	case READ_PERIODS:
		measure(scenario.name, "periods", read->name,
			(double)(after.periods - before.periods), "count");
		break;
	case READ_THROTTLED:
		measure(scenario.name, "throttled", read->name,
			(double)(after.throttled - before.throttled), "count");
		break;
	case READ_BURSTS:
		measure(scenario.name, "bursts", read->name, (double)(after.bursts - before.bursts),
			"count");
		break;
	case READ_LATENCY:
	case READ_DONE:
		print_latency(read);
		break;
	case READ_DURATION:
		if (!tasks_over(&scenario.tasks[task], task))
			die(read->name, "it was not over in its time");
		measure(scenario.name, "duration", read->name,
			(double)(shared->task[task].finished_ns - shared->start_ns) / 1e6, "ms");
		break;
	}
}

// Waits until `end_ns`, or until every task that has a duration is over.
static void wait_until(uint64_t end_ns)
{
	uint64_t next_ns = shared->start_ns + (uint64_t)scenario.rewrite_ns;
	bool finite = false;

	for (int i = 0; i < scenario.read_count; i++)
		finite |= scenario.reads[i].what == READ_DURATION;
	while (clock_now_ns() < end_ns && !stopped) {
		if (scenario.rewrite_ns) {
			if (next_ns > end_ns)
				next_ns = end_ns;
			sleep_until_ns(next_ns);
			groups_write_quotas(&scenario);
			next_ns += (uint64_t)scenario.rewrite_ns;
		} else if (finite) {
			bool over = true;

			for (int i = 0; i < scenario.read_count; i++) {
				int task = scenario.reads[i].task;

				if (scenario.reads[i].what == READ_DURATION)
					over &= tasks_over(&scenario.tasks[task], task);
			}
			if (over)
				return;
			sleep_until_ns(clock_now_ns() + 5000000);
		} else {
			sleep_until_ns(end_ns);
		}
	}
}

static double stolen_s(void)
{
	unsigned long long steal = 0;
	FILE *file = fopen("/proc/stat", "r");

	if (!file || fscanf(file, "cpu %*u %*u %*u %*u %*u %*u %*u %llu", &steal) != 1)
		die("/proc/stat", "cannot be read");
	fclose(file);
	return (double)steal / (double)sysconf(_SC_CLK_TCK);
}

static void run(bool on_host)
{
	struct bed_stat before[READS_MAX];
	uint64_t from_ns, to_ns;
	double steal_s;

	if (scenario.span_ns > span_max_ns)
		scenario.span_ns = span_max_ns;
	if (silo_slice_us() != scenario.silo_slice_us)
		set_silo_slice(scenario.silo_slice_us);
	groups_make(&scenario);
	tasks_start(&scenario);
	wait_until(shared->count_from_ns);
	steal_s = stolen_s();
	from_ns = clock_now_ns();
	for (int i = 0; i < scenario.read_count; i++)
		before[i] = reading(&scenario.reads[i]);
	wait_until(from_ns + (uint64_t)scenario.span_ns);
	to_ns = clock_now_ns();
	if (!stopped)
		for (int i = 0; i < scenario.read_count; i++)
			print_read(&scenario.reads[i], before[i], reading(&scenario.reads[i]),
				   (double)(to_ns - from_ns));
	if (on_host)
		measure(scenario.name, "steal", "",
			1e11 * (stolen_s() - steal_s) / (double)(to_ns - from_ns), "%");
	clean();
}

static void describe(void)
{
	struct timespec tick;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	clock_getres(CLOCK_MONOTONIC_COARSE, &tick);
	measure("machine", "cpus", "", (double)cpus, "count");
	measure("machine", "tick", "", (double)tick.tv_nsec, "ns");
	measure("machine", "base_slice", "", (double)slice_default_ns(), "ns");
	measure("machine", "own_count", "", own_count, "count");
}

// The ext engine's ledger is looked at only while there is side work.
static struct bed_scenario tide(void)
{
	struct bed_scenario side = {.name = "tide", .group_count = 1};

	strcpy(side.groups[0].name, "side");
	strcpy(side.groups[0].gate, " class=side");
	side.groups[0].parent = -1;
	side.groups[0].weight = 100;
	return side;
}

// In a group like the scenarios' own, which gets the CPU before everything else.
static void print_costs(bool of_ext)
{
	struct bed_scenario side = tide();

	strcpy(scenario.name, "costs");
	strcpy(scenario.groups[0].name, "costs");
	scenario.groups[0].parent = -1;
	scenario.groups[0].weight = 100;
	scenario.group_count = 1;
	groups_find();
	tasks_map();
	groups_make(&scenario);
	groups_enter(&scenario, 0);
	costs_print(of_ext ? &side : NULL);
	groups_leave();
	groups_remove(&scenario);
	if (of_ext)
		groups_remove(&side);
}

int main(int count, char **words)
{
	bool on_host, gates;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	if (count >= 2 && !strcmp(words[1], "costs")) {
		print_costs(count == 3 && !strcmp(words[2], "ext"));
		return 0;
	}
	if (count != 4 || atol(words[3]) <= 0) {
		fprintf(stderr, "usage: kernelbed SCENARIOS vm|host|ext|ext-own|gates SPAN_MAX_MS "
				"| costs [ext]\n");
		return 2;
	}
	span_max_ns = atol(words[3]) * 1000000;
	on_host = !strcmp(words[2], "host");
	gates = !strcmp(words[2], "gates");
	own_count = !strcmp(words[2], "ext-own");
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	groups_find();
	groups_leave();
	while (gates && bed_next(&scenario, words[1])) {
		groups_make(&scenario);
		groups_print_gates(&scenario);
	}
	if (gates) {
		scenario = tide();
		groups_make(&scenario);
		groups_print_gates(&scenario);
		return 0;
	}
	tasks_map();
	silo_slice_found_us = silo_slice_us();
	describe();
	setpriority(PRIO_PROCESS, 0, -20);
	if (cpus > 1) // away from the CPU that most scenarios use
		confine_to_cpu_range(1, cpus);
	while (!stopped && bed_next(&scenario, words[1]))
		if (scenario.cpus <= cpus)
			run(on_host);
	return stopped ? 1 : 0;
}
