//! The groups that carry a moving quota: whose part of the allowance is what, when it is written,
//! and what happens to side work that starves at the tolerance.

use std::collections::BTreeSet;

use tidegate_law::{Demand as Wanted, HeadroomDecision, share};

use self::relief::Relief;
use super::apply::Apply;
use super::meter::Use;
use super::write_error::WriteError;
use super::write_log::{Write, WriteLog, describe};
use crate::quota_planner::{FREE_UCPU, PERIOD_US, QuotaPlanner, WriteBudget};
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::group::GroupPath;

pub struct Target {
    pub group: GroupPath,
    pub weight: u32,
    /// What it would use; `u64::MAX` for all that it gets.
    pub demand_ucpu: u64,
    /// A task of it runs or waits for a CPU. What sleeps does not starve.
    pub is_awake: bool,
    cap_ucpu: u64,
    before_ucpu: u64,
    planner: QuotaPlanner,
    relief: Relief,
    /// A measurement holds it at the tolerance.
    is_held: bool,
    class_error: WriteError,
    quota_error: WriteError,
    /// Unequal weights were seen. A period that came and went with gates would be a write, and so a
    /// refill, each time.
    unequal: bool,
    /// Several gates are in the group.
    is_of_several: bool,
}

impl Target {
    /// A target about which nothing is known yet: it wants all it gets.
    pub fn new(group: GroupPath, weight: u32, tick_ns: u64) -> Self {
        Self {
            group,
            weight,
            demand_ucpu: u64::MAX,
            is_awake: true,
            cap_ucpu: u64::MAX,
            before_ucpu: u64::MAX,
            planner: QuotaPlanner::new(tick_ns),
            relief: Relief::default(),
            is_held: false,
            class_error: WriteError::default(),
            quota_error: WriteError::default(),
            unequal: false,
            is_of_several: false,
        }
    }

    pub fn own(&self) -> Option<Bandwidth> {
        self.planner.own()
    }

    /// The rate that the group was limited to before us.
    pub fn before_ucpu(&self) -> u64 {
        self.before_ucpu
    }

    fn write_errors(&self) -> impl Iterator<Item = &String> {
        [&self.class_error, &self.quota_error]
            .into_iter()
            .filter_map(WriteError::get)
    }

    /// The most that it may be given: side work out of the idle class is bounded by its tolerance
    /// alone.
    fn most_ucpu(&self, floor_ucpu: u64) -> u64 {
        match self.is_held || self.relief.holds_at_floor() {
            true => self.cap_ucpu.min(floor_ucpu),
            false => self.cap_ucpu,
        }
    }

    /// It may have no more than its tolerance, since it starved in the idle class.
    pub(super) fn holds_at_floor(&self) -> bool {
        self.relief.holds_at_floor()
    }

    pub(super) fn planned_ucpu(&self) -> u64 {
        self.planner.standing_for_ucpu()
    }

    pub fn standing(&self) -> Option<Bandwidth> {
        self.planner.standing()
    }
}

#[derive(Clone, Debug)]
pub struct QuotaTarget {
    pub group: GroupPath,
    pub weight: u32,
    pub first_weight: u32,
    pub unequal: bool,
    /// What it was limited to before us, `u64::MAX` for not: its administrator's word, which we
    /// never loosen.
    pub cap_ucpu: u64,
    /// The limit that its own gate asks for: never exceeded, and written as it is where the
    /// allowance leaves all of it.
    pub own: Option<Bandwidth>,
}

/// The kernel keeps weights below a quota only while the group runs for long enough at a time: with
/// a period of 10 ms, gates of 100 and 300 get nearly equal parts; with 100 ms, nearly theirs
/// (quota-weights in `lab/sim/tests/kernel.txt`).
fn period_us(unequal: bool) -> u64 {
    if unequal { 50_000 } else { PERIOD_US }
}

#[derive(Default)]
pub struct Quotas {
    targets: Vec<Target>,
    wanted: Vec<Wanted>,
    given_ucpu: Vec<u64>,
    budget: WriteBudget,
    /// Use since the allowance came down to the tolerance.
    floor_span: Use,
    /// Steps in a row in which this process could not lower a quota.
    failed_cuts: u32,
    /// Groups whose quota another program insists on, until their gate is set again or ends.
    left_alone: BTreeSet<GroupPath>,
    pub log: WriteLog,
}

impl Quotas {
    pub fn set(&mut self, wanted: Vec<QuotaTarget>, tick_ns: u64) {
        let mut old = std::mem::take(&mut self.targets);
        for one in wanted {
            if self.left_alone.contains(&one.group) {
                continue;
            }
            let mut target = match old.iter().position(|target| target.group == one.group) {
                Some(index) => old.swap_remove(index),
                None => Target::new(one.group.clone(), one.weight, tick_ns),
            };
            target.weight = one.weight;
            target.is_of_several = one.weight != one.first_weight;
            let own_ucpu = one.own.and_then(|own| own.rate_ucpu());
            target.before_ucpu = one.cap_ucpu;
            target.cap_ucpu = one.cap_ucpu.min(own_ucpu.unwrap_or(u64::MAX));
            // A limit from before us that is the lower one stays in the shape that the planner
            // gives it.
            let own = one.own.filter(|_| own_ucpu == Some(target.cap_ucpu));
            target.planner.set_own(own);
            target.unequal |= one.unequal;
            target.planner.set_period_us(period_us(target.unequal));
            self.targets.push(target);
        }
        self.wanted.reserve(self.targets.len());
        self.given_ucpu.resize(self.targets.len(), 0);
    }

    /// `group` no longer carries one: the loop must not write behind a restore.
    pub fn drop(&mut self, group: &GroupPath) {
        self.targets.retain(|target| target.group != *group);
        self.given_ucpu.truncate(self.targets.len());
        self.left_alone.remove(group);
    }

    pub fn write_errors(&self) -> impl Iterator<Item = &String> {
        self.targets.iter().flat_map(Target::write_errors)
    }

    /// Steps in a row in which this process could not cut side work: from a few on, the loop is
    /// alive and no longer in control.
    pub fn failed_cuts(&self) -> u32 {
        self.failed_cuts
    }

    pub fn forget_failed_cuts(&mut self) {
        self.failed_cuts = 0;
    }

    /// Another program insists on its own quota for `group`: it is not written again, whatever
    /// gates come and go.
    pub fn leave_alone(&mut self, group: &GroupPath) {
        self.drop(group);
        self.left_alone.insert(group.clone());
    }

    /// The gate of `group` was set again: from the next [`Quotas::set`] on, its quota is ours
    /// again.
    pub fn take_again(&mut self, group: &GroupPath) {
        self.left_alone.remove(group);
    }

    pub fn is_left_alone(&self, group: &GroupPath) -> bool {
        self.left_alone.contains(group)
    }

    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// Whether side work is one gate, which shares with no other.
    pub fn is_of_one(&self) -> bool {
        matches!(&self.targets[..], [only] if !only.is_of_several)
    }

    pub fn targets(&mut self) -> &mut [Target] {
        &mut self.targets
    }

    pub(super) fn given(&self) -> impl Iterator<Item = (&Target, u64)> {
        self.targets.iter().zip(self.given_ucpu.iter().copied())
    }

    /// Whether `group` is out of the idle class for now, since it starved.
    pub fn is_relieved(&self, group: &GroupPath) -> bool {
        self.targets
            .iter()
            .any(|target| target.group == *group && target.relief.is_out())
    }

    /// Outside write of the quota of `group`: ours is written again. The others' stand, since each
    /// write is a refill.
    pub fn invalidate(&mut self, group: &GroupPath) {
        for target in &mut self.targets {
            if target.group == *group {
                target.planner.invalidate();
            }
        }
    }

    /// A call wrote this quota for `group`, which is in force until the next step.
    pub fn stands(&mut self, group: &GroupPath, quota: Bandwidth) {
        for (target, given_ucpu) in self.targets.iter_mut().zip(&mut self.given_ucpu) {
            if target.group == *group {
                target.planner.stands(quota);
                *given_ucpu = target.planner.standing_for_ucpu();
            }
        }
    }

    /// The guardian wrote the fallback: every quota is unknown, and all side work is back in the
    /// idle class.
    pub fn fell_back(&mut self) {
        self.floor_span = Use::default();
        for target in &mut self.targets {
            target.relief = Relief::default();
            target.planner.invalidate();
        }
    }

    /// A measurement holds `group` at the tolerance, or lets it go.
    pub(super) fn hold(&mut self, group: &GroupPath, is_held: bool) {
        for target in self.targets.iter_mut().filter(|one| one.group == *group) {
            target.is_held = is_held;
        }
    }

    /// Each quota is written in the next step, whatever it was written for: another level of side
    /// work is in force.
    pub(super) fn renew(&mut self) {
        for target in &mut self.targets {
            target.planner.invalidate();
        }
    }

    /// Whether what stands for `group` is what was planned for it, be it no quota.
    pub fn is_planned(&self, group: &GroupPath) -> bool {
        let is_it = |target: &&Target| target.group == *group;
        let target = self.targets.iter().find(is_it);
        target.is_some_and(|target| target.standing().is_some())
    }

    /// Whether each quota stands as planned.
    pub(super) fn are_in_force(&self) -> bool {
        self.targets
            .iter()
            .all(|target| target.standing().is_some())
    }

    /// One step: what `decision` gives, shared out and written where that is worth a write.
    /// `window` is the use since the step before.
    pub fn step(
        &mut self,
        now_ns: u64,
        decision: &HeadroomDecision,
        keeps_idle: bool,
        window: &Use,
        cpus: u32,
        apply: &mut dyn Apply,
    ) {
        if self.targets.is_empty() {
            return;
        }
        // With little or no headroom the allowance hovers about the floor on a full machine, for
        // what side work gets main does not: being at the tolerance is over where the allowance is
        // clear of it, by 2 % of the machine.
        let clear_ucpu = decision
            .floor_ucpu
            .saturating_add(decision.capacity_ucpu / 50);
        if decision.allowance_ucpu <= clear_ucpu {
            self.floor_span.add(window);
        } else {
            self.floor_span = Use::default();
        }
        self.ask_relief(now_ns, decision.floor_ucpu, apply);
        let floor_each_ucpu = decision.floor_ucpu / self.targets.len() as u64;
        let allowance_ucpu = if self.is_free(keeps_idle) {
            FREE_UCPU
        } else {
            decision.allowance_ucpu
        };
        self.divide(allowance_ucpu, floor_each_ucpu);
        self.write(now_ns, decision, cpus, apply);
        self.relieve(now_ns, floor_each_ucpu, apply);
    }

    /// Whether a group starved in the idle class.
    pub(super) fn holds_at_floor(&self) -> bool {
        self.targets.iter().any(Target::holds_at_floor)
    }

    /// Without headroom the idle class is all that main asks of side work. A quota would only cost:
    /// one at the tolerance throttles side work until the step after main rests, and one of nearly
    /// all of the machine up to 7 % of the time. Several groups need quotas for their weights, and
    /// a group out of the idle class needs its own. (The law's decision does not say it: before the
    /// first sample it asks for no idle, for the capacity is not known.)
    pub(super) fn is_free(&self, keeps_idle: bool) -> bool {
        let is_bound = |only: &Target| only.is_held || only.relief.holds_at_floor();
        !keeps_idle && matches!(&self.targets[..], [only] if !is_bound(only))
    }

    fn divide(&mut self, allowance_ucpu: u64, floor_each_ucpu: u64) {
        self.wanted.clear();
        for target in &self.targets {
            self.wanted.push(Wanted::new(
                target.weight,
                target.demand_ucpu.min(target.most_ucpu(floor_each_ucpu)),
                floor_each_ucpu.min(target.cap_ucpu),
            ));
        }
        if allowance_ucpu == FREE_UCPU {
            self.given_ucpu.fill(FREE_UCPU);
        } else {
            share(allowance_ucpu, &self.wanted, &mut self.given_ucpu);
        }
        // Where all demands are met, the rest is shared out on top of them.
        for (given_ucpu, target) in self.given_ucpu.iter_mut().zip(&self.targets) {
            *given_ucpu = (*given_ucpu).min(target.most_ucpu(floor_each_ucpu));
        }
    }

    fn write(
        &mut self,
        now_ns: u64,
        decision: &HeadroomDecision,
        cpus: u32,
        apply: &mut dyn Apply,
    ) {
        let (mut cut_failed, mut has_written) = (false, false);
        for (target, given_ucpu) in self.targets.iter_mut().zip(&self.given_ucpu) {
            let floor_each_ucpu = decision.floor_ucpu / self.wanted.len().max(1) as u64;
            let decision = decision.for_group(*given_ucpu, floor_each_ucpu.min(target.cap_ucpu));
            let was = target.standing();
            let plan = target
                .planner
                .step(now_ns, &decision, cpus, &mut self.budget);
            let Some(plan) = plan else { continue };
            if let Err(why) = apply.set_quota(&target.group, was, plan.bandwidth) {
                target.planner.invalidate();
                let standing_ucpu = was.and_then(|was| was.rate_ucpu()).unwrap_or(u64::MAX);
                let is_cut = plan
                    .bandwidth
                    .rate_ucpu()
                    .is_some_and(|ucpu| ucpu < standing_ucpu);
                cut_failed |= is_cut && why.is_incapable;
                target.quota_error.set(why.message);
                continue;
            }
            has_written = true;
            target.quota_error.clear();
            self.log.add_quota(Write {
                at_ns: now_ns,
                path: target.group.to_string(),
                value: describe(&plan.bandwidth),
                was: was.as_ref().map(describe),
                reason: plan.reason.as_str().to_owned(),
            });
        }
        if cut_failed {
            self.failed_cuts = self.failed_cuts.saturating_add(1);
        } else if has_written {
            self.failed_cuts = 0;
        }
    }
}

mod relief;
#[cfg(test)]
pub(super) mod tests;
