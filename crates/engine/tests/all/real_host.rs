//! What the engine does on the running kernel. Skipped with one line where no cgroup tree is writable.

use crate::in_place::PlaceInPlace;
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::class;
use tidegate_cgroup::discover::CgroupVersion;
use tidegate_cgroup::group::{CpuClass, GroupError, PlacementUndo};
use tidegate_engine::sense::{self, SenseConfig};
use tidegate_terms::Sense;

use crate::support::host::bed;

#[test]
fn a_group_lives_its_life() {
    let Some(mut bed) = bed() else { return };
    let leaf = bed.top.join("leaf").unwrap();
    assert!(bed.groups.create(&leaf).unwrap());
    assert!(!bed.groups.create(&leaf).unwrap(), "there already");
    let id = bed.groups.id(&leaf).unwrap();
    assert_ne!(id, bed.groups.id(&bed.top).unwrap());

    let pid = bed.sleeper();
    let Some(home) = bed.groups.group_of(pid).unwrap() else {
        eprintln!("skipped: our own group cannot be named through this mount");
        return;
    };
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
    assert_eq!(
        bed.groups.place_back(&placed).unwrap(),
        PlacementUndo::Moved
    );
    assert_eq!(bed.groups.group_of(pid).unwrap(), Some(home));
    assert_eq!(
        bed.groups.place_back(&placed).unwrap(),
        PlacementUndo::AtHome,
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
    class::restore_class(groups, group, &saved).unwrap();
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
fn a_process_is_limited_where_it_is_and_comes_back() {
    let Some(mut bed) = bed() else { return };
    let (service, side) = (
        bed.top.join("service").unwrap(),
        bed.top.join("side").unwrap(),
    );
    bed.groups.create(&service).unwrap();
    let (pid, other) = (bed.sleeper(), bed.sleeper());
    bed.groups.place(&service, pid).unwrap();
    bed.groups.place(&service, other).unwrap();
    let plan = bed
        .groups
        .plan_in_place(pid, "tgtest-job", &side.join("job").unwrap())
        .unwrap();
    let placed = bed
        .groups
        .place_in_place(pid, "tgtest-job", &side.join("job").unwrap())
        .unwrap();
    assert_eq!(plan, placed);
    assert_eq!(
        bed.groups.group_of(pid).unwrap(),
        Some(placed.group.clone())
    );
    assert_eq!(bed.groups.procs(&placed.group).unwrap(), [pid]);
    bed.groups
        .set_bandwidth(&placed.group, None, Bandwidth::limit(5_000, 100_000))
        .unwrap();
    bed.groups.set_idle(&placed.group, true).unwrap();
    if bed.machine.version == CgroupVersion::V2 {
        assert!(placed.group.is_within(&service));
        let mut pids = bed.groups.procs(&service).unwrap();
        pids.sort_unstable();
        let mut both = [pid, other];
        both.sort_unstable();
        assert_eq!(pids, both, "its memory is still the service's");
    }
    assert_eq!(
        bed.groups.place_back(&placed).unwrap(),
        PlacementUndo::Moved
    );
    assert_eq!(bed.groups.group_of(pid).unwrap(), Some(service.clone()));
    assert!(!bed.groups.exists(&placed.group));
    assert_eq!(
        bed.groups.place_back(&placed).unwrap(),
        PlacementUndo::AtHome
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

/// Without rights BPF is refused; Auto goes on with usage and says why and what would mend it.
#[test]
fn without_rights_sensing_falls_back_with_a_note() {
    let Some(_bed) = bed() else { return };
    let child = std::thread::spawn(|| {
        let user = 65534;
        // SAFETY: the raw system call changes the ids of this thread alone, which then ends.
        let dropped = unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) };
        assert_eq!(dropped, 0);
        let config = SenseConfig::detect();
        let refused = sense::open(&config, &[], &[], Sense::Bpf)
            .err()
            .unwrap()
            .to_string();
        let (sensor, note) = sense::open(&config, &[], &[], Sense::Auto).unwrap();
        (sensor.kind(), note, refused)
    });
    let (kind, note, refused) = child.join().unwrap();
    assert_eq!(kind, "usage");
    assert!(
        note.contains("run as root") && note.contains("bpf"),
        "{note}"
    );
    assert!(refused.contains("run as root"), "{refused}");
}
