// SPDX-License-Identifier: MIT OR Apache-2.0
// Ordinary work, by which two schedulers are compared; part of vmtool (vmtool.c), with no load to
// which the schedulers' own ways are known. Each prints what it took.
// clang-format off
//   vmtool hackbench GROUPS LOOPS            20 processes send 100 bytes to 20 others each, LOOPS times; "ms=T"
//   vmtool schbench WORKERS SECONDS WORK_US  a thread wakes WORKERS in turn, which work and wait; "wakes=N p50_us=.. p99_us=.."
//   vmtool build JOBS FILES                  JOBS at a time, FILES: fork, read, compile (2 ms), pipe to a child, exit; "ms=T"
//   vmtool forks PARENTS LANES WORK_US       PARENTS that keep LANES children each, which burn WORK_US and exit, for ever
//   vmtool merge MB                          memory that the kernel's ksmd and khugepaged are for; sleeps
//   vmtool exit MB TIMES GROUP               a process with so much memory goes into the GROUP (a directory) and exits, TIMES over;
//                                            "longest_ms=T" until its parent, who is not in the GROUP, knows
//   vmtool cpu PID...                        each process's CPU time so far, in ns, one a line (also of sched_ext tasks,
//                                            whose /proc/PID/stat and schedstat tell less than they had)
// clang-format on
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "vmwork.h"

#define FAN 20
#define MESSAGE 100
#define WORKERS_MAX 256
#define WAKES_MAX 200000

static pid_t fork_or_die(void)
{
	pid_t pid = fork();

	if (pid < 0)
		die("fork");
	return pid;
}

static void transfer(ssize_t (*act)(int, void *, size_t), int fd)
{
	char message[MESSAGE] = {0};
	size_t done = 0;

	while (done < sizeof(message)) {
		ssize_t moved = act(fd, message + done, sizeof(message) - done);

		if (moved <= 0)
			die("transfer");
		done += (size_t)moved;
	}
}

static ssize_t put(int fd, void *from, size_t size)
{
	return write(fd, from, size);
}

// One group: each sender writes to every receiver; all begin when `gate` is closed.
static void hackbench_group(int loops, int gate)
{
	int pairs[FAN][2];
	char byte;

	for (int i = 0; i < FAN; i++)
		if (socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[i]))
			die("socketpair");
	for (int i = 0; i < FAN; i++) {
		if (!fork_or_die()) {
			for (int n = 0; n < FAN * loops; n++)
				transfer(read, pairs[i][0]);
			exit(0);
		}
	}
	for (int i = 0; i < FAN; i++) {
		if (!fork_or_die()) {
			if (read(gate, &byte, 1) < 0)
				die("gate");
			for (int n = 0; n < loops; n++)
				for (int to = 0; to < FAN; to++)
					transfer(put, pairs[to][1]);
			exit(0);
		}
	}
	for (int i = 0; i < FAN; i++) {
		close(pairs[i][0]);
		close(pairs[i][1]);
	}
}

static void hackbench(int groups, int loops)
{
	int gate[2], status;
	uint64_t begin_ns;

	if (pipe(gate))
		die("pipe");
	for (int i = 0; i < groups; i++) {
		if (!fork_or_die()) {
			close(gate[1]);
			hackbench_group(loops, gate[0]);
			while (wait(&status) > 0)
				if (status)
					exit(1);
			exit(0);
		}
	}
	close(gate[0]);
	// All of them wait at the gate by then.
	sleep(1);
	begin_ns = now_ns();
	close(gate[1]);
	while (wait(&status) > 0)
		if (status)
			die("a worker failed");
	printf("ms=%.3f\n", (double)(now_ns() - begin_ns) / 1e6);
}

struct worker {
	uint32_t word; // 1: there is work
	uint64_t woken_ns;
	uint64_t work_ns;
};

static struct worker workers[WORKERS_MAX];
static uint64_t late_ns[WAKES_MAX];
static uint64_t wakes;

static void *serve(void *own)
{
	struct worker *w = own;

	for (;;) {
		while (!__atomic_load_n(&w->word, __ATOMIC_ACQUIRE))
			syscall(SYS_futex, &w->word, FUTEX_WAIT_PRIVATE, 0, NULL);
		uint64_t at = __atomic_fetch_add(&wakes, 1, __ATOMIC_RELAXED);

		if (at < WAKES_MAX)
			late_ns[at] = now_ns() - w->woken_ns;
		burn_cpu_ns(w->work_ns);
		__atomic_store_n(&w->word, 0, __ATOMIC_RELEASE);
	}
	return NULL;
}

// Every millisecond all workers that have finished are given work; half of the time that they would
// take together is free, so that how late they begin is the scheduler's doing.
static void schbench(int count, double seconds, uint64_t work_ns)
{
	uint64_t end_ns = now_ns() + (uint64_t)(seconds * 1e9);
	uint64_t every_ns = 2 * (uint64_t)count * work_ns;
	struct timespec pause = {.tv_sec = (time_t)(every_ns / 1000000000),
				 .tv_nsec = (long)(every_ns % 1000000000)};
	uint64_t sum_ns = 0;
	pthread_t thread;

	if (count < 1 || count > WORKERS_MAX)
		die("schbench: workers");
	for (int i = 0; i < count; i++) {
		workers[i].work_ns = work_ns;
		if ((errno = pthread_create(&thread, NULL, serve, &workers[i])))
			die("pthread_create");
	}
	while (now_ns() < end_ns) {
		for (int i = 0; i < count; i++) {
			if (__atomic_load_n(&workers[i].word, __ATOMIC_ACQUIRE))
				continue;
			workers[i].woken_ns = now_ns();
			__atomic_store_n(&workers[i].word, 1, __ATOMIC_RELEASE);
			syscall(SYS_futex, &workers[i].word, FUTEX_WAKE_PRIVATE, 1);
		}
		nanosleep(&pause, NULL);
	}
	if (wakes > WAKES_MAX)
		wakes = WAKES_MAX;
	qsort(late_ns, wakes, sizeof(*late_ns), ascending);
	for (uint64_t i = 0; i < wakes; i++)
		sum_ns += late_ns[i];
	printf("wakes=%llu mean_us=%.1f p50_us=%.1f p99_us=%.1f\n", (unsigned long long)wakes,
	       (double)sum_ns / (double)(wakes ? wakes : 1) / 1e3, (double)late_ns[wakes / 2] / 1e3,
	       (double)late_ns[wakes * 99 / 100] / 1e3);
	exit(0);
}

// One file: a compiler that reads and works, and pipes what it made to an assembler that it waits
// for.
static _Noreturn void compile(void)
{
	char text[4096];
	int through[2], status;

	memset(text, 'x', sizeof(text));
	if (pipe(through))
		die("pipe");
	if (!fork_or_die()) {
		close(through[1]);
		while (read(through[0], text, sizeof(text)) > 0)
			burn_cpu_ns(20000);
		exit(0);
	}
	close(through[0]);
	for (int part = 0; part < 20; part++) {
		burn_cpu_ns(100000);
		if (write(through[1], text, sizeof(text)) < 0)
			die("write");
	}
	close(through[1]);
	wait(&status);
	exit(status != 0);
}

static void build(int jobs, int files)
{
	uint64_t begin_ns = now_ns();
	int running = 0, status;

	for (int file = 0; file < files; file++) {
		if (running == jobs) {
			if (wait(&status) < 0 || status)
				die("a compiler failed");
			running--;
		}
		if (!fork_or_die())
			compile();
		running++;
	}
	while (wait(&status) > 0)
		if (status)
			die("a compiler failed");
	printf("ms=%.3f\n", (double)(now_ns() - begin_ns) / 1e6);
}

static void cpu(const char *pid)
{
	struct timespec ts;
	clockid_t clock;

	if ((errno = clock_getcpuclockid(atoi(pid), &clock)) || clock_gettime(clock, &ts))
		die(pid);
	printf("%llu\n",
	       (unsigned long long)ts.tv_sec * 1000000000 + (unsigned long long)ts.tv_nsec);
}

// A child ends, and another takes its place.
static void forks(int parents, int lanes, uint64_t work_ns)
{
	while (--parents > 0 && fork_or_die())
		;
	for (;;) {
		if (lanes-- > 0) {
			if (!fork_or_die()) {
				burn_cpu_ns(work_ns);
				_exit(0);
			}
		} else {
			wait(NULL);
			lanes = 1;
		}
	}
}

// Equal pages, which ksmd merges, in a region of huge pages, which khugepaged goes through.
static _Noreturn void merge(size_t size)
{
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED || madvise(memory, size, MADV_MERGEABLE) ||
	    madvise(memory, size, MADV_HUGEPAGE))
		die("memory");
	memset(memory, 1, size);
	for (;;)
		pause();
}

// From its last act to its parent's knowledge. Giving back much memory takes longer than a slice.
static void exits(size_t size, int times, const char *group)
{
	uint64_t *from_ns =
	    mmap(NULL, sizeof(*from_ns), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t longest_ns = 0;

	if (from_ns == MAP_FAILED)
		die("mmap");
	for (int i = 0; i < times; i++) {
		pid_t child = fork_or_die();
		uint64_t took_ns;

		if (!child) {
			char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
					    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

			if (memory == MAP_FAILED || madvise(memory, size, MADV_NOHUGEPAGE))
				die("memory");
			memset(memory, 1, size);
			if (!put_number(group, "cgroup.procs", 0))
				die(group);
			*from_ns = now_ns();
			_exit(0);
		}
		if (waitpid(child, NULL, 0) != child)
			die("waitpid");
		took_ns = now_ns() - *from_ns;
		longest_ns = took_ns > longest_ns ? took_ns : longest_ns;
	}
	printf("longest_ms=%.1f\n", (double)longest_ns / 1e6);
}

int ordinary(int count, char **words)
{
	if (count == 4 && !strcmp(words[1], "hackbench"))
		hackbench(atoi(words[2]), atoi(words[3]));
	else if (count == 5 && !strcmp(words[1], "schbench"))
		schbench(atoi(words[2]), atof(words[3]), (uint64_t)(atof(words[4]) * 1e3));
	else if (count == 4 && !strcmp(words[1], "build"))
		build(atoi(words[2]), atoi(words[3]));
	else if (count == 5 && !strcmp(words[1], "forks"))
		forks(atoi(words[2]), atoi(words[3]), (uint64_t)(atof(words[4]) * 1e3));
	else if (count == 5 && !strcmp(words[1], "exit"))
		exits((size_t)atol(words[2]) << 20, atoi(words[3]), words[4]);
	else if (count == 3 && !strcmp(words[1], "merge"))
		merge((size_t)atol(words[2]) << 20);
	else if (count >= 3 && !strcmp(words[1], "cpu"))
		for (int i = 2; i < count; i++)
			cpu(words[i]);
	else
		return 0;
	return 1;
}

// A text or a number into a file; it may be refused, as on a busy machine.
int put_text(const char *folder, const char *name, const char *text)
{
	char path[512];
	int file, written;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = open(path, O_WRONLY);
	if (file < 0)
		return 0;
	written = write(file, text, strlen(text)) > 0;
	close(file);
	return written;
}

int put_number(const char *folder, const char *name, long number)
{
	char text[32];

	return snprintf(text, sizeof(text), "%ld", number) > 0 && put_text(folder, name, text);
}
