//! What the engine does on the running kernel. Skipped with one line where no cgroup tree is
//! writable.

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
    // Quota and period are two files on v1.
    let is_v1 = bed.machine.version == CgroupVersion::V1;
    let of_both = if is_v1 { 2 } else { 1 };
    let steps = [
        (Bandwidth::limit(1_000, 100_000), 1),
        (Bandwidth::limit(2_000, 100_000), 1),
        (Bandwidth::limit(15_000, 10_000), of_both),
        (
            Bandwidth {
                burst_us: 5_000,
                ..Bandwidth::limit(15_000, 10_000)
            },
            1,
        ),
        (Bandwidth::limit(1_000, 10_000), 2),
        (Bandwidth::limit(1_000, 10_000), 0),
        (old, of_both),
    ];
    for (to, writes) in steps {
        let written = groups.set_bandwidth(group, None, to).unwrap();
        assert_eq!(written, writes, "{to}");
        assert_eq!(groups.bandwidth(group).unwrap(), to);
    }
    let too_small = Bandwidth::limit(999, 100_000);
    assert!(groups.set_bandwidth(group, None, too_small).is_err());

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
    if is_v1 {
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

/// Without rights BPF is refused; Auto goes on with usage and says why and what would help.
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
