//! Groups on fake machines with faults: what one refusal, a vanished group or a damaged file leaves
//! behind.

use tidegate_cgroup::Op;
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::group::GroupError;
use tidegate_cgroup::testkit::{FakeFs, Fault, Rule};

use crate::support::{Bed, ERRNOS, path};

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
                    let bed = Bed::new(make());
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
                            let bounded = stands.rate_no_above(&from) || stands.rate_no_above(&to);
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
            let bed = Bed::new(make());
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
            let bed = Bed::new(make());
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
        let bed = Bed::new(FakeFs::mixed());
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
