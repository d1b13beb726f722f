//! Quotas below quotas on v1: what was lifted is still known for ours, and what a cut costs.

use tidegate_cgroup::Op;
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::group::{GroupPath, Groups};
use tidegate_cgroup::subgroups::{Family, Per};
use tidegate_engine::apply::Journal;
use tidegate_engine::ledger::Fallback;

use super::{Bed, Kind, path};

const OWN: Bandwidth = Bandwidth::limit(25_000, 50_000);
const LOW: Bandwidth = Bandwidth::limit(2_000, 100_000);
const FREE: Bandwidth = Bandwidth::unlimited();

#[test]
fn what_stood_before_comes_back_also_from_lifted() {
    for kind in [Kind::Mixed, Kind::V1] {
        let bed = Bed::new(kind);
        let (groups, mut journal) = bed.without_agent();
        let side = path("/other");
        let inner = side.join("inner").unwrap();
        groups.create(&inner).unwrap();
        let limit = |quota_us| Bandwidth::limit(quota_us, 100_000);
        groups.set_bandwidth(&inner, None, limit(50_000)).unwrap();
        let free = Bandwidth::unlimited();
        journal
            .record_limit(&side, "side", free, Fallback::Restore)
            .unwrap();
        for own in [30_000, 20_000] {
            journal
                .set_own(&inner, "job", limit(own), Fallback::Restore)
                .unwrap();
        }
        journal.write_quota(&side, &free, &limit(2_000)).unwrap();
        assert_eq!(groups.bandwidth(&inner).unwrap().quota_us, None);
        // The agent dies; the next to open the journal knows both for ours.
        drop(journal);
        let (groups, mut journal) = bed.without_agent();
        assert_eq!(journal.restore_lines(|_| true), [""; 0]);
        assert_eq!(groups.bandwidth(&inner).unwrap(), limit(50_000));
        assert_eq!(groups.bandwidth(&side).unwrap(), free);
    }
}

#[test]
fn a_limit_that_was_lifted_stands_again_when_the_one_above_is_taken_back() {
    for kind in [Kind::Mixed, Kind::V1, Kind::V2] {
        let bed = Bed::new(kind);
        let (groups, mut journal) = bed.without_agent();
        let outer = path("/other");
        let inner = outer.join("inner").unwrap();
        groups.create(&inner).unwrap();
        let set = |journal: &mut Journal, group, gate, own| {
            journal
                .set_own(group, gate, own, Fallback::Restore)
                .unwrap();
        };
        set(&mut journal, &inner, "inner", OWN);
        set(&mut journal, &outer, "outer", LOW);
        journal.restore_gate("outer");
        assert_eq!(groups.bandwidth(&inner).unwrap(), OWN, "{kind:?}");
        assert_eq!(groups.bandwidth(&outer).unwrap(), FREE, "{kind:?}");
        journal.restore_gate("inner");
        assert_eq!(groups.bandwidth(&inner).unwrap(), FREE, "{kind:?}");
    }
}

/// A measurement moves the quotas of side gates below the side root's, which follows main.
#[test]
fn a_quota_that_moves_below_another_is_lifted_while_that_is_lower() {
    for kind in [Kind::Mixed, Kind::V1] {
        let bed = Bed::new(kind);
        let (groups, mut journal) = bed.without_agent();
        let side = path("/other");
        let gate = side.join("gate").unwrap();
        groups.create(&gate).unwrap();
        let found = Bandwidth::limit(40_000, 50_000);
        groups.set_bandwidth(&gate, None, found).unwrap();
        for (group, was) in [(&side, FREE), (&gate, found)] {
            journal
                .record_limit(group, "gate", was, Fallback::Restore)
                .unwrap();
        }
        let stands = |group| groups.bandwidth(group).unwrap();
        let is_ours = |journal: &Journal| journal.outside_writes(0..4).is_empty();
        journal.write_quota(&side, &FREE, &LOW).unwrap();
        journal.write_quota(&gate, &found, &OWN).unwrap();
        assert_eq!(stands(&gate).quota_us, None, "v1 refuses more than above");
        assert!(is_ours(&journal));
        journal.write_quota(&side, &LOW, &FREE).unwrap();
        assert_eq!(stands(&gate), OWN);
        journal.write_quota(&side, &FREE, &LOW).unwrap();
        assert_eq!(stands(&gate).quota_us, None);
        assert!(is_ours(&journal));
        let low = Bandwidth::limit(1_000, 100_000);
        journal.write_quota(&gate, &OWN, &low).unwrap();
        assert_eq!(stands(&gate), low);
        journal.write_quota(&side, &LOW, &FREE).unwrap();
        journal.write_quota(&gate, &low, &OWN).unwrap();
        assert_eq!(stands(&gate), OWN, "nothing above it is lower now");
        assert!(is_ours(&journal));
        journal.write_quota(&side, &FREE, &LOW).unwrap();
        journal
            .write_quota(&gate, &OWN, &Bandwidth::limit(30_000, 50_000))
            .unwrap();
        assert_eq!(stands(&gate).quota_us, None);
        // The agent dies.
        drop(journal);
        let (groups, mut journal) = bed.without_agent();
        assert_eq!(journal.restore_lines(|_| true), [""; 0]);
        assert_eq!(groups.bandwidth(&gate).unwrap(), found);
    }
}

type Give = fn(&Groups, &mut Journal, &GroupPath);

/// The operations of a cut above so many groups with a quota: writes of the ledger, writes to
/// groups, and all others.
fn cut_above(count: i32, give: Give) -> [usize; 3] {
    let bed = Bed::new(Kind::V1);
    let (groups, mut journal) = bed.without_agent();
    let side = path("/other");
    let family = Family {
        group: side.clone(),
        dir: side.clone(),
        stem: "tg-t".to_owned(),
        per: Per::Task,
        threaded: false,
        yields: false,
    };
    journal
        .record_limit(&side, "side", FREE, Fallback::Restore)
        .unwrap();
    journal
        .record_subgroups("side", &family, Fallback::Stay)
        .unwrap();
    let below: Vec<GroupPath> = (1..=count).map(|id| family.path_of(id).unwrap()).collect();
    for group in &below {
        groups.create(group).unwrap();
        give(&groups, &mut journal, group);
    }
    let since = bed.fs.log().len();
    journal.write_quota(&side, &FREE, &LOW).unwrap();
    let log = bed.fs.log().split_off(since);
    assert!(
        below
            .iter()
            .all(|group| groups.bandwidth(group).unwrap().quota_us.is_none())
    );
    journal.write_quota(&side, &LOW, &FREE).unwrap();
    assert!(
        below
            .iter()
            .all(|group| groups.bandwidth(group).unwrap() == OWN)
    );
    let of = |op: Op| log.iter().filter(|(done, _)| *done == op).count();
    let (ledger, written) = (of(Op::Replace) + of(Op::Append), of(Op::Write));
    [ledger, written, log.len() - ledger - written]
}

#[test]
fn a_cut_writes_the_ledger_once_and_reads_no_quota_that_is_known() {
    let own: Give = |_, journal, group| {
        journal.set_own(group, "job", OWN, Fallback::Stay).unwrap();
    };
    let subgroup: Give = |_, journal, group| journal.set_subgroup_cap(group, OWN).unwrap();
    for (give, ledger) in [(own, 1), (subgroup, 0)] {
        let few = cut_above(4, give);
        let many = cut_above(200, give);
        assert_eq!([few[0], many[0]], [ledger, ledger]);
        assert_eq!(many[1] - few[1], 196, "one write to each group");
        assert_eq!(many[2], few[2]);
    }
}

/// A container runtime's groups, which no gate knows.
#[test]
fn quotas_of_other_programs_are_written_down_at_once() {
    let foreign: Give = |groups, _, group| {
        let inner = group.join("inner").unwrap();
        groups.create(&inner).unwrap();
        groups.set_bandwidth(group, None, OWN).unwrap();
        groups.set_bandwidth(&inner, None, OWN).unwrap();
    };
    assert_eq!(cut_above(4, foreign)[0], 1);
    assert_eq!(cut_above(200, foreign)[0], 1);
}

#[test]
fn a_known_quota_that_another_program_has_raised_is_found() {
    let bed = Bed::new(Kind::V1);
    let (groups, mut journal) = bed.without_agent();
    let side = path("/other");
    let inner = side.join("inner").unwrap();
    groups.create(&inner).unwrap();
    let free = FREE;
    journal
        .record_limit(&side, "side", free, Fallback::Restore)
        .unwrap();
    journal.set_own(&inner, "job", LOW, Fallback::Stay).unwrap();
    groups.set_bandwidth(&inner, None, OWN).unwrap();
    let cut = Bandwidth::limit(10_000, 100_000);
    journal.write_quota(&side, &free, &cut).unwrap();
    assert_eq!(groups.bandwidth(&side).unwrap(), cut);
}
