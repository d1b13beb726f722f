// SPDX-License-Identifier: MIT OR Apache-2.0
// The guest's side of `cargo xtask shared-lines`:
//
//	lines count WARM_MS MS pairs N		N pairs of threads that wake each other over pipes
//	lines count WARM_MS MS PROGRAM WORD...	any other load, which goes on for longer than that
//	lines programs				where each source line of the loaded BPF programs is in memory
//
// `count` starts the load, executes a mark (plugin.c) after WARM_MS and another after MS more, and prints the task switches of
// all CPUs between the two and, of pairs, the messages.
#define _GNU_SOURCE
#include <linux/bpf.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAIRS_MAX 64

// One a cache line: their counts are not to be shared.
static struct {
	_Alignas(64) unsigned long messages;
	int in, out;
	char begins;
} *ends;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void mark(void)
{
	__asm__ volatile(".byte 0x0f, 0x1f, 0x84, 0x00, 0x65, 0x64, 0x69, 0x74" ::: "memory");
}

static void sleep_ms(long ms)
{
	struct timespec left = {ms / 1000, ms % 1000 * 1000000};

	while (nanosleep(&left, &left))
		;
}

static unsigned long switches(void)
{
	FILE *stat = fopen("/proc/stat", "r");
	char line[4096];
	unsigned long found = 0;

	while (stat && fgets(line, sizeof(line), stat))
		sscanf(line, "ctxt %lu", &found);
	if (!found)
		die("/proc/stat");
	fclose(stat);
	return found;
}

static void *end_of_pair(void *data)
{
	typeof(ends) end = data;
	char byte = 0;

	if (end->begins && write(end->out, &byte, 1) != 1)
		die("write");
	while (read(end->in, &byte, 1) == 1 && write(end->out, &byte, 1) == 1)
		end->messages++;
	return NULL;
}

static void pairs(int many)
{
	pthread_t thread;

	for (int i = 0; i < many; i++) {
		int there[2], back[2];

		if (pipe(there) || pipe(back))
			die("pipe");
		ends[2 * i].in = back[0], ends[2 * i].out = there[1], ends[2 * i].begins = 1;
		ends[2 * i + 1].in = there[0], ends[2 * i + 1].out = back[1];
	}
	for (int i = 0; i < 2 * many; i++)
		if (pthread_create(&thread, NULL, end_of_pair, &ends[i]))
			die("pthread_create");
	pause();
}

static unsigned long messages(void)
{
	unsigned long sum = 0;

	for (int i = 0; i < 2 * PAIRS_MAX; i++)
		sum += ends[i].messages;
	return sum;
}

static int count(char **words)
{
	pid_t child;
	unsigned long switched, sent;

	ends = mmap(NULL, 2 * PAIRS_MAX * sizeof(*ends), PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (ends == MAP_FAILED)
		die("mmap");
	child = fork();
	if (!child) {
		setpgid(0, 0);
		if (!strcmp(words[2], "pairs") && words[3])
			pairs(atoi(words[3]));
		freopen("/dev/null", "w", stdout);
		execvp(words[2], words + 2);
		die(words[2]);
	}
	sleep_ms(atol(words[0]));
	switched = switches();
	sent = messages();
	mark();
	sleep_ms(atol(words[1]));
	mark();
	sent = messages() - sent;
	switched = switches() - switched;
	if (waitpid(child, NULL, WNOHANG))
		die("the load ended too early");
	kill(-child, SIGKILL);
	waitpid(child, NULL, 0);
	printf("switches %lu messages %lu\n", switched, sent);
	return 0;
}

static long bpf(int what, union bpf_attr *attr)
{
	return syscall(SYS_bpf, what, attr, sizeof(*attr));
}

static int info(int fd, void *to, unsigned size)
{
	union bpf_attr attr = {.info = {.bpf_fd = fd, .info_len = size, .info = (unsigned long)to}};

	return bpf(BPF_OBJ_GET_INFO_BY_FD, &attr);
}

// The text of all lines: names are offsets into it.
static const char *strings_of(unsigned btf_id, char *blob, unsigned size)
{
	union bpf_attr attr = {.btf_id = btf_id};
	struct bpf_btf_info btf = {.btf = (unsigned long)blob, .btf_size = size};
	unsigned *head = (unsigned *)blob;
	int fd = bpf(BPF_BTF_GET_FD_BY_ID, &attr);

	// struct btf_header: magic and so on, its length, and at [4] the offset of strings after it.
	return info(fd, &btf, sizeof(btf)) ? NULL : blob + head[1] + head[4];
}

static int programs(void)
{
	static struct bpf_line_info line[65536];
	static unsigned long at[65536];
	static char blob[4 << 20];
	union bpf_attr next = {.start_id = 0};

	for (; !bpf(BPF_PROG_GET_NEXT_ID, &next); next.start_id = next.next_id) {
		union bpf_attr attr = {.prog_id = next.next_id};
		int fd = bpf(BPF_PROG_GET_FD_BY_ID, &attr);
		struct bpf_prog_info prog = {
		    .line_info = (unsigned long)line,
		    .nr_line_info = 65536,
		    .line_info_rec_size = sizeof(*line),
		    .jited_line_info = (unsigned long)at,
		    .nr_jited_line_info = 65536,
		    .jited_line_info_rec_size = sizeof(*at),
		};
		const char *text;

		if (info(fd, &prog, sizeof(prog)) ||
		    !(text = strings_of(prog.btf_id, blob, sizeof(blob))))
			continue;
		for (unsigned i = 0; i < prog.nr_line_info && i < prog.nr_jited_line_info; i++)
			printf("%lx\t%s:%u\t%s\n", at[i], text + line[i].file_name_off,
			       line[i].line_col >> 10, text + line[i].line_off);
		close(fd);
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 4 && !strcmp(argv[1], "count"))
		return count(argv + 2);
	if (argc == 2 && !strcmp(argv[1], "programs"))
		return programs();
	return 2;
}
