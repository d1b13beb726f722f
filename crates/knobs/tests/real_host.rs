//! The running kernel: what the engine does on it, and whether the fake refuses what it refuses.
//!
//! Skipped with one line where no cgroup tree is writable. Every group has a name of its own and is removed by a guard.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tidegate_knobs::bandwidth::Bandwidth;
use tidegate_knobs::discover::{CgroupVersion, Machine, discover};
use tidegate_knobs::group::{CpuClass, GroupError, GroupPath, Groups, Returned};
use tidegate_knobs::kfs::{FakeFs, FakeProcess, KernelFs, RealFs};

/// A top group that goes when the test ends, passed or not.
struct Bed {
    machine: Machine,
    groups: Groups,
    top: GroupPath,
    children: Vec<Child>,
}

fn bed() -> Option<Bed> {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let machine = match discover(&RealFs::new(), None) {
        Ok(machine) => machine,
        Err(error) => {
            eprintln!("skipped: {error}");
            return None;
        }
    };
    if let Some(why) = machine.refusal() {
        eprintln!("skipped: {why}");
        return None;
    }
    let fs: Arc<dyn KernelFs> = Arc::new(RealFs::with_roots(machine.roots()).unwrap());
    let groups = Groups::new(fs, &machine);
    let name = format!(
        "tgtest-{}-{}",
        std::process::id(),
        COUNTER.fetch_add(1, Ordering::Relaxed)
    );
    let top = groups.base().join(&name).unwrap();
    groups.create(&top).unwrap();
    Some(Bed {
        machine,
        groups,
        top,
        children: Vec::new(),
    })
}

impl Bed {
    fn sleeper(&mut self) -> i32 {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        self.children.push(child);
        pid
    }

    fn end_all(&mut self) {
        for mut child in self.children.drain(..) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.end_all();
        if let Err(error) = self.groups.remove(&self.top) {
            eprintln!("{error}");
        }
    }
}

#[test]
fn a_group_lives_its_life() {
    let Some(mut bed) = bed() else { return };
    let leaf = bed.top.join("leaf").unwrap();
    assert!(bed.groups.create(&leaf).unwrap());
    assert!(!bed.groups.create(&leaf).unwrap(), "there already");
    let id = bed.groups.id(&leaf).unwrap();
    assert_ne!(id, bed.groups.id(&bed.top).unwrap());

    let pid = bed.sleeper();
    let home = bed.groups.group_of(pid).unwrap().unwrap();
    let placed = bed.groups.place(&leaf, pid).unwrap();
    assert_eq!(bed.groups.group_of(pid).unwrap(), Some(leaf.clone()));
    assert_eq!(bed.groups.procs(&leaf).unwrap(), [pid]);
    assert!(bed.groups.populated(&bed.top).unwrap());
    assert!(bed.groups.usage_ns(&leaf).unwrap().is_some());
    assert_eq!(bed.groups.cpu_stat(&leaf).unwrap().nr_throttled, 0);
    match bed.groups.remove(&bed.top).unwrap_err() {
        GroupError::Busy { pids, .. } => assert_eq!(pids, [pid]),
        error => panic!("{error}"),
    }
    assert_eq!(bed.groups.place_back(&placed).unwrap(), Returned::Moved);
    assert_eq!(bed.groups.group_of(pid).unwrap(), Some(home));
    assert_eq!(
        bed.groups.place_back(&placed).unwrap(),
        Returned::AtHome,
        "idempotent"
    );
    bed.end_all();
    let gone = bed.groups.place(&leaf, pid).unwrap_err();
    assert!(gone.is_gone(), "{gone}");
    assert!(bed.groups.remove(&bed.top).unwrap());
    assert!(!bed.groups.remove(&bed.top).unwrap(), "gone is fine");
}

#[test]
fn limits_and_classes_are_changed_and_put_back() {
    let Some(bed) = bed() else { return };
    let (groups, group) = (&bed.groups, &bed.top);
    let old = groups.bandwidth(group).unwrap();
    assert_eq!(old.quota_us, None);
    let steps = [
        (Bandwidth::limit(1_000, 100_000), 1),
        (Bandwidth::limit(2_000, 100_000), 1),
        (
            Bandwidth::limit(15_000, 10_000),
            if bed.machine.version == CgroupVersion::V1 {
                2
            } else {
                1
            },
        ),
        (
            Bandwidth {
                burst_us: 5_000,
                ..Bandwidth::limit(15_000, 10_000)
            },
            1,
        ),
        (Bandwidth::limit(1_000, 10_000), 2),
        (Bandwidth::limit(1_000, 10_000), 0),
        (
            old,
            if bed.machine.version == CgroupVersion::V1 {
                2
            } else {
                1
            },
        ),
    ];
    for (to, writes) in steps {
        assert_eq!(
            groups.set_bandwidth(group, None, to).unwrap(),
            writes,
            "{to}"
        );
        assert_eq!(groups.bandwidth(group).unwrap(), to);
    }
    assert!(
        groups
            .set_bandwidth(group, None, Bandwidth::limit(999, 100_000))
            .is_err()
    );

    groups.set_weight(group, 300).unwrap();
    assert_eq!(groups.weight(group).unwrap(), 300);
    let saved = groups.class(group).unwrap();
    if saved.idle.is_none() {
        eprintln!("no cpu.idle here");
        return;
    }
    groups.set_idle(group, true).unwrap();
    assert_eq!(
        groups.set_weight(group, 100).unwrap_err().errno(),
        Some(libc::EINVAL)
    );
    let idle = groups.class(group).unwrap();
    if bed.machine.version == CgroupVersion::V1 {
        assert_eq!(
            idle,
            CpuClass {
                idle: Some(true),
                weight_raw: 3
            }
        );
    }
    groups.restore_class(group, &saved).unwrap();
    assert_eq!(groups.class(group).unwrap(), saved);
}

#[test]
fn a_real_time_process_is_named_and_stays_whole() {
    let Some(mut bed) = bed() else { return };
    if !bed.machine.features.rt_group_sched.is_present() {
        eprintln!("skipped: {}", bed.machine.features.rt_group_sched.how);
        return;
    }
    let pid = bed.sleeper();
    let param = libc::sched_param { sched_priority: 1 };
    // SAFETY: a plain system call on our own child with a valid parameter.
    if unsafe { libc::sched_setscheduler(pid, libc::SCHED_FIFO, &param) } != 0 {
        eprintln!("skipped: no right to make a process real-time");
        return;
    }
    let before = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    match bed.groups.place(&bed.top, pid).unwrap_err() {
        GroupError::RealTime {
            pid: named, tids, ..
        } => assert_eq!((named, tids), (pid, vec![pid])),
        error => panic!("{error}"),
    }
    assert_eq!(
        std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap(),
        before
    );
}

#[test]
fn names_from_users_do_not_leave_the_tree() {
    let Some(bed) = bed() else { return };
    let fs = bed.groups.fs();
    let mount = &bed.machine.cpu.mount;
    for path in ["../../../etc/passwd", "x/../../../../etc/passwd"] {
        let error = fs.read(&mount.join(path)).unwrap_err();
        assert!(matches!(error.errno, libc::EXDEV | libc::ENOENT), "{error}");
    }
    assert!(fs.mkdir(&mount.join("../tgtest-escape")).is_err());
}

/// One step of the comparison.
#[derive(Clone, Debug)]
enum Step {
    Write {
        child: bool,
        file: usize,
        value: i64,
    },
    Read {
        child: bool,
        file: usize,
    },
}

const V1_FILES: [&str; 5] = [
    "cpu.cfs_quota_us",
    "cpu.cfs_period_us",
    "cpu.cfs_burst_us",
    "cpu.shares",
    "cpu.idle",
];

fn any_step() -> impl Strategy<Value = Step> {
    let value = prop_oneof![
        Just(-1i64),
        Just(0),
        Just(1),
        Just(2),
        Just(999),
        Just(1_000),
        Just(5_000),
        Just(10_000),
        Just(50_000),
        Just(100_000),
        Just(1_000_000),
        Just(1_000_001),
        1_000i64..200_000
    ];
    prop_oneof![
        3 => (any::<bool>(), 0usize..5, value).prop_map(|(child, file, value)| Step::Write { child, file, value }),
        1 => (any::<bool>(), 0usize..5).prop_map(|(child, file)| Step::Read { child, file }),
    ]
}

fn run_step(fs: &dyn KernelFs, top: &Path, step: &Step) -> Result<String, i32> {
    let file = |child: bool, file: usize| {
        let dir = if child {
            top.join("child")
        } else {
            top.to_path_buf()
        };
        dir.join(V1_FILES[file])
    };
    match step {
        Step::Write {
            child,
            file: nth,
            value,
        } => fs
            .write(&file(*child, *nth), &value.to_string())
            .map(|()| String::new())
            .map_err(|error| error.errno),
        Step::Read { child, file: nth } => {
            fs.read(&file(*child, *nth)).map_err(|error| error.errno)
        }
    }
}

#[test]
fn the_fake_refuses_what_the_kernel_refuses_v1() {
    let Some(bed) = bed() else { return };
    if bed.machine.version != CgroupVersion::V1 {
        eprintln!("skipped: the cpu controller is on v2 here");
        return;
    }
    let real = bed.groups.fs().clone();
    let mut runner = TestRunner::new(Config {
        cases: 60,
        failure_persistence: None,
        ..Config::default()
    });
    let counter = AtomicU32::new(0);
    let strategy = prop::collection::vec(any_step(), 1..40);
    let outcome = runner.run(&strategy, |steps| {
        let nth = counter.fetch_add(1, Ordering::Relaxed);
        let top = bed.top.join(&format!("run-{nth}")).unwrap();
        let child = top.join("child").unwrap();
        bed.groups.create(&child).unwrap();
        let fake = FakeFs::mixed();
        let fake_top = PathBuf::from("/sys/fs/cgroup/cpu/top");
        fake.mkdir(&fake_top).unwrap();
        fake.mkdir(&fake_top.join("child")).unwrap();
        let mut verdict = Ok(());
        for step in &steps {
            let (own, its) = (
                run_step(&fake, &fake_top, step),
                run_step(&*real, &bed.groups.dir(&top), step),
            );
            if own != its {
                verdict = Err(TestCaseError::fail(format!(
                    "{step:?}: fake {own:?}, kernel {its:?}"
                )));
                break;
            }
        }
        bed.groups.remove(&top).unwrap();
        verdict
    });
    outcome.unwrap();
}

/// Steps of the comparison on v2, whose rules on processes and types need no controller.
#[derive(Clone, Debug)]
enum TypeStep {
    Mkdir(usize),
    Rmdir(usize),
    Threaded(usize),
    Enter(usize, usize),
    Show(usize, usize),
}

const V2_DIRS: [&str; 5] = ["a", "a/b", "a/c", "a/b/d", "e"];
const V2_SHOWN: [&str; 3] = ["cgroup.type", "cgroup.events", "cgroup.procs"];

fn any_type_step() -> impl Strategy<Value = TypeStep> {
    prop_oneof![
        3 => (0usize..5).prop_map(TypeStep::Mkdir),
        1 => (0usize..5).prop_map(TypeStep::Rmdir),
        2 => (0usize..5).prop_map(TypeStep::Threaded),
        4 => (0usize..5, 0usize..2).prop_map(|(dir, nth)| TypeStep::Enter(dir, nth)),
        3 => (0usize..5, 0usize..3).prop_map(|(dir, nth)| TypeStep::Show(dir, nth)),
    ]
}

fn run_type_step(
    fs: &dyn KernelFs,
    top: &Path,
    pids: &[i32; 2],
    step: &TypeStep,
) -> Result<String, i32> {
    let dir = |nth: usize| top.join(V2_DIRS[nth]);
    let done = match step {
        TypeStep::Mkdir(nth) => fs.mkdir(&dir(*nth)).map(|()| String::new()),
        TypeStep::Rmdir(nth) => fs.rmdir(&dir(*nth)).map(|()| String::new()),
        TypeStep::Threaded(nth) => fs
            .write(&dir(*nth).join("cgroup.type"), "threaded")
            .map(|()| String::new()),
        TypeStep::Enter(nth, which) => fs
            .write(&dir(*nth).join("cgroup.procs"), &pids[*which].to_string())
            .map(|()| String::new()),
        TypeStep::Show(nth, which) => fs.read(&dir(*nth).join(V2_SHOWN[*which])),
    };
    // The order of pids in a file is nobody's promise.
    let sorted = |text: String| {
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        lines.join("\n")
    };
    done.map(sorted).map_err(|error| error.errno)
}

fn v2_mount() -> Option<PathBuf> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mounts = tidegate_knobs::discover::parse_mountinfo("/proc/self/mountinfo", &text).ok()?;
    mounts
        .into_iter()
        .find(|mount| mount.version == 2 && !mount.read_only)
        .map(|mount| mount.mount)
}

fn clean(fs: &dyn KernelFs, mount: &Path, top: &Path, pids: &[i32; 2]) {
    for pid in pids {
        let _ = fs.write(&mount.join("cgroup.procs"), &pid.to_string());
    }
    for nth in [3, 1, 2, 0, 4] {
        let _ = fs.rmdir(&top.join(V2_DIRS[nth]));
    }
}

#[test]
fn the_fake_refuses_what_the_kernel_refuses_v2() {
    let (Some(mut bed), Some(mount)) = (bed(), v2_mount()) else {
        return;
    };
    let real = RealFs::with_roots([&mount]).unwrap();
    let top = mount.join(format!("tgtest-types-{}", std::process::id()));
    if let Err(error) = real.mkdir(&top) {
        eprintln!("skipped: {error}");
        return;
    }
    let pids = [bed.sleeper(), bed.sleeper()];
    let mut runner = TestRunner::new(Config {
        cases: 150,
        failure_persistence: None,
        ..Config::default()
    });
    let outcome = runner.run(&prop::collection::vec(any_type_step(), 1..40), |steps| {
        let fake = FakeFs::with_mounts(&[(2, "/v2", &[])]);
        let fake_top = PathBuf::from("/v2/top");
        fake.mkdir(&fake_top).unwrap();
        for pid in pids {
            fake.add_process(FakeProcess::new(pid));
        }
        let mut verdict = Ok(());
        for step in &steps {
            let own = run_type_step(&fake, &fake_top, &pids, step);
            let its = run_type_step(&real, &top, &pids, step);
            if own != its {
                verdict = Err(TestCaseError::fail(format!(
                    "{step:?}: fake {own:?}, kernel {its:?}"
                )));
                break;
            }
        }
        clean(&real, &mount, &top, &pids);
        verdict
    });
    bed.end_all();
    let removed = real.rmdir(&top);
    outcome.unwrap();
    removed.unwrap();
}
