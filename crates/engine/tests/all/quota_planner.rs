//! The write rules one by one, without a plant.

use proptest::prelude::*;
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_engine::quota_planner::{
    QuotaPlan, QuotaPlanner, QuotaReason, WriteBudget, bandwidth_for,
};
use tidegate_law::{HeadroomDecision, Reason};

const MS: u64 = 1_000_000;

/// A decision on two CPUs with a tolerance of 1 %.
fn decision(allowance_ucpu: u64, reason: Reason) -> HeadroomDecision {
    HeadroomDecision {
        allowance_ucpu,
        floor_ucpu: 20_000,
        capacity_ucpu: 2_000_000,
        asked_ucpu: 600_000,
        main_est_ucpu: 1_400_000 - allowance_ucpu,
        reason,
        ..HeadroomDecision::default()
    }
}

fn track(allowance_ucpu: u64) -> HeadroomDecision {
    decision(allowance_ucpu, Reason::Track)
}

/// A planner of a group on two CPUs with a budget of its own.
struct Alone {
    planner: QuotaPlanner,
    budget: WriteBudget,
}

impl Alone {
    fn new() -> Self {
        Self {
            planner: QuotaPlanner::new(4 * MS),
            budget: WriteBudget::default(),
        }
    }

    fn step(&mut self, now_ns: u64, decision: &HeadroomDecision) -> Option<QuotaPlan> {
        self.planner.step(now_ns, decision, 2, &mut self.budget)
    }
}

/// A planner under which `allowance_ucpu` stands for two seconds; the time then.
fn standing(allowance_ucpu: u64) -> (Alone, u64) {
    let mut planner = Alone::new();
    for step in 0..400 {
        planner.step(step * 5 * MS, &track(allowance_ucpu));
    }
    (planner, 2_000 * MS)
}

#[test]
fn the_first_step_writes_and_the_same_value_is_never_written_again() {
    let mut planner = Alone::new();
    let plan = planner.step(0, &track(20_000)).unwrap();
    assert_eq!(
        (plan.bandwidth, plan.reason),
        (Bandwidth::limit(1_000, 50_000), QuotaReason::Initial)
    );
    for step in 1..2_000 {
        assert_eq!(
            planner.step(step * 5 * MS, &track(20_000)),
            None,
            "never rewritten at the floor"
        );
    }
    assert_eq!(
        planner.planner.standing(),
        Some(Bandwidth::limit(1_000, 50_000))
    );
}

#[test]
fn a_cut_is_written_at_once_but_not_twice_within_the_gap() {
    let (mut planner, now) = standing(800_000);
    let plan = planner.step(now, &decision(300_000, Reason::Cut)).unwrap();
    assert_eq!(plan.reason, QuotaReason::Cut);
    assert_eq!(
        planner.step(now + 5 * MS, &decision(20_000, Reason::Floor)),
        None
    );
    let plan = planner
        .step(now + 10 * MS, &decision(20_000, Reason::Floor))
        .unwrap();
    assert_eq!(
        (plan.reason, plan.bandwidth),
        (QuotaReason::Cut, Bandwidth::limit(1_000, 50_000))
    );
}

#[test]
fn a_bad_sample_is_written_as_a_cut() {
    let (mut planner, now) = standing(800_000);
    let plan = planner.step(now, &decision(20_000, Reason::Stale)).unwrap();
    assert_eq!(plan.bandwidth, Bandwidth::limit(1_000, 50_000));
}

#[test]
fn a_raise_waits_and_a_ramp_is_written_at_its_end() {
    let (mut planner, now) = standing(400_000);
    planner.step(now, &decision(100_000, Reason::Cut)).unwrap();
    for ms in (5..250).step_by(5) {
        assert_eq!(
            planner.step(now + ms * MS, &track(400_000)),
            None,
            "{ms} ms"
        );
    }
    assert_eq!(
        planner.step(now + 250 * MS, &decision(300_000, Reason::Ramp)),
        None
    );
    let plan = planner.step(now + 255 * MS, &track(400_000)).unwrap();
    assert_eq!(plan.reason, QuotaReason::Raise);
}

#[test]
fn a_refuted_cut_is_taken_back_without_waiting() {
    let (mut planner, now) = standing(400_000);
    planner.step(now, &decision(100_000, Reason::Cut)).unwrap();
    let plan = planner
        .step(now + 25 * MS, &decision(400_000, Reason::Restore))
        .unwrap();
    assert_eq!(plan.reason, QuotaReason::Raise);
}

#[test]
fn small_changes_are_not_worth_a_write() {
    let (mut planner, now) = standing(800_000);
    let stood = planner.planner.standing();
    for step in 0..400 {
        let wobble = [0, 4_000, 7_000, 2_000][step as usize % 4];
        assert_eq!(
            planner.step(now + step * 5 * MS, &track(796_000 + wobble)),
            None
        );
    }
    assert_eq!(planner.planner.standing(), stood);
}

#[test]
fn what_a_write_gives_away_is_taken_off_the_next_quota() {
    let mut planner = Alone::new();
    planner.step(0, &track(800_000)).unwrap();
    // Half a tick on each of two CPUs and three quarters as much of the pool; main leaves 70 %.
    let plan = planner.step(300 * MS, &track(900_000)).unwrap();
    // Of 4,900 millionths of a CPU, 70 % are left after 300 ms.
    assert_eq!(plan.bandwidth, Bandwidth::limit(8_965, 10_000));
}

#[test]
fn whoever_writes_beside_us_is_answered_once_told() {
    let (mut planner, now) = standing(800_000);
    planner.planner.invalidate();
    let plan = planner.step(now, &track(800_000)).unwrap();
    assert_eq!(plan.reason, QuotaReason::Initial);
    assert_eq!(planner.step(now + 20 * MS, &track(800_000)), None);
}

#[test]
fn a_shared_budget_is_one_for_all() {
    let mut planners: Vec<QuotaPlanner> = (0..8).map(|_| standing(100_000).0.planner).collect();
    let mut budget = WriteBudget::default();
    let mut step = |planner: &mut QuotaPlanner, at_ms: u64, decision: &HeadroomDecision| {
        planner.step(at_ms * MS, decision, 2, &mut budget).is_some()
    };
    let raises = planners
        .iter_mut()
        .filter_map(|planner| step(planner, 2_005, &track(900_000)).then_some(()));
    assert_eq!(raises.count(), 5, "large raises may use the budget up");
    let cut = decision(20_000, Reason::Cut);
    for planner in &mut planners {
        assert!(step(planner, 2_505, &cut), "cuts are never refused");
    }
    assert_eq!(budget.used(2_506 * MS), 13);
    assert_eq!(budget.used(3_506 * MS), 0);
}

proptest! {
    /// The rate asked for, never more, and less by no more than 1 us in the period; quotas and
    /// periods that every kernel takes.
    #[test]
    fn quota_and_period_give_the_rate(rate_ucpu in 0..8_192_000_000u64) {
        let got = bandwidth_for(rate_ucpu, 10_000);
        let quota_us = got.quota_us.unwrap();
        prop_assert!(quota_us >= 1_000 && (10_000..=100_000).contains(&got.period_us));
        let rate = quota_us as f64 / got.period_us as f64 * 1e6;
        if rate_ucpu >= 10_000 {
            prop_assert!(rate <= rate_ucpu as f64 + 1e-6);
            prop_assert!(rate >= rate_ucpu as f64 - 100.0, "{rate} for {rate_ucpu}");
        } else {
            prop_assert_eq!(got, Bandwidth::limit(1_000, 100_000), "the kernel has nothing less");
        }
    }

    /// Whatever the law says and however often: writes at most every 10 ms, and what is neither a
    /// cut nor its taking back never finds or makes more than 5 writes in a second.
    #[test]
    fn the_budget_holds(
        steps in prop::collection::vec((0..1_400_000u64, 0..8u8, 1..60u64), 1..400),
    ) {
        let reasons = [Reason::Warmup, Reason::Ramp, Reason::Track, Reason::Cut, Reason::Floor,
                       Reason::Stale, Reason::Restore, Reason::Skip];
        let mut planner = Alone::new();
        let (mut now, mut writes, mut refuted) = (0, Vec::<u64>::new(), false);
        for (allowance, reason, wait_ms) in steps {
            now += wait_ms * MS;
            let decision = decision(allowance.max(20_000), reasons[usize::from(reason)]);
            let before = planner.planner.standing();
            refuted |= decision.reason == Reason::Restore;
            if let Some(plan) = planner.step(now, &decision) {
                prop_assert_ne!(Some(plan.bandwidth), before);
                prop_assert!(writes.last().is_none_or(|last| now - last >= 10 * MS));
                writes.push(now);
                let used = writes.iter().filter(|at| now - **at < 1_000 * MS).count();
                let is_free = plan.reason == QuotaReason::Cut || std::mem::take(&mut refuted);
                prop_assert!(used <= 5 || is_free, "{used} writes");
                prop_assert_eq!(planner.budget.used(now) as usize, used);
            }
        }
    }
}
