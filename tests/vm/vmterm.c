// SPDX-License-Identifier: MIT OR Apache-2.0
// A terminal that goes away; part of vmtool (vmtool.c).
// clang-format off
//   vmtool terminal SECONDS PROGRAM...       runs it on a terminal of its own, whose window is closed so many seconds after it has
//                                            begun to write (a minute at most); its standard error is left to it; says
//                                            "shown=BYTES" of what it wrote, and ends as it does
// clang-format on
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "vmwork.h"

static void become(const char *name, char **words)
{
	int terminal;

	setsid();
	terminal = open(name, O_RDWR);
	if (terminal < 0 || ioctl(terminal, TIOCSCTTY, 0) || dup2(terminal, 0) < 0 ||
	    dup2(terminal, 1) < 0)
		die(name);
	close(terminal);
	execvp(words[0], words);
	die(words[0]);
}

int on_terminal(int count, char **words)
{
	int window = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC), status;
	uint64_t end_ns, now;
	long shown = 0;
	char text[4096];
	pid_t child;

	if (count < 4 || strcmp(words[1], "terminal"))
		return 0;
	if (window < 0 || grantpt(window) || unlockpt(window))
		die("a terminal");
	end_ns = now_ns() + 60000000000ULL;
	child = fork();
	if (child < 0)
		die("fork");
	if (!child)
		become(ptsname(window), words + 3);
	while ((now = now_ns()) < end_ns) {
		struct pollfd look = {.fd = window, .events = POLLIN};

		if (poll(&look, 1, (int)((end_ns - now) / 1000000) + 1) > 0) {
			ssize_t length = read(window, text, sizeof(text));

			// Nobody has opened the other side so far, or any more.
			if (length <= 0) {
				usleep(100000);
				continue;
			}
			if (!shown)
				end_ns = now_ns() + (uint64_t)(atof(words[2]) * 1e9);
			shown += length;
		}
	}
	close(window);
	if (waitpid(child, &status, 0) != child)
		die("waitpid");
	printf("shown=%ld\n", shown);
	fflush(stdout);
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}
