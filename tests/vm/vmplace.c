// SPDX-License-Identifier: MIT OR Apache-2.0
// Where the kernel puts main's tasks, and what groups are marked with; part of vmtool (vmtool.c).
// clang-format off
//   vmtool serve THREADS PERCENT WORK_US SECONDS
//                                            threads that sleep and work WORK_US, of one CPU PERCENT each; prints
//                                            "wakes=N mean_us=V p50_us=W p99_us=X"
//   vmtool woken pipe|event|udp ROUNDS AFTER_US
//                                            a task that begins to run and 1 ms later wakes another through a pipe, an
//                                            eventfd or a socket of the loopback, and goes on for AFTER_US; prints
//                                            "mean_us=V", how late the other one ran
//   vmtool beat ROUNDS PERIOD_US PHASE_US WORK_US
//                                            wakes at every multiple of PERIOD_US plus PHASE_US and works; prints
//                                            "mean_us=V", how late it woke
//   vmtool apart PROGRAM...                  runs it in a cgroup namespace of its own, as a container's
//   vmtool xattr PATH NAME [VALUE]           sets an attribute of a group, or removes it
// clang-format on
#define _GNU_SOURCE
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "vmwork.h"

#define SERVERS_MAX 64
#define WAKES_MAX 40000
#define BEFORE_WAKEUP_NS 1000000
#define BETWEEN_WAKEUPS_NS 3000000
#define WOKEN_LIMIT_S 30

struct server {
	uint64_t state;
	uint64_t late_ns[WAKES_MAX];
	uint32_t wakes;
};

static struct server *servers;
static int server_count;
static uint64_t work_ns, rest_ns, end_ns;

static uint64_t draw(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 33;
}

static void *serve_one(void *own)
{
	struct server *s = own;

	prctl(PR_SET_TIMERSLACK, 1);
	for (;;) {
		// Half to one and a half times the mean.
		uint64_t due_ns =
		    now_ns() + rest_ns / 2 + rest_ns * (draw(&s->state) % 1024) / 1024;

		if (due_ns > end_ns || s->wakes == WAKES_MAX)
			return NULL;
		sleep_until_ns(due_ns);
		s->late_ns[s->wakes++] = now_ns() - due_ns;
		burn_cpu_ns(work_ns);
	}
}

static double at_part(uint64_t *all, size_t count, size_t percent)
{
	qsort(all, count, sizeof(*all), ascending);
	return (double)all[count * percent / 100] / 1e3;
}

static void report(void)
{
	uint64_t *late_ns = calloc((size_t)server_count * WAKES_MAX, sizeof(*late_ns));
	uint64_t sum_ns = 0;
	size_t count = 0;

	if (!late_ns)
		die("serve");
	for (int i = 0; i < server_count; i++) {
		for (uint32_t at = 0; at < servers[i].wakes; at++) {
			sum_ns += servers[i].late_ns[at];
			late_ns[count++] = servers[i].late_ns[at];
		}
	}
	if (!count)
		die("serve: no time for it");
	printf("wakes=%zu mean_us=%.1f p50_us=%.1f p99_us=%.1f\n", count,
	       (double)sum_ns / (double)count / 1e3, at_part(late_ns, count, 50),
	       at_part(late_ns, count, 99));
}

static void serve(char **words)
{
	pthread_t threads[SERVERS_MAX];
	double percent = atof(words[1]);

	server_count = atoi(words[0]);
	work_ns = (uint64_t)(atof(words[2]) * 1e3);
	rest_ns = (uint64_t)((double)work_ns * (100 - percent) / percent);
	end_ns = now_ns() + (uint64_t)(atof(words[3]) * 1e9);
	if (server_count < 1 || server_count > SERVERS_MAX)
		die("serve: threads");
	servers = calloc((size_t)server_count, sizeof(*servers));
	if (!servers)
		die("serve");
	for (int i = 0; i < server_count; i++) {
		servers[i].state = (uint64_t)i * 7919 + 1;
		if ((errno = pthread_create(&threads[i], NULL, serve_one, &servers[i])))
			die("pthread_create");
	}
	for (int i = 0; i < server_count; i++)
		pthread_join(threads[i], NULL);
	report();
}

// Sets an attribute, or removes it where no value is given.
static void xattr(const char *path, const char *name, const char *value)
{
	if (value ? setxattr(path, name, value, strlen(value), 0) : removexattr(path, name))
		die(name);
}

// Both ends of what one task wakes another through.
static void channel(const char *kind, int ends[2])
{
	struct sockaddr_in to = {.sin_family = AF_INET};
	socklen_t length = sizeof(to);
	int failed = 0;

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (!strcmp(kind, "pipe")) {
		failed = pipe(ends);
	} else if (!strcmp(kind, "event")) {
		ends[0] = ends[1] = eventfd(0, 0);
	} else if (!strcmp(kind, "udp")) {
		ends[0] = socket(AF_INET, SOCK_DGRAM, 0);
		ends[1] = socket(AF_INET, SOCK_DGRAM, 0);
		failed = bind(ends[0], (struct sockaddr *)&to, length) ||
			 getsockname(ends[0], (struct sockaddr *)&to, &length) ||
			 connect(ends[1], (struct sockaddr *)&to, length);
	} else {
		errno = EINVAL;
		die("woken: pipe, event or udp");
	}
	if (failed || ends[0] < 0 || ends[1] < 0)
		die(kind);
}

// Each message is the moment at which it was sent.
static void woken(const char *kind, int rounds, uint64_t after_ns)
{
	struct timespec rest = {.tv_nsec = BETWEEN_WAKEUPS_NS};
	uint64_t sent_ns, late_ns = 0;
	int ends[2], status = 1;

	errno = EINVAL;
	if (rounds < 1)
		die("woken: ROUNDS");
	channel(kind, ends);
	switch (fork()) {
	case -1:
		die("fork");
	case 0:
		// A reader that is a whole round late reads the sum of two messages of an eventfd, and then waits
		// in vain.
		alarm(WOKEN_LIMIT_S);
		for (int round = 0; round < rounds; round++) {
			if (read(ends[0], &sent_ns, sizeof(sent_ns)) != sizeof(sent_ns))
				die("woken: read");
			late_ns += now_ns() - sent_ns;
		}
		printf("mean_us=%.1f\n", (double)late_ns / rounds / 1e3);
		return;
	default:
		break;
	}
	for (int round = 0; round < rounds; round++) {
		nanosleep(&rest, NULL);
		burn_cpu_ns(BEFORE_WAKEUP_NS);
		sent_ns = now_ns();
		if (write(ends[1], &sent_ns, sizeof(sent_ns)) != sizeof(sent_ns))
			die("woken: write");
		burn_cpu_ns(after_ns);
	}
	if (wait(&status) < 0 || status)
		die("woken: the reader");
}

static void beat(uint64_t rounds, uint64_t period_ns, uint64_t phase_ns, uint64_t beat_work_ns)
{
	uint64_t due_ns = (now_ns() / period_ns + 1) * period_ns + phase_ns, late_ns = 0;

	for (uint64_t round = 0; round < rounds; round++, due_ns += period_ns) {
		sleep_until_ns(due_ns);
		late_ns += now_ns() - due_ns;
		burn_cpu_ns(beat_work_ns);
	}
	printf("mean_us=%.1f\n", (double)late_ns / (double)rounds / 1e3);
}

int places(int count, char **words)
{
	if ((count == 4 || count == 5) && !strcmp(words[1], "xattr")) {
		xattr(words[2], words[3], words[4]);
	} else if (count == 6 && !strcmp(words[1], "serve")) {
		serve(words + 2);
	} else if (count == 5 && !strcmp(words[1], "woken")) {
		woken(words[2], atoi(words[3]), (uint64_t)(atof(words[4]) * 1e3));
	} else if (count == 6 && !strcmp(words[1], "beat")) {
		beat((uint64_t)atoi(words[2]), (uint64_t)(atof(words[3]) * 1e3),
		     (uint64_t)(atof(words[4]) * 1e3), (uint64_t)(atof(words[5]) * 1e3));
	} else if (count > 2 && !strcmp(words[1], "apart")) {
		if (unshare(CLONE_NEWCGROUP))
			die("unshare");
		execvp(words[2], words + 2);
		die(words[2]);
	} else {
		return 0;
	}
	return 1;
}
