// SPDX-License-Identifier: MIT OR Apache-2.0
// The processes of a scenario: hogs, sleepers and message teams.
//
// Burning is done in runs of no-operations: in the emulated machine each counts as one nanosecond
// of virtual time and costs the emulator next to nothing.
#define _GNU_SOURCE
#include "bed.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MESSAGE_BYTES 100
// More than an interrupt takes, less than a switch to another task and back.
#define GAP_NS 8000

// As the kernel has it; C libraries differ in whether they do.
struct attributes {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime_ns, deadline_ns, period_ns;
	uint32_t util_min, util_max;
};

struct bed_shared *shared;
static pid_t processes[PROCESSES_MAX];
static int process_count;
static int ready[2], go[2];

uint64_t clock_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void sleep_until_ns(uint64_t when_ns)
{
	struct timespec t = {
	    .tv_sec = (time_t)(when_ns / 1000000000u),
	    .tv_nsec = (long)(when_ns % 1000000000u),
	};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

// About a microsecond at the emulated machine's one instruction a nanosecond.
void burn_a_little(void)
{
	__asm__ volatile(".rept 1000\n\tnop\n\t.endr");
}

// Takes that much CPU time. The task's own clock would tell how much it took, but to read it is a
// call that charges the task and looks whether its slice is over, which a kernel otherwise does at
// ticks: the reader would change what it reads. So the wall's clock is read (no call), and a gap in
// which others must have run does not count.
static uint64_t burn_for_ns(uint64_t cpu_ns)
{
	uint64_t last_ns = clock_now_ns(), done_ns = 0;

	while (done_ns < cpu_ns) {
		uint64_t now_ns;

		burn_a_little();
		now_ns = clock_now_ns();
		if (now_ns - last_ns < GAP_NS)
			done_ns += now_ns - last_ns;
		last_ns = now_ns;
	}
	return done_ns;
}

void confine_to_cpu_range(long first, long end)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	for (long cpu = first; cpu < end; cpu++)
		CPU_SET((size_t)cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		die("confine a task to CPUs", strerror(errno));
}

static struct attributes attributes_now(void)
{
	struct attributes now = {.size = sizeof(now)};

	if (syscall(SYS_sched_getattr, 0, &now, sizeof(now), 0))
		die("sched_getattr", strerror(errno));
	return now;
}

uint64_t slice_default_ns(void)
{
	return attributes_now().runtime_ns;
}

static void take_attributes(const struct bed_task *task)
{
	struct attributes wanted = {
	    .size = sizeof(wanted),
	    .policy = (uint32_t)task->policy,
	    .nice = (int32_t)task->nice,
	    .runtime_ns = (uint64_t)task->slice_ns,
	};

	confine_to_cpu_range(task->cpu_first, task->cpu_end);
	if (syscall(SYS_sched_setattr, 0, &wanted, 0))
		die("sched_setattr", strerror(errno));
	if (task->slice_ns && attributes_now().runtime_ns != (uint64_t)task->slice_ns)
		die("sched_setattr", "this kernel takes no slice (6.12 does)");
}

// What a turn of a hog takes where nothing comes between.
static uint64_t turn_ns;

static void measure_turn(void)
{
	turn_ns = UINT64_MAX;
	for (int i = 0; i < 1000; i++) {
		uint64_t from_ns = clock_now_ns(), took_ns;

		for (int turn = 0; turn < 16; turn++)
			burn_a_little();
		took_ns = (clock_now_ns() - from_ns) / 16;
		if (took_ns < turn_ns)
			turn_ns = took_ns;
	}
}

static void hog(int process)
{
	for (;;) {
		burn_a_little();
		shared->burnt_ns[process] += turn_ns;
	}
}

static void sleeper(const struct bed_task *task, int index, int process)
{
	uint64_t at_ns = shared->start_ns;
	uint32_t count;
	long run_ns;
	bool woken;

	// Without this a timer may be 50 µs late by intent.
	prctl(PR_SET_TIMERSLACK, 1);
	for (;;) {
		uint64_t woken_ns;

		at_ns += (uint64_t)task->period_ns;
		// One that has fallen behind does not wait, so it has no wakeup to record.
		woken = clock_now_ns() < at_ns;
		if (woken) {
			sleep_until_ns(at_ns);
			woken_ns = clock_now_ns();
			count = shared->task[index].samples;
			if (at_ns >= shared->count_from_ns && count < SAMPLES_MAX) {
				shared->task[index].latency_ns[count] =
				    (uint32_t)(woken_ns - at_ns);
			}
		}
		run_ns = task->run_ns;
		if (at_ns >= shared->start_ns + (uint64_t)task->at_ns)
			run_ns = task->then_ns;
		shared->burnt_ns[process] += burn_for_ns((uint64_t)run_ns);
		count = shared->task[index].samples;
		if (woken && at_ns >= shared->count_from_ns && count < SAMPLES_MAX) {
			shared->task[index].done_ns[count] = (uint32_t)(clock_now_ns() - at_ns);
			shared->task[index].samples = count + 1;
		}
	}
}

static void finish(int index)
{
	uint64_t now_ns = clock_now_ns();
	uint64_t last_ns = __atomic_load_n(&shared->task[index].finished_ns, __ATOMIC_SEQ_CST);

	while (last_ns < now_ns &&
	       !__atomic_compare_exchange_n(&shared->task[index].finished_ns, &last_ns, now_ns,
					    false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
	__atomic_fetch_add(&shared->task[index].finished, 1, __ATOMIC_SEQ_CST);
	// An exit costs far more than a message; it is not what is measured.
	for (;;)
		pause();
}

static void sender(const struct bed_task *task, int index, int (*pipes)[2])
{
	char message[MESSAGE_BYTES] = {0};

	for (long loop = 0; loop < task->loops; loop++)
		for (long to = 0; to < task->pairs; to++)
			if (write(pipes[to][1], message, sizeof(message)) != MESSAGE_BYTES)
				die("send a message", strerror(errno));
	finish(index);
}

static void receiver(const struct bed_task *task, int index, int from)
{
	char message[MESSAGE_BYTES];

	for (long left = task->pairs * task->loops; left; left--)
		if (read(from, message, sizeof(message)) != MESSAGE_BYTES)
			die("receive a message", strerror(errno));
	finish(index);
}

// One process; in it, waits until all are ready and gives back true.
static bool forked(const struct bed_scenario *s, const struct bed_task *task)
{
	char byte = 0;
	pid_t pid = fork();

	if (pid < 0)
		die("fork", strerror(errno));
	if (pid > 0) {
		if (process_count == PROCESSES_MAX)
			die("fork", "too many processes in a scenario");
		processes[process_count++] = pid;
		return false;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGTERM, SIG_DFL);
	signal(SIGINT, SIG_DFL);
	groups_enter(s, task->group);
	take_attributes(task);
	close(go[1]);
	if (write(ready[1], &byte, 1) != 1 || read(go[0], &byte, 1) != 0)
		_exit(1);
	return true;
}

static void start_team(const struct bed_scenario *s, const struct bed_task *task, int index)
{
	int pipes[64][2];

	if (task->pairs > 64)
		die(task->name, "at most 64 pairs");
	for (long i = 0; i < task->pairs; i++)
		if (pipe(pipes[i]))
			die("pipe", strerror(errno));
	for (long i = 0; i < task->pairs; i++) {
		if (forked(s, task))
			receiver(task, index, pipes[i][0]);
		if (forked(s, task))
			sender(task, index, pipes);
	}
	for (long i = 0; i < task->pairs; i++) {
		close(pipes[i][0]);
		close(pipes[i][1]);
	}
}

static void start_one(const struct bed_scenario *s, const struct bed_task *task, int index)
{
	switch (task->kind) {
	case KIND_HOG:
		if (forked(s, task))
			hog(process_count);
		break;
	case KIND_SLEEPER:
		if (forked(s, task))
			sleeper(task, index, process_count);
		break;
	case KIND_MESSAGES:
		start_team(s, task, index);
		break;
	}
}

void tasks_map(void)
{
	void *at =
	    mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		die("map shared memory", strerror(errno));
	shared = at;
}

void tasks_start(struct bed_scenario *s)
{
	char byte;

	process_count = 0;
	if (!turn_ns)
		measure_turn();
	memset((void *)shared->burnt_ns, 0, sizeof(shared->burnt_ns));
	if (pipe(ready) || pipe(go))
		die("pipe", strerror(errno));
	for (int i = 0; i < s->task_count; i++) {
		struct bed_task *task = &s->tasks[i];

		shared->task[i].finished_ns = 0;
		shared->task[i].finished = 0;
		shared->task[i].samples = 0;
		task->first_process = process_count;
		for (long copy = 0; copy < task->count; copy++)
			start_one(s, task, i);
		task->processes = process_count - task->first_process;
	}
	close(ready[1]);
	for (int i = 0; i < process_count; i++)
		if (read(ready[0], &byte, 1) != 1)
			die(s->name, "a task ended before it began");
	shared->start_ns = clock_now_ns();
	shared->count_from_ns = shared->start_ns + (uint64_t)s->warm_ns;
	close(go[1]);
	close(go[0]);
	close(ready[0]);
}

void tasks_kill(void)
{
	for (int i = 0; i < process_count; i++)
		if (processes[i] > 0)
			kill(processes[i], SIGKILL);
	for (int i = 0; i < process_count; i++)
		if (processes[i] > 0)
			waitpid(processes[i], NULL, 0);
	process_count = 0;
}

bool tasks_over(const struct bed_task *task, int index)
{
	for (int i = task->first_process; i < task->first_process + task->processes; i++) {
		int status;

		if (processes[i] && waitpid(processes[i], &status, WNOHANG) == processes[i]) {
			processes[i] = 0;
			die(task->name, "a task failed");
		}
	}
	return (int)shared->task[index].finished == task->processes;
}

uint64_t tasks_burnt_ns(const struct bed_task *task)
{
	uint64_t sum_ns = 0;

	for (int i = task->first_process; i < task->first_process + task->processes; i++)
		sum_ns += shared->burnt_ns[i];
	return sum_ns;
}

uint64_t tasks_usage_ns(const struct bed_task *task)
{
	uint64_t sum_ns = 0;

	for (int i = task->first_process; i < task->first_process + task->processes; i++) {
		struct timespec t;
		clockid_t clock;

		if (!processes[i] || clock_getcpuclockid(processes[i], &clock) ||
		    clock_gettime(clock, &t))
			continue;
		sum_ns += (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
	}
	return sum_ns;
}
