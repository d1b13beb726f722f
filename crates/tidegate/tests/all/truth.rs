//! The figures that Tidegate shows, against the kernel's own, of gates that are held back in
//! different ways.
//!
//! The kernel's counts only grow, so a figure that was polled between two readings of them is
//! bounded by those readings. No bound depends on how long anything takes.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::Value;

use crate::common::{
    Background, Instance, OtherGroup, children, cpu_mount, or_skip, quota_file, wait_for,
};
use crate::support_hostile::get;
use crate::support_kill::processes::signal;

const HOG: &[&str] = &["sh", "-c", "while :; do :; done"];
const SLEEPER: &[&str] = &["sleep", "1000"];
/// Runs for some milliseconds at a time.
const BURSTS: &[&str] = &["sh", "-c", "while :; do sleep 0.01; done"];
/// How long each gate is polled.
const POLLED_S: f64 = 2.6;
/// The kernel adds the time of a task that runs to its group at each tick: 4 ms at 250 Hz.
const TICK_S: f64 = 0.004;
/// `/proc/PID/stat` counts in hundredths of a second.
const JIFFY_S: f64 = 0.01;
/// Interrupts are in no task's time, and are in its class's as the sensor has it.
const INTERRUPTS: f64 = 0.03;

/// Its name and flags, its command, whether hogs of main run on each CPU, what happens to it, which
/// is undone when the guard is dropped, and the limits of which one comes to hold it.
type Case = (
    &'static str,
    &'static str,
    &'static [&'static str],
    bool,
    Act,
    &'static [&'static str],
);
type Act = fn(&Stage) -> Box<dyn Any>;

const NOTHING: Act = |_| Box::new(());
// On a machine that is busy with other work, main leaves side work no more than the tolerance.
const CASES: &[Case] = &[
    ("hog", "--side", HOG, false, NOTHING, &[]),
    ("sleeper", "--side", SLEEPER, false, NOTHING, &["demand"]),
    ("bursts", "--main", BURSTS, false, NOTHING, &[]),
    (
        "headroom",
        "--side --headroom 60%",
        HOG,
        false,
        NOTHING,
        &["headroom", "tolerance"],
    ),
    ("quota", "--quota 20ms", HOG, false, NOTHING, &["quota"]),
    ("cap", "--cap 0.2cpu", HOG, false, NOTHING, &["cap"]),
    ("soft", "--cap-soft 0", HOG, false, NOTHING, &["soft_cap"]),
    ("capped", "--side --cap 0.2cpu", HOG, false, NOTHING, &[]),
    (
        "starved",
        "--side",
        HOG,
        true,
        NOTHING,
        &["idle_class", "tolerance"],
    ),
    ("squeezed", "--side --headroom 30%", HOG, true, NOTHING, &[]),
    (
        "two",
        "--side --headroom 50%",
        HOG,
        false,
        beside_another,
        &["weight", "tolerance"],
    ),
    (
        "below",
        "--main",
        HOG,
        false,
        |stage| limited(stage.dir.parent().unwrap()),
        &["parent"],
    ),
    (
        "outside",
        "--main",
        HOG,
        false,
        |stage| limited(&stage.dir),
        &["outside"],
    ),
    ("frozen", "--side", HOG, false, frozen, &[]),
    ("stopped", "--side", HOG, false, stopped, &[]),
];

/// One gate of an instance.
struct Stage<'a> {
    instance: &'a Instance,
    gate: String,
    /// Its group, and the group of all side work.
    dir: PathBuf,
    root: PathBuf,
    pid: u32,
    agent: u64,
    began: Instant,
}

#[derive(Clone, Copy, Default)]
struct Stat {
    used_s: f64,
    periods: f64,
    throttled: f64,
    throttled_s: f64,
}

/// The kernel's counts at one moment.
#[derive(Clone, Copy, Default)]
struct Reading {
    at_s: f64,
    own: Stat,
    root: Stat,
    delay_s: f64,
    busy_s: f64,
    agent_s: f64,
}

/// An answer of the agent between two readings.
struct Poll {
    before: Reading,
    after: Reading,
    status: Value,
    quota: Option<String>,
}

/// A figure that was taken after `from` and before `to`.
struct Taken<'p> {
    from: Reading,
    to: Reading,
    status: &'p Value,
}

type Bounds = (f64, f64);

impl Taken<'_> {
    fn bounds(&self, of: impl Fn(&Reading) -> f64) -> Bounds {
        (of(&self.from), of(&self.to))
    }

    fn grown(&self, last: &Self, of: impl Fn(&Reading) -> f64) -> Bounds {
        (of(&self.from) - of(&last.to), of(&self.to) - of(&last.from))
    }
}

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn numbers(text: &str) -> Vec<f64> {
    let words = text.split_ascii_whitespace();
    words.filter_map(|word| word.parse().ok()).collect()
}

fn named(text: &str, name: &str) -> f64 {
    let mut lines = text.lines();
    let found = lines.find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    found.unwrap_or(0.0)
}

impl Stat {
    fn read(dir: &Path) -> Self {
        let (mount, is_v1) = cpu_mount();
        let stat = read(dir.join("cpu.stat"));
        let accounts = Path::new("/sys/fs/cgroup/cpuacct").join(dir.strip_prefix(&mount).unwrap());
        let accounts = if accounts.exists() { &accounts } else { dir };
        let (used_s, throttled_s) = match is_v1 {
            true => {
                let used_ns = numbers(&read(accounts.join("cpuacct.usage")));
                let used_ns = used_ns.first().copied().unwrap_or(0.0);
                (used_ns / 1e9, named(&stat, "throttled_time ") / 1e9)
            }
            false => (
                named(&stat, "usage_usec ") / 1e6,
                named(&stat, "throttled_usec ") / 1e6,
            ),
        };
        Self {
            used_s,
            throttled_s,
            periods: named(&stat, "nr_periods "),
            throttled: named(&stat, "nr_throttled "),
        }
    }
}

/// What all tasks used. `/proc/stat` counts a tick for whatever runs at its end, which is up to 5 %
/// off beside a loop that runs every 5 ms.
fn all_used_s() -> f64 {
    match std::fs::read_to_string("/sys/fs/cgroup/cpuacct/cpuacct.usage") {
        Ok(used_ns) => numbers(&used_ns)[0] / 1e9,
        Err(_) => named(&read("/sys/fs/cgroup/cpu.stat"), "usage_usec ") / 1e6,
    }
}

impl Stage<'_> {
    fn get(&self, path: &str) -> Value {
        get(&self.instance.run_dir().join("tidegate.sock"), path)
    }

    fn reading(&self) -> Reading {
        let (pid, agent) = (self.pid, self.agent);
        let task = numbers(&read(format!("/proc/{pid}/task/{pid}/schedstat")));
        let agent = read(format!("/proc/{agent}/stat"));
        let agent = numbers(agent.rsplit(')').next().unwrap());
        Reading {
            at_s: self.began.elapsed().as_secs_f64(),
            own: Stat::read(&self.dir),
            root: Stat::read(&self.root),
            delay_s: task.get(1).map_or(0.0, |ns| ns / 1e9),
            busy_s: all_used_s(),
            // The state is a letter, so utime is the eleventh number after the name.
            agent_s: (agent[10] + agent[11]) * JIFFY_S,
        }
    }

    /// The quota of all side work as its files say, in the order of v2's.
    fn quota(&self) -> String {
        let file = |name: &str| read(self.root.join(name)).trim().to_owned();
        match cpu_mount().1 {
            true => format!("{} {}", file("cpu.cfs_quota_us"), file("cpu.cfs_period_us")),
            false => file("cpu.max"),
        }
    }

    fn poll(&self) -> Poll {
        let (before, quota_before) = (self.reading(), self.quota());
        let status = self.get("/v1/status");
        let (quota_after, after) = (self.quota(), self.reading());
        let quota = (quota_before == quota_after).then_some(quota_after);
        Poll {
            before,
            after,
            status,
            quota,
        }
    }

    fn of<'v>(&self, status: &'v Value) -> &'v Value {
        let mut gates = status["gates"].as_array().unwrap().iter();
        let found = gates.find(|gate| gate["name"] == *self.gate);
        found.unwrap_or(&Value::Null)
    }

    #[track_caller]
    fn within(&self, what: &str, (least, most): Bounds, shown: f64, tolerance: f64) {
        assert!(
            shown >= least - tolerance - 1e-6 && shown <= most + tolerance + 1e-6,
            "{}: {what}: {shown} is shown, the kernel says {least} to {most} (± {tolerance})",
            self.gate
        );
    }

    /// Everything about this gate and the machine, while both are as they are now.
    fn compare(&self) {
        let (began, mut polls) = (Instant::now(), Vec::new());
        while began.elapsed().as_secs_f64() < POLLED_S {
            polls.push(self.poll());
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        self.compare_gate(&polls);
        self.compare_machine(&polls);
        self.compare_agent(&polls);
        self.compare_views();
    }

    fn compare_gate(&self, polls: &[Poll]) {
        let is_bursts = self.gate == "bursts";
        let taken = taken(polls, |status| {
            number(&self.of(status)["held"], "window_seconds")
        });
        assert!(taken.len() >= 2, "{}: {} polls", self.gate, taken.len());
        for now in &taken {
            let gate = self.of(now.status);
            let is_idle = gate["held"]["limit"] == "demand";
            assert!(self.gate != "headroom" || !is_idle, "{gate}");
            let used = now.bounds(|reading| reading.own.used_s);
            match gate["used_seconds"].as_f64() {
                Some(shown_s) => self.within("used_seconds", used, shown_s, 0.0),
                // cpuacct is mounted apart, and another program's group is not in it.
                None => assert_eq!(used, (0.0, 0.0), "{gate}"),
            }
            // Of the group of all side work where the gate has no limit of its own.
            let is_own = !gate["own_limit"].is_null() || now.to.own.periods > 0.0;
            let stat = |reading: &Reading| match is_own {
                true => reading.own,
                false if gate["class"] == "side" => reading.root,
                false => Stat::default(),
            };
            for (what, count) in [
                ("nr_periods", now.bounds(|reading| stat(reading).periods)),
                (
                    "nr_throttled",
                    now.bounds(|reading| stat(reading).throttled),
                ),
                (
                    "throttled_seconds",
                    now.bounds(|reading| stat(reading).throttled_s),
                ),
            ] {
                self.within(what, count, number(gate, what), 0.0);
            }
            let processes = read(self.dir.join("cgroup.procs")).lines().count();
            assert!(is_bursts || gate["processes"] == processes, "{gate}");
        }
        for (last, now) in taken.iter().zip(taken.iter().skip(1)) {
            let (gate, before) = (self.of(now.status), self.of(last.status));
            let held = &gate["held"];
            let window_s = number(held, "window_seconds");
            self.within(
                "window_seconds",
                now.grown(last, |reading| reading.at_s),
                window_s,
                0.0,
            );
            let used_s = |gate: &Value| gate["used_seconds"].as_f64();
            let shown_s = number(gate, "usage_cpus") * window_s;
            if let (Some(now_s), Some(before_s)) = (used_s(gate), used_s(before)) {
                let used_s = now_s - before_s;
                self.within("usage_cpus", (used_s, used_s), shown_s, 1e-6);
            }
            // A wait that has not ended is no count of the kernel's yet.
            let waits = |gate: &Value| {
                let held = &gate["held"];
                number(held, "run_delay_seconds") > 0.99 * number(held, "window_seconds")
            };
            if !is_bursts && !waits(gate) && !waits(before) {
                let delay = now.grown(last, |reading| reading.delay_s);
                let shown_s = number(held, "run_delay_seconds");
                self.within("run_delay_seconds", delay, shown_s, 0.0);
            }
        }
    }

    fn compare_machine(&self, polls: &[Poll]) {
        let cpus = number(&polls[0].status, "cpus");
        let ticks_s = 2.0 * cpus * TICK_S;
        for Poll { status, quota, .. } in polls {
            let [main, side, idle, all] = ["main_cpus", "side_cpus", "idle_cpus", "capacity_cpus"]
                .map(|name| number(status, name));
            self.within(
                "main + side + idle",
                (all, all),
                main + side + idle,
                0.02 * cpus,
            );
            if let (Some(quota), Some(group)) = (quota, status["decision"]["groups"].get(0)) {
                // A quota of more than the machine limits nothing.
                let words = numbers(quota);
                let is_none = words[0] < 0.0 || words.len() < 2 || words[0] >= cpus * words[1];
                let shown = match group["quota_us"].as_u64() {
                    Some(quota_us) => quota == &format!("{quota_us} {}", group["period_us"]),
                    None => is_none,
                };
                assert!(
                    shown,
                    "{}: the quota is {quota}: {}",
                    self.gate, status["decision"]
                );
            }
        }
        let [side_s, main_s] = ["side_cpu_seconds", "main_cpu_seconds"]
            .map(|name| move |status: &Value| number(&status["totals"], name));
        let sums = taken(polls, |status| side_s(status) + main_s(status));
        let (first, last) = (&sums[0], &sums[sums.len() - 1]);
        // Samples that could not be used are not in the sums.
        let unusable = |sums: &Taken<'_>| number(&sums.status["control"], "unusable_samples");
        if unusable(first) == unusable(last) {
            let side = last.grown(first, |reading| reading.root.used_s);
            let shown_s = side_s(last.status) - side_s(first.status);
            self.within("side_cpu_seconds", side, shown_s, ticks_s);
            let busy = last.grown(first, |reading| reading.busy_s);
            let sampled_s = ticks_s + 4.0 * JIFFY_S + INTERRUPTS * cpus * POLLED_S;
            let shown_s = shown_s + main_s(last.status) - main_s(first.status);
            self.within("main and side seconds", busy, shown_s, sampled_s);
        }
        let seconds = taken(polls, |status| number(status, "side_cpus"));
        for (last, now) in seconds.iter().zip(seconds.iter().skip(1)) {
            let (least_s, most_s) = now.grown(last, |reading| reading.root.used_s);
            let (shortest_s, longest_s) = now.grown(last, |reading| reading.at_s);
            // The first second is shown while it grows.
            if shortest_s > 0.8 {
                let side = (least_s / longest_s, most_s);
                self.within("side_cpus", side, number(now.status, "side_cpus"), ticks_s);
            }
        }
    }

    fn compare_agent(&self, polls: &[Poll]) {
        let used_s = |status: &Value| number(&status["totals"], "agent_cpu_seconds");
        for Poll {
            before,
            after,
            status,
            ..
        } in polls
        {
            let agent = (before.agent_s, after.agent_s);
            self.within("agent_cpu_seconds", agent, used_s(status), 2.0 * JIFFY_S);
        }
        let (first, last) = (&polls[0].status, &polls[polls.len() - 1].status);
        let window_s = |status: &Value| number(&status["control"], "agent_window_seconds");
        let shown_s = |status: &Value| number(&status["control"], "agent_cpus") * window_s(status);
        let passed_s = number(last, "uptime_seconds") - number(first, "uptime_seconds");
        // Both windows begin at the agent's start.
        if (window_s(last) - window_s(first) - passed_s).abs() < 1e-6 {
            let agent_s = used_s(last) - used_s(first);
            let shown_s = shown_s(last) - shown_s(first);
            self.within("agent_cpus", (agent_s, agent_s), shown_s, 0.002);
        }
    }

    /// `explain`, `top`, `status` as text and metrics show what the API's status says.
    fn compare_views(&self) {
        let explain = format!("/v1/explain?target=gate:{}", self.gate);
        wait_for("the same poll in each view", || {
            let first = self.get("/v1/status");
            let explained = self.get(&explain);
            let metrics = self.instance.ok(&["metrics"]);
            let top = self.instance.ok(&["top", "--once"]);
            let text = self.instance.ok(&["status"]);
            let last = self.get("/v1/status");
            let (first, last) = (self.of(&first), self.of(&last));
            if first["held"] != last["held"] {
                return false;
            }
            assert_eq!(explained["gate"]["usage_cpus"], first["usage_cpus"]);
            assert_eq!(explained["gate"]["held"], first["held"]);
            for (series, field) in [
                ("cpu_seconds_total", "used_seconds"),
                ("cpus", "usage_cpus"),
                ("periods_total", "nr_periods"),
                ("throttled_periods_total", "nr_throttled"),
                ("throttled_seconds_total", "throttled_seconds"),
            ] {
                let series = format!("tidegate_gate_{series}{{gate=\"{}\"", self.gate);
                let line = metrics.lines().find(|line| line.starts_with(&series));
                if first[field].is_null() {
                    assert_eq!(line, None, "what is unknown has no sample");
                    continue;
                }
                let shown = line.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
                let polled = (number(first, field), number(last, field));
                self.within(&series, polled, shown, 0.0);
            }
            for page in [top, text] {
                // Long names are cut.
                let name = &self.gate[..self.gate.len().min(19)];
                let line = page.lines().find(|line| line.starts_with(name));
                let line = line.expect(&page);
                let shown = line.split_whitespace().nth(2);
                let cpus = format!("{:.2}", number(first, "usage_cpus"));
                assert_eq!(shown, Some(cpus.as_str()), "{page}");
            }
            true
        });
    }
}

fn number(value: &Value, name: &str) -> f64 {
    value[name]
        .as_f64()
        .unwrap_or_else(|| panic!("{name} in {value}"))
}

/// The polls that were the first to show another value of `key`: that was taken after the poll
/// before began.
fn taken(polls: &[Poll], key: impl Fn(&Value) -> f64) -> Vec<Taken<'_>> {
    let pairs = polls.windows(2);
    pairs
        .filter(|pair| key(&pair[0].status) != key(&pair[1].status))
        .map(|pair| Taken {
            from: pair[0].before,
            to: pair[1].after,
            status: &pair[1].status,
        })
        .collect()
}

struct Undo<F: Fn()>(F);

impl<F: Fn()> Drop for Undo<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Another program limits the group.
fn limited(dir: &Path) -> Box<dyn Any> {
    let (file, some) = quota_file(dir, Some(20_000));
    std::fs::write(&file, some).unwrap();
    let (file, none) = quota_file(dir, None);
    Box::new(Undo(move || drop(std::fs::write(&file, &none))))
}

fn frozen(stage: &Stage) -> Box<dyn Any> {
    if !cpu_mount().1 {
        let file = stage.dir.join("cgroup.freeze");
        std::fs::write(&file, "1").unwrap();
        return Box::new(Undo(move || drop(std::fs::write(&file, "0"))));
    }
    let freezer = Path::new("/sys/fs/cgroup/freezer");
    let dir = freezer.join(stage.instance.prefix());
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("cgroup.procs"), stage.pid.to_string()).unwrap();
    std::fs::write(dir.join("freezer.state"), "FROZEN").unwrap();
    let pid = stage.pid.to_string();
    Box::new(Undo(move || {
        let _ = std::fs::write(dir.join("freezer.state"), "THAWED");
        let _ = std::fs::write(freezer.join("cgroup.procs"), &pid);
        let _ = std::fs::remove_dir(&dir);
    }))
}

fn beside_another(stage: &Stage) -> Box<dyn Any> {
    Box::new(stage.instance.background(&["--side"], HOG))
}

fn stopped(stage: &Stage) -> Box<dyn Any> {
    let pid = stage.pid as i32;
    signal(pid, libc::SIGSTOP);
    Box::new(Undo(move || signal(pid, libc::SIGCONT)))
}

fn stage<'a>(instance: &'a Instance, gate: &str, pid: u32) -> Stage<'a> {
    let mount = cpu_mount().0;
    let group = instance.gate(gate)["cgroup"].as_str().unwrap().to_owned();
    Stage {
        instance,
        gate: gate.to_owned(),
        dir: mount.join(group.trim_start_matches('/')),
        root: mount.join(format!("{}-side", instance.prefix())),
        pid,
        agent: instance.agent().unwrap(),
        began: Instant::now(),
    }
}

#[test]
fn figures_of_gates_are_the_kernels() {
    let instance = or_skip!(Instance::new("truth"));
    let _keeper = instance.sleeper("keeper");
    let cpus = std::thread::available_parallelism().unwrap().get();
    for (name, flags, command, has_main, act, limits) in CASES {
        let mains: Vec<Background> = (0..if *has_main { cpus } else { 0 })
            .map(|_| instance.background(&["--main"], HOG))
            .collect();
        let flags: Vec<&str> = flags.split(' ').chain(["--name", name]).collect();
        let job = instance.background(&flags, command);
        let stage = stage(&instance, name, job.pid());
        let undo = act(&stage);
        wait_for(&format!("{name} to be held by {limits:?}"), || {
            let status = stage.poll().status;
            let held = &stage.of(&status)["held"]["limit"];
            limits.is_empty() || limits.iter().any(|limit| *held == **limit)
        });
        stage.compare();
        drop((undo, job, mains));
        // A window in which gates end is not in the sums.
        wait_for("the ends of its gates", || {
            instance.json(&["status"])["gates"]
                .as_array()
                .unwrap()
                .len()
                == 1
        });
    }
}

#[test]
fn groups_without_tasks_and_removed_groups_use_nothing() {
    let instance = or_skip!(Instance::new("untrue"));
    let _keeper = instance.sleeper("keeper");
    let empty = OtherGroup::named(&instance, "empty");
    instance.ok(&["set", &empty.target(), "class=main"]);
    stage(&instance, &empty.name, 0).compare();
    instance.ok(&["unset", &empty.target()]);

    let removed = OtherGroup::named(&instance, "removed");
    let hog = Background::start(HOG);
    removed.enter(hog.pid());
    instance.ok(&["set", &removed.target(), "class=main"]);
    let stage = stage(&instance, &removed.name, hog.pid());
    wait_for("its use", || {
        stage.of(&stage.poll().status)["usage_cpus"].as_f64() > Some(0.0)
    });
    drop(hog);
    wait_for("its removal", || std::fs::remove_dir(&removed.path).is_ok());
    let at_end = stage.poll();
    wait_for("the end of the gate", || {
        let now = stage.poll();
        let gate = stage.of(&now.status);
        let is_polled = gate["held"] != stage.of(&at_end.status)["held"];
        if !gate.is_null() && is_polled {
            assert!(gate["usage_cpus"].as_f64() <= Some(1.0), "{gate}");
        }
        gate.is_null()
    });
}

#[test]
fn a_main_process_counts_with_what_it_has_started() {
    let instance = or_skip!(Instance::new("family"));
    let server = Background::start(&["sh", "-c", "while :; do :; done & sleep 1000 & wait"]);
    wait_for("its children", || children(server.pid()).len() == 2);
    instance.ok(&["set", &format!("pid:{}", server.pid()), "class=main"]);
    wait_for("their use", || {
        let gate = &instance.json(&["status"])["gates"][0];
        assert_eq!(gate["processes"], 3, "{gate}");
        gate["usage_cpus"].as_f64() > Some(0.05)
    });
}

#[test]
fn the_first_answer_says_what_protects_main() {
    let instance = or_skip!(Instance::new("first"));
    let job = instance.background(&["--side", "--name", "job"], HOG);
    let stage = stage(&instance, "job", job.pid());
    let status = stage.poll().status;
    let decision = &status["decision"];
    let sentence = decision["sentence"].as_str().unwrap();
    assert!(sentence.starts_with("side work is in the idle class, without a quota"));
    assert_eq!(decision["limit"], "idle_class", "{decision}");
    assert!(stage.of(&status)["allowance_cpus"].is_null(), "{status}");
    wait_for("its use", || {
        let status = stage.poll().status;
        let gate = stage.of(&status);
        let age_s = number(gate, "age_seconds");
        let used = (number(gate, "used_seconds"), number(gate, "usage_cpus"));
        let is_first = number(&gate["held"], "window_seconds") == 0.0;
        // The first figure is the mean since the gate was made.
        assert!(!is_first || used.0 <= used.1 * age_s + 1e-6, "{gate}");
        used.1 > 0.0
    });
}
