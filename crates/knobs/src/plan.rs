//! The pure planner between a decision of the law and a write of a quota.
//!
//! The law says every few milliseconds what side work may use; the kernel takes a quota. A write
//! is not free: it refills the group's pool, forgives every CPU's debt and unthrottles, and
//! enforcement then waits for a tick, so each write gives side work about half a tick on each CPU
//! on top of the quota. Rewriting a small quota in every step would lift it entirely. Hence:
//!
//! - one quota stands; the same value is never written twice in a row, least of all the floor;
//! - when main steps, it is cut at once (at most one rewrite every [`PlanConfig::rewrite_min_ns`]);
//! - raises wait for [`PlanConfig::raise_gap_ns`], and lowerings that no detector saw for
//!   [`PlanConfig::lower_gap_ns`], and both for the write budget; they want the change to be worth a
//!   write (the deadband);
//! - a quota that answers a step of main has a period of 10 ms; where main rests it is 50 ms, and written when one begins;
//! - what recent writes gave away is taken off the next quota, so the trim need not discover it;
//! - the least quota is 1 ms, so near the floor the period stretches instead (1 ms in 50 ms for
//!   1 % of two CPUs).
//!
//! Nothing here reads a clock or a file. The caller writes the returned [`Plan`] and calls
//! [`Planner::invalidate`] when the write failed or somebody else wrote the group's quota.

mod budget;
mod config;
mod period;
mod rate;

pub use crate::bandwidth::Bandwidth;
pub use budget::WriteBudget;
pub use config::PlanConfig;
pub use rate::bandwidth_for;

use crate::control::FREE_UCPU;
use period::Periods;
use tidegate_law::{HeadroomDecision, Reason};

/// Writes of a second that small corrections leave for a cut and its taking back.
const SMALL_KEEP: u32 = 2;

/// A drop that lasts for so long is main's, and no pulse of it.
const CLEAR_NS: u64 = 50_000_000;

/// Main has come to rest where nothing was written for so long.
const SETTLE_NS: u64 = 1_000_000_000;

/// Why a quota is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanReason {
    /// Nothing of ours stands: first write, adoption, an outside write.
    Initial,
    /// Main stepped up.
    Cut,
    /// A smaller correction downwards.
    Lower,
    /// Main left more.
    Raise,
    /// The last cut answered a mere burst of main, and is taken back.
    Restore,
    /// Main has come to rest: the same in a longer period.
    Settle,
}

impl PlanReason {
    /// One lower-case word, for status and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Initial => "initial",
            Self::Cut => "cut",
            Self::Lower => "lower",
            Self::Raise => "raise",
            Self::Restore => "restore",
            Self::Settle => "settle",
        }
    }
}

/// One quota to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What to write.
    pub bandwidth: Bandwidth,
    /// Why.
    pub reason: PlanReason,
}

/// What is wanted beside what stands.
#[derive(Clone, Copy)]
struct Change {
    now_ns: u64,
    /// Since the last write.
    since_ns: u64,
    by_ucpu: u64,
    deadband_ucpu: u64,
}

fn part_ucpu(decision: &HeadroomDecision, ppm: u32) -> u64 {
    decision.capacity_ucpu.saturating_mul(u64::from(ppm)) / 1_000_000
}

/// Decides when the standing quota of one group is rewritten, and to what.
#[derive(Clone, Debug)]
pub struct Planner {
    cfg: PlanConfig,
    standing: Option<Bandwidth>,
    /// The allowance for which it was written. Changes are judged against this: what a write gave away is no reason for the next.
    standing_for_ucpu: u64,
    last_write_ns: Option<u64>,
    last_step_ns: Option<u64>,
    periods: Periods,
    last_reason: Option<PlanReason>,
    /// Since when a lowering has been due.
    low_since_ns: Option<u64>,
    /// A cut is still to be written.
    urgent: bool,
    /// The last cut answered a mere burst, and its taking back is still to be written.
    refuted: bool,
    /// CPU time per second that recent writes gave away, a mean over a second.
    charge_ucpu: u64,
    budget: WriteBudget,
    /// The group's own limit, which is written as it is where the allowance leaves all of it.
    own: Option<Bandwidth>,
}

impl Planner {
    /// A planner under which nothing stands yet: its first step writes.
    pub fn new(cfg: PlanConfig) -> Self {
        let budget = WriteBudget::new(cfg.writes_per_s_max);
        Self {
            cfg,
            standing: None,
            standing_for_ucpu: 0,
            last_write_ns: None,
            last_step_ns: None,
            periods: Periods::default(),
            last_reason: None,
            low_since_ns: None,
            urgent: false,
            refuted: false,
            charge_ucpu: 0,
            budget,
            own: None,
        }
    }

    /// What this planner last asked to be written, unless it was invalidated since.
    pub fn standing(&self) -> Option<Bandwidth> {
        self.standing
    }

    /// Writes again in the next step: after adoption, a failed write, the guardian's fallback, or
    /// an outside write.
    pub fn invalidate(&mut self) {
        self.standing = None;
        self.periods.forget();
    }

    /// The period of quotas large enough for it, from the next write on.
    pub fn set_period_us(&mut self, period_us: u64) {
        self.cfg.period_us = period_us.min(self.cfg.period_max_us);
    }

    /// The limit that the group's own gate asks for (`None` for none), from the next write on; the caller keeps the
    /// decisions at or below its rate.
    pub fn set_own(&mut self, own: Option<Bandwidth>) {
        if own == self.own {
            return;
        }
        let rate = |own: Option<Bandwidth>| own.and_then(|own| own.rate_ucpu());
        let stands = self.own.is_some() && self.standing == self.own;
        // Another burst of an own limit that does not stand at present is no news.
        if stands || rate(own) != rate(self.own) {
            self.invalidate();
        }
        self.own = own;
    }

    /// See [`Planner::set_own`].
    pub fn own(&self) -> Option<Bandwidth> {
        self.own
    }

    /// Takes `found` for what stands (adoption of a quota that is known to be ours).
    pub fn adopt(&mut self, found: Bandwidth) {
        self.standing = Some(found);
        self.periods.forget();
        self.standing_for_ucpu = found.rate_ucpu().unwrap_or(0);
    }

    /// Writes asked for in the second before `now_ns`.
    pub fn writes_last_second(&self, now_ns: u64) -> u32 {
        self.budget.used(now_ns)
    }

    /// Why the last write was asked for.
    pub fn last_reason(&self) -> Option<PlanReason> {
        self.last_reason
    }

    /// What recent writes give side work on top of the quota, on average over about a second.
    pub fn charge_ucpu(&self) -> u64 {
        self.charge_ucpu
    }

    /// One step with a budget of its own. `now_ns` is monotonic; `cpus` is the number of CPUs on
    /// which the group may run.
    pub fn step(&mut self, now_ns: u64, decision: &HeadroomDecision, cpus: u32) -> Option<Plan> {
        let mut budget = std::mem::replace(&mut self.budget, WriteBudget::new(0));
        let plan = self.step_shared(now_ns, decision, cpus, &mut budget);
        self.budget = budget;
        plan
    }

    /// One step with a budget shared by several groups.
    pub fn step_shared(
        &mut self,
        now_ns: u64,
        decision: &HeadroomDecision,
        cpus: u32,
        budget: &mut WriteBudget,
    ) -> Option<Plan> {
        self.periods.step(now_ns, &self.cfg);
        self.forget_charge(now_ns);
        let want_ucpu = decision.allowance_ucpu.max(decision.floor_ucpu);
        let quota_ucpu = want_ucpu
            .saturating_sub(self.charge_ucpu)
            .max(decision.floor_ucpu);
        let reason = self.worth_writing(now_ns, want_ucpu, decision, budget)?;
        // Nothing is taken off it for what writes gave away: it is the gate's own word, and written once.
        let own = self
            .own
            .filter(|own| own.rate_ucpu().is_some_and(|rate| want_ucpu >= rate));
        let bandwidth = own.unwrap_or_else(|| match want_ucpu {
            FREE_UCPU => self.free(cpus),
            _ => bandwidth_for(
                quota_ucpu,
                self.periods.period_us(reason, &self.cfg),
                self.cfg.period_max_us,
            ),
        });
        if self.standing == Some(bandwidth) {
            return None;
        }
        self.periods
            .written(now_ns, self.standing, bandwidth, &self.cfg);
        self.charge(decision, cpus, bandwidth);
        budget.spend(now_ns);
        self.standing = Some(bandwidth);
        self.standing_for_ucpu = want_ucpu;
        self.last_write_ns = Some(now_ns);
        self.last_reason = Some(reason);
        self.urgent = false;
        self.refuted = false;
        Some(Plan { bandwidth, reason })
    }

    /// No limit, and yet a quota, which stays one of ours for whoever has to cut it: twice what all CPUs can use. With just that much,
    /// CPUs that take a third slice early in a period leave none for another's second (in the simulator one throttle in two periods).
    fn free(&self, cpus: u32) -> Bandwidth {
        Bandwidth {
            quota_us: Some(2 * u64::from(cpus.max(1)) * self.cfg.period_us),
            period_us: self.cfg.period_us,
            burst_us: 0,
        }
    }

    /// Whether `bandwidth` is to be written now, and as what.
    fn worth_writing(
        &mut self,
        now_ns: u64,
        want_ucpu: u64,
        decision: &HeadroomDecision,
        budget: &WriteBudget,
    ) -> Option<PlanReason> {
        let standing_ucpu = self.standing_for_ucpu;
        // What the law says in one step only counts until it is written, or main's move is over.
        if want_ucpu < standing_ucpu {
            self.refuted = false;
            self.urgent |= matches!(
                decision.reason,
                Reason::Cut | Reason::Stale | Reason::Warmup
            );
        } else {
            self.low_since_ns = None;
            self.urgent = false;
            self.refuted |= decision.reason == Reason::Restore;
        }
        let since_ns = self
            .last_write_ns
            .map_or(u64::MAX, |last| now_ns.saturating_sub(last));
        if since_ns < self.cfg.rewrite_min_ns {
            return None;
        }
        let Some(standing) = self.standing else {
            return Some(PlanReason::Initial);
        };
        if standing.quota_us.is_none() {
            return Some(PlanReason::Initial);
        }
        if want_ucpu == FREE_UCPU && standing_ucpu == FREE_UCPU {
            // CPUs came or went.
            return Some(PlanReason::Raise);
        }
        let part = |ppm: u32| part_ucpu(decision, ppm);
        let deadband_ucpu = decision
            .noise_ucpu
            .min(part(self.cfg.deadband_max_ppm))
            .max(part(self.cfg.deadband_min_ppm));
        let change = Change {
            now_ns,
            since_ns,
            by_ucpu: want_ucpu.abs_diff(standing_ucpu),
            deadband_ucpu,
        };
        if want_ucpu < standing_ucpu {
            self.lower(change, want_ucpu, decision, budget)
        } else {
            self.raise(change, want_ucpu, standing, decision, budget)
        }
    }

    fn lower(
        &mut self,
        change: Change,
        want_ucpu: u64,
        decision: &HeadroomDecision,
        budget: &WriteBudget,
    ) -> Option<PlanReason> {
        let Change {
            now_ns,
            since_ns,
            by_ucpu,
            deadband_ucpu,
        } = change;
        let part = |ppm: u32| part_ucpu(decision, ppm);
        let may = by_ucpu > deadband_ucpu || want_ucpu == decision.floor_ucpu;
        let corrects =
            self.last_reason == Some(PlanReason::Cut) && since_ns < self.cfg.lower_gap_ns;
        let large_ppm = if corrects {
            self.cfg.correct_ppm
        } else {
            self.cfg.large_ppm
        };
        // A window that main's step begins in, or a pulse of main, looks like a lowering: later ones tell.
        let lasted_ns = self
            .low_since_ns
            .map_or(0, |since| now_ns.saturating_sub(since));
        self.low_since_ns = may.then(|| self.low_since_ns.unwrap_or(now_ns));
        let clear = by_ucpu > part(self.cfg.correct_ppm) && lasted_ns >= CLEAR_NS;
        if may && (self.urgent || clear || by_ucpu > part(large_ppm)) {
            return Some(PlanReason::Cut);
        }
        let rested = since_ns >= self.cfg.lower_gap_ns && budget.may_spend(now_ns, SMALL_KEEP);
        (may && lasted_ns > 0 && rested && self.periods.begins()).then_some(PlanReason::Lower)
    }

    fn raise(
        &mut self,
        change: Change,
        want_ucpu: u64,
        standing: Bandwidth,
        decision: &HeadroomDecision,
        budget: &WriteBudget,
    ) -> Option<PlanReason> {
        let rises = change.by_ucpu > change.deadband_ucpu;
        // The law's slope ends within a third of a second: one write at its end, not several on it.
        self.refuted &= rises;
        if decision.reason == Reason::Ramp {
            return None;
        }
        // A refuted cut is taken back at once, and like the cut whatever the budget. What is worth much may use it up.
        if self.refuted {
            return Some(PlanReason::Restore);
        }
        let large = change.by_ucpu > part_ucpu(decision, self.cfg.large_ppm);
        let keep = if large { 0 } else { SMALL_KEEP };
        if change.since_ns < self.cfg.raise_gap_ns || !budget.may_spend(change.now_ns, keep) {
            return None;
        }
        if rises {
            return self.periods.begins().then_some(PlanReason::Raise);
        }
        let settles = change.since_ns >= SETTLE_NS
            && want_ucpu > decision.floor_ucpu
            && self.periods.may_settle(standing, &self.cfg);
        settles.then_some(PlanReason::Settle)
    }

    /// What a write gives on top of the quota: half a tick on every CPU that main leaves, and the
    /// part of the pool that was used up, which the CPUs' silos bound (the kernel model: 4.5 ms
    /// at the floor to 7 ms on two CPUs, 23 to 31 ms on eight).
    fn charge(&mut self, decision: &HeadroomDecision, cpus: u32, bandwidth: Bandwidth) {
        let quota_ns = bandwidth.quota_us.unwrap_or(0).saturating_mul(1_000);
        let tick_ns = (self.cfg.tick_ns / 2).saturating_mul(u64::from(cpus));
        let given_ns = tick_ns + (quota_ns / 2).min(tick_ns / 4 * 3);
        let free_ucpu = decision
            .capacity_ucpu
            .saturating_sub(decision.main_est_ucpu);
        let reach_ns =
            given_ns.saturating_mul(free_ucpu / 1_000) / (decision.capacity_ucpu / 1_000).max(1);
        // CPU time given once, as a rate over the second in which it is worked off.
        self.charge_ucpu = self.charge_ucpu.saturating_add(reach_ns / 1_000);
    }

    /// The charge fades over a second.
    fn forget_charge(&mut self, now_ns: u64) {
        let dt_ns = self
            .last_step_ns
            .map_or(0, |last| now_ns.saturating_sub(last));
        self.last_step_ns = Some(now_ns);
        let fade_ns = dt_ns.min(1_000_000_000);
        self.charge_ucpu -= self.charge_ucpu.saturating_mul(fade_ns) / 1_000_000_000;
    }
}
