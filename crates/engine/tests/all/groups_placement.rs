//! Moving processes on fake machines: whole, in place, back, or not at all.

use std::path::Path;

use tidegate_cgroup::group::{GroupError, GroupPath, PlacementUndo};
use tidegate_cgroup::testkit::{FakeFs, FakeProcess, Fault, Rule};
use tidegate_cgroup::{KernelFs, Op};

use crate::support::{Bed, path};

#[test]
fn process_zero_would_be_ourselves() {
    let bed = Bed::new(FakeFs::mixed());
    bed.groups.create(&path("/s")).unwrap();
    for pid in [0, -1] {
        assert!(matches!(
            bed.groups.place(&path("/s"), pid),
            Err(GroupError::NotPossible { .. })
        ));
    }
    assert!(bed.groups.procs(&path("/s")).unwrap().is_empty());
}

#[test]
fn when_even_the_way_back_fails_it_is_said_with_the_remedy() {
    let bed = Bed::new(FakeFs::mixed());
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
    let bed = Bed::new(FakeFs::mixed());
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
    assert!(bed.places_of(7).contains("1:cpu:/\n2:cpuacct:/"));
    bed.fs.inner().set_rt_group_sched(false);
    bed.groups.place(&path("/s"), 7).unwrap();
}

/// A service with a worker in `/app` of a v2 tree.
fn service() -> Bed {
    let bed = Bed::new(FakeFs::v2());
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
    let bed = Bed::new(FakeFs::v2());
    bed.fs.inner().add_process(FakeProcess::new(7));
    let placed = bed
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
fn a_process_whose_home_has_no_name_here_is_not_borrowed() {
    for fake in [FakeFs::mixed(), FakeFs::v2()] {
        let bed = Bed::new(fake);
        bed.fs.inner().add_process(FakeProcess::new(7));
        // Another cgroup namespace than the mount's.
        bed.fs
            .inner()
            .set_file("/proc/7/cgroup", "2:cpuacct:/../x\n1:cpu:/../x\n0::/../x\n");
        let error = bed
            .place_in_place(7, "job", &path("/tidegate-side/job"))
            .unwrap_err();
        assert!(
            error.to_string().contains("run tidegate on the host"),
            "{error}"
        );
        assert!(!bed.is_there("/sys/fs/cgroup/cpu/tidegate-side"));
        assert!(bed.groups.children(&GroupPath::root()).unwrap().is_empty());
    }
}

#[test]
fn a_v1_process_goes_to_the_side_root_and_back() {
    let bed = Bed::new(FakeFs::mixed());
    bed.fs.inner().add_process(FakeProcess::new(7));
    bed.groups.create(&path("/app")).unwrap();
    bed.groups.place(&path("/app"), 7).unwrap();
    let placed = bed
        .place_in_place(7, "unused", &path("/tidegate-side/job"))
        .unwrap();
    assert_eq!(
        bed.groups.group_of(7).unwrap(),
        Some(path("/tidegate-side/job"))
    );
    assert_eq!(
        bed.groups.place_back(&placed).unwrap(),
        PlacementUndo::Moved
    );
    assert!(bed.places_of(7).contains("1:cpu:/app\n2:cpuacct:/app"));

    // Its old group is gone meanwhile: the nearest ancestor that is there.
    let placed = bed
        .place_in_place(7, "unused", &path("/tidegate-side/job"))
        .unwrap();
    bed.groups.remove(&path("/app")).unwrap();
    bed.groups.place_back(&placed).unwrap();
    assert_eq!(bed.groups.group_of(7).unwrap(), Some(GroupPath::root()));

    // It has exited.
    let placed = bed
        .place_in_place(7, "unused", &path("/tidegate-side/job"))
        .unwrap();
    bed.fs.inner().end_process(7);
    assert_eq!(
        bed.groups.place_back(&placed).unwrap(),
        PlacementUndo::Exited
    );
    assert!(!bed.groups.exists(&path("/tidegate-side/job")));
}
