//! The fake tree against the running kernel: the same random steps on both have to give the same
//! errno and the same text.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tidegate_cgroup::discover::{CgroupVersion, cgroup_mounts, discover};
use tidegate_cgroup::group::{GroupPath, Groups};
use tidegate_cgroup::testkit::{FakeFs, FakeProcess};
use tidegate_cgroup::{KernelFs, RealFs};

use crate::support::host::{HostBed, bed};

#[derive(Clone, Debug)]
enum Step {
    Write {
        child: bool,
        file: &'static str,
        value: String,
    },
    Read {
        child: bool,
        file: &'static str,
    },
}

/// How many cases; more by hand when the fake or the kernel is in doubt.
fn cases(usual: u32) -> u32 {
    let asked = std::env::var("TIDEGATE_CASES")
        .ok()
        .and_then(|text| text.parse().ok());
    asked.unwrap_or(usual)
}

fn runner(usual: u32) -> TestRunner {
    let config = Config {
        cases: cases(usual),
        failure_persistence: None,
        ..Config::default()
    };
    TestRunner::new(config)
}

/// Numbers at and around the kernel's bounds.
fn any_number() -> impl Strategy<Value = i64> {
    prop_oneof![
        prop::sample::select(vec![
            -1i64, 0, 1, 2, 3, 100, 999, 1_000, 5_000, 10_000, 10_001, 50_000, 100_000, 262_145,
            1_000_000, 1_000_001
        ]),
        1_000i64..200_000
    ]
}

fn any_v1_step() -> impl Strategy<Value = Step> {
    let files = [
        "cpu.cfs_quota_us",
        "cpu.cfs_period_us",
        "cpu.cfs_burst_us",
        "cpu.shares",
        "cpu.idle",
    ];
    let write = (
        any::<bool>(),
        prop::sample::select(files.to_vec()),
        any_number(),
    )
        .prop_map(|(child, file, value)| Step::Write {
            child,
            file,
            value: value.to_string(),
        });
    let read = (any::<bool>(), prop::sample::select(files.to_vec()))
        .prop_map(|(child, file)| Step::Read { child, file });
    prop_oneof![3 => write, 1 => read].prop_map(|step| step)
}

fn any_v2_step() -> impl Strategy<Value = Step> {
    let max = prop_oneof![
        (any_number(), any_number()).prop_map(|(quota, period)| format!("{quota} {period}")),
        any_number().prop_map(|period| format!("max {period}")),
        any_number().prop_map(|quota| quota.to_string()),
        Just("max".to_owned()),
    ];
    let max = (any::<bool>(), max).prop_map(|(child, value)| Step::Write {
        child,
        file: "cpu.max",
        value,
    });
    let others = prop::sample::select(&["cpu.max.burst", "cpu.weight", "cpu.idle"][..]);
    let other =
        (any::<bool>(), others, any_number()).prop_map(|(child, file, value)| Step::Write {
            child,
            file,
            value: value.to_string(),
        });
    let files = [
        "cpu.max",
        "cpu.max.burst",
        "cpu.weight",
        "cpu.idle",
        "cgroup.controllers",
        "cgroup.subtree_control",
    ];
    let read = (any::<bool>(), prop::sample::select(files.to_vec()))
        .prop_map(|(child, file)| Step::Read { child, file });
    prop_oneof![2 => max, 3 => other, 2 => read].prop_map(|step| step)
}

fn run_step(fs: &dyn KernelFs, top: &Path, step: &Step) -> Result<String, i32> {
    let dir = |child: bool| {
        if child {
            top.join("child")
        } else {
            top.to_path_buf()
        }
    };
    let done = match step {
        Step::Write { child, file, value } => fs
            .write(&dir(*child).join(file), value)
            .map(|()| String::new()),
        Step::Read { child, file } => fs.read(&dir(*child).join(file)),
    };
    done.map(|text| text.trim().to_owned())
        .map_err(|error| error.errno)
}

/// Runs random steps on a fresh group with a child, on the fake and on the kernel.
fn compare(
    bed: &HostBed,
    steps: impl Strategy<Value = Step>,
    make_fake: fn() -> FakeFs,
    fake_mount: &str,
) {
    let real = bed.groups.fs().clone();
    let counter = AtomicU32::new(0);
    let outcome = runner(60).run(&prop::collection::vec(steps, 1..40), |steps| {
        let nth = counter.fetch_add(1, Ordering::Relaxed);
        let top = bed.top.join(&format!("run-{nth}")).unwrap();
        bed.groups.create(&top.join("child").unwrap()).unwrap();
        let fake = make_fake();
        let machine = discover(&fake, None).unwrap();
        let fake = Arc::new(fake);
        // The same depth as in the bed, and by the same means.
        let fake_top = GroupPath::parse("/bed/top").unwrap();
        Groups::new(fake.clone(), &machine)
            .create(&fake_top.join("child").unwrap())
            .unwrap();
        let fake_dir = PathBuf::from(format!("{fake_mount}{fake_top}"));
        let mut verdict = Ok(());
        for step in &steps {
            let own = run_step(&*fake, &fake_dir, step);
            let its = run_step(&*real, &bed.groups.dir(&top), step);
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

#[test]
fn the_fake_refuses_what_the_kernel_refuses_in_v1s_cpu_files() {
    let Some(bed) = bed() else { return };
    match bed.machine.version {
        CgroupVersion::V1 => compare(&bed, any_v1_step(), FakeFs::mixed, "/sys/fs/cgroup/cpu"),
        CgroupVersion::V2 => eprintln!("skipped: the cpu controller is on v2 here"),
    }
}

#[test]
fn the_fake_refuses_what_the_kernel_refuses_in_v2s_cpu_files() {
    let Some(bed) = bed() else { return };
    match bed.machine.version {
        CgroupVersion::V2 => compare(&bed, any_v2_step(), FakeFs::v2, "/sys/fs/cgroup"),
        CgroupVersion::V1 => eprintln!("skipped: the cpu controller is on v1 here"),
    }
}

/// Steps of the comparison on v2: types, processes, and the controllers that are there (none on a
/// mixed machine).
#[derive(Clone, Debug)]
enum TypeStep {
    Mkdir(usize),
    Rmdir(usize),
    Threaded(usize),
    Enter(usize, usize),
    Control(usize, usize),
    Show(usize, usize),
}

/// The empty name is the group that the others are in.
const V2_DIRS: [&str; 6] = ["a", "a/b", "a/c", "a/b/d", "e", ""];
const V2_SHOWN: [&str; 5] = [
    "cgroup.type",
    "cgroup.events",
    "cgroup.procs",
    "cgroup.subtree_control",
    "cgroup.controllers",
];
const V2_CONTROL: [&str; 5] = ["+cpu", "-cpu", "+memory", "-memory", "+cpu +memory"];

fn any_type_step() -> impl Strategy<Value = TypeStep> {
    prop_oneof![
        3 => (0usize..5).prop_map(TypeStep::Mkdir),
        1 => (0usize..5).prop_map(TypeStep::Rmdir),
        2 => (0usize..5).prop_map(TypeStep::Threaded),
        4 => (0usize..6, 0usize..2).prop_map(|(dir, nth)| TypeStep::Enter(dir, nth)),
        3 => (0usize..6, 0usize..5).prop_map(|(dir, nth)| TypeStep::Control(dir, nth)),
        3 => (0usize..6, 0usize..5).prop_map(|(dir, nth)| TypeStep::Show(dir, nth)),
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
        TypeStep::Control(nth, which) => {
            let file = dir(*nth).join("cgroup.subtree_control");
            fs.write(&file, V2_CONTROL[*which]).map(|()| String::new())
        }
        TypeStep::Show(nth, which) => fs.read(&dir(*nth).join(V2_SHOWN[*which])),
    };
    // The order of pids and of controllers in a file is nobody's promise.
    let sorted = |text: String| {
        let mut words: Vec<&str> = text.split_ascii_whitespace().collect();
        words.sort_unstable();
        words.join(" ")
    };
    done.map(sorted).map_err(|error| error.errno)
}

fn v2_mount() -> Option<PathBuf> {
    let mounts = cgroup_mounts(&RealFs::new()).ok()?;
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
    for controller in ["-cpu", "-memory"] {
        let _ = fs.write(&top.join("cgroup.subtree_control"), controller);
    }
}

/// The random test found it: the kernel takes a threaded group below along when one above becomes
/// threaded.
#[test]
fn a_group_that_becomes_threaded_takes_those_below_into_its_domain() {
    let fake = FakeFs::with_mounts(&[(2, "/v2", &["cpu"])]);
    let top = PathBuf::from("/v2/top");
    fake.mkdir(&top).unwrap();
    fake.add_process(FakeProcess::new(5));
    let steps = [
        TypeStep::Mkdir(0),
        TypeStep::Mkdir(1),
        TypeStep::Mkdir(3),
        TypeStep::Threaded(3),
        TypeStep::Threaded(0),
        TypeStep::Enter(3, 0),
    ];
    for step in &steps {
        let done = run_type_step(&fake, &top, &[5, 5], step);
        assert_eq!(done, Ok(String::new()), "{step:?}");
    }
}

#[test]
fn the_fake_refuses_what_the_kernel_refuses_of_v2s_types() {
    let (Some(mut bed), Some(mount)) = (bed(), v2_mount()) else {
        return;
    };
    let real = RealFs::with_roots([&mount]).unwrap();
    let top = mount.join(format!("tgtest-types-{}", std::process::id()));
    if let Err(error) = real.mkdir(&top) {
        eprintln!("skipped: {error}");
        return;
    }
    // What the root hands down here.
    let text = real.read(&top.join("cgroup.controllers")).unwrap();
    let controllers: Vec<&str> = text.split_ascii_whitespace().collect();
    let pids = [bed.sleeper(), bed.sleeper()];
    let outcome = runner(150).run(&prop::collection::vec(any_type_step(), 1..40), |steps| {
        let fake = FakeFs::with_mounts(&[(2, "/v2", &controllers)]);
        let fake_top = PathBuf::from("/v2/top");
        fake.mkdir(&fake_top).unwrap();
        for controller in &controllers {
            fake.write(
                Path::new("/v2/cgroup.subtree_control"),
                &format!("+{controller}"),
            )
            .unwrap();
        }
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
