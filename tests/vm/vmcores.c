// SPDX-License-Identifier: MIT OR Apache-2.0
// Who runs beside whom; part of vmtool (vmtool.c).
// clang-format off
//   vmtool places FILE N BUSY_US PERIOD_US   N threads that work BUSY_US of each PERIOD_US (0: always) and show in FILE
//                                            where they run
//   vmtool cores SECONDS EVERY_US FILE...    looks at that, and prints for each FILE "NAME.running=R NAME.shared=S NAME.cores=C
//                                            NAME.moved=M NAME.late_us=L": the mean number of its threads that ran, of these the
//                                            percentage with another thread of any file on their core, the mean number of cores
//                                            that they were on, the percentage of their wakeups that went to another cache, and
//                                            how late those were at the mean
// clang-format on
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "vmwork.h"

#define THREADS_MAX 32
#define FILES_MAX 4
#define CPUS_MAX 64
// A thread that has shown itself so lately runs: eight CPUs have a round of 80 us of virtual time,
// and a turn of work is 10 us.
#define FRESH_NS 300000

struct place {
	volatile uint64_t when_ns; // 0: it sleeps
	volatile uint32_t cpu;
	volatile uint64_t wakes, moves, late_ns;
};

struct worker {
	struct place *place;
	uint64_t busy_ns, period_ns, phase_ns;
};

static uint32_t core_of[CPUS_MAX], cache_of[CPUS_MAX];

// The first of the CPUs that such a file lists; -1: that CPU is not on line.
static int first_in(const char *what, int cpu)
{
	char path[128];
	int first = -1;
	FILE *file;

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/%s", cpu, what);
	file = fopen(path, "r");
	if (file && fscanf(file, "%d", &first) != 1)
		first = -1;
	if (file)
		fclose(file);
	return first;
}

static void learn(void)
{
	for (int cpu = 0; cpu < CPUS_MAX; cpu++) {
		core_of[cpu] = (uint32_t)first_in("topology/thread_siblings_list", cpu);
		cache_of[cpu] = (uint32_t)first_in("cache/index3/shared_cpu_list", cpu);
	}
}

static struct place *shown(const char *path, int flags)
{
	int file = open(path, flags, 0644);
	void *map = MAP_FAILED;

	if (file >= 0 && (!(flags & O_CREAT) || !ftruncate(file, 4096)))
		map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (map == MAP_FAILED)
		die(path);
	close(file);
	return map;
}

static void *work(void *from)
{
	struct worker *w = from;
	struct place *p = w->place;
	uint64_t due_ns = now_ns() + w->phase_ns;

	for (;;) {
		uint32_t was = p->cpu % CPUS_MAX;

		if (w->period_ns) {
			p->when_ns = 0;
			sleep_until_ns(due_ns);
			p->late_ns += now_ns() - due_ns;
			p->wakes++;
			p->cpu = (uint32_t)sched_getcpu();
			p->moves += cache_of[p->cpu % CPUS_MAX] != cache_of[was];
		}
		for (uint64_t did_ns = 0; did_ns < w->busy_ns; did_ns += 10000) {
			burn_cpu_ns(10000);
			p->cpu = (uint32_t)sched_getcpu();
			p->when_ns = now_ns();
		}
		// What is late is not made up for.
		due_ns += w->period_ns;
		if (due_ns < now_ns())
			due_ns = now_ns();
	}
	return NULL;
}

static void work_shown(char **words)
{
	static struct worker workers[THREADS_MAX];
	struct place *page = shown(words[0], O_RDWR | O_CREAT | O_TRUNC);
	int count = atoi(words[1]);
	pthread_t thread;

	if (count < 1 || count > THREADS_MAX)
		count = 1;
	learn();
	for (int i = 0; i < count; i++) {
		struct worker *w = &workers[i];

		w->place = &page[i];
		w->busy_ns = (uint64_t)(atof(words[2]) * 1e3);
		w->period_ns = (uint64_t)(atof(words[3]) * 1e3);
		w->phase_ns = w->period_ns * (uint64_t)i / (uint64_t)count;
		if (i && (errno = pthread_create(&thread, NULL, work, w)))
			die("pthread_create");
	}
	work(&workers[0]);
}

struct seen {
	const char *path;
	struct place *page;
	uint64_t running, shared, cores;
	uint64_t wakes, moves, late_ns;
};

// Adds (or takes away) what its threads have counted.
static void wakeups(struct seen *s, uint64_t sign)
{
	for (int i = 0; i < THREADS_MAX; i++) {
		s->wakes += sign * s->page[i].wakes;
		s->moves += sign * s->page[i].moves;
		s->late_ns += sign * s->page[i].late_ns;
	}
}

static void sample(struct seen *seen, int files)
{
	uint32_t on_core[CPUS_MAX] = {0}, own[FILES_MAX][CPUS_MAX] = {0};
	uint64_t now = now_ns();

	for (int f = 0; f < files; f++) {
		for (int i = 0; i < THREADS_MAX; i++) {
			struct place *p = &seen[f].page[i];
			uint32_t core = core_of[p->cpu % CPUS_MAX] % CPUS_MAX;

			if (!p->when_ns || p->when_ns + FRESH_NS < now)
				continue;
			on_core[core]++;
			own[f][core]++;
		}
	}
	for (int f = 0; f < files; f++) {
		for (int core = 0; core < CPUS_MAX; core++) {
			seen[f].running += own[f][core];
			seen[f].shared += on_core[core] > 1 ? own[f][core] : 0;
			seen[f].cores += own[f][core] > 0;
		}
	}
}

static void cores(double seconds, uint64_t every_ns, int files, char **paths)
{
	struct seen seen[FILES_MAX] = {0};
	uint64_t start_ns = now_ns(), looks = (uint64_t)(seconds * 1e9) / every_ns;

	if (files > FILES_MAX)
		files = FILES_MAX;
	learn();
	for (int f = 0; f < files; f++) {
		seen[f].path = strrchr(paths[f], '/') ? strrchr(paths[f], '/') + 1 : paths[f];
		seen[f].page = shown(paths[f], O_RDWR);
		wakeups(&seen[f], (uint64_t)-1);
	}
	for (uint64_t look = 0; look < looks; look++) {
		sleep_until_ns(start_ns + look * every_ns);
		sample(seen, files);
	}
	for (int f = 0; f < files; f++) {
		struct seen *s = &seen[f];
		double all = looks ? (double)looks : 1, ran = s->running ? (double)s->running : 1;

		wakeups(s, 1);
		printf("%s.running=%.2f %s.shared=%.1f %s.cores=%.2f", s->path,
		       (double)s->running / all, s->path, 100 * (double)s->shared / ran, s->path,
		       (double)s->cores / all);
		printf(" %s.moved=%.2f %s.late_us=%.1f%s", s->path,
		       100 * (double)s->moves / (double)(s->wakes ? s->wakes : 1), s->path,
		       (double)s->late_ns / 1e3 / (double)(s->wakes ? s->wakes : 1),
		       f + 1 < files ? " " : "\n");
	}
}

int crowded(int count, char **words)
{
	if (count == 6 && !strcmp(words[1], "places"))
		work_shown(words + 2);
	else if (count >= 5 && !strcmp(words[1], "cores"))
		cores(atof(words[2]), (uint64_t)(atof(words[3]) * 1e3), count - 4, words + 4);
	else
		return 0;
	return 1;
}
