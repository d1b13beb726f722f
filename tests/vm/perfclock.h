// SPDX-License-Identifier: MIT OR Apache-2.0
// A group's CPU time by the kernel's perf events: a clock that the context switch itself starts and
// stops, whatever the scheduler. (cpu.stat is the scheduling class' own: 7.3 counts too little for
// tasks of sched_ext.)
// clang-format off
#ifndef TIDEGATE_VM_PERFCLOCK_H
#define TIDEGATE_VM_PERFCLOCK_H
// clang-format on

#include <linux/perf_event.h>
#include <sys/ioctl.h>

#define CLOCKS_MAX 64
#define CLOCK_CPUS_MAX 16

struct perf_clock {
	char group[256];
	int files[CLOCK_CPUS_MAX]; // 0: the CPU is offline
};

static struct perf_clock perf_clocks[CLOCKS_MAX];
static int perf_clocks_count;

static struct perf_clock *perf_clock_open(const char *group)
{
	struct perf_event_attr attr = {
	    .type = PERF_TYPE_SOFTWARE,
	    .config = PERF_COUNT_SW_CPU_CLOCK,
	    .size = sizeof(attr),
	};
	struct perf_clock *clock = &perf_clocks[perf_clocks_count];
	long cpus = sysconf(_SC_NPROCESSORS_CONF);
	char path[512];
	int directory;

	if (perf_clocks_count == CLOCKS_MAX || cpus > CLOCK_CPUS_MAX)
		die("more groups or CPUs than clocks");
	perf_clocks_count++;
	snprintf(clock->group, sizeof(clock->group), "%s", group);
	snprintf(path, sizeof(path), CGROUPS "/%s", group);
	directory = open(path, O_RDONLY | O_DIRECTORY);
	if (directory < 0)
		die(path);
	for (int cpu = 0; cpu < (int)cpus; cpu++) {
		int file = (int)syscall(SYS_perf_event_open, &attr, directory, cpu, -1,
					PERF_FLAG_PID_CGROUP);

		if (file < 0 && errno != ENODEV)
			die("perf_event_open");
		clock->files[cpu] = file < 0 ? 0 : file;
	}
	close(directory);
	return clock;
}

// Since it was first asked for.
static uint64_t perf_clock_us(const char *group)
{
	struct perf_clock *clock = NULL;
	uint64_t sum_ns = 0, value;

	for (int i = 0; i < perf_clocks_count && !clock; i++)
		if (!strcmp(perf_clocks[i].group, group))
			clock = &perf_clocks[i];
	if (!clock)
		clock = perf_clock_open(group);
	for (int cpu = 0; cpu < CLOCK_CPUS_MAX; cpu++) {
		if (!clock->files[cpu])
			continue;
		if (read(clock->files[cpu], &value, sizeof(value)) != sizeof(value))
			die("a perf event");
		sum_ns += value;
	}
	return sum_ns / 1000;
}

#endif
