//! Groups on fake machines: what each change writes, and in which order.

use std::path::Path;

use tidegate_cgroup::KernelFs;
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::class;
use tidegate_cgroup::discover::discover;
use tidegate_cgroup::group::{CpuClass, GroupError, GroupPath, Groups};
use tidegate_cgroup::sched::{FIFO, NORMAL};
use tidegate_cgroup::testkit::{FakeFs, FakeProcess};

use crate::support::{Bed, path};

#[test]
fn v2_says_why_cpu_cannot_be_handed_down() {
    let bed = Bed::new(FakeFs::v2());
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
        let bed = Bed::new(fake);
        let group = path("/g");
        bed.groups.create(&group).unwrap();
        let change = |from: Option<Bandwidth>, to: Bandwidth| {
            let files = bed.written(|| {
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

/// From 7.3 on a task that waits keeps the weight that it had, until it is put into the queue anew.
#[test]
fn tasks_that_wait_take_up_a_weight_that_changed() {
    for (release, wanted) in [
        ("6.18.15-cloud-amd64", vec![]),
        ("7.2.1-cloud-amd64", vec![]),
        ("7.3.4-cloud-amd64", vec![7, 8, 8, 9]),
        ("8.0.0", vec![7, 8, 8, 9]),
    ] {
        let bed = Bed::new(FakeFs::v2());
        let fake = bed.fs.inner();
        fake.set_file("/proc/sys/kernel/osrelease", release);
        let (group, inner) = (path("/g"), path("/g/inner"));
        bed.groups.create(&inner).unwrap();
        for pid in [7, 8, 9, 10] {
            fake.add_process(FakeProcess::new(pid));
            let file = Path::new("/sys/fs/cgroup/g/inner/cgroup.procs");
            bed.fs.write(file, &pid.to_string()).unwrap();
        }
        fake.set_task(8, NORMAL, 5, Some(3_000_000));
        fake.make_real_time(10);
        fake.set_task(10, FIFO, 0, None);
        let was = bed.groups.class(&group).unwrap();
        for background in [true, false] {
            fake.take_sched_written();
            class::set_background(&bed.groups, &group, &was, background).unwrap();
            let mut written = fake.take_sched_written();
            // The probe asks on a thread of its own.
            written.retain(|tid| *tid != 0);
            assert_eq!(written, wanted, "{release} {background}");
        }
        // What they had, they have.
        assert_eq!(fake.task(8), Some((Some(3_000_000), NORMAL, 5)));
        assert_eq!(fake.task(9), Some((None, NORMAL, 0)));
    }
}

#[test]
fn a_kernel_without_idle_and_burst() {
    let fake = FakeFs::mixed();
    fake.hide_file("cpu.idle");
    fake.hide_file("cpu.cfs_burst_us");
    let bed = Bed::new(fake);
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
    class::restore_class(
        &bed.groups,
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
    let bed = Bed::new(FakeFs::mixed());
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
