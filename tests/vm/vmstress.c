// SPDX-License-Identifier: MIT OR Apache-2.0
// Torment for a scheduler, and a heart that tells whose fault a stall is; part of vmtool
// (vmtool.c).
// clang-format off
//   vmtool stress SECONDS WORKERS SEED SCRATCH IDLE GROUP...
//                                            WORKERS of all kinds in the GROUPs (directories) are moved, stopped, traced, killed,
//                                            pinned, reniced and given other policies for SECONDS, while groups come and go below
//                                            SCRATCH, real-time tasks take both CPUs for up to 2 s, limits and weights of the groups change, forks storm, the group IDLE becomes
//                                            idle and is not, and CPU 1 goes and comes; then each worker must get on where it is. Prints what it did; fails if one is lost
// clang-format on
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "vmwork.h"
#include "vmworker.h"

#define WORKERS_MAX 256
// Nobody may take longer to end or to get on than this: nobody waits for more than about 10 s at a
// time, but whoever waits for a lock waits for others' turns, too, and a loaded host runs its guest
// for a tenth of the time.
#define PATIENCE_NS 240000000000ULL

struct worker {
	pthread_mutex_t lock; // whoever torments it
	pid_t pid;
	enum work work;
};

static struct worker workers[WORKERS_MAX];
static volatile uint64_t *turns; // shared with the workers
static int worker_count, group_count;
static char **group_paths;
static const char *scratch, *idle_group;
static volatile int over;
static struct {
	unsigned moves, pins, stops, traces, kills, nices, policies, limits, churns, storms,
	    withheld, plugs;
} did;

static _Noreturn void lost(const char *what, int worker)
{
	printf("lost: %s, worker %d of kind %d, process %d\n", what, worker,
	       worker < 0 ? -1 : (int)workers[worker].work, worker < 0 ? 0 : workers[worker].pid);
	fflush(stdout);
	_exit(1);
}

static void join_group(pid_t pid, const char *folder)
{
	if (put_number(folder, "cgroup.procs", pid))
		did.moves++;
}

static void spawn(int number)
{
	pid_t pid;

	while (calm())
		usleep(10000);
	pid = fork();
	if (pid < 0)
		lost("no more processes", number);
	else if (!pid)
		work(workers[number].work, turns + number);
	workers[number].pid = pid;
	join_group(pid, group_paths[number % group_count]);
}

// ---- torments, each of a worker that is locked ----

static void await_end(int number)
{
	uint64_t end_ns = now_ns() + PATIENCE_NS;

	while (!waitpid(workers[number].pid, NULL, WNOHANG)) {
		if (now_ns() > end_ns)
			lost("killed and not gone", number);
		usleep(2000);
	}
}

static void kill_worker(int number)
{
	kill(workers[number].pid, SIGKILL);
	await_end(number);
	did.kills++;
	spawn(number);
}

// To one CPU, or to both.
static void pin(int number, unsigned *seed)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(rand_r(seed) % 2, &set);
	if (rand_r(seed) % 2)
		CPU_SET(CPU_ISSET(0, &set), &set);
	if (!sched_setaffinity(workers[number].pid, sizeof(set), &set))
		did.pins++;
}

static void stop(int number, unsigned *seed)
{
	kill(workers[number].pid, SIGSTOP);
	usleep((useconds_t)rand_r(seed) % 5000);
	kill(workers[number].pid, SIGCONT);
	did.stops++;
}

// Real-time only for a moment: who has a CPU for himself starves all others by right.
static void police(int number, unsigned *seed)
{
	static const int policies[] = {SCHED_OTHER, SCHED_BATCH, SCHED_IDLE, SCHED_FIFO};
	int policy = policies[rand_r(seed) % 4];
	struct sched_param param = {.sched_priority = policy == SCHED_FIFO};

	if (policy == SCHED_IDLE && (fair() || forks(workers[number].work)))
		return;
	if (sched_setscheduler(workers[number].pid, policy | SCHED_RESET_ON_FORK, &param))
		return;
	did.policies++;
	if (policy != SCHED_FIFO)
		return;
	usleep(2000);
	param.sched_priority = 0;
	sched_setscheduler(workers[number].pid, SCHED_OTHER, &param);
}

static void trace(int number)
{
	uint64_t end_ns = now_ns() + PATIENCE_NS;
	pid_t pid = workers[number].pid;

	if (ptrace(PTRACE_SEIZE, pid, 0, 0) || ptrace(PTRACE_INTERRUPT, pid, 0, 0))
		return;
	while (!waitpid(pid, NULL, WNOHANG | __WALL)) {
		if (now_ns() > end_ns)
			lost("it does not stop for its tracer", number);
		usleep(1000);
	}
	ptrace(PTRACE_DETACH, pid, 0, 0);
	did.traces++;
}

static void torment(int number, unsigned *seed)
{
	unsigned what = rand_r(seed) % 7;

	if ((what == 3 || what == 5) && calm())
		what = 0;
	pthread_mutex_lock(&workers[number].lock);
	switch (what) {
	case 0:
		join_group(workers[number].pid,
			   !forks(workers[number].work) && rand_r(seed) % 8 == 0
			       ? idle_group
			       : group_paths[rand_r(seed) % group_count]);
		break;
	case 1:
		pin(number, seed);
		break;
	case 2:
		stop(number, seed);
		break;
	case 3:
		kill_worker(number);
		break;
	case 4:
		if (!setpriority(PRIO_PROCESS, (id_t)workers[number].pid, rand_r(seed) % 21 - 10))
			did.nices++;
		break;
	case 5:
		police(number, seed);
		break;
	default:
		trace(number);
		break;
	}
	pthread_mutex_unlock(&workers[number].lock);
}

// ---- the machine's ----

// The first group's limit and all groups' weights. No tighter, nor nice levels wider: workers fork
// and move under locks of the kernel's that all others wait for, with what share they have (so none
// that forks is of the idle class, where its turn takes an hour by right); and a host
// that stands for half a second in the midst of a run is a debt of as much.
static void legislate(unsigned *seed)
{
	static const char *const limits[] = {"max 100000", "10000 100000", "20000 100000",
					     "50000 1000000", "5000 10000"};
	const char *folder = group_paths[rand_r(seed) % group_count];

	put_text(group_paths[0], "cpu.max", limits[rand_r(seed) % 5]);
	put_number(folder, "cpu.weight", 30 + rand_r(seed) % 300);
	put_number(idle_group, "cpu.idle", rand_r(seed) % 2 && !fair());
	did.limits++;
}

static void churn(unsigned *seed)
{
	char path[256];
	int fleeting = rand_r(seed) % 2;
	pid_t pid;

	snprintf(path, sizeof(path), "%s/churn%u", scratch, did.churns++);
	if (mkdir(path, 0755)) {
		perror(path);
		lost("its group cannot be made", -1);
	}
	put_text(path, "cpu.max", "2000 10000");
	pid = fork();
	if (!pid) {
		put_number(path, "cgroup.procs", getpid());
		burn_cpu_ns(fleeting ? 100000 : 3000000);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	for (int turn = 0; rmdir(path); turn++) {
		if (turn == 6000)
			lost("its group stays", -1);
		usleep(10000);
	}
}

static void storm(void)
{
	pid_t pids[40];

	for (int i = 0; i < 40; i++) {
		pids[i] = fork();
		if (!pids[i]) {
			put_number(group_paths[i % group_count], "cgroup.procs", getpid());
			burn_cpu_ns(100000);
			_exit(0);
		}
	}
	for (int i = 0; i < 40; i++)
		waitpid(pids[i], NULL, 0);
	did.storms++;
}

// Real-time tasks take both CPUs, for less than the scheduler's patience with them (3 s).
static void withhold(unsigned *seed)
{
	struct sched_param param = {.sched_priority = 1};
	uint64_t end_ns = now_ns() + 100000000ULL + (uint64_t)rand_r(seed) % 1900 * 1000000;
	pid_t pids[2];

	for (int i = 0; i < 2; i++) {
		pids[i] = fork();
		if (pids[i])
			continue;
		if (sched_setscheduler(0, SCHED_FIFO, &param))
			_exit(1);
		while (now_ns() < end_ns)
			burn_cpu_ns(100000);
		_exit(0);
	}
	for (int i = 0; i < 2; i++)
		waitpid(pids[i], NULL, 0);
	did.withheld++;
}

static void *weather(void *seed)
{
	unsigned own = *(unsigned *)seed + 1;

	while (!over) {
		legislate(&own);
		churn(&own);
		if (rand_r(&own) % 8 == 0 && !calm())
			storm();
		if (rand_r(&own) % 6 == 0 && !calm())
			withhold(&own);
		usleep((useconds_t)rand_r(&own) % 20000);
	}
	return NULL;
}

static void *plug(void *unused)
{
	const char *folder = "/sys/devices/system/cpu/cpu1";

	while (!over) {
		usleep(1500000);
		if (fair())
			continue;
		close(creat("/tmp/plugging", 0600));
		if (put_text(folder, "online", "0"))
			did.plugs++;
		usleep(500000);
		put_text(folder, "online", "1");
		unlink("/tmp/plugging");
	}
	return unused;
}

// Whoever is to end what a real-time worker does must come before it.
static void above_all(int priority)
{
	struct sched_param param = {.sched_priority = priority};

	if (sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &param))
		lost("no real-time class", -1);
}

// Terms that let everybody get on. Under others a worker may by right take minutes for its next
// turn: a forker's costs 20 ms here, which is 20 s of a quota of 1 ms in a second.
static void relent(void)
{
	put_text(group_paths[0], "cpu.max", "50000 100000");
	put_text(idle_group, "cpu.idle", "0");
	for (int i = 0; i < group_count; i++) {
		put_text(group_paths[i], "cpu.weight", "100");
	}
}

// Everything is as it was, but for groups: each gets on, where it is, within the time that nobody
// may wait. Who has got on rests: beside a main that takes all, side work has a hundredth of the
// machine by right, and a forker's turn takes it minutes.
static void all_get_on(void)
{
	uint64_t before[WORKERS_MAX], end_ns = now_ns() + PATIENCE_NS;
	struct sched_param param = {0};
	int left = worker_count;
	char rests[WORKERS_MAX] = {0};
	cpu_set_t set;

	relent();
	CPU_ZERO(&set);
	CPU_SET(0, &set);
	CPU_SET(1, &set);
	for (int i = 0; i < worker_count; i++) {
		sched_setscheduler(workers[i].pid, SCHED_OTHER, &param);
		sched_setaffinity(workers[i].pid, sizeof(set), &set);
		kill(workers[i].pid, SIGCONT);
		before[i] = turns[i];
	}
	while (left > 0) {
		usleep(10000);
		left = 0;
		for (int i = 0; i < worker_count; i++) {
			if (rests[i])
				continue;
			if (turns[i] != before[i]) {
				rests[i] = !kill(workers[i].pid, SIGSTOP);
				continue;
			}
			left++;
			if (waitpid(workers[i].pid, NULL, WNOHANG))
				lost("it ended by itself", i);
			if (now_ns() > end_ns)
				lost("it does not get on", i);
		}
	}
	for (int i = 0; i < worker_count; i++) {
		kill(workers[i].pid, SIGKILL);
		await_end(i);
	}
}

static void stress(int count, char **words)
{
	uint64_t end_ns = now_ns() + (uint64_t)(atof(words[0]) * 1e9);
	unsigned seed = (unsigned)atoi(words[2]);
	pthread_t others[2];

	worker_count = atoi(words[1]);
	worker_count = worker_count > WORKERS_MAX ? WORKERS_MAX : worker_count;
	scratch = words[3];
	idle_group = words[4];
	group_paths = words + 5;
	group_count = count - 5;
	turns = mmap(NULL, sizeof(*turns) * WORKERS_MAX, PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (turns == MAP_FAILED)
		lost("no memory", -1);
	above_all(20);
	for (int i = 0; i < worker_count; i++) {
		pthread_mutex_init(&workers[i].lock, NULL);
		workers[i].work = (enum work)(i / group_count % WORKS);
		spawn(i);
	}
	puts("spawned");
	fflush(stdout);
	if (pthread_create(&others[0], NULL, weather, &seed) ||
	    pthread_create(&others[1], NULL, plug, NULL))
		lost("no threads", -1);
	while (now_ns() < end_ns) {
		torment(rand_r(&seed) % worker_count, &seed);
		usleep((useconds_t)rand_r(&seed) % 10000);
	}
	over = 1;
	pthread_join(others[0], NULL);
	pthread_join(others[1], NULL);
	all_get_on();
	printf("workers=%d moves=%u pins=%u stops=%u traces=%u kills=%u nices=%u policies=%u "
	       "limits=%u churns=%u storms=%u withheld=%u plugs=%u\n",
	       worker_count, did.moves, did.pins, did.stops, did.traces, did.kills, did.nices,
	       did.policies, did.limits, did.churns, did.storms, did.withheld, did.plugs);
}

int torments(int count, char **words)
{
	if (count < 8 || strcmp(words[1], "stress"))
		return 0;
	stress(count - 2, words + 2);
	return 1;
}
