#!/usr/bin/env python3
"""An incident from beginning to end on this machine, as root: a batch job without a gate slows a web server; the alert's recording is
looked at, replayed under a policy, tuned, and the policy applied. Each step is checked; what a person would type is printed before it.

nginx (gzip) behind an open loop of requests is main; ffmpeg, or stress-ng where it is not installed, is the batch job in a group of its
own, as a unit would be. About three minutes.
"""

import asyncio
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent.parent
TIDEGATE = os.environ.get("TIDEGATE", str(HERE / "target/release/tidegate"))
LAB = f"{TIDEGATE}-lab"
PORT = 18197
RATE = float(os.environ.get("RATE", "160"))  # requests a second: 15 to 20 % of two CPUs
OBJECTIVE = os.environ.get("OBJECTIVE", "p99<3ms")
BATCH = "incident-batch"


def say(text):
    print(text, flush=True)


def ran(program, words, check=True):
    name = pathlib.Path(program).name
    say(f"# {name} " + " ".join(f"'{word}'" if " " in word or "<" in word else word for word in words))
    done = subprocess.run([program, *words], capture_output=True, text=True)
    if check and done.returncode != 0:
        sys.exit(f"incident: {name} {' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def tidegate(*words, check=True):
    return ran(TIDEGATE, words, check)


def lab(*words):
    return ran(LAB, words)


def batch_groups():
    """The batch job's group: on v1 in the hierarchies of cpu and cpuacct, which may be one."""
    roots = [pathlib.Path("/sys/fs/cgroup") / name for name in ("cpu", "cpuacct")]
    roots = {root.resolve() for root in roots if (root / "cgroup.procs").exists()}
    return [root / BATCH for root in roots or {pathlib.Path("/sys/fs/cgroup")}]


def site(folder):
    if not shutil.which("nginx"):
        sys.exit("incident: nginx is not installed; apt-get install nginx-light")
    rng = random.Random(7)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(3, 9))) for _ in range(2000)]
    (folder / "page.txt").write_text(" ".join(rng.choices(words, k=14_000)))
    (folder / "nginx.conf").write_text(
        f"worker_processes {os.cpu_count()}; daemon off; user root; pid {folder}/pid; error_log {folder}/error.log;\n"
        "events { worker_connections 512; }\n"
        "http { access_log off; keepalive_requests 1000000; gzip on; gzip_comp_level 6; gzip_types text/plain;\n"
        f"server {{ listen 127.0.0.1:{PORT}; root {folder}; }} }}\n"
    )
    return ["nginx", "-e", f"{folder}/error.log", "-c", f"{folder}/nginx.conf"]


class Load:
    """Requests at scheduled moments, whatever became of those before."""

    def __init__(self):
        self.latencies = []
        self.free = []
        self.under_way = set()

    async def request(self, due):
        try:
            reader, writer = self.free.pop() if self.free else await asyncio.open_connection("127.0.0.1", PORT)
            writer.write(b"GET /page.txt HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            while True:  # chunked: a compressed answer has no length
                size = int(await reader.readline(), 16)
                await reader.readexactly(size + 2)
                if size == 0:
                    break
            self.free.append((reader, writer))
        except (OSError, asyncio.IncompleteReadError, ValueError):
            return
        self.latencies.append((due, time.time() - due))

    async def run(self):
        loop = asyncio.get_running_loop()
        due = time.time()
        while True:
            due += random.expovariate(RATE)
            await asyncio.sleep(max(0.0, due - time.time()))
            task = loop.create_task(self.request(due))
            self.under_way.add(task)
            task.add_done_callback(self.under_way.discard)

    async def stop(self, task):
        for one in [task, *self.under_way]:
            one.cancel()
        await asyncio.gather(task, *self.under_way, return_exceptions=True)

    def p99_ms(self, since):
        found = sorted(latency for due, latency in self.latencies if due >= since)
        return 1e3 * found[int(0.99 * (len(found) - 1))] if found else float("nan")


def batch_words():
    if shutil.which("ffmpeg"):
        return "ffmpeg -nostdin -loglevel error -f lavfi -i testsrc2=size=1280x720 -c:v libx264 -f null -".split()
    return ["stress-ng", "--cpu", str(2 * os.cpu_count()), "--quiet"]


def start(words, groups, **options):
    def enter():
        for group in groups:
            (group / "cgroup.procs").write_text(str(os.getpid()))

    return subprocess.Popen(words, preexec_fn=enter, stdout=subprocess.DEVNULL, **options)


async def until(what, seconds, found):
    end = time.time() + seconds
    while time.time() < end:
        result = found()
        if result:
            return result
        await asyncio.sleep(0.5)
    sys.exit(f"incident: waited {seconds} s for {what}")


def alerts(run_dir):
    return sorted((run_dir / "recording/alerts").glob("*.tgr"))


async def start_web(folder, background, *terms):
    """nginx as a main gate, and its load."""
    words = [TIDEGATE, "run", "--main", *terms, "--name", "web", "--", *site(folder)]
    background.append(subprocess.Popen(words))
    await until("nginx", 10, lambda: (folder / "pid").exists())
    load = Load()
    return load, asyncio.create_task(load.run())


async def night(folder, groups, background):
    """Quiet, then the batch job; returns the load and the alert's recording."""
    run_dir = pathlib.Path(os.environ["TIDEGATE_RUN_DIR"])
    load, task = await start_web(folder, background, "--objective", OBJECTIVE)
    began = time.time()
    await asyncio.sleep(20)
    say(f"03:00  quiet: 99 of 100 requests take at most {load.p99_ms(began + 2):.1f} ms")
    began = time.time()
    background.append(start(batch_words(), groups))
    earlier = alerts(run_dir)
    if earlier:
        sys.exit(f"incident: an alert before the batch job began: this machine is not quiet ({earlier[-1].name})")
    await until("the alert", 90, lambda: [one for one in alerts(run_dir) if "objective-missed" in one.name])
    p99 = load.p99_ms(began + 2)
    say(f"03:01  a batch job without a gate runs: {p99:.1f} ms, and an alert")
    return load, task, alerts(run_dir)[-1], p99


async def walk(folder, groups, background):
    load, task, alert, p99_hurt = await night(folder, groups, background)
    say(tidegate("events").strip().splitlines()[-1])
    shown = tidegate("top", "--once", "--recording", str(alert))
    say(shown)
    if f"/{BATCH}" not in shown or "web" not in shown:
        sys.exit("incident: the recording does not show the batch job and the server")
    policy = folder / "policy.toml"
    say(lab("tune", f"cgroup:/{BATCH}", "--recording", str(alert), "--out", str(policy)))
    say(policy.read_text())
    say(tidegate("policy", "check", str(policy)))
    say(lab("replay", str(alert), "--policy", str(policy)))
    arms = json.loads(lab("replay", str(alert), "--policy", str(policy), "--json"))["arms"]
    waits = [arm["figures"]["main_wait_p99_us"]["value"] for arm in arms]
    if not waits[1] < waits[0]:
        sys.exit(f"incident: replayed, main waits {waits} us")
    run_dir = pathlib.Path(os.environ["TIDEGATE_RUN_DIR"])
    shutil.copy(policy, run_dir / "tidegate.toml")
    say(tidegate("policy", "diff", check=False))
    say(tidegate("policy", "apply", "--for", "10m"))
    await asyncio.sleep(3)
    began = time.time()
    await asyncio.sleep(20)
    p99_fixed = load.p99_ms(began)
    say(f"the policy is in force: 99 of 100 requests take at most {p99_fixed:.1f} ms; the batch job goes on")
    say(tidegate("policy", "confirm"))
    await load.stop(task)
    if not p99_fixed < p99_hurt:
        sys.exit(f"incident: {p99_fixed:.1f} ms with the policy, {p99_hurt:.1f} without")


def staged(walk):
    """Runs `walk(folder, groups, background)` with an agent of its own, and leaves nothing."""
    if os.geteuid() != 0:
        sys.exit("incident: gates need root; run it as root")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tidegate-incident."))
    os.environ.update(TIDEGATE_RUN_DIR=str(folder / "run"), TIDEGATE_PREFIX="tgincident")
    (folder / "run").mkdir()
    groups = batch_groups()
    for group in groups:
        group.mkdir(exist_ok=True)
    background = []
    try:
        asyncio.run(walk(folder, groups, background))
    finally:
        for process in background[1:]:
            process.kill()
        subprocess.run([TIDEGATE, "agent", "stop"], capture_output=True)
        for process in background[:1]:
            process.send_signal(signal.SIGTERM)
        for process in background:
            process.wait()
        subprocess.run([TIDEGATE, "agent", "repair"], capture_output=True)
        time.sleep(0.5)
        for group in groups:
            group.rmdir()
        shutil.rmtree(folder)


if __name__ == "__main__":
    staged(walk)
