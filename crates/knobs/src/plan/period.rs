//! How long a quota's period is, and when the next one begins.
//!
//! Each period that begins lets side work come back without the turn that it owes: main, once a slice of its own is over, then
//! waits for a tick. So where main rests periods are long. But a write refills the pool, and by more the longer the period: what
//! stands with a long one is written when one begins. The kernel leaves the period's timer alone when a quota is written.

use super::{PlanConfig, PlanReason};
use crate::bandwidth::Bandwidth;

/// The periods of one group's quota.
#[derive(Clone, Debug, Default)]
pub(super) struct Periods {
    last_step_ns: Option<u64>,
    /// Of long periods: a time at which the pool is filled, to half of a short one.
    refill_ns: Option<u64>,
    /// Steps are near enough to see a long period begin.
    is_watched: bool,
    /// One has begun since the step before, or they are short.
    begins: bool,
}

impl Periods {
    pub(super) fn step(&mut self, now_ns: u64, cfg: &PlanConfig) {
        let last_ns = self.last_step_ns.replace(now_ns);
        let long_ns = cfg.rest_period_us * 1_000;
        let begun =
            |refill_ns: u64, at_ns: u64| (at_ns + long_ns).saturating_sub(refill_ns) / long_ns;
        self.begins = match (self.refill_ns, last_ns) {
            (Some(refill_ns), Some(last_ns)) => {
                begun(refill_ns, last_ns) < begun(refill_ns, now_ns)
            }
            _ => true,
        };
        self.is_watched =
            last_ns.is_some_and(|last_ns| now_ns.saturating_sub(last_ns) <= cfg.period_us * 1_000);
    }

    /// Whether a write that can wait costs nothing now.
    pub(super) fn begins(&self) -> bool {
        self.begins
    }

    /// Whether `standing` can be given a long period. When that begins is known to half a short one.
    pub(super) fn may_settle(&self, standing: Bandwidth, cfg: &PlanConfig) -> bool {
        self.is_watched && is_short(standing, cfg) && 2 * cfg.period_us < cfg.rest_period_us
    }

    /// The period of a quota that is written for `reason`.
    pub(super) fn period_us(&self, reason: PlanReason, cfg: &PlanConfig) -> u64 {
        let is_long = match reason {
            PlanReason::Settle => true,
            PlanReason::Lower | PlanReason::Raise => self.refill_ns.is_some() && self.is_watched,
            PlanReason::Initial | PlanReason::Restore | PlanReason::Cut => false,
        };
        if is_long {
            cfg.rest_period_us
        } else {
            cfg.period_us
        }
    }

    /// `to` is written over `standing`.
    pub(super) fn written(
        &mut self,
        now_ns: u64,
        standing: Option<Bandwidth>,
        to: Bandwidth,
        cfg: &PlanConfig,
    ) {
        let is_long = to.period_us == cfg.rest_period_us;
        let soon_ns = standing
            .is_some_and(|standing| is_short(standing, cfg))
            .then(|| now_ns + cfg.period_us * 500);
        self.refill_ns = self.refill_ns.or(soon_ns).filter(|_| is_long);
    }

    /// What stands is no longer known.
    pub(super) fn forget(&mut self) {
        self.refill_ns = None;
    }
}

fn is_short(standing: Bandwidth, cfg: &PlanConfig) -> bool {
    standing.period_us <= cfg.period_us
}
