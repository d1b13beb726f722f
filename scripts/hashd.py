#!/usr/bin/env python3
"""rd-hashd next to an encode and next to a build on this machine, as root: Meta's model of its latency-sensitive services, by its
own figures. It needs `cargo install rd-hashd --version 2.2.5`. The arms take turns in each round. Twenty-two minutes; prints a
report as `tidegate-lab --json` does, for `make results`.
"""

import asyncio
import json
import os
import pathlib
import shlex
import shutil
import signal
import statistics
import subprocess
import sys

import incident
import kernbench
from measured import Report, figure
from nginx import OWN, cpu_s, groups_of, made_groups

ROUNDS = int(os.environ.get("ROUNDS", "6"))
# Sideloader's law needs five seconds of history.
WARM_S, SECONDS = 7, 8
# About half of what two CPUs can do.
REQUESTS_PER_S = int(os.environ.get("RPS", "100"))
OBJECTIVE = "objective=p99<2ms"
# The group of the side work, the words before its own, and main's terms.
ARMS = {
    "own group": ("batch", [], None),
    "cpu.idle": ("idle", [], None),
    "sideloader's law, 30 % headroom": ("sideload", [], None),
    "Tidegate": ("batch", OWN, None),
    "Tidegate, 30 % headroom": ("batch", [*OWN, "--headroom", "30%"], None),
    "Tidegate, an objective of 2 ms": ("batch", OWN, OBJECTIVE),
}


def parameters(folder):
    """What `--prepare` writes, with a fixed rate and less memory than its default, which is most of the machine's."""
    program = shutil.which("rd-hashd", path=f"{os.environ['PATH']}:{os.path.expanduser('~/.cargo/bin')}")
    if not program:
        sys.exit("hashd: no rd-hashd; run: cargo install rd-hashd --version 2.2.5")
    words = [program, "--testfiles", str(folder / "files"), "--size", str(1 << 29), "--interval", "0"]
    words += ["--params", str(folder / "params.json"), "--report", str(folder / "report.json")]
    subprocess.run([*words, "--prepare"], check=True, capture_output=True)
    found = read(folder / "params.json")
    found |= {"rps_target": REQUESTS_PER_S, "rps_max": 2 * REQUESTS_PER_S, "mem_frac": 0.5, "log_bps": 0}
    (folder / "params.json").write_text(json.dumps(found))
    return [*words, "--keep-cache"]


def read(path):
    """A file of rd-hashd's: JSON with lines of comment."""
    return json.loads("".join(line for line in path.read_text().splitlines(True) if not line.startswith("//")))


def busy_s():
    fields = [int(field) for field in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    user, nice, system, _, _, irq, softirq, _ = fields
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def used_s(groups):
    for group in groups:
        if (group / "cpuacct.usage").exists():
            return int((group / "cpuacct.usage").read_text()) / 1e9
        if (group / "cpu.stat").exists() and "usage_usec" in (stat := (group / "cpu.stat").read_text()):
            return int(stat.split()[1]) / 1e6
    sys.exit("hashd: no group has an account of its CPU")


def set_quota(groups, quota_us, period_us=10_000):
    for group in groups:
        if (group / "cpu.max").exists():
            (group / "cpu.max").write_text(f"{quota_us} {period_us}")
        elif (group / "cpu.cfs_quota_us").exists():
            (group / "cpu.cfs_period_us").write_text(str(period_us))
            (group / "cpu.cfs_quota_us").write_text(str(quota_us))


async def sideloader(groups):
    """Once a second, the law of resctl-demo's sideloader (rd-agent/src/misc/sideloader.py) at a headroom of 30 %, without its
    freezer: the least of side's and of idle's means over 1 and over 5 s, less the headroom, and no less than 5 % of the machine."""
    cpus, seen = os.cpu_count(), []
    while True:
        seen = [*seen[-5:], (used_s(groups), busy_s())]
        free = 0
        if len(seen) == 6:
            spans = [(seconds, [now - then for now, then in zip(seen[-1], seen[-1 - seconds])]) for seconds in (1, 5)]
            free = min(side / seconds for seconds, (side, _) in spans) + min(cpus - busy / seconds for seconds, (_, busy) in spans)
        set_quota(groups, int(10_000 * max(free - 0.3 * cpus, 0.05 * cpus)))
        await asyncio.sleep(1)


async def one_round(folder, hashd, side, arm):
    """The requests that rd-hashd answers in a second, their 50th and 99th percentile in ms, and the rest's share of the machine, %."""
    process, law, (group, words, terms) = None, None, ARMS.get(arm, (None, None, None))
    if terms:
        incident.tidegate("set", "hashd", terms)
    try:
        if side:
            # A session of its own, so that a build ends with all its children.
            options = {"start_new_session": True, "stderr": subprocess.DEVNULL}
            process = incident.start([*words, *side], groups_of(group), **options)
        if group == "sideload":
            law = asyncio.create_task(sideloader(groups_of(group)))
        await asyncio.sleep(WARM_S)
        busy_before_s, hashd_before_s, found = busy_s(), cpu_s(hashd), []
        for _ in range(SECONDS):
            await asyncio.sleep(1)
            found.append(read(folder / "report.json"))
        rest_s = busy_s() - busy_before_s - (cpu_s(hashd) - hashd_before_s)
    finally:
        if law:
            law.cancel()
        if process:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if terms:
        incident.tidegate("set", "hashd", "objective=none")
    await asyncio.sleep(1)
    return {
        "arm": arm,
        "rps": statistics.fmean(one["rps"] for one in found),
        "p50_ms": 1e3 * statistics.median(one["lat"]["p50"] for one in found),
        "p99_ms": 1e3 * statistics.median(one["lat"]["p99"] for one in found),
        "rest_percent": 100 * rest_s / SECONDS / os.cpu_count(),
    }


async def walk(folder, _groups, background):
    report, words = Report("hashd"), parameters(folder)
    with made_groups("batch", "idle", "sideload", idle="idle"):
        rounds, sides = await all_rounds(folder, words, background)
    report.print(headline(rounds, sides), rounds, f"rd-hashd 2.2.5 at {REQUESTS_PER_S} requests a second")


async def all_rounds(folder, words, background):
    tree = kernbench.source(folder)
    kernbench.build([], tree)
    build = ["sh", "-c", f"while :; do rm -rf {tree}/objects; {shlex.join(kernbench.make_words(tree))}; done"]
    sides = {"an encode": incident.batch_words(), "a build": build}
    run = [incident.TIDEGATE, "run", "--quiet", "--main", "--name", "hashd", "--"]
    hashd = subprocess.Popen([*run, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    background.append(hashd)
    # Its controllers need half a minute to reach the rate.
    await asyncio.sleep(float(os.environ.get("SETTLE_S", "40")))
    rounds = []
    try:
        for turn in range(ROUNDS):
            rounds.append(await one_round(folder, hashd.pid, None, "alone") | {"side": "none", "round": turn})
            for name, side in sides.items():
                for arm in ARMS:
                    rounds.append(await one_round(folder, hashd.pid, side, arm) | {"side": name, "round": turn})
    finally:
        hashd.terminate()
        hashd.wait()
    return rounds, sides


def headline(rounds, sides):
    def each(side, arm, key):
        return [one[key] for one in rounds if one["side"] == side and one["arm"] == arm]

    alone = {key: each("none", "alone", key) for key in ("rps", "p50_ms", "p99_ms")}
    found = [figure("a request alone, p50", "ms", alone["p50_ms"]), figure("a request alone, p99", "ms", alone["p99_ms"])]
    for side in sides:
        for arm in ARMS:
            for key in ("p50", "p99"):
                over = [ours / main for ours, main in zip(each(side, arm, f"{key}_ms"), alone[f"{key}_ms"])]
                found.append(figure(f"{key} over alone, {side}: {arm}", "×", over))
            found.append(figure(f"requests a second, {side}: {arm}", "", each(side, arm, "rps")))
            found.append(figure(f"the rest's share, {side}: {arm}", "%", each(side, arm, "rest_percent")))
    return found


if __name__ == "__main__":
    incident.say = lambda text: None
    incident.staged(walk)
