//! The rule: what to publish, and what to do when that is less than what is bound.

use std::fmt;

use crate::Constants;
use crate::estimate::Estimate;
use crate::eviction::Eviction;

/// What a node sees in one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// The second, of a clock that never goes back.
    pub time_s: u64,
    /// What the law leaves to side work, before its floor: `(1 − headroom) · CPUs − main`. None
    /// where it is not known.
    pub surplus_milli: Option<u64>,
    /// Requests of the pods that are bound here and have not ended: pending ones too.
    pub bound_milli: u64,
    /// Of those, the part of pods that are leaving.
    pub leaving_milli: u64,
    /// What the node's status says now; none where the key is absent.
    pub standing_milli: Option<u64>,
    /// The key is in what is allocatable, by which the scheduler places. Kubelet takes it over from
    /// the capacity, seconds later.
    pub is_allocatable: bool,
    /// A write of the key has ended since the last second, seconds after the rule asked for it.
    pub has_written: bool,
    /// A call or a watch of the API server has failed since the last second.
    pub has_failed: bool,
    /// Side work stands at its tolerance: the law would give it less.
    pub is_starved: bool,
}

/// What to do with the key in the node's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    Keep,
    /// Write this amount, or what is bound where that is more: the pods are counted once more for
    /// it.
    Set(u64),
    /// Delete the key: the scheduler places nothing more here, and kubelet lets run what runs. An
    /// amount below what is bound, or zero, would have kubelet reject running pods when it starts
    /// next.
    Delete,
}

/// Why the key is written, or is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// Too few samples yet: what stands is kept.
    WarmingUp,
    Stale,
    /// The pods bound here request more than the node can promise.
    Short,
    /// It is what the node can promise.
    Promise,
    /// The amount falls: the key is deleted, and the next write has it.
    Lower,
    /// There is nothing to promise.
    Nothing,
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Because::WarmingUp => "fewer than three minutes of samples: what stands is kept",
            Because::Stale => "no sample for three minutes",
            Because::Short => {
                "the pods bound here request more than main leaves: no more are placed"
            }
            Because::Promise => {
                "main left this much in three of four seconds of the last 15 minutes"
            }
            Because::Lower => "a lower amount is written when no pod comes by this one any more",
            Because::Nothing => "main leaves nothing",
        })
    }
}

/// What to do in one second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    pub write: Write,
    pub because: Because,
    /// What the node can promise; none while it warms up or is stale.
    pub promise_milli: Option<u64>,
    /// Whether the node can promise less than what is bound: its condition `TidegateSidePressure`.
    pub is_short: bool,
    pub must_evict: bool,
}

/// A node's rule and what it remembers.
pub struct Rule {
    constants: Constants,
    estimate: Estimate,
    eviction: Eviction,
    sampled_s: Option<u64>,
    began_s: Option<u64>,
    wrote_s: Option<u64>,
    /// Since when the key has been gone, also from what is allocatable.
    gone_s: Option<u64>,
    failed_s: Option<u64>,
    is_short: bool,
    short_changed_s: Option<u64>,
}

impl Default for Rule {
    fn default() -> Self {
        Rule::new(Constants::default())
    }
}

impl Rule {
    pub fn new(constants: Constants) -> Self {
        Rule {
            estimate: Estimate::new(&constants),
            eviction: Eviction::new(&constants),
            constants,
            sampled_s: None,
            began_s: None,
            wrote_s: None,
            gone_s: None,
            failed_s: None,
            is_short: false,
            short_changed_s: None,
        }
    }

    /// One second.
    pub fn step(&mut self, seen: &Observation) -> Step {
        self.take_sample(seen);
        self.take_state(seen);
        let promise_milli = self.estimate.milli();
        let (wanted_milli, because) = self.wanted(seen);
        let write = self.write(seen, wanted_milli);
        if write != Write::Keep {
            self.wrote_s = Some(seen.time_s);
        }
        let because = match (write, because) {
            (Write::Delete, Because::Promise) => Because::Lower,
            _ => because,
        };
        let is_short_now = because == Because::Short;
        let is_settling = |since_s: u64| seen.time_s < since_s + self.constants.short_gap_s;
        if is_short_now != self.is_short && !self.short_changed_s.is_some_and(is_settling) {
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

    fn take_sample(&mut self, seen: &Observation) {
        self.began_s.get_or_insert(seen.time_s);
        if let Some(surplus_milli) = seen.surplus_milli {
            let may_rise = self.eviction.may_rise(seen.time_s);
            self.estimate.sample(seen.time_s, surplus_milli, may_rise);
            self.sampled_s = Some(seen.time_s);
        } else if self.is_stale(seen.time_s) {
            self.estimate = Estimate::new(&self.constants);
        }
    }

    fn take_state(&mut self, seen: &Observation) {
        if seen.has_failed {
            self.failed_s = Some(seen.time_s);
        }
        let is_gone = seen.standing_milli.is_none() && !seen.is_allocatable;
        if seen.has_written {
            self.wrote_s = Some(seen.time_s);
        }
        self.gone_s = is_gone.then(|| self.gone_s.unwrap_or(seen.time_s));
    }

    /// Whether an amount may be written.
    ///
    /// None is while others may still act by what the node's status said before. A lower one than
    /// before would reject the pods that the scheduler goes on placing by the higher one; so the
    /// key is deleted, and once it has been gone from what is allocatable for `settle_s`, every pod
    /// that came by the higher amount is bound, and no other comes. Those are then counted, and no
    /// less is written. A higher one after a failure could be known to the scheduler before
    /// kubelet, which would reject what it places.
    fn may_write_amount(&self, seen: &Observation) -> bool {
        let is_over = |since_s: u64| seen.time_s >= since_s + self.constants.settle_s;
        self.failed_s.is_none_or(is_over)
            && (seen.standing_milli.is_some() || self.gone_s.is_some_and(is_over))
    }

    fn is_stale(&self, time_s: u64) -> bool {
        let last_s = self.sampled_s.or(self.began_s);
        last_s.is_some_and(|last_s| time_s >= last_s + self.constants.stale_s)
    }

    /// What should stand: none for no key.
    fn wanted(&self, seen: &Observation) -> (Option<u64>, Because) {
        if self.is_stale(seen.time_s) {
            return (None, Because::Stale);
        }
        let Some(promise_milli) = self.estimate.milli() else {
            return (seen.standing_milli, Because::WarmingUp);
        };
        match promise_milli.max(seen.bound_milli) {
            0 => (None, Because::Nothing),
            _ if self
                .estimate
                .is_clearly_below(promise_milli, seen.bound_milli) =>
            {
                (None, Because::Short)
            }
            milli => (Some(milli), Because::Promise),
        }
    }

    fn write(&self, seen: &Observation, wanted_milli: Option<u64>) -> Write {
        // Pods came while the amount was lowered. Kubelet would reject them: this cannot wait.
        if seen
            .standing_milli
            .is_some_and(|milli| milli < seen.bound_milli)
        {
            return Write::Delete;
        }
        if self
            .wrote_s
            .is_some_and(|wrote_s| seen.time_s < wrote_s + self.constants.write_gap_s)
        {
            return Write::Keep;
        }
        match (seen.standing_milli, wanted_milli) {
            (Some(_), None) => Write::Delete,
            (Some(standing_milli), Some(wanted_milli))
                if standing_milli.abs_diff(wanted_milli) < self.constants.write_milli =>
            {
                Write::Keep
            }
            // Kubelet takes what the scheduler places by the larger amount while the key is absent.
            (Some(standing_milli), Some(wanted_milli)) if wanted_milli < standing_milli => {
                Write::Delete
            }
            (_, Some(wanted_milli)) if self.may_write_amount(seen) => Write::Set(wanted_milli),
            (_, Some(_)) | (None, None) => Write::Keep,
        }
    }

    fn must_evict(&mut self, seen: &Observation) -> bool {
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
mod lag_tests;
#[cfg(test)]
mod tests;
