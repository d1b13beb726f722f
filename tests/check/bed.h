// SPDX-License-Identifier: MIT OR Apache-2.0
// kernelbed: runs exported scenarios on the kernel that it finds itself on, the host's or the
// emulated machine's, and prints what came of them. It shares no code with Tidegate and none
// with the simulator.
#ifndef TIDEGATE_CHECK_BED_H
#define TIDEGATE_CHECK_BED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define GROUPS_MAX 8
#define TASKS_MAX 8
#define READS_MAX 8
#define PROCESSES_MAX 512
#define SAMPLES_MAX 32768
#define NAME_MAX_BYTES 32
#define GATE_MAX_BYTES 128

enum bed_kind { KIND_HOG, KIND_SLEEPER, KIND_MESSAGES };
enum bed_what {
	READ_SHARE,
	READ_PERIODS,
	READ_THROTTLED,
	READ_BURSTS,
	READ_LATENCY,
	READ_DONE,
	READ_DURATION
};

struct bed_group {
	char name[NAME_MAX_BYTES];
	int parent; // index, or -1 for the bed's own group
	long weight, idle, quota_us, period_us, burst_us;
	bool inner;		   // has children, so holds no task on version 2
	char gate[GATE_MAX_BYTES]; // what it asks of the ext engine; empty: nothing
};

struct bed_task {
	char name[NAME_MAX_BYTES];
	int group;
	enum bed_kind kind;
	long policy, nice, slice_ns, cpu_first, cpu_end;
	long count;				// of hogs, or of teams
	long period_ns, run_ns, then_ns, at_ns; // of a sleeper
	long pairs, loops;			// of a team
	int first_process, processes;		// of the run
};

struct bed_read {
	enum bed_what what;
	char name[NAME_MAX_BYTES];
	int group, task; // index of the one or of the other, which is -1
};

struct bed_scenario {
	char name[NAME_MAX_BYTES];
	long cpus, warm_ns, span_ns, silo_slice_us;
	long rewrite_ns; // 0: never
	struct bed_group groups[GROUPS_MAX];
	struct bed_task tasks[TASKS_MAX];
	struct bed_read reads[READS_MAX];
	int group_count, task_count, read_count;
};

// What the tasks' processes and the controller share; mapped before the first fork.
struct bed_shared {
	volatile uint64_t start_ns, count_from_ns;
	struct {
		volatile uint64_t finished_ns;
		volatile uint32_t finished, samples;
		uint32_t latency_ns[SAMPLES_MAX], done_ns[SAMPLES_MAX];
	} task[TASKS_MAX];
	// What each process has burnt, by its own reckoning.
	volatile uint64_t burnt_ns[PROCESSES_MAX];
};

// What a group's files say.
struct bed_stat {
	uint64_t usage_ns, periods, throttled, bursts;
};

// scenario.c: the next scenario of `file`; false at its end. Exits with a message on what it cannot
// read.
bool bed_next(struct bed_scenario *scenario, const char *path);

// groups.c: control groups of either version.
void groups_find(void);
void groups_leave(void);
void groups_make(const struct bed_scenario *scenario);
// The gates of a scenario's groups, for `scheduler --gate`, a line each.
void groups_print_gates(const struct bed_scenario *scenario);
void groups_remove(const struct bed_scenario *scenario);
void groups_enter(const struct bed_scenario *scenario, int group);
void groups_write_quotas(const struct bed_scenario *scenario);
struct bed_stat groups_stat(const struct bed_scenario *scenario, int group);
const char *groups_version(void);

// tasks.c: the processes of a scenario.
extern struct bed_shared *shared;
void tasks_map(void);
void tasks_start(struct bed_scenario *scenario);
void tasks_kill(void);
bool tasks_over(const struct bed_task *task, int index);
uint64_t tasks_usage_ns(const struct bed_task *task);
uint64_t tasks_burnt_ns(const struct bed_task *task);

// costs.c: what the kernel's own paths cost on this machine.
// `side`: under the ext engine, a scenario whose first group is side work.
void costs_print(const struct bed_scenario *side);

uint64_t clock_now_ns(void);
void sleep_until_ns(uint64_t when_ns);
void burn_a_little(void);
void confine_to_cpu_range(long first, long end);
uint64_t slice_default_ns(void);
_Noreturn void die(const char *what, const char *why);
// One figure, in the form that the bed of virtual machines reads (lab/vm/src/protocol.rs).
void measure(const char *scenario, const char *what, const char *of, double value,
	     const char *unit);

#endif
