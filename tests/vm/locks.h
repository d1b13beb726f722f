// SPDX-License-Identifier: MIT OR Apache-2.0
// vmtool's locks: side work holds one for some CPU time again and again; main waits for it just
// after it was taken, and says how long. Part of vmtool.c, whose clocks and burning it uses.
#include <fcntl.h>
#include <sys/file.h>

// Main looks this often whether the lock is taken, and comes as soon as it is.
#define LOOK_NS 500000u

// An open-file description's lock of fcntl is its own kind of wait in the kernel.
enum lock_kind { LOCK_FLOCK, LOCK_FCNTL, LOCK_OFD };

static const char *const lock_names[] = {"flock", "fcntl", "ofd"};

struct lock {
	enum lock_kind kind;
	int fd;
};

static struct lock lock_open(const char *kind, const char *path)
{
	struct lock lock = {.fd = open(path, O_RDWR | O_CREAT, 0600)};
	size_t at = 0;

	if (lock.fd < 0)
		die(path);
	while (at < sizeof(lock_names) / sizeof(*lock_names) && strcmp(kind, lock_names[at]))
		at++;
	if (at == sizeof(lock_names) / sizeof(*lock_names)) {
		errno = EINVAL;
		die(kind);
	}
	lock.kind = (enum lock_kind)at;
	return lock;
}

// Takes it; with `wait` 0 only if that is possible at once. Says whether it did.
static int lock_take(struct lock *lock, int wait)
{
	struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	switch (lock->kind) {
	case LOCK_FLOCK:
		return flock(lock->fd, wait ? LOCK_EX : LOCK_EX | LOCK_NB) == 0;
	case LOCK_FCNTL:
		return fcntl(lock->fd, wait ? F_SETLKW : F_SETLK, &whole) == 0;
	case LOCK_OFD:
		return fcntl(lock->fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &whole) == 0;
	}
	return 0;
}

static void lock_free(struct lock *lock)
{
	struct flock whole = {.l_type = F_UNLCK, .l_whence = SEEK_SET};

	switch (lock->kind) {
	case LOCK_FLOCK:
		flock(lock->fd, LOCK_UN);
		break;
	case LOCK_FCNTL:
		fcntl(lock->fd, F_SETLK, &whole);
		break;
	case LOCK_OFD:
		fcntl(lock->fd, F_OFD_SETLK, &whole);
		break;
	}
}

// lock hold KIND FILE HOLD_US REST_US: for ever.
static _Noreturn void lock_hold(char **words)
{
	struct lock lock = lock_open(words[0], words[1]);
	uint64_t hold_ns = (uint64_t)(atof(words[2]) * 1e3);
	uint64_t rest_ns = (uint64_t)(atof(words[3]) * 1e3);

	for (;;) {
		if (!lock_take(&lock, 1))
			die("lock: take");
		burn_cpu_ns(hold_ns);
		lock_free(&lock);
		sleep_until_ns(clock_ns(CLOCK_MONOTONIC) + rest_ns);
	}
}

// lock wait KIND FILE SECONDS REST_US: waits for it just after somebody has taken it, again and
// again.
static void lock_wait(char **words)
{
	struct lock lock = lock_open(words[0], words[1]);
	uint64_t end_ns = clock_ns(CLOCK_MONOTONIC) + (uint64_t)(atof(words[2]) * 1e9);
	uint64_t rest_ns = (uint64_t)(atof(words[3]) * 1e3), sum_ns = 0;
	uint64_t *waited_ns = calloc(SAMPLES_MAX, sizeof(*waited_ns));
	size_t count = 0;

	while (waited_ns && count < SAMPLES_MAX && clock_ns(CLOCK_MONOTONIC) < end_ns) {
		uint64_t from_ns;

		if (lock_take(&lock, 0)) {
			lock_free(&lock);
			sleep_until_ns(clock_ns(CLOCK_MONOTONIC) + LOOK_NS);
			continue;
		}
		from_ns = clock_ns(CLOCK_MONOTONIC);
		if (!lock_take(&lock, 1))
			die("lock: take");
		waited_ns[count] = clock_ns(CLOCK_MONOTONIC) - from_ns;
		lock_free(&lock);
		sum_ns += waited_ns[count++];
		sleep_until_ns(clock_ns(CLOCK_MONOTONIC) + rest_ns);
	}
	if (!count) {
		printf("waits=0\n");
		return;
	}
	qsort(waited_ns, count, sizeof(*waited_ns), ascending);
	printf("waits=%zu mean_ms=%.1f p50_ms=%.1f p99_ms=%.1f worst_ms=%.1f\n", count,
	       (double)sum_ns / (double)count / 1e6, (double)waited_ns[count / 2] / 1e6,
	       (double)waited_ns[count * 99 / 100] / 1e6, (double)waited_ns[count - 1] / 1e6);
}
