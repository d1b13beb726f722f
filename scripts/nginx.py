#!/usr/bin/env python3
"""nginx next to an encode on this machine, as root: what its clients see, and the CPU that the encode gets. The arms take turns in
each round. About ten minutes; prints a report as `tidegate-lab --json` does, for `make results`.
"""

import asyncio
import contextlib
import os
import pathlib
import statistics
import subprocess
import sys
import time

import incident
from measured import Report, figure

ROUNDS = int(os.environ.get("ROUNDS", "6"))
WARM_S, SECONDS = 3, 12
OWN = [incident.TIDEGATE, "run", "--quiet", "--side"]
# Where the encode runs: a group, and the words before its own.
ARMS = {
    "alone": None,
    "in nginx's own group": ("web", []),
    "cpu.idle": ("batch", []),
    "Tidegate": ("batch", OWN),
    "Tidegate, 30 % headroom": ("batch", [*OWN, "--headroom", "30%"]),
}


def groups_of(name):
    roots = {group.parent for group in incident.batch_groups()}
    return [root / f"{incident.BATCH}-{name}" for root in roots]


@contextlib.contextmanager
def made_groups(*names, idle):
    """The groups of these names, of which one is in the idle class. They are removed at the end."""
    for name in names:
        for group in groups_of(name):
            group.mkdir(exist_ok=True)
    try:
        files = [group / "cpu.idle" for group in groups_of(idle) if (group / "cpu.idle").exists()]
        if not files:
            sys.exit("incident: this kernel has no cpu.idle, which an arm needs; use Linux 5.15 or newer")
        files[0].write_text("1")
        yield
    finally:
        for name in names:
            for group in groups_of(name):
                group.rmdir()


def cpu_s(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def one_round(load, arm):
    """The mean and the 99th percentile of a request, ms, and the encode's share of the machine, %."""
    encode = None
    if ARMS[arm]:
        group, words = ARMS[arm]
        encode = incident.start([*words, *incident.batch_words()], groups_of(group))
    await asyncio.sleep(WARM_S)
    began, used_s = time.time(), cpu_s(encode.pid) if encode else 0.0
    await asyncio.sleep(SECONDS)
    took = time.time() - began
    used_s = cpu_s(encode.pid) - used_s if encode else 0.0
    if encode:
        encode.kill()
        encode.wait()
    await asyncio.sleep(1)
    found = sorted(latency for due, latency in load.latencies if began <= due < began + SECONDS)
    load.latencies.clear()
    return {
        "arm": arm,
        "requests": len(found),
        "mean_ms": 1e3 * statistics.fmean(found),
        "p99_ms": 1e3 * found[int(0.99 * (len(found) - 1))],
        "encode_percent": 100 * used_s / took / os.cpu_count(),
    }


async def walk(folder, _groups, background):
    report = Report("nginx")
    with made_groups("web", "batch", idle="batch"):
        rounds = await all_rounds(folder, background)
    note = f"{incident.RATE:.0f} requests a second, at random, of a page that nginx compresses"
    report.print(headline(rounds), rounds, note)


async def all_rounds(folder, background):
    # An agent that is there from the beginning is in every arm.
    background.append(subprocess.Popen([*OWN, "sleep", "100000"]))
    background.append(incident.start(incident.site(folder), groups_of("web")))
    await incident.until("nginx", 10, lambda: (folder / "pid").exists())
    load = incident.Load()
    task = asyncio.create_task(load.run())
    try:
        return [await one_round(load, arm) | {"round": turn} for turn in range(ROUNDS) for arm in ARMS]
    finally:
        await load.stop(task)
        background[-1].terminate()
        background[-1].wait()


def headline(rounds):
    of = {(one["arm"], one["round"]): one for one in rounds}

    def each(arm, key):
        return [of[arm, turn][key] for turn in range(ROUNDS)]

    def over(arm, key):
        return [ours / alone for ours, alone in zip(each(arm, key), each("alone", key))]

    found = [figure("a request alone, mean", "ms", each("alone", "mean_ms")), figure("a request alone, p99", "ms", each("alone", "p99_ms"))]
    for arm in list(ARMS)[1:]:
        ours = arm.startswith("Tidegate")
        found += [
            figure(f"mean over alone: {arm}", "×", over(arm, "mean_ms"), 1.05 if ours else None),
            figure(f"p99 over alone: {arm}", "×", over(arm, "p99_ms"), 1.15 if ours else None),
            figure(f"the encode's share: {arm}", "%", each(arm, "encode_percent")),
        ]
    return found


if __name__ == "__main__":
    incident.say = lambda text: None
    incident.staged(walk)
