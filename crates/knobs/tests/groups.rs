//! Groups on fake machines: what each change writes, in which order, and what one refusal anywhere leaves behind.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_knobs::bandwidth::Bandwidth;
use tidegate_knobs::discover::discover;
use tidegate_knobs::group::{CpuClass, GroupError, GroupPath, Groups, Placement, Returned};
use tidegate_knobs::kfs::{FakeFs, FakeProcess, Fault, FaultFs, KernelFs, Op, Rule};

const ERRNOS: [i32; 9] = [
    libc::ENOENT,
    libc::ENODEV,
    libc::EINVAL,
    libc::EBUSY,
    libc::EPERM,
    libc::EACCES,
    libc::EROFS,
    libc::ENOSPC,
    libc::EIO,
];

struct Bed {
    fs: Arc<FaultFs<FakeFs>>,
    groups: Groups,
}

fn bed(fake: FakeFs) -> Bed {
    let fs = Arc::new(FaultFs::new(fake));
    let machine = discover(&fs, None).unwrap();
    let groups = Groups::new(fs.clone(), &machine);
    Bed { fs, groups }
}

fn path(text: &str) -> GroupPath {
    GroupPath::parse(text).unwrap()
}

fn names(paths: &[PathBuf]) -> Vec<&str> {
    paths
        .iter()
        .map(|path| path.file_name().unwrap().to_str().unwrap())
        .collect()
}

/// What a call wrote, by file name.
fn written(bed: &Bed, call: impl FnOnce()) -> Vec<String> {
    let before = bed.fs.writes().len();
    call();
    names(&bed.fs.writes()[before..])
        .into_iter()
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_gate_is_a_group_in_each_v1_hierarchy() {
    let bed = bed(FakeFs::mixed());
    let leaf = path("/tidegate-side/ffmpeg");
    assert!(bed.groups.create(&leaf).unwrap());
    for dir in ["cpu/tidegate-side/ffmpeg", "cpuacct/tidegate-side/ffmpeg"] {
        assert!(
            bed.fs.exists(&Path::new("/sys/fs/cgroup").join(dir)),
            "{dir}"
        );
    }
    bed.fs
        .inner()
        .add_usage_ns("/sys/fs/cgroup/cpuacct/tidegate-side/ffmpeg", 77);
    assert_eq!(bed.groups.usage_ns(&leaf).unwrap(), Some(77));
    bed.fs
        .inner()
        .add_throttled("/sys/fs/cgroup/cpu/tidegate-side/ffmpeg", 3, 500);
    let stat = bed.groups.cpu_stat(&leaf).unwrap();
    assert_eq!((stat.nr_throttled, stat.throttled_ns), (3, 500));
    assert!(bed.groups.remove(&path("/tidegate-side")).unwrap());
    assert!(
        !bed.fs
            .exists(Path::new("/sys/fs/cgroup/cpuacct/tidegate-side"))
    );
}

#[test]
fn v2_enables_cpu_on_the_way_down() {
    let bed = bed(FakeFs::v2());
    let leaf = path("/tidegate-side/ffmpeg");
    bed.groups.create(&leaf).unwrap();
    assert_eq!(
        bed.fs.inner().text("/sys/fs/cgroup/cgroup.subtree_control"),
        "cpu"
    );
    assert_eq!(
        bed.fs
            .inner()
            .text("/sys/fs/cgroup/tidegate-side/cgroup.subtree_control"),
        "cpu"
    );
    assert_eq!(bed.groups.bandwidth(&leaf).unwrap(), Bandwidth::unlimited());
    bed.fs
        .inner()
        .add_usage_ns("/sys/fs/cgroup/tidegate-side/ffmpeg", 9_000);
    assert_eq!(bed.groups.usage_ns(&leaf).unwrap(), Some(9_000));
    bed.fs
        .inner()
        .add_throttled("/sys/fs/cgroup/tidegate-side/ffmpeg", 3, 5_000);
    assert_eq!(bed.groups.cpu_stat(&leaf).unwrap().throttled_ns, 5_000);
    let again = written(&bed, || assert!(!bed.groups.create(&leaf).unwrap()));
    assert!(again.is_empty(), "idempotent: {again:?}");
}

#[test]
fn v2_says_why_cpu_cannot_be_handed_down() {
    let bed = bed(FakeFs::v2());
    bed.fs.mkdir(Path::new("/sys/fs/cgroup/a")).unwrap();
    bed.fs.mkdir(Path::new("/sys/fs/cgroup/a/b")).unwrap();
    let machine = discover(&bed.fs, Some("/a/b")).unwrap();
    let groups = Groups::new(bed.fs.clone(), &machine);
    let message = groups.create(&path("/a/b/x")).unwrap_err().to_string();
    assert!(
        message.contains("does not hand the cpu controller down"),
        "{message}"
    );
}

#[test]
fn a_change_of_quota_is_one_write() {
    for fake in [FakeFs::mixed(), FakeFs::v1(), FakeFs::v2()] {
        let bed = bed(fake);
        let group = path("/g");
        bed.groups.create(&group).unwrap();
        let change = |from: Option<Bandwidth>, to: Bandwidth| {
            let files = written(&bed, || {
                bed.groups.set_bandwidth(&group, from, to).unwrap();
            });
            assert_eq!(bed.groups.bandwidth(&group).unwrap(), to);
            files.len()
        };
        let ten = Bandwidth::limit(10_000, 100_000);
        assert_eq!(change(None, ten), 1);
        assert_eq!(change(Some(ten), Bandwidth::limit(20_000, 100_000)), 1);
        assert_eq!(change(None, Bandwidth::limit(20_000, 100_000)), 0);
        assert_eq!(
            change(
                None,
                Bandwidth {
                    burst_us: 15_000,
                    ..Bandwidth::limit(20_000, 100_000)
                }
            ),
            1
        );
    }
}

#[test]
fn burst_goes_down_first_and_up_last() {
    for (fake, burst, quota) in [
        (FakeFs::mixed(), "cpu.cfs_burst_us", "cpu.cfs_quota_us"),
        (FakeFs::v2(), "cpu.max.burst", "cpu.max"),
    ] {
        let bed = bed(fake);
        let group = path("/g");
        bed.groups.create(&group).unwrap();
        let wide = Bandwidth {
            burst_us: 15_000,
            ..Bandwidth::limit(20_000, 100_000)
        };
        let up = written(&bed, || {
            bed.groups.set_bandwidth(&group, None, wide).unwrap();
        });
        assert_eq!(up, [quota, burst]);
        let down = written(&bed, || {
            bed.groups
                .set_bandwidth(&group, None, Bandwidth::limit(5_000, 100_000))
                .unwrap();
        });
        assert_eq!(down, [burst, quota]);
    }
}

#[test]
fn v1_refuses_a_child_above_its_parent_and_nothing_changes() {
    let bed = bed(FakeFs::mixed());
    let (parent, child) = (path("/p"), path("/p/c"));
    bed.groups.create(&child).unwrap();
    bed.groups
        .set_bandwidth(&parent, None, Bandwidth::limit(10_000, 100_000))
        .unwrap();
    let error = bed
        .groups
        .set_bandwidth(&child, None, Bandwidth::limit(2_000, 10_000))
        .unwrap_err();
    assert_eq!(error.errno(), Some(libc::EINVAL));
    assert_eq!(
        bed.groups.bandwidth(&child).unwrap(),
        Bandwidth::unlimited(),
        "the period is back, too"
    );
}

#[test]
fn idle_and_weight_come_back_in_order() {
    for fake in [FakeFs::mixed(), FakeFs::v2()] {
        let bed = bed(fake);
        let group = path("/g");
        bed.groups.create(&group).unwrap();
        bed.groups.set_weight(&group, 250).unwrap();
        let saved = bed.groups.class(&group).unwrap();
        bed.groups.set_idle(&group, true).unwrap();
        assert!(bed.groups.set_weight(&group, 5).is_err());
        bed.groups.restore_class(&group, &saved).unwrap();
        assert_eq!(bed.groups.class(&group).unwrap(), saved);
        assert_eq!(bed.groups.weight(&group).unwrap(), 250);
        let nothing = written(&bed, || bed.groups.restore_class(&group, &saved).unwrap());
        assert!(nothing.is_empty(), "{nothing:?}");
    }
}

#[test]
fn a_kernel_without_idle_and_burst() {
    let fake = FakeFs::mixed();
    fake.hide_file("cpu.idle");
    fake.hide_file("cpu.cfs_burst_us");
    let bed = bed(fake);
    let group = path("/g");
    bed.groups.create(&group).unwrap();
    assert_eq!(
        bed.groups.class(&group).unwrap(),
        CpuClass {
            idle: None,
            weight_raw: 1_024
        }
    );
    assert_eq!(
        bed.groups.bandwidth(&group).unwrap(),
        Bandwidth::unlimited()
    );
    assert!(bed.groups.set_idle(&group, true).unwrap_err().is_gone());
    bed.groups.set_weight(&group, 1).unwrap();
    bed.groups
        .restore_class(
            &group,
            &CpuClass {
                idle: None,
                weight_raw: 1_024,
            },
        )
        .unwrap();
    assert_eq!(bed.groups.weight(&group).unwrap(), 100);
}

#[test]
fn a_full_group_names_who_is_in_it() {
    let bed = bed(FakeFs::mixed());
    bed.fs.inner().add_process(FakeProcess::new(7));
    let leaf = path("/s/x");
    bed.groups.create(&leaf).unwrap();
    bed.groups.place(&leaf, 7).unwrap();
    let error = bed.groups.remove(&path("/s")).unwrap_err();
    assert!(
        matches!(&error, GroupError::Busy { pids, .. } if pids == &[7]),
        "{error}"
    );
    assert!(bed.groups.populated(&path("/s")).unwrap());
    for root in [GroupPath::root(), bed.groups.base().clone()] {
        assert!(matches!(
            bed.groups.remove(&root),
            Err(GroupError::NotPossible { .. })
        ));
    }
}

#[test]
fn process_zero_would_be_ourselves() {
    let bed = bed(FakeFs::mixed());
    bed.groups.create(&path("/s")).unwrap();
    for pid in [0, -1] {
        assert!(matches!(
            bed.groups.place(&path("/s"), pid),
            Err(GroupError::NotPossible { .. })
        ));
    }
    assert!(bed.groups.procs(&path("/s")).unwrap().is_empty());
}

fn in_cpu_and_cpuacct(bed: &Bed, pid: i32) -> String {
    bed.fs.inner().text(&format!("/proc/{pid}/cgroup"))
}

#[test]
fn a_process_is_moved_whole_or_not_at_all() {
    let scenario = |errno: Option<(u64, i32)>| {
        let bed = bed(FakeFs::mixed());
        bed.fs.inner().add_process(FakeProcess::new(7));
        bed.groups.create(&path("/s/x")).unwrap();
        let before = in_cpu_and_cpuacct(&bed, 7);
        let start = bed.fs.count();
        if let Some((nth, errno)) = errno {
            bed.fs.add(Rule::nth(start + nth, errno));
        }
        let result = bed.groups.place(&path("/s/x"), 7);
        (
            before,
            in_cpu_and_cpuacct(&bed, 7),
            result,
            bed.fs.count() - start,
        )
    };
    let (_, after, result, operations) = scenario(None);
    assert!(
        result.is_ok() && after.contains("1:cpu:/s/x\n2:cpuacct:/s/x"),
        "{after}"
    );
    for nth in 1..=operations {
        for errno in ERRNOS {
            let (before, after, result, _) = scenario(Some((nth, errno)));
            let error = result.unwrap_err();
            assert_eq!(before, after, "{error}");
            assert!(error.to_string().contains('/'), "names the file: {error}");
        }
    }
}

#[test]
fn when_even_the_way_back_fails_it_is_said_with_the_mend() {
    let bed = bed(FakeFs::mixed());
    bed.fs.inner().add_process(FakeProcess::new(7));
    bed.groups.create(&path("/s")).unwrap();
    bed.fs.add(Rule::on(
        Op::Write,
        "cpuacct/s/cgroup.procs",
        Fault::Errno(libc::EACCES),
    ));
    bed.fs.add(Rule::on(
        Op::Write,
        "cgroup/cpu/cgroup.procs",
        Fault::Errno(libc::EPERM),
    ));
    let message = bed.groups.place(&path("/s"), 7).unwrap_err().to_string();
    assert!(
        message.contains("half moved")
            && message.contains("echo 7 > /sys/fs/cgroup/cpu/cgroup.procs"),
        "{message}"
    );
}

#[test]
fn real_time_threads_are_named() {
    let bed = bed(FakeFs::mixed());
    bed.fs.inner().add_process(FakeProcess {
        threads: vec![(8, false), (9, true)],
        ..FakeProcess::new(7)
    });
    bed.groups.create(&path("/s")).unwrap();
    let error = bed.groups.place(&path("/s"), 7).unwrap_err();
    assert!(
        matches!(&error, GroupError::RealTime { tids, .. } if tids == &[9]),
        "{error}"
    );
    assert!(
        error.to_string().contains("CONFIG_RT_GROUP_SCHED"),
        "{error}"
    );
    assert!(in_cpu_and_cpuacct(&bed, 7).contains("1:cpu:/\n2:cpuacct:/"));
    bed.fs.inner().set_rt_group_sched(false);
    bed.groups.place(&path("/s"), 7).unwrap();
}

/// A service with a worker in `/app` of a v2 tree.
fn service() -> Bed {
    let bed = bed(FakeFs::v2());
    for pid in [7, 8] {
        bed.fs.inner().add_process(FakeProcess {
            threads: vec![(pid + 100, false)],
            ..FakeProcess::new(pid)
        });
    }
    bed.groups.create(&path("/app")).unwrap();
    for pid in ["7", "8"] {
        bed.fs
            .inner()
            .write(Path::new("/sys/fs/cgroup/app/cgroup.procs"), pid)
            .unwrap();
    }
    bed
}

#[test]
fn v2_limits_a_process_in_place() {
    let bed = service();
    let plan = bed
        .groups
        .plan_in_place(7, "tidegate-job", &path("/unused"))
        .unwrap();
    let placed = bed
        .groups
        .place_in_place(7, "tidegate-job", &path("/unused"))
        .unwrap();
    assert_eq!(plan, placed);
    assert_eq!(placed.group, path("/app/tidegate-job"));
    assert_eq!(
        (placed.made_group, placed.enabled_cpu_in.clone()),
        (true, Some(path("/app")))
    );
    assert_eq!(
        bed.fs
            .inner()
            .text("/sys/fs/cgroup/app/tidegate-job/cgroup.type"),
        "threaded"
    );
    assert_eq!(
        bed.fs.inner().text("/sys/fs/cgroup/app/cgroup.procs"),
        "7\n8",
        "still the unit's"
    );
    assert_eq!(bed.groups.procs(&placed.group).unwrap(), [7]);
    bed.groups
        .set_bandwidth(&placed.group, None, Bandwidth::limit(1_000, 100_000))
        .unwrap();

    assert_eq!(bed.groups.place_back(&placed).unwrap(), Returned::Moved);
    assert!(!bed.groups.exists(&placed.group));
    assert_eq!(
        bed.fs
            .inner()
            .text("/sys/fs/cgroup/app/cgroup.subtree_control"),
        ""
    );
    assert_eq!(
        bed.fs.inner().text("/sys/fs/cgroup/app/cgroup.type"),
        "domain"
    );
    assert_eq!(bed.groups.place_back(&placed).unwrap(), Returned::AtHome);
}

#[test]
fn v2_cannot_split_a_group_that_hands_down_memory() {
    let bed = service();
    let fs = bed.fs.inner();
    fs.write(
        Path::new("/sys/fs/cgroup/cgroup.subtree_control"),
        "+memory",
    )
    .unwrap();
    fs.mkdir(Path::new("/sys/fs/cgroup/app/inner")).unwrap();
    fs.write(Path::new("/sys/fs/cgroup/app/inner/cgroup.procs"), "8")
        .unwrap();
    let error = bed
        .groups
        .place_in_place(7, "tidegate-job", &path("/unused"))
        .unwrap_err();
    assert!(error.to_string().contains("cgroup:/app"), "{error}");
    assert!(
        !bed.groups.exists(&path("/app/tidegate-job")),
        "nothing is left"
    );
}

#[test]
fn v2_in_the_root_group_takes_a_plain_child() {
    let bed = bed(FakeFs::v2());
    bed.fs.inner().add_process(FakeProcess::new(7));
    let placed = bed
        .groups
        .place_in_place(7, "tidegate-job", &path("/unused"))
        .unwrap();
    assert_eq!(placed.group, path("/tidegate-job"));
    assert_eq!(
        bed.fs
            .inner()
            .text("/sys/fs/cgroup/tidegate-job/cgroup.type"),
        "domain"
    );
    bed.groups.place_back(&placed).unwrap();
    assert_eq!(bed.groups.group_of(7).unwrap(), Some(GroupPath::root()));
}

#[test]
fn others_limits_below_survive_our_leaving() {
    let bed = service();
    let placed = bed
        .groups
        .place_in_place(7, "tidegate-job", &path("/unused"))
        .unwrap();
    bed.fs
        .mkdir(Path::new("/sys/fs/cgroup/app/theirs"))
        .unwrap();
    bed.fs
        .write(Path::new("/sys/fs/cgroup/app/theirs/cpu.weight"), "7")
        .unwrap();
    bed.groups.place_back(&placed).unwrap();
    assert_eq!(
        bed.fs.inner().text("/sys/fs/cgroup/app/theirs/cpu.weight"),
        "7"
    );
}

#[test]
fn in_place_with_one_refusal_anywhere_leaves_the_process_at_home() {
    let run = |fault: Option<(u64, i32)>| -> (Bed, Result<Placement, GroupError>, u64) {
        let bed = service();
        let start = bed.fs.count();
        if let Some((nth, errno)) = fault {
            bed.fs.add(Rule::nth(start + nth, errno));
        }
        let result = bed
            .groups
            .place_in_place(7, "tidegate-job", &path("/unused"));
        let operations = bed.fs.count() - start;
        (bed, result, operations)
    };
    let operations = run(None).2;
    for nth in 1..=operations {
        for errno in ERRNOS {
            let (bed, result, _) = run(Some((nth, errno)));
            if let Err(error) = result {
                assert_eq!(
                    bed.groups.group_of(7).unwrap(),
                    Some(path("/app")),
                    "op {nth}: {error}"
                );
                assert!(
                    !bed.groups.exists(&path("/app/tidegate-job")),
                    "op {nth}: {error}"
                );
            }
        }
    }
}

#[test]
fn a_v1_process_goes_to_the_side_root_and_back() {
    let bed = bed(FakeFs::mixed());
    bed.fs.inner().add_process(FakeProcess::new(7));
    bed.groups.create(&path("/app")).unwrap();
    bed.groups.place(&path("/app"), 7).unwrap();
    let placed = bed
        .groups
        .place_in_place(7, "unused", &path("/tidegate-side/job"))
        .unwrap();
    assert_eq!(
        bed.groups.group_of(7).unwrap(),
        Some(path("/tidegate-side/job"))
    );
    assert_eq!(bed.groups.place_back(&placed).unwrap(), Returned::Moved);
    assert!(in_cpu_and_cpuacct(&bed, 7).contains("1:cpu:/app\n2:cpuacct:/app"));

    // Its old group is gone meanwhile: the nearest ancestor that is there.
    let placed = bed
        .groups
        .place_in_place(7, "unused", &path("/tidegate-side/job"))
        .unwrap();
    bed.groups.remove(&path("/app")).unwrap();
    bed.groups.place_back(&placed).unwrap();
    assert_eq!(bed.groups.group_of(7).unwrap(), Some(GroupPath::root()));

    // It has exited.
    let placed = bed
        .groups
        .place_in_place(7, "unused", &path("/tidegate-side/job"))
        .unwrap();
    bed.fs.inner().end_process(7);
    assert_eq!(bed.groups.place_back(&placed).unwrap(), Returned::Exited);
    assert!(!bed.groups.exists(&path("/tidegate-side/job")));
}

#[test]
fn a_bandwidth_change_with_one_refusal_is_never_looser_than_both_ends() {
    let ends = [
        Bandwidth::unlimited(),
        Bandwidth::limit(10_000, 100_000),
        Bandwidth {
            burst_us: 9_000,
            ..Bandwidth::limit(10_000, 100_000)
        },
        Bandwidth::limit(1_000, 10_000),
        Bandwidth {
            burst_us: 40_000,
            ..Bandwidth::limit(50_000, 20_000)
        },
    ];
    for make in [FakeFs::mixed, FakeFs::v2] {
        for from in ends {
            for to in ends {
                for (nth, errno, also_back) in cases() {
                    let bed = bed(make());
                    let group = path("/g");
                    bed.groups.create(&group).unwrap();
                    bed.groups.set_bandwidth(&group, None, from).unwrap();
                    let start = bed.fs.count();
                    bed.fs.add(Rule::nth(start + nth, errno));
                    if also_back {
                        bed.fs.add(Rule::nth(start + nth + 1, errno));
                    }
                    let result = bed.groups.set_bandwidth(&group, Some(from), to);
                    bed.fs.clear();
                    let stands = bed.groups.bandwidth(&group).unwrap();
                    match result {
                        Ok(_) => assert_eq!(stands, to),
                        Err(GroupError::HalfBandwidth { .. }) => {
                            let rate = Bandwidth {
                                burst_us: 0,
                                ..stands
                            };
                            let bounded = rate.no_looser_than(&from) || rate.no_looser_than(&to);
                            assert!(bounded, "{from} -> {stands} -> {to}");
                        }
                        Err(error) => assert_eq!(stands, from, "{error}"),
                    }
                }
            }
        }
    }
}

fn cases() -> impl Iterator<Item = (u64, i32, bool)> {
    (1..=4)
        .flat_map(|nth| [libc::EINVAL, libc::EBUSY, libc::EIO].map(|errno| (nth, errno, false)))
        .chain((1..=4).map(|nth| (nth, libc::EIO, true)))
}

#[test]
fn a_group_that_vanishes_is_gone_everywhere() {
    for make in [FakeFs::mixed, FakeFs::v2] {
        for errno in [libc::ENOENT, libc::ENODEV] {
            let bed = bed(make());
            let group = path("/g");
            bed.groups.create(&group).unwrap();
            bed.fs
                .add(Rule::on(Op::Write, "", Fault::Vanish(errno)).times(1));
            assert!(
                bed.groups
                    .set_bandwidth(&group, None, Bandwidth::limit(1_000, 100_000))
                    .unwrap_err()
                    .is_gone()
            );
            assert!(bed.groups.bandwidth(&group).unwrap_err().is_gone());
            assert!(bed.groups.class(&group).unwrap_err().is_gone());
            assert!(bed.groups.cpu_stat(&group).unwrap_err().is_gone());
            assert!(bed.groups.populated(&group).unwrap_err().is_gone());
            assert!(bed.groups.id(&group).unwrap_err().is_gone());
            assert!(!bed.groups.exists(&group));
        }
    }
}

#[test]
fn garbage_and_short_reads_are_named_by_file() {
    for make in [FakeFs::mixed, FakeFs::v2] {
        for fault in [
            Fault::Garbage("nonsense\u{0}".into()),
            Fault::Garbage(String::new()),
            Fault::Short(0),
            Fault::Short(1),
        ] {
            let bed = bed(make());
            let group = path("/g");
            bed.groups.create(&group).unwrap();
            bed.fs.add(Rule::on(Op::Read, "", fault));
            for error in [
                bed.groups.bandwidth(&group).unwrap_err(),
                bed.groups.class(&group).unwrap_err(),
                bed.groups.cpu_stat(&group).unwrap_err(),
                bed.groups.usage_ns(&group).unwrap_err(),
            ] {
                let message = error.to_string();
                assert!(
                    message.contains("/sys/fs/cgroup/") && message.contains("the kernel's own"),
                    "{message}"
                );
            }
        }
    }
}

#[test]
fn a_group_is_made_in_all_hierarchies_or_in_none() {
    for errno in ERRNOS {
        let bed = bed(FakeFs::mixed());
        bed.fs
            .add(Rule::on(Op::Mkdir, "cpuacct/g", Fault::Errno(errno)));
        let error = bed.groups.create(&path("/g")).unwrap_err();
        assert!(
            error.to_string().contains("/sys/fs/cgroup/cpuacct/g"),
            "{error}"
        );
        assert!(!bed.groups.exists(&path("/g")));
    }
}
