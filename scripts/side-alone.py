#!/usr/bin/env python3
"""What side work alone on this machine gets, read from outside: one and two hogs at several headrooms.

Needs root, cgroup v1's cpuacct, a running agent (`tidegate agent run`) and a quiet machine of two CPUs or more;
13 minutes for ten rounds. Each line: round, hogs, headroom; CPUs that the hogs had over 10 s (their schedstat),
what was due to them, their share of it, what everything else used and the hypervisor's steal, in CPUs.
"""

import os
import subprocess
import sys
import time

TIDEGATE = "target/release/tidegate"
HOG = ["python3", "-c", "while True: pass"]
CPUS = os.cpu_count()


def hog_pids():
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if file.read().rstrip(b"\0").split(b"\0") == [word.encode() for word in HOG]:
                    found.append(pid)
        except OSError:
            pass
    return found


def read_first(path):
    with open(path) as file:
        return file.readline().split()


def clocks(pids):
    hogs_ns = sum(int(read_first(f"/proc/{pid}/schedstat")[0]) for pid in pids)
    all_ns = int(read_first("/sys/fs/cgroup/cpuacct/cpuacct.usage")[0])
    steal_s = int(read_first("/proc/stat")[8]) / os.sysconf("SC_CLK_TCK")
    return hogs_ns / 1e9, all_ns / 1e9, steal_s, time.monotonic()


def measure(hogs, headroom):
    side = ["run", "--side", "--headroom", f"{headroom}%", "--", *HOG]
    runs = [subprocess.Popen([TIDEGATE, *side]) for _ in range(hogs)]
    try:
        time.sleep(2)
        pids = hog_pids()
        before = clocks(pids)
        time.sleep(10)
        after = clocks(pids)
    finally:
        for run in runs:
            run.terminate()
        for run in runs:
            run.wait()
    had, used, steal, seconds = (b - a for a, b in zip(before, after))
    had, used, steal = had / seconds, used / seconds, steal / seconds
    main = used - had
    # A hog alone has at most its own CPU, less what is stolen from it.
    due = min(hogs - steal, (CPUS - steal) * (1 - headroom / 100) - main)
    return f"{had:.3f} of {due:.3f} CPUs, {100 * had / due:.1f} %; main {main:.3f}, steal {steal:.3f}"


for round_ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 10):
    for hogs in (1, 2):
        for headroom in (0, 20, 30):
            print(f"{round_} {hogs} {headroom:2} %  {measure(hogs, headroom)}", flush=True)
