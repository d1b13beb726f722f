// SPDX-License-Identifier: MIT OR Apache-2.0
// vmtool's locks: side work holds one for some CPU time again and again; main waits for it just
// after it was taken, and says how long. Part of vmtool.c, whose clocks and burning it uses.
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>

// Main looks this often whether the lock is taken, and comes as soon as it is.
#define LOOK_NS 500000u

enum lock_kind { LOCK_FLOCK, LOCK_FCNTL, LOCK_OFD, LOCK_FUTEX, LOCK_PI, LOCK_PIPE };

static const char *const lock_names[] = {"flock", "fcntl", "ofd", "futex", "pi", "pipe"};

struct lock {
	enum lock_kind kind;
	int fd;
	pthread_mutex_t *mutex;
};

// A mutex in the file itself, for whoever maps it; side work makes it.
static pthread_mutex_t *mutex_in(int fd, int pi, int make)
{
	pthread_mutexattr_t attr;
	pthread_mutex_t *mutex;

	if (make && ftruncate(fd, sizeof(*mutex)))
		die("lock: truncate");
	mutex = mmap(NULL, sizeof(*mutex), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (mutex == MAP_FAILED)
		die("lock: map");
	if (make) {
		pthread_mutexattr_init(&attr);
		pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
		if (pi)
			pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT);
		pthread_mutex_init(mutex, &attr);
	}
	return mutex;
}

static struct lock lock_open(const char *kind, const char *path, int side)
{
	struct lock lock = {.fd = -1};
	size_t at = 0;

	while (at < sizeof(lock_names) / sizeof(*lock_names) && strcmp(kind, lock_names[at]))
		at++;
	if (at == sizeof(lock_names) / sizeof(*lock_names)) {
		errno = EINVAL;
		die(kind);
	}
	lock.kind = (enum lock_kind)at;
	// A pipe with one byte in it is a lock: whoever has read the byte holds it.
	if (lock.kind == LOCK_PIPE && side)
		mkfifo(path, 0600);
	lock.fd = open(path, lock.kind == LOCK_PIPE ? O_RDWR : O_RDWR | O_CREAT, 0600);
	if (lock.fd < 0)
		die(path);
	if (lock.kind == LOCK_PIPE && side && write(lock.fd, "x", 1) != 1)
		die("lock: pipe");
	if (lock.kind == LOCK_FUTEX || lock.kind == LOCK_PI)
		lock.mutex = mutex_in(lock.fd, lock.kind == LOCK_PI, side);
	return lock;
}

// Takes it; with `wait` 0 only if that is possible at once. Says whether it did.
static int lock_take(struct lock *lock, int wait)
{
	struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	struct pollfd pipe = {.fd = lock->fd, .events = POLLIN};
	char byte;

	switch (lock->kind) {
	case LOCK_FLOCK:
		return flock(lock->fd, wait ? LOCK_EX : LOCK_EX | LOCK_NB) == 0;
	case LOCK_FCNTL:
		return fcntl(lock->fd, wait ? F_SETLKW : F_SETLK, &whole) == 0;
	case LOCK_OFD:
		return fcntl(lock->fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &whole) == 0;
	case LOCK_FUTEX:
	case LOCK_PI:
		return (wait ? pthread_mutex_lock(lock->mutex)
			     : pthread_mutex_trylock(lock->mutex)) == 0;
	case LOCK_PIPE:
		return (wait || poll(&pipe, 1, 0) == 1) && read(lock->fd, &byte, 1) == 1;
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
	case LOCK_FUTEX:
	case LOCK_PI:
		pthread_mutex_unlock(lock->mutex);
		break;
	case LOCK_PIPE:
		if (write(lock->fd, "x", 1) != 1)
			die("lock: pipe");
	}
}

static int lock_ascending(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

// lock hold KIND FILE HOLD_US REST_US: for ever.
static _Noreturn void lock_hold(char **words)
{
	struct lock lock = lock_open(words[0], words[1], 1);
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
	struct lock lock = lock_open(words[0], words[1], 0);
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
	qsort(waited_ns, count, sizeof(*waited_ns), lock_ascending);
	printf("waits=%zu mean_ms=%.1f p50_ms=%.1f p99_ms=%.1f worst_ms=%.1f\n", count,
	       (double)sum_ns / (double)count / 1e6, (double)waited_ns[count / 2] / 1e6,
	       (double)waited_ns[count * 99 / 100] / 1e6, (double)waited_ns[count - 1] / 1e6);
}
