//! The fake tree against the running kernel: the same random steps on both have to give the same
//! errno and the same text.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};
use tidegate_cgroup::discover::{CgroupVersion, cgroup_mounts, discover};
use tidegate_cgroup::group::{GroupPath, Groups};
use tidegate_cgroup::testkit::{FakeFs, FakeProcess};
use tidegate_cgroup::{KernelFs, RealFs};

use crate::support::host::{HostBed, bed};

/// One operation in a directory below the top.
#[derive(Clone, Debug)]
enum Step {
    Read(&'static str, &'static str),
    /// The order of pids and of controllers in a file is nobody's promise.
    ReadSorted(&'static str, &'static str),
    Write(&'static str, &'static str, String),
    /// One of the processes enters.
    Enter(&'static str, usize),
    Mkdir(&'static str),
    Rmdir(&'static str),
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
        select(vec![
            -1i64, 0, 1, 2, 3, 100, 999, 1_000, 5_000, 10_000, 10_001, 50_000, 100_000, 262_145,
            1_000_000, 1_000_001
        ]),
        1_000i64..200_000
    ]
}

const DIRS: [&str; 2] = ["", "child"];
const V1_FILES: [&str; 5] = [
    "cpu.cfs_quota_us",
    "cpu.cfs_period_us",
    "cpu.cfs_burst_us",
    "cpu.shares",
    "cpu.idle",
];
const V2_FILES: [&str; 6] = [
    "cpu.max.burst",
    "cpu.weight",
    "cpu.idle",
    "cpu.max",
    "cgroup.controllers",
    "cgroup.subtree_control",
];

fn any_read(
    dirs: &'static [&'static str],
    files: &'static [&'static str],
) -> impl Strategy<Value = Step> {
    (select(dirs), select(files)).prop_map(|(dir, file)| Step::Read(dir, file))
}

fn any_write(
    dirs: &'static [&'static str],
    files: &'static [&'static str],
    values: impl Strategy<Value = String>,
) -> impl Strategy<Value = Step> {
    let all = (select(dirs), select(files), values);
    all.prop_map(|(dir, file, value)| Step::Write(dir, file, value))
}

fn any_v1_step() -> impl Strategy<Value = Step> {
    let number = any_number().prop_map(|number| number.to_string());
    prop_oneof![
        3 => any_write(&DIRS, &V1_FILES, number),
        1 => any_read(&DIRS, &V1_FILES),
    ]
}

fn any_v2_step() -> impl Strategy<Value = Step> {
    let max = prop_oneof![
        (any_number(), any_number()).prop_map(|(quota, period)| format!("{quota} {period}")),
        any_number().prop_map(|period| format!("max {period}")),
        any_number().prop_map(|quota| quota.to_string()),
        Just("max".to_owned()),
    ];
    let number = any_number().prop_map(|number| number.to_string());
    prop_oneof![
        2 => any_write(&DIRS, &["cpu.max"], max),
        3 => any_write(&DIRS, &V2_FILES[..3], number),
        2 => any_read(&DIRS, &V2_FILES),
    ]
}

fn run_step(fs: &dyn KernelFs, top: &Path, pids: &[i32], step: &Step) -> Result<String, i32> {
    let write = |dir: &str, file: &str, value: &str| {
        let file = top.join(dir).join(file);
        fs.write(&file, value).map(|()| String::new())
    };
    let read = |dir: &str, file: &str| fs.read(&top.join(dir).join(file));
    let done = match step {
        Step::Read(dir, file) => read(dir, file).map(|text| text.trim().to_owned()),
        Step::ReadSorted(dir, file) => read(dir, file).map(|text| {
            let mut words: Vec<&str> = text.split_ascii_whitespace().collect();
            words.sort_unstable();
            words.join(" ")
        }),
        Step::Write(dir, file, value) => write(dir, file, value),
        Step::Enter(dir, nth) => write(dir, "cgroup.procs", &pids[*nth].to_string()),
        Step::Mkdir(dir) => fs.mkdir(&top.join(dir)).map(|()| String::new()),
        Step::Rmdir(dir) => fs.rmdir(&top.join(dir)).map(|()| String::new()),
    };
    done.map_err(|error| error.errno)
}

/// The same steps below a top on the fake and on the kernel.
fn compare_steps(
    (fake, fake_top): (&dyn KernelFs, &Path),
    (real, real_top): (&dyn KernelFs, &Path),
    pids: &[i32],
    steps: &[Step],
) -> Result<(), TestCaseError> {
    for step in steps {
        let own = run_step(fake, fake_top, pids, step);
        let its = run_step(real, real_top, pids, step);
        prop_assert_eq!(own, its, "{:?}: the fake's, the kernel's", step);
    }
    Ok(())
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
        let real_dir = bed.groups.dir(&top);
        let verdict = compare_steps((&*fake, &fake_dir), (&*real, &real_dir), &[], &steps);
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

/// Types, processes, and the controllers that are there (none on a mixed machine).
fn any_type_step() -> impl Strategy<Value = Step> {
    let below = || select(&V2_DIRS[..5]);
    let threaded = Just("threaded".to_owned());
    let control = select(&V2_CONTROL).prop_map(str::to_owned);
    prop_oneof![
        3 => below().prop_map(Step::Mkdir),
        1 => below().prop_map(Step::Rmdir),
        2 => any_write(&V2_DIRS[..5], &["cgroup.type"], threaded),
        4 => (select(&V2_DIRS), 0usize..2).prop_map(|(dir, nth)| Step::Enter(dir, nth)),
        3 => any_write(&V2_DIRS, &["cgroup.subtree_control"], control),
        3 => (select(&V2_DIRS), select(&V2_SHOWN))
            .prop_map(|(dir, file)| Step::ReadSorted(dir, file)),
    ]
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
    let threaded = |dir| Step::Write(dir, "cgroup.type", "threaded".to_owned());
    let steps = [
        Step::Mkdir("a"),
        Step::Mkdir("a/b"),
        Step::Mkdir("a/b/d"),
        threaded("a/b/d"),
        threaded("a"),
        Step::Enter("a/b/d", 0),
    ];
    for step in &steps {
        let done = run_step(&fake, &top, &[5], step);
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
        let verdict = compare_steps((&fake, &fake_top), (&real, &top), &pids, &steps);
        clean(&real, &mount, &top, &pids);
        verdict
    });
    bed.end_all();
    let removed = real.rmdir(&top);
    outcome.unwrap();
    removed.unwrap();
}
