// SPDX-License-Identifier: MIT OR Apache-2.0
// What the kernel's own paths cost on this machine, as the simulator's constants want them. Meant
// for the precise machine, where they are counts of instructions and repeat exactly.
#define _GNU_SOURCE
#include "bed.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BATCH 100 // less than a pipe holds, so that neither side waits
#define BATCHES 50
#define TURNS 2000
#define SLEEPS 500
#define LONG 1500
#define ROUNDS 5

static char message[100];

static void pass(int from, int to, bool first)
{
	for (int i = 0; i < TURNS; i++) {
		if (!first && read(from, message, sizeof(message)) != sizeof(message))
			_exit(1);
		if (write(to, message, sizeof(message)) != sizeof(message))
			_exit(1);
		if (first && read(from, message, sizeof(message)) != sizeof(message))
			_exit(1);
	}
}

static double least(double a, double b)
{
	return a < b ? a : b;
}

static void messages(double *send_ns, double *receive_ns)
{
	uint64_t sending_ns = 0, receiving_ns = 0;
	int ends[2];

	if (pipe(ends))
		die("pipe", strerror(errno));
	for (int batch = 0; batch < BATCHES; batch++) {
		uint64_t at_ns = clock_now_ns();

		for (int i = 0; i < BATCH; i++)
			if (write(ends[1], message, sizeof(message)) != sizeof(message))
				die("write", strerror(errno));
		sending_ns += clock_now_ns() - at_ns;
		at_ns = clock_now_ns();
		for (int i = 0; i < BATCH; i++)
			if (read(ends[0], message, sizeof(message)) != sizeof(message))
				die("read", strerror(errno));
		receiving_ns += clock_now_ns() - at_ns;
	}
	close(ends[0]);
	close(ends[1]);
	*send_ns = (double)sending_ns / (BATCH * BATCHES);
	*receive_ns = (double)receiving_ns / (BATCH * BATCHES);
}

static double yield_alone_ns(void)
{
	uint64_t at_ns = clock_now_ns();

	for (int i = 0; i < TURNS; i++)
		sched_yield();
	return (double)(clock_now_ns() - at_ns) / TURNS;
}

static uint64_t switches(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (uint64_t)(usage.ru_nvcsw + usage.ru_nivcsw);
}

// What a switch costs beyond the yield that led to it: not every yield leads to one, so both are
// counted.
static double switch_ns(double yield_ns)
{
	volatile uint32_t *others = &shared->task[0].samples;
	uint64_t at_ns = clock_now_ns(), mine = switches(), theirs = *others;

	for (int i = 0; i < 10 * TURNS; i++)
		sched_yield();
	at_ns = clock_now_ns() - at_ns;
	mine = switches() - mine;
	theirs = *others - theirs;
	if (!mine)
		die("costs", "no yield led to a switch");
	return ((double)at_ns - (10.0 * TURNS + (double)theirs) * yield_ns) / (2.0 * (double)mine);
}

static pid_t yielding(int policy)
{
	struct sched_param none = {0};
	pid_t pid = fork();

	if (pid < 0)
		die("fork", strerror(errno));
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		sched_setscheduler(0, policy, &none);
		for (;;) {
			shared->task[0].samples++;
			sched_yield();
		}
	}
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

// A yield to oneself though another waits: the ext engine, which has no callback for it, goes
// through its queues and mostly stays. The other one is of the idle class, so that it hardly runs.
static double yield_beside_ns(void)
{
	volatile uint32_t *others = &shared->task[0].samples;
	pid_t other = yielding(SCHED_IDLE);
	uint64_t at_ns;
	uint32_t theirs;

	sleep_until_ns(clock_now_ns() + 20000000);
	theirs = *others;
	at_ns = clock_now_ns();
	for (int i = 0; i < TURNS; i++)
		sched_yield();
	at_ns = clock_now_ns() - at_ns;
	theirs = *others - theirs;
	end(other);
	return (double)at_ns / (TURNS + (double)theirs);
}

// There and back between two processes, half of it: one message sent, one task woken, one switched
// to, one received.
static double passes_ns(void)
{
	int there[2], back[2];
	uint64_t at_ns;
	pid_t pid;

	if (pipe(there) || pipe(back))
		die("pipe", strerror(errno));
	pid = fork();
	if (pid < 0)
		die("fork", strerror(errno));
	if (!pid) {
		pass(there[0], back[1], false);
		_exit(0);
	}
	at_ns = clock_now_ns();
	pass(back[0], there[1], true);
	at_ns = clock_now_ns() - at_ns;
	waitpid(pid, NULL, 0);
	return (double)at_ns / (2.0 * TURNS);
}

static int ascending(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

// From the moment asked for to the first instruction after the sleep: the timer's interrupt, the
// wakeup, the switch and the way back; on an idle CPU also its way out of idle.
static double timer_ns(void)
{
	static uint64_t late_ns[SLEEPS];
	uint64_t at_ns = clock_now_ns();

	prctl(PR_SET_TIMERSLACK, 1);
	for (int i = 0; i < SLEEPS; i++) {
		at_ns += 1700000;
		sleep_until_ns(at_ns);
		late_ns[i] = clock_now_ns() - at_ns;
	}
	qsort(late_ns, SLEEPS, sizeof(late_ns[0]), ascending);
	return (double)late_ns[SLEEPS / 2];
}

// Burns wherever nobody else wants the CPU, so that the CPU is never idle.
static pid_t filling(void)
{
	struct sched_param none = {0};
	pid_t pid = fork();

	if (pid < 0)
		die("fork", strerror(errno));
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		sched_setscheduler(0, SCHED_IDLE, &none);
		for (;;)
			burn_a_little();
	}
	return pid;
}

static uint64_t blocks_ns(int blocks)
{
	uint64_t at_ns = clock_now_ns();

	for (int i = 0; i < blocks; i++)
		burn_a_little();
	return clock_now_ns() - at_ns;
}

// What a tick takes from the task it interrupts: a long burn beside the same in pieces that are too
// short for one.
static double tick_cost_ns(void)
{
	uint64_t best_ns = UINT64_MAX, long_ns, ticks;
	struct timespec tick;

	for (int i = 0; i < 200; i++) {
		uint64_t ns = blocks_ns(100);

		if (ns < best_ns)
			best_ns = ns;
	}
	long_ns = blocks_ns(100 * LONG);
	clock_getres(CLOCK_MONOTONIC_COARSE, &tick);
	ticks = long_ns / (uint64_t)tick.tv_nsec;
	if (!ticks || long_ns < best_ns * LONG)
		return 0;
	return (double)(long_ns - best_ns * LONG) / (double)ticks;
}

// What a look of the ext engine's ledger takes from the task it interrupts, while side work waits:
// of the gaps in a burn of half a second four in five are such looks, and the rest are ticks.
static double tide_ns(void)
{
	static uint64_t gaps_ns[2000];
	uint64_t least_ns = UINT64_MAX, from_ns, last_ns;
	int count = 0;

	for (int i = 0; i < 100; i++) {
		from_ns = clock_now_ns();
		burn_a_little();
		last_ns = clock_now_ns() - from_ns;
		if (last_ns < least_ns)
			least_ns = last_ns;
	}
	last_ns = clock_now_ns();
	from_ns = last_ns;
	while (last_ns - from_ns < 500000000 && count < 2000) {
		uint64_t now_ns;

		burn_a_little();
		now_ns = clock_now_ns();
		if (now_ns - last_ns > least_ns + 2000)
			gaps_ns[count++] = now_ns - last_ns - least_ns;
		last_ns = now_ns;
	}
	if (!count)
		die("costs", "the ledger was never looked at");
	qsort(gaps_ns, (size_t)count, sizeof(gaps_ns[0]), ascending);
	return (double)gaps_ns[count / 2];
}

// A process of side work that would take all it gets, in the group of scenario "tide".
static double tide_beside_ns(const struct bed_scenario *side)
{
	double cost_ns;
	pid_t pid = fork();

	if (pid < 0)
		die("fork", strerror(errno));
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		groups_enter(side, 0);
		for (;;)
			burn_a_little();
	}
	sleep_until_ns(clock_now_ns() + 300000000);
	cost_ns = tide_ns();
	end(pid);
	return cost_ns;
}

void costs_print(const struct bed_scenario *side)
{
	bool of_ext = side;
	double send_ns = 1e9, receive_ns = 1e9, yield_ns = 1e9, switching_ns = 1e9,
	       passing_ns = 1e9;
	double staying_ns, idle_ns, busy_ns, tick_ns = 1e9;
	pid_t other;

	confine_to_cpu_range(0, 1);
	setpriority(PRIO_PROCESS, 0, -20);
	// The least of some rounds each: what else the machine does only ever adds.
	for (int round = 0; round < ROUNDS; round++) {
		double sent_ns, received_ns;

		messages(&sent_ns, &received_ns);
		send_ns = least(send_ns, sent_ns);
		receive_ns = least(receive_ns, received_ns);
		yield_ns = least(yield_ns, yield_alone_ns());
		passing_ns = least(passing_ns, passes_ns());
		tick_ns = least(tick_ns, tick_cost_ns());
	}
	staying_ns = of_ext ? yield_beside_ns() : yield_ns;
	shared->task[0].samples = 0;
	other = yielding(SCHED_OTHER);
	while (!shared->task[0].samples)
		sched_yield();
	for (int round = 0; round < ROUNDS; round++)
		switching_ns = least(switching_ns, switch_ns(staying_ns));
	end(other);
	idle_ns = timer_ns();
	other = filling();
	busy_ns = timer_ns();
	end(other);
	measure("costs", "send", "", send_ns, "ns");
	measure("costs", "receive", "", receive_ns, "ns");
	measure("costs", "yield", "", yield_ns, "ns");
	measure("costs", "pass", "", passing_ns, "ns");
	measure("costs", "switch", "", switching_ns, "ns");
	measure("costs", "timer", "", busy_ns - switching_ns, "ns");
	measure("costs", "idle_exit", "", idle_ns - busy_ns, "ns");
	measure("costs", "tick", "", tick_ns, "ns");
	if (side)
		measure("costs", "tide", "", tide_beside_ns(side), "ns");
	// What blocks on one side and wakes on the other, beyond the calls and the switch.
	measure("costs", "wakeup", "", passing_ns - send_ns - receive_ns - switching_ns, "ns");
}
