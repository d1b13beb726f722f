// SPDX-License-Identifier: MIT OR Apache-2.0
// The workers of `vmtool stress` (vmstress.c): one of each kind of life, over and over.
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "vmwork.h"
#include "vmworker.h"

int calm(void)
{
	return !access("/tmp/calm", F_OK);
}

int fair(void)
{
	return !access("/tmp/fair", F_OK);
}

static void brood(int how_many, int runs_program)
{
	for (int i = 0; i < how_many; i++) {
		pid_t pid = fork();

		if (!pid && runs_program)
			execl("/proc/self/exe", "vmtool", "burn", "0.0005", NULL);
		if (!pid) {
			burn_cpu_ns(500000);
			_exit(0);
		}
	}
	while (wait(NULL) > 0)
		;
}

static void *little(void *unused)
{
	burn_cpu_ns(200000);
	return unused;
}

static void ping(int *through)
{
	char byte = 0;

	if (write(through[1], &byte, 1) != 1 || read(through[0], &byte, 1) != 1)
		_exit(1);
	burn_cpu_ns(50000);
}

int forks(enum work work)
{
	return work == FORKER || work == EXECER || work == THREADER;
}

_Noreturn void work(enum work work, volatile uint64_t *turns)
{
	int through[2];
	pthread_t thread;

	if (pipe(through))
		_exit(1);
	for (;;) {
		while (forks(work) && calm())
			usleep(10000);
		switch (work) {
		case SLEEPER:
			usleep(2000);
			break;
		case FORKER:
			brood(3, 0);
			break;
		case EXECER:
			brood(1, 1);
			break;
		case THREADER:
			if (!pthread_create(&thread, NULL, little, NULL))
				pthread_join(thread, NULL);
			break;
		case PIPER:
			ping(through);
			break;
		default:
			break;
		}
		burn_cpu_ns(50000);
		++*turns;
	}
}
