//! The pure planner between a decision of the law and a write of a quota.
//!
//! The law says every few milliseconds what side work may use; the kernel takes a quota. A write
//! is not free: it refills the group's pool, forgives every CPU's debt and unthrottles, and
//! enforcement then waits for a tick, so each write gives side work about half a tick on each CPU
//! on top of the quota. Rewriting a small quota in every step would lift it entirely. Hence:
//!
//! - one quota stands; the same value is never written twice in a row, least of all the floor;
//! - when main steps, it is cut at once (at most one rewrite every
//!   [`REWRITE_MIN_NS`]);
//! - raises wait for [`RAISE_GAP_NS`], and lowerings that no detector saw for
//!   [`LOWER_GAP_NS`], and both for the write budget; they want the change to
//!   be worth a write (the deadband);
//! - what recent writes gave away is taken off the next quota, so the trim need not discover it;
//! - the least quota is 1 ms, so near the floor the period stretches instead (1 ms in 50 ms for
//!   1 % of two CPUs).
//!
//! Nothing here reads a clock or a file. The caller writes the returned [`QuotaPlan`] and calls
//! [`QuotaPlanner::invalidate`] when the write failed or another program wrote the group's quota.

pub use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::bandwidth::QUOTA_MIN_US;

use tidegate_law::{HeadroomDecision, Reason};

/// An allowance of this much is no limit: side work is kept back by its CPUs.
pub const FREE_UCPU: u64 = u64::MAX;

// `law/headroom.md` gives the reason for each of these.

/// Period of quotas large enough for it.
pub const PERIOD_US: u64 = 10_000;
/// Longest period near the floor.
const PERIOD_MAX_US: u64 = 100_000;
/// Least time between two writes, cuts included.
const REWRITE_MIN_NS: u64 = 10_000_000;
/// Least time from any write to a lowering that is not a cut.
const LOWER_GAP_NS: u64 = 100_000_000;
/// Least time from any write to a raise.
const RAISE_GAP_NS: u64 = 250_000_000;
/// A change smaller than this is not worth a write, least and most (noise decides); of the domain.
const DEADBAND_MIN_PPM: u32 = 4_000;
const DEADBAND_MAX_PPM: u32 = 15_000;
/// A drop of this size does not wait for the gap: right after a cut, as its correction, and once it
/// has lasted for 50 ms; of the domain.
const CORRECT_PPM: u32 = 30_000;
/// A change of this size may use up a second's writes, and a drop of it is a cut; of the domain.
const LARGE_PPM: u32 = 100_000;
/// Writes in any second, above which only cuts and their taking back pass.
const WRITES_PER_S_MAX: u32 = 5;

/// Writes of a second that small corrections leave for a cut and its taking back.
const SMALL_KEEP: u32 = 2;

/// A drop that lasts for so long is main's, and no pulse of it.
const CLEAR_NS: u64 = 50_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaReason {
    /// Nothing of ours stands: first write, an outside write.
    Initial,
    Cut,
    Lower,
    Raise,
}

impl QuotaReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Initial => "initial",
            Self::Cut => "cut",
            Self::Lower => "lower",
            Self::Raise => "raise",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaPlan {
    pub bandwidth: Bandwidth,
    pub reason: QuotaReason,
}

/// No quota: what the group's file says where nothing is kept from it.
pub fn free_bandwidth(period_us: u64) -> Bandwidth {
    Bandwidth {
        quota_us: None,
        period_us,
        burst_us: 0,
    }
}

/// One step of the planner, at least [`REWRITE_MIN_NS`] after the last write.
struct Step<'a> {
    now_ns: u64,
    since_ns: u64,
    decision: &'a HeadroomDecision,
    budget: &'a WriteBudget,
}

fn part_ucpu(decision: &HeadroomDecision, ppm: u32) -> u64 {
    decision.capacity_ucpu.saturating_mul(u64::from(ppm)) / 1_000_000
}

/// Decides when the standing quota of one group is rewritten, and to what.
#[derive(Clone, Debug, Default)]
pub struct QuotaPlanner {
    /// The kernel's tick (1/HZ): how late enforcement is after a write.
    tick_ns: u64,
    period_us: u64,
    standing: Option<Bandwidth>,
    /// The allowance for which it was written. Changes are judged against this, not against the
    /// quota: what a write gave away must not be the reason for the next write.
    standing_for_ucpu: u64,
    last_write_ns: Option<u64>,
    last_step_ns: Option<u64>,
    last_reason: Option<QuotaReason>,
    /// Since when a lowering has been due.
    low_since_ns: Option<u64>,
    /// A cut is still to be written.
    urgent: bool,
    /// The last cut answered a mere burst, and its taking back is still to be written.
    refuted: bool,
    /// CPU time per second that recent writes gave away, a mean over a second.
    charge_ucpu: u64,
    /// The group's own limit, which is written as it is where the allowance leaves all of it.
    own: Option<Bandwidth>,
}

impl QuotaPlanner {
    /// A planner under which nothing stands yet: its first step writes.
    pub fn new(tick_ns: u64) -> Self {
        Self {
            tick_ns,
            period_us: PERIOD_US,
            ..Self::default()
        }
    }

    /// What this planner last asked to be written, unless it was invalidated since.
    pub fn standing(&self) -> Option<Bandwidth> {
        self.standing
    }

    /// The allowance for which the standing quota was written.
    pub fn standing_for_ucpu(&self) -> u64 {
        self.standing_for_ucpu
    }

    /// Writes again in the next step: after a failed write, the guardian's fallback, or
    /// an outside write.
    pub fn invalidate(&mut self) {
        self.standing = None;
    }

    /// Another than the step wrote this quota.
    pub fn stands(&mut self, quota: Bandwidth) {
        self.standing = Some(quota);
        self.standing_for_ucpu = quota.rate_ucpu().unwrap_or(FREE_UCPU);
    }

    /// The period of quotas large enough for it, from the next write on.
    pub fn set_period_us(&mut self, period_us: u64) {
        self.period_us = period_us.min(PERIOD_MAX_US);
    }

    /// The limit that the group's own gate asks for (`None` for none), from the next write on; the
    /// caller keeps the decisions at or below its rate.
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

    /// See [`QuotaPlanner::set_own`].
    pub fn own(&self) -> Option<Bandwidth> {
        self.own
    }

    /// One step, within the budget of all planners. `now_ns` is monotonic; `cpus` is the number of
    /// CPUs on which the group may run.
    pub fn step(
        &mut self,
        now_ns: u64,
        decision: &HeadroomDecision,
        cpus: u32,
        budget: &mut WriteBudget,
    ) -> Option<QuotaPlan> {
        self.forget_charge(now_ns);
        let want_ucpu = decision.allowance_ucpu.max(decision.floor_ucpu);
        let quota_ucpu = want_ucpu
            .saturating_sub(self.charge_ucpu)
            .max(decision.floor_ucpu);
        // Nothing is taken off it for what writes gave away: it is the gate's own word, and written
        // once.
        let own = self
            .own
            .filter(|own| own.rate_ucpu().is_some_and(|rate| want_ucpu >= rate));
        let bandwidth = own.unwrap_or_else(|| match want_ucpu {
            FREE_UCPU => free_bandwidth(self.period_us),
            _ => bandwidth_for(quota_ucpu, self.period_us),
        });
        self.follow(want_ucpu, decision.reason);
        let since_ns = self
            .last_write_ns
            .map_or(u64::MAX, |last| now_ns.saturating_sub(last));
        if since_ns < REWRITE_MIN_NS {
            return None;
        }
        let step = Step {
            now_ns,
            since_ns,
            decision,
            budget,
        };
        let standing_ucpu = self.standing_for_ucpu;
        let reason = match self.standing {
            None => QuotaReason::Initial,
            Some(standing) if standing == bandwidth => return None,
            Some(_) if want_ucpu < standing_ucpu => {
                let drop_ucpu = standing_ucpu - want_ucpu;
                let counts =
                    drop_ucpu > self.deadband_ucpu(decision) || want_ucpu == decision.floor_ucpu;
                let reason = self.lowering(&step, drop_ucpu).filter(|_| counts);
                self.low_since_ns = counts.then(|| self.low_since_ns.unwrap_or(now_ns));
                reason?
            }
            Some(_) => {
                let rise_ucpu = want_ucpu - standing_ucpu;
                self.refuted &= rise_ucpu > self.deadband_ucpu(decision);
                self.raising(&step, rise_ucpu)?
            }
        };
        self.charge(decision, cpus, bandwidth);
        budget.spend(now_ns);
        self.standing = Some(bandwidth);
        self.standing_for_ucpu = want_ucpu;
        self.last_write_ns = Some(now_ns);
        self.last_reason = Some(reason);
        self.urgent = false;
        self.refuted = false;
        Some(QuotaPlan { bandwidth, reason })
    }

    /// What the law says in one step only counts until it is written, or main's move is over.
    fn follow(&mut self, want_ucpu: u64, reason: Reason) {
        if want_ucpu < self.standing_for_ucpu {
            self.refuted = false;
            self.urgent |= matches!(reason, Reason::Cut | Reason::Stale | Reason::Warmup);
        } else {
            self.low_since_ns = None;
            self.urgent = false;
            self.refuted |= reason == Reason::Restore;
        }
    }

    fn deadband_ucpu(&self, decision: &HeadroomDecision) -> u64 {
        decision
            .noise_ucpu
            .min(part_ucpu(decision, DEADBAND_MAX_PPM))
            .max(part_ucpu(decision, DEADBAND_MIN_PPM))
    }

    /// Why a drop of the allowance, larger than noise, is to be written now, if it is.
    fn lowering(&self, step: &Step<'_>, drop_ucpu: u64) -> Option<QuotaReason> {
        let part = |ppm| part_ucpu(step.decision, ppm);
        let corrects = self.last_reason == Some(QuotaReason::Cut) && step.since_ns < LOWER_GAP_NS;
        let large_ppm = if corrects { CORRECT_PPM } else { LARGE_PPM };
        // A window that main's step begins in, or a pulse of main, looks like a lowering: later
        // ones tell.
        let lasted_ns = self
            .low_since_ns
            .map_or(0, |since| step.now_ns.saturating_sub(since));
        let clear = drop_ucpu > part(CORRECT_PPM) && lasted_ns >= CLEAR_NS;
        if self.urgent || clear || drop_ucpu > part(large_ppm) {
            return Some(QuotaReason::Cut);
        }
        let rested =
            step.since_ns >= LOWER_GAP_NS && step.budget.may_spend(step.now_ns, SMALL_KEEP);
        (lasted_ns > 0 && rested).then_some(QuotaReason::Lower)
    }

    /// Why a rise of the allowance is to be written now, if it is. A refuted cut is taken back at
    /// once, and like the cut whatever the budget. What is worth much may use it up.
    fn raising(&self, step: &Step<'_>, rise_ucpu: u64) -> Option<QuotaReason> {
        let large = rise_ucpu > part_ucpu(step.decision, LARGE_PPM);
        let keep = if large { 0 } else { SMALL_KEEP };
        // The law's slope ends within a third of a second: one write at its end, not several on it.
        if step.decision.reason == Reason::Ramp {
            return None;
        }
        let rested = step.since_ns >= RAISE_GAP_NS && step.budget.may_spend(step.now_ns, keep);
        let counts = rise_ucpu > self.deadband_ucpu(step.decision);
        (counts && (self.refuted || rested)).then_some(QuotaReason::Raise)
    }

    /// What a write gives on top of the quota: half a tick on every CPU that main leaves, and the
    /// part of the pool that was used up, which the CPUs' silos bound (the kernel model: 4.5 ms
    /// at the floor to 7 ms on two CPUs, 23 to 31 ms on eight).
    fn charge(&mut self, decision: &HeadroomDecision, cpus: u32, bandwidth: Bandwidth) {
        let quota_ns = bandwidth.quota_us.unwrap_or(0).saturating_mul(1_000);
        let tick_ns = (self.tick_ns / 2).saturating_mul(u64::from(cpus));
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

/// A budget of writes in any second, for all planners.
#[derive(Clone, Debug)]
pub struct WriteBudget {
    times_ns: [Option<u64>; WriteBudget::REMEMBERED],
    next: usize,
}

impl Default for WriteBudget {
    fn default() -> Self {
        Self {
            times_ns: [None; Self::REMEMBERED],
            next: 0,
        }
    }
}

impl WriteBudget {
    /// Writes that are remembered; more than this in a second count as this many.
    const REMEMBERED: usize = 128;
    const SECOND_NS: u64 = 1_000_000_000;

    /// Writes in the second before `now_ns`.
    pub fn used(&self, now_ns: u64) -> u32 {
        let recent = self
            .times_ns
            .iter()
            .flatten()
            .filter(|&&at_ns| now_ns.saturating_sub(at_ns) < Self::SECOND_NS)
            .count();
        u32::try_from(recent).unwrap_or(u32::MAX)
    }

    /// Whether a write that is not a cut may pass and still leave `kept` writes of this second.
    pub fn may_spend(&self, now_ns: u64, kept: u32) -> bool {
        self.used(now_ns).saturating_add(kept) < WRITES_PER_S_MAX
    }

    /// Counts one write. Cuts are counted too, but never refused.
    pub fn spend(&mut self, now_ns: u64) {
        self.times_ns[self.next] = Some(now_ns);
        self.next = (self.next + 1) % Self::REMEMBERED;
    }
}

/// The limit without burst that comes nearest to `rate_ucpu` from below.
///
/// The period is `period_us` where the quota is at least 1 ms in it; for smaller rates the quota
/// is 1 ms and the period stretches, up to [`PERIOD_MAX_US`] (smaller rates than 1 ms in that get
/// 1 ms in that: the kernel has nothing less). Off by at most 1 µs in the period, which is 0.01 %
/// of a CPU at 10 ms.
pub fn bandwidth_for(rate_ucpu: u64, period_us: u64) -> Bandwidth {
    let quota_us = rate_ucpu.saturating_mul(period_us) / 1_000_000;
    if quota_us >= QUOTA_MIN_US {
        return Bandwidth::limit(quota_us, period_us);
    }
    // 1 ms at `rate_ucpu` lasts 10^9 / rate_ucpu µs; rounded up, so that it gives no more.
    let stretched_us = (QUOTA_MIN_US * 1_000_000).div_ceil(rate_ucpu.max(1));
    Bandwidth::limit(QUOTA_MIN_US, stretched_us.clamp(period_us, PERIOD_MAX_US))
}
