//! The last step's decision, as every reader gets it.

use tidegate_api::{Decision, GroupDecision, Limit, Reason};
use tidegate_law::HeadroomDecision;

use super::Control;
use super::quotas::Target;
use crate::quota_planner::{Bandwidth, FREE_UCPU};

fn cpus(ucpu: u64) -> f64 {
    ucpu as f64 / 1e6
}

/// A quota is to be raised if it was written for an allowance lower by more than this part of the
/// machine. The planner writes nothing for less, which is the law's noise.
const STALE_PART: u64 = 50;

/// A law's decision in the form that every reader gets, without groups.
pub fn decision_of(law: &HeadroomDecision) -> Decision {
    Decision {
        reason: law.reason,
        limit: match law.allowance_ucpu <= law.floor_ucpu {
            true => Limit::Tolerance,
            false => Limit::Headroom,
        },
        allowance_cpus: cpus(law.allowance_ucpu),
        capacity_cpus: cpus(law.capacity_ucpu),
        headroom_cpus: cpus(law.asked_ucpu),
        main_cpus: cpus(law.main_est_ucpu),
        trim_cpus: law.trim_ucpu as f64 / 1e6,
        tolerance_cpus: cpus(law.floor_ucpu),
        side_cpus: cpus(law.side_ucpu),
        idle_cpus: cpus(law.idle_ucpu),
        ..Decision::default()
    }
}

impl Control {
    /// The last step's decision: the law's, with the planners' state for each group.
    pub fn decided(&self) -> Decision {
        let law = &self.decision;
        let mut decision = decision_of(law);
        if self.quotas.is_free(self.keeps_idle()) {
            let left_cpus = decision.capacity_cpus - decision.main_cpus;
            decision.allowance_cpus = left_cpus.max(decision.tolerance_cpus);
            decision.limit = Limit::IdleClass;
        } else if self.quotas.holds_at_floor() {
            // Side work that starved in the idle class left it, and has the tolerance.
            decision.allowance_cpus = decision.tolerance_cpus;
            decision.limit = Limit::Tolerance;
            decision.reason = Reason::Floor;
        }
        let stale_ucpu = law.capacity_ucpu / STALE_PART;
        let groups = self
            .quotas
            .given()
            .map(|(target, given_ucpu)| group_of(target, given_ucpu, decision.limit, stale_ucpu));
        decision.groups = groups.collect();
        decision.with_sentence()
    }
}

fn group_of(target: &Target, given_ucpu: u64, law: Limit, stale_ucpu: u64) -> GroupDecision {
    // Before the first step nothing is given, and the quota of a new group is above the machine.
    let is_free = law == Limit::IdleClass && target.own().is_none();
    let has_quota = given_ucpu != FREE_UCPU && !is_free;
    // A quota that is to go stands until the next step.
    let is_shown = |quota: &Bandwidth| has_quota || quota.quota_us.is_some();
    let standing = target.standing().filter(is_shown);
    let limit = if target.own().is_some() && target.standing() == target.own() {
        Limit::Quota
    } else if given_ucpu > target.planned_ucpu().saturating_add(stale_ucpu) {
        Limit::Root
    } else {
        law
    };
    GroupDecision {
        group: target.group.to_string(),
        allowance_cpus: has_quota.then(|| cpus(given_ucpu)),
        quota_us: standing.and_then(|quota| quota.quota_us),
        period_us: standing.map(|quota| quota.period_us),
        limit,
    }
}
