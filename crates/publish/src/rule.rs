//! The rule: what to publish, and what to do when that is less than what is bound.

use std::fmt;

use crate::estimate::Estimate;
use crate::eviction::Eviction;

/// Between two writes, but for one that what is bound demands.
const WRITE_GAP_S: u64 = 30;
/// A smaller change is not worth a write.
const WRITE_MIN_MILLI: u64 = 250;
/// After so long without a sample nothing is published.
const STALE_S: u64 = 180;
/// Between two changes of [`Step::is_short`], which is a write of its own.
const SHORT_GAP_S: u64 = 60;

/// What a node sees in one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The second, of a clock that never goes back.
    pub time_s: u64,
    /// What the law leaves to side work, before its floor: `(1 − headroom) · CPUs − main`. None where it is not known.
    pub surplus_milli: Option<u64>,
    /// Requests of the pods that are bound here and have not ended: pending ones too.
    pub bound_milli: u64,
    /// Of those, the part of pods that are leaving.
    pub leaving_milli: u64,
    /// What the node's status says now; none where the key is absent.
    pub standing_milli: Option<u64>,
    /// Side work stands at its tolerance: the law would give it less.
    pub is_starved: bool,
}

/// What to do with the key in the node's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// Nothing.
    Keep,
    /// Write this amount.
    Set(u64),
    /// Delete the key. Zero is never written: kubelet would reject what runs when it starts next.
    Delete,
}

/// Why the key is written, or is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// Too few samples yet: what stands is kept.
    WarmingUp,
    /// No samples for three minutes.
    Stale,
    /// The bound pods request more than the node can promise.
    Bound,
    /// It is what the node can promise.
    Promise,
    /// There is nothing to promise, and nothing is bound.
    Nothing,
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Because::WarmingUp => "fewer than three minutes of samples: what stands is kept",
            Because::Stale => "no sample for three minutes",
            Because::Bound => "the pods bound here request this much",
            Because::Promise => "main left this much in nine of ten seconds of the last 15 minutes",
            Because::Nothing => "main leaves nothing, and no pod is bound here",
        })
    }
}

/// What to do in one second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The key.
    pub write: Write,
    /// Why.
    pub because: Because,
    /// What the node can promise; none while it warms up or is stale.
    pub promise_milli: Option<u64>,
    /// Whether the node is short of what is bound: its condition `TidegateSidePressure`.
    pub is_short: bool,
    /// One side pod must move.
    pub must_evict: bool,
}

/// A node's rule and what it remembers.
#[derive(Default)]
pub struct Rule {
    estimate: Estimate,
    eviction: Eviction,
    sampled_s: Option<u64>,
    began_s: Option<u64>,
    wrote_s: Option<u64>,
    is_short: bool,
    short_changed_s: Option<u64>,
}

impl Rule {
    /// One second.
    pub fn step(&mut self, seen: &Seen) -> Step {
        self.take_sample(seen);
        let promise_milli = self.estimate.milli();
        let (wanted_milli, because) = self.wanted(seen);
        let write = self.write(seen, wanted_milli);
        if write != Write::Keep {
            self.wrote_s = Some(seen.time_s);
        }
        let is_short_now = promise_milli.is_some_and(|milli| milli < seen.bound_milli);
        let is_settled = |since_s: u64| seen.time_s < since_s + SHORT_GAP_S;
        if is_short_now != self.is_short && !self.short_changed_s.is_some_and(is_settled) {
            self.is_short = is_short_now;
            self.short_changed_s = Some(seen.time_s);
        }
        Step {
            write,
            because,
            promise_milli,
            is_short: self.is_short,
            must_evict: self.must_evict(seen),
        }
    }

    /// What to write as the last thing, when nothing will follow main any more: running pods keep what they have, and none
    /// comes.
    pub fn last_write(bound_milli: u64, standing_milli: Option<u64>) -> Write {
        match standing_milli {
            None => Write::Keep,
            Some(standing_milli) if standing_milli == bound_milli => Write::Keep,
            Some(_) if bound_milli == 0 => Write::Delete,
            Some(_) => Write::Set(bound_milli),
        }
    }

    fn take_sample(&mut self, seen: &Seen) {
        self.began_s.get_or_insert(seen.time_s);
        if let Some(surplus_milli) = seen.surplus_milli {
            let may_rise = self.eviction.may_rise(seen.time_s);
            self.estimate.sample(seen.time_s, surplus_milli, may_rise);
            self.sampled_s = Some(seen.time_s);
        } else if self.is_stale(seen.time_s) {
            self.estimate = Estimate::default();
        }
    }

    fn is_stale(&self, time_s: u64) -> bool {
        let last_s = self.sampled_s.or(self.began_s);
        last_s.is_some_and(|last_s| time_s >= last_s + STALE_S)
    }

    /// What should stand: none for no key.
    fn wanted(&self, seen: &Seen) -> (Option<u64>, Because) {
        if self.is_stale(seen.time_s) {
            return (None, Because::Stale);
        }
        let Some(promise_milli) = self.estimate.milli() else {
            let kept_milli = seen.standing_milli.map(|milli| milli.max(seen.bound_milli));
            return (kept_milli, Because::WarmingUp);
        };
        match promise_milli.max(seen.bound_milli) {
            0 => (None, Because::Nothing),
            milli if milli > promise_milli => (Some(milli), Because::Bound),
            milli => (Some(milli), Because::Promise),
        }
    }

    fn write(&self, seen: &Seen, wanted_milli: Option<u64>) -> Write {
        // Kubelet would reject what is bound, so this cannot wait.
        let is_below_bound = seen
            .standing_milli
            .is_some_and(|milli| milli < seen.bound_milli);
        let is_early = self
            .wrote_s
            .is_some_and(|wrote_s| seen.time_s < wrote_s + WRITE_GAP_S);
        match (seen.standing_milli, wanted_milli) {
            (Some(_), Some(wanted_milli)) if is_below_bound => Write::Set(wanted_milli),
            _ if is_early => Write::Keep,
            (None, Some(wanted_milli)) => Write::Set(wanted_milli),
            (Some(_), None) => Write::Delete,
            (Some(standing_milli), Some(wanted_milli))
                if standing_milli.abs_diff(wanted_milli) >= WRITE_MIN_MILLI =>
            {
                Write::Set(wanted_milli)
            }
            _ => Write::Keep,
        }
    }

    fn must_evict(&mut self, seen: &Seen) -> bool {
        match self.estimate.milli() {
            Some(promise_milli) if seen.surplus_milli.is_some() => {
                let staying_milli = seen.bound_milli.saturating_sub(seen.leaving_milli);
                self.eviction
                    .is_due(seen.time_s, seen.is_starved, promise_milli, staying_milli)
            }
            _ => {
                self.eviction.unseen();
                false
            }
        }
    }
}

#[cfg(test)]
mod tests;
