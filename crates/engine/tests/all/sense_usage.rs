//! Usage sensing over a made-up tree: what it counts, and what garbage does to it.

use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use tempfile::TempDir;
use tidegate_engine::sense::{
    Counters, Group, SenseConfig, SenseError, Sensor as _, UsageSensor, cgroup_id,
};

const MS: u64 = 1_000_000;

struct Tree(TempDir);

impl Tree {
    /// Two CPUs, a group `a` and one below it.
    fn new() -> Self {
        let tree = Self(TempDir::new().unwrap());
        for dir in ["proc", "cpu", "acct/a/inner", "acct/b"] {
            fs::create_dir_all(tree.at(dir)).unwrap();
        }
        tree.write("cpu/online", "0-1\n");
        tree.stat(0, 0);
        for group in ["acct", "acct/a", "acct/a/inner", "acct/b"] {
            tree.write(&format!("{group}/cpuacct.usage"), "1000\n");
        }
        tree
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    /// Rewrites in place, as kernel files change: an open file sees the new text.
    fn write(&self, path: &str, text: &str) {
        fs::write(self.at(path), text).unwrap();
    }

    fn stat(&self, idle_ticks: u64, steal_ticks: u64) {
        let text = format!(
            "cpu  7 0 7 {} 0 0 0 {} 0 0\ncpu0 1\n",
            100 + idle_ticks,
            steal_ticks
        );
        self.write("proc/stat", &text);
    }

    fn config(&self, cpuacct: bool) -> SenseConfig {
        SenseConfig {
            proc_dir: self.at("proc"),
            cpu_dir: self.at("cpu"),
            cpuacct_root: cpuacct.then(|| self.at("acct")),
        }
    }

    fn group(&self, path: &str) -> Group {
        Group::new(&self.at(path), &self.at(path)).unwrap()
    }

    fn sensor(&self, groups: &[&str]) -> UsageSensor {
        let side: Vec<Group> = groups.iter().map(|path| self.group(path)).collect();
        UsageSensor::open(&self.config(true), &side, &[]).unwrap()
    }
}

fn sample(sensor: &mut UsageSensor) -> Counters {
    let mut out = Counters::default();
    sensor.sample(&mut out).unwrap();
    out
}

#[test]
fn usage_is_summed_over_outermost_groups() {
    let tree = Tree::new();
    let mut sensor = tree.sensor(&["acct/a", "acct/a/inner", "acct/b", "acct/b"]);
    sleep(Duration::from_millis(20));
    tree.write("acct/a/cpuacct.usage", "5001000\n");
    tree.write("acct/a/inner/cpuacct.usage", "4001000\n");
    tree.write("acct/b/cpuacct.usage", "2001000\n");
    tree.write("acct/cpuacct.usage", "9001000\n");
    let out = sample(&mut sensor);
    assert_eq!(
        (out.side_ns, out.busy_ns, out.valid),
        (7 * MS, 9 * MS, true)
    );
    assert!(
        out.capacity_ns >= 40 * MS,
        "two CPUs for 20 ms: {}",
        out.capacity_ns
    );
    assert_eq!(out.online_cpus, 2);
}

#[test]
fn busy_is_never_above_capacity() {
    let tree = Tree::new();
    let mut sensor = tree.sensor(&[]);
    tree.write("acct/cpuacct.usage", "900000001000\n");
    let out = sample(&mut sensor);
    assert_eq!(out.busy_ns, out.capacity_ns);
}

#[test]
fn a_counter_that_goes_back_makes_one_sample_invalid() {
    let tree = Tree::new();
    let mut sensor = tree.sensor(&["acct/a"]);
    tree.write("acct/a/cpuacct.usage", "10\n");
    assert!(!sample(&mut sensor).valid);
    tree.write("acct/a/cpuacct.usage", "1010\n");
    let out = sample(&mut sensor);
    assert_eq!((out.side_ns, out.valid), (1000, true));
}

#[test]
fn a_change_of_the_cpu_set_makes_one_sample_invalid() {
    let tree = Tree::new();
    let mut sensor = tree.sensor(&[]);
    tree.write("cpu/online", "0\n");
    let out = sample(&mut sensor);
    assert_eq!((out.online_cpus, out.valid), (1, false));
    assert!(sample(&mut sensor).valid);
}

#[test]
fn garbage_and_short_files_are_errors_and_pass() {
    let tree = Tree::new();
    let mut sensor = tree.sensor(&["acct/a", "acct/b"]);
    for garbage in ["", "\n", "lots\n", "-5\n", "99999999999999999999999\n"] {
        tree.write("acct/a/cpuacct.usage", garbage);
        let refused = sensor.sample(&mut Counters::default());
        assert!(
            matches!(refused, Err(SenseError::Parse { .. })),
            "{garbage:?}: {refused:?}"
        );
    }
    tree.write("acct/a/cpuacct.usage", "3000\n");
    let out = sample(&mut sensor);
    assert_eq!(
        (out.side_ns, out.valid),
        (2000, false),
        "what the failed samples missed is unknown"
    );
    assert!(sample(&mut sensor).valid);
    tree.write("cpu/online", "zero\n");
    assert!(sensor.sample(&mut Counters::default()).is_err());
}

#[test]
fn missing_groups_are_left_out_and_missing_files_named() {
    let tree = Tree::new();
    let mut sensor = tree.sensor(&["acct/a"]);
    let gone = Group {
        id: 7,
        usage: tree.at("acct/gone/cpuacct.usage"),
    };
    sensor
        .set_groups(&[tree.group("acct/b"), gone], &[])
        .unwrap();
    tree.write("acct/b/cpuacct.usage", "1500\n");
    tree.write("acct/a/cpuacct.usage", "9000\n");
    assert_eq!(sample(&mut sensor).side_ns, 500);

    fs::remove_file(tree.at("proc/stat")).unwrap();
    let refused = UsageSensor::open(&tree.config(true), &[], &[])
        .err()
        .unwrap()
        .to_string();
    assert!(
        refused.contains("proc/stat") && refused.contains("mounted"),
        "{refused}"
    );
    assert!(cgroup_id(&tree.at("acct/gone")).is_err());
}

/// v2: usage from cpu.stat; busy is what /proc/stat leaves of the wall time.
#[test]
fn v2_takes_idle_and_steal_off_wall_time() {
    let tree = Tree::new();
    fs::remove_file(tree.at("acct/a/cpuacct.usage")).unwrap();
    tree.write(
        "acct/a/cpu.stat",
        "usage_usec 100\nuser_usec 60\nsystem_usec 40\n",
    );
    let side = [tree.group("acct/a")];
    let mut sensor = UsageSensor::open(&tree.config(false), &side, &[]).unwrap();
    let start = sample(&mut sensor);
    sleep(Duration::from_millis(50));
    tree.stat(3, 2);
    tree.write(
        "acct/a/cpu.stat",
        "usage_usec 20100\nuser_usec 60\nsystem_usec 40\n",
    );
    let out = sample(&mut sensor);
    let wall_ns = 2 * (out.now_ns - start.now_ns);
    assert_eq!(out.side_ns, 20 * MS);
    assert_eq!(out.steal_ns, 20 * MS);
    assert_eq!(out.capacity_ns - start.capacity_ns, wall_ns - 20 * MS);
    assert_eq!(out.busy_ns, out.capacity_ns - 30 * MS);

    // Steps of 10 ms may show more idle time than there was; it is made up for, not lost.
    tree.stat(3 + 30, 2);
    let ahead = sample(&mut sensor);
    assert_eq!(ahead.busy_ns, out.busy_ns);
    sleep(Duration::from_millis(200));
    let caught_up = sample(&mut sensor);
    let idle_ns = caught_up.capacity_ns - caught_up.busy_ns;
    assert_eq!(idle_ns, 330 * MS);
    assert!(caught_up.valid);

    tree.stat(3, 2);
    assert!(!sample(&mut sensor).valid, "idle went back by 300 ms");
}

/// v2 with schedstat: what tasks ran, whatever ticks make of idle time; at least what side work
/// used.
#[test]
fn v2_takes_busy_time_from_schedstat() {
    let tree = Tree::new();
    fs::remove_file(tree.at("acct/a/cpuacct.usage")).unwrap();
    let used = |usec: u64| tree.write("acct/a/cpu.stat", &format!("usage_usec {usec}\n"));
    let ran = |ms: [u64; 2], ticks: [u64; 2]| {
        let cpu = |n: usize| format!("cpu{n} 0 0 0 0 0 0 {} 0 9\ndomain0 MC 3 1\n", ms[n] * MS);
        tree.write(
            "proc/schedstat",
            &format!("version 17\n{}{}", cpu(0), cpu(1)),
        );
        // CPU 1 idles as CPU 0 runs.
        let cpu = |n: u64| {
            let (running, idle) = (ticks[n as usize], n * ticks[0]);
            format!("cpu{n} {running} 0 0 {idle} 0 0 0 0 0 0\n")
        };
        tree.write(
            "proc/stat",
            &format!("cpu  0 0 0 0 0 0 0 0 0 0\n{}{}intr 1\n", cpu(0), cpu(1)),
        );
    };
    used(0);
    ran([500, 700], [0, 0]);
    let side = [tree.group("acct/a")];
    let mut sensor = UsageSensor::open(&tree.config(false), &side, &[]).unwrap();
    let told = |sensor: &mut UsageSensor, last: &Counters| {
        sleep(Duration::from_millis(60));
        let out = sample(sensor);
        assert!(out.valid);
        (out, out.busy_ns - last.busy_ns)
    };
    // However late the first sample is, both CPUs idled until then.
    let idle = "0 0 0 1 0 0 0 0 0 0";
    tree.write(
        "proc/stat",
        &format!("cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 {idle}\ncpu1 {idle}\nintr 1\n"),
    );
    sleep(Duration::from_millis(40));
    let start = sample(&mut sensor);
    // Ticks that see no idle time are not believed where there were switches.
    ran([530, 710], [6, 6]);
    used(25_000);
    let (out, _) = told(&mut sensor, &start);
    assert_eq!(out.busy_ns, 40 * MS);
    // One task of side work throughout on CPU 0, told by ticks.
    ran([530, 710], [12, 6]);
    used(85_000);
    let (out2, busy_ns) = told(&mut sensor, &out);
    assert!((60 * MS..120 * MS).contains(&busy_ns), "{busy_ns}");
    // It leaves: nothing is told twice.
    let more_ms = busy_ns / MS + 10;
    ran([530 + more_ms, 710], [13, 6]);
    used(95_000);
    let (_, busy_ns) = told(&mut sensor, &out2);
    assert!((9 * MS..=11 * MS).contains(&busy_ns), "{busy_ns}");

    tree.write("proc/schedstat", "version 17\ncpu0 1 2\n");
    assert!(sensor.sample(&mut Counters::default()).is_err());
}

/// Busy time that stands still beside side work that runs: the law shall see it, not a main that
/// uses nothing.
#[test]
fn v2_does_not_hide_a_schedstat_that_stands_still() {
    let tree = Tree::new();
    fs::remove_file(tree.at("acct/a/cpuacct.usage")).unwrap();
    tree.write("acct/a/cpu.stat", "usage_usec 0\n");
    tree.write("proc/schedstat", "version 17\ncpu0 0 0 0 0 0 0 7 0 9\n");
    tree.write(
        "proc/stat",
        "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n",
    );
    let side = [tree.group("acct/a")];
    let mut sensor = UsageSensor::open(&tree.config(false), &side, &[]).unwrap();
    let mut last = sample(&mut sensor);
    for step in 1..=10 {
        sleep(Duration::from_millis(20));
        tree.write(
            "proc/stat",
            &format!(
                "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 {} 0 0 0 0 0 0\n",
                2 * step
            ),
        );
        tree.write(
            "acct/a/cpu.stat",
            &format!("usage_usec {}\n", 300_000 * step),
        );
        let out = sample(&mut sensor);
        if step > 1 {
            assert_eq!(out.busy_ns, last.busy_ns, "{step}");
        }
        last = out;
    }
    assert_eq!(last.side_ns, 3_000 * MS);
}

/// Of other CPUs than `/proc/stat`, or of another layout: a container's, or a later kernel's.
#[test]
fn v2_leaves_a_schedstat_that_is_not_understood() {
    let tree = Tree::new();
    let cpu = |n: usize| format!("cpu{n} 0 0 0 0 0 0 7 0 9\n");
    tree.write(
        "proc/stat",
        "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n",
    );
    let note = |text: &str| {
        tree.write("proc/schedstat", text);
        UsageSensor::open(&tree.config(false), &[], &[])
            .unwrap()
            .exactness()
    };
    assert!(!note(&format!("version 17\n{}", cpu(0))).contains("steps"));
    for text in [
        String::new(),
        format!("version 18\n{}", cpu(0)),
        format!("version 17\n{}{}", cpu(0), cpu(1)),
    ] {
        assert!(note(&text).contains("idle has steps of 10 ms"), "{text}");
    }
}
