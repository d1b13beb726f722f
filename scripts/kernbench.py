#!/usr/bin/env python3
"""A build of a real project (libbpf, from the crate libbpf-sys) by `make -j8` on this machine, as root: without Tidegate, with a cap
that never binds, and with a soft cap of nothing, six times each in turns. The table is that of the rate caps' patches, which ran
kernbench. Prints a report as `tidegate-lab --json` does, for `make results`.
"""

import glob
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import time

import incident
from measured import Report, figure

ROUNDS = int(os.environ.get("ROUNDS", "6"))
RUN = [incident.TIDEGATE, "run", "--quiet"]
ARMS = {
    "without Tidegate": [],
    "a cap that never binds": [*RUN, "--cap-hard", "64cpu", "--"],
    "a soft cap of nothing": [*RUN, "--cap-soft", "0cpu", "--"],
}
KEYS = {"elapsed": "s", "user": "s", "system": "s", "switches": ""}


def source(folder):
    found = glob.glob(os.path.expanduser("~/.cargo/registry/src/*/libbpf-sys-*"))
    if not found:
        sys.exit("kernbench: no source of libbpf-sys; build Tidegate first")
    shutil.copytree(found[0], folder / "source")
    return folder / "source"


def make_words(tree):
    words = ["make", "-s", "-j8", "-C", str(tree / "libbpf/src"), "BUILD_STATIC_ONLY=1", f"OBJDIR={tree}/objects", "NO_PKG_CONFIG=1"]
    return [*words, f"CFLAGS=-O2 -I{tree}/elfutils/libelf"]


def build(words, tree):
    shutil.rmtree(tree / "objects", ignore_errors=True)
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.time()
    subprocess.run([*words, *make_words(tree)], check=True, stdout=subprocess.DEVNULL)
    took, after = time.time() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    switches = after.ru_nvcsw + after.ru_nivcsw - before.ru_nvcsw - before.ru_nivcsw
    return {
        "elapsed": took,
        "user": after.ru_utime - before.ru_utime,
        "system": after.ru_stime - before.ru_stime,
        "switches": switches,
    }


async def walk(folder, _groups, background):
    background.append(subprocess.Popen([incident.TIDEGATE, "run", "--quiet", "--side", "--", "sleep", "100000"]))
    report, tree = Report("kernbench"), source(folder)
    build([], tree)
    rounds = [build(words, tree) | {"arm": arm, "round": turn} for turn in range(ROUNDS) for arm, words in ARMS.items()]
    headline = []
    for key, unit in KEYS.items():
        for arm in ARMS:
            headline.append(figure(f"{key}: {arm}", unit, [one[key] for one in rounds if one["arm"] == arm]))
    report.print(headline, rounds, "Nothing else runs")


if __name__ == "__main__":
    incident.say = lambda text: None
    incident.staged(walk)
