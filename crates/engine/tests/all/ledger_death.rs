//! An agent's whole life on fake machines, ended after each single step: what the next start finds
//! must be enough to put everything back. (Refusals at each step are in
//! crates/agent/src/tests/matrix.rs.)

use std::path::Path;

use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::group::GroupPath;
use tidegate_cgroup::target::ProcessRef;
use tidegate_cgroup::testkit::{FakeFs, FakeProcess, Fault, Rule};
use tidegate_engine::ledger::{Change, Fallback, Ledger, NewEntry, Outcome, own_groups};

use crate::support::{Bed, RUN, THEIRS, path};

/// What an agent does in its life, stopping at the first refusal as a dying one would.
fn life(bed: &Bed, group: &GroupPath, batched: bool) -> Option<()> {
    let moving = bed.moving();
    let (mut ledger, _) = Ledger::open(bed.fs.clone(), Path::new(RUN), moving, &bed.groups).ok()?;
    if batched {
        ledger.begin_batch().ok()?;
    }
    let entry = |group: &GroupPath, change| {
        let group_id = bed.groups.id(group).ok()?;
        Some(NewEntry {
            gate: "g".into(),
            group: group.clone(),
            group_id,
            change,
            fallback: Fallback::Restore,
        })
    };
    let side = path("/tidegate-side");
    bed.groups.create(&side).ok()?;
    ledger.record(entry(&side, Change::Group)?).ok()?;
    bed.groups.set_idle(&side, true).ok()?;

    let was = bed.groups.class(group).ok()?;
    ledger
        .record(entry(group, Change::Idle { was, ours: true })?)
        .ok()?;
    bed.groups.set_idle(group, true).ok()?;
    let was = bed.groups.bandwidth(group).ok()?;
    let id = ledger
        .record_moving(
            entry(
                group,
                Change::Bandwidth {
                    was,
                    ours: was,
                    previous: None,
                },
            )?,
            &was,
        )
        .ok()?;
    let mut standing = was;
    for quota_us in [3_000, 9_000, 2_000] {
        let intended = Bandwidth {
            period_us: 10_000 + quota_us,
            burst_us: quota_us / 2,
            quota_us: Some(quota_us),
        };
        ledger.note_moving(id, &standing, &intended).then_some(())?;
        bed.groups
            .set_bandwidth(group, Some(standing), intended)
            .ok()?;
        standing = intended;
    }
    let start_ticks = ProcessRef::look_up(&*bed.fs, 7).ok()?.start_ticks;
    let placement = bed
        .groups
        .plan_in_place(7, "tidegate-job", &path("/tidegate-side/job"))
        .ok()?;
    let change = Change::Membership {
        start_ticks,
        placement,
    };
    ledger.record(entry(group, change)?).ok()?;
    bed.place_in_place(7, "tidegate-job", &path("/tidegate-side/job"))
        .ok()?;
    let all = ledger.ids_where(|_| true);
    let unsettled = ledger
        .restore(&bed.groups, &all)
        .into_iter()
        .any(|(_, outcome)| !outcome.is_settled());
    (!unsettled).then_some(())?;
    ledger.end_batch().ok()?;
    bed.groups.remove(&side).ok()?;
    Some(())
}

fn with_process(make: fn() -> FakeFs) -> (Bed, GroupPath) {
    let bed = Bed::new(make());
    let group = bed.foreign();
    bed.fs.inner().add_process(FakeProcess::new(7));
    bed.groups.place(&group, 7).unwrap();
    (bed, group)
}

/// What the next start does, and what must then stand.
fn repaired(bed: &Bed, group: &GroupPath, when: &str) {
    let (mut ledger, report) = bed.open();
    assert!(
        report.set_aside.is_none(),
        "{when}: a reader sees the old or the new file whole"
    );
    for (entry, outcome) in ledger.restore(&bed.groups, &ledger.ids_where(|_| true)) {
        assert!(outcome.is_settled(), "{when}: {entry:?}: {outcome:?}");
        assert!(
            !matches!(outcome, Outcome::NotOurs { .. }),
            "{when}: {entry:?}: {outcome:?}"
        );
    }
    for own in own_groups(&bed.groups, "tidegate").unwrap().iter().rev() {
        bed.groups.remove(own).unwrap();
    }
    assert_eq!(bed.groups.bandwidth(group).unwrap(), THEIRS, "{when}");
    assert_eq!(bed.groups.weight(group).unwrap(), 250, "{when}");
    assert_eq!(bed.groups.idle(group).unwrap(), Some(false), "{when}");
    let home = bed.groups.group_of(7).unwrap();
    assert_eq!(home.as_ref(), Some(group), "{when}");
    assert_eq!(own_groups(&bed.groups, "tidegate").unwrap(), [], "{when}");
    let (mut ledger, _) = bed.open();
    assert_eq!(
        ledger.restore(&bed.groups, &ledger.ids_where(|_| true)),
        [],
        "{when}: idempotent"
    );
}

/// Machines, and whether the ledger is kept in a batch.
const LIVES: [(fn() -> FakeFs, bool); 5] = [
    (FakeFs::mixed, false),
    (FakeFs::v1, false),
    (FakeFs::v2, false),
    (FakeFs::mixed, true),
    (FakeFs::v2, true),
];

#[test]
fn an_agent_that_dies_after_any_step_leaves_what_the_next_can_put_back() {
    for (make, batched) in LIVES {
        let (bed, group) = with_process(make);
        let start = bed.fs.count();
        life(&bed, &group, batched).unwrap();
        let operations = bed.fs.count() - start;
        assert!(operations > 50, "{operations}");
        repaired(&bed, &group, "a whole life");
        for nth in 1..=operations {
            let (bed, group) = with_process(make);
            bed.fs.add(Rule {
                fault: Fault::Halt,
                ..Rule::nth(bed.fs.count() + nth, 0)
            });
            assert!(life(&bed, &group, batched).is_none());
            bed.fs.clear();
            repaired(&bed, &group, &format!("died at operation {nth}"));
        }
    }
}
