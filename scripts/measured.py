"""What the scripts of `make results` share: figures and reports in the shape of `tidegate-lab --json`."""

import json
import os
import pathlib
import platform
import statistics
import time


def steal_s():
    """The time that the hypervisor took, of all CPUs since boot."""
    return int(pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[8]) / os.sysconf("SC_CLK_TCK")


def figure(name, unit, values, most=None):
    """The median with the lowest and the highest of the rounds: of six, those are a 97 % interval of the median."""
    value = statistics.median(values)
    return {
        "name": name,
        "value": value,
        "unit": unit,
        "interval95": [min(values), max(values)],
        "published": None,
        "target": most and f"≤ {most}",
        "met": most and value <= most,
    }


class Report:
    def __init__(self, experiment):
        self.experiment = experiment
        self.began = time.time(), steal_s()

    def print(self, headline, rows, note):
        wall_s, stolen_s = time.time() - self.began[0], steal_s() - self.began[1]
        steal = 100 * stolen_s / wall_s / os.cpu_count()
        models = [line for line in pathlib.Path("/proc/cpuinfo").read_text().split("\n") if line.startswith("model name")]
        model = models[0].split(": ", 1)[1] if models else "unknown CPU"
        line = f"{os.cpu_count()} CPUs ({model}), Linux {platform.release()}, steal {steal:.1f} %. {note}"
        machine = {"line": line, "kernel": platform.release(), "steal_pct": steal}
        print(json.dumps({"experiment": self.experiment, "on": "host", "machine": machine, "headline": headline, "rows": rows}))
