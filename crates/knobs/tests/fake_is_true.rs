//! The fake tree against the running kernel: the same random steps on both have to give the same errno and the same text.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tidegate_knobs::discover::CgroupVersion;
use tidegate_knobs::kfs::{FakeFs, FakeProcess, KernelFs, RealFs};

use support::host::bed;

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
