//! Groups for one each on fake machines: numbers that come to mean others, and the work of one
//! sweep.

use std::sync::Arc;

use tidegate_cgroup::Op;
use tidegate_cgroup::group::GroupPath;
use tidegate_cgroup::subgroups::{Family, Per, SweepBudget, SweepReport, dissolve, sweep};
use tidegate_cgroup::testkit::{FakeFs, FakeProcess, Fault, Meanwhile, Rule};

use crate::support::{Bed, path};

const BUDGET: SweepBudget = SweepBudget {
    moves: 32,
    groups: 512,
};

fn family(per: Per) -> Family {
    Family {
        group: path("/s"),
        dir: path("/s"),
        stem: "u".to_owned(),
        per,
        threaded: false,
        yields: false,
    }
}

/// Process 7 is in `/s`.
fn bed() -> Bed {
    let bed = Bed::new(FakeFs::mixed());
    bed.groups.create(&path("/s")).unwrap();
    bed.fs.inner().add_process(FakeProcess::new(7));
    bed.groups.place(&path("/s"), 7).unwrap();
    bed
}

fn at(bed: &Bed, tid: i32) -> String {
    bed.groups.group_of(tid).unwrap().unwrap().to_string()
}

fn go(bed: &Bed, per: Per, from: &SweepReport) -> SweepReport {
    let from = from.stopped_at;
    sweep(&bed.groups, &family(per), BUDGET, from, &mut |_| Ok(())).unwrap()
}

/// Process 7 ends, and another one in the root group gets its number.
fn reuse(fs: &FakeFs) {
    fs.end_process(7);
    fs.add_process(FakeProcess {
        start_ticks: 99_999,
        ..FakeProcess::new(7)
    });
}

#[test]
fn whoever_got_the_number_since_is_not_moved() {
    for per in [Per::Process, Per::Task] {
        let bed = bed();
        let mut late = |_: &GroupPath| {
            reuse(bed.fs.inner());
            Ok(())
        };
        let swept = sweep(&bed.groups, &family(per), BUDGET, None, &mut late).unwrap();
        assert_eq!((swept.moved, swept.subgroups), (0, 0), "{per:?}");
        assert_eq!(at(&bed, 7), "/", "{per:?}");
    }
}

#[test]
fn whoever_got_the_number_during_the_move_goes_back() {
    for per in [Per::Process, Per::Task] {
        let bed = bed();
        let rule = |act: Arc<dyn Fn() + Send + Sync>| {
            let fault = Fault::Meanwhile(Meanwhile(act));
            bed.fs
                .add(Rule::on(Op::Read, "/proc/7/cgroup", fault).times(1));
        };
        // The first look is before the move, the second the move's own.
        rule(Arc::new(|| {}));
        let fs = bed.fs.clone();
        rule(Arc::new(move || reuse(fs.inner())));
        let swept = go(&bed, per, &SweepReport::default());
        assert_eq!((swept.moved, swept.subgroups), (0, 0), "{per:?} {swept:?}");
        assert_eq!(at(&bed, 7), "/", "{per:?}");
    }
}

#[test]
fn whoever_was_moved_away_meanwhile_is_not_fetched_back() {
    let bed = bed();
    let mut late = |_: &GroupPath| bed.groups.place(&path("/"), 7).map(drop);
    let swept = sweep(&bed.groups, &family(Per::Process), BUDGET, None, &mut late).unwrap();
    assert_eq!((swept.moved, at(&bed, 7).as_str()), (0, "/"));
    // Nor is it by the way home of a subgroup.
    go(&bed, Per::Process, &SweepReport::default());
    bed.groups.place(&path("/s"), 7).unwrap();
    assert_eq!(go(&bed, Per::Process, &SweepReport::default()).moved, 1);
    assert_eq!(at(&bed, 7), "/s/u7");
    assert!(dissolve(&bed.groups, &family(Per::Process)).unwrap());
    assert_eq!(at(&bed, 7), "/s");
}

#[test]
fn a_process_of_many_threads_is_one_look_and_then_there_is_quiet() {
    for threaded in [false, true] {
        let bed = bed();
        for tid in 1_000..1_600 {
            bed.fs.inner().add_thread(7, tid);
        }
        bed.fs.inner().add_process(FakeProcess::new(9_000));
        bed.groups.place(&path("/s"), 9_000).unwrap();
        let family = Family {
            threaded,
            ..family(Per::Process)
        };
        let go = || sweep(&bed.groups, &family, BUDGET, None, &mut |_| Ok(())).unwrap();
        assert_eq!(go().moved, 2, "those behind the threads too");
        assert_eq!(at(&bed, 9_000), "/s/u9000");
        let swept = go();
        assert!(
            !swept.more && swept.stopped_at.is_none() && swept.moved == 0,
            "{swept:?}"
        );
    }
}

#[test]
fn tasks_of_a_sweep_are_bounded_and_the_next_sweep_goes_on_where_one_stopped() {
    let bed = bed();
    for tid in 1_000..1_600 {
        bed.fs.inner().add_thread(7, tid);
        bed.fs.inner().make_real_time(tid);
    }
    bed.fs.inner().add_process(FakeProcess::new(9_000));
    bed.groups.place(&path("/s"), 9_000).unwrap();
    let mut swept = SweepReport::default();
    let mut moved = 0;
    for _ in 0..4 {
        let before = bed.fs.count();
        swept = go(&bed, Per::Task, &swept);
        moved += swept.moved;
        let operations = bed.fs.count() - before;
        assert!(operations < 400, "{operations}");
        assert!(!swept.more || swept.moved > 0, "{swept:?}");
    }
    assert_eq!(moved, 2, "the last one was reached");
    assert_eq!(at(&bed, 9_000), "/s/u9000");
}
