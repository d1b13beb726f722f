//! When a starved pod must move to another node.

use crate::Constants;

/// Since when side work is starved, and when a pod was last told to move.
pub struct Eviction {
    constants: Constants,
    starved_since_s: Option<u64>,
    last_s: Option<u64>,
}

impl Eviction {
    /// Nothing is starved yet.
    pub fn new(constants: &Constants) -> Self {
        Eviction {
            constants: constants.clone(),
            starved_since_s: None,
            last_s: None,
        }
    }

    /// Whether a pod must move now. `bound_milli` is without the pods that are leaving already.
    pub fn is_due(
        &mut self,
        time_s: u64,
        is_starved: bool,
        promise_milli: u64,
        bound_milli: u64,
    ) -> bool {
        let is_short = promise_milli * 100 < bound_milli * self.constants.enough_percent;
        if !is_starved || !is_short {
            self.starved_since_s = None;
            return false;
        }
        let since_s = *self.starved_since_s.get_or_insert(time_s);
        let is_due = time_s >= since_s + self.constants.starved_s
            && self
                .last_s
                .is_none_or(|last_s| time_s >= last_s + self.constants.evict_gap_s);
        if is_due {
            self.last_s = Some(time_s);
        }
        is_due
    }

    /// A second without a sample: what was starved before it is not known to be starved still.
    pub fn unseen(&mut self) {
        self.starved_since_s = None;
    }

    pub fn may_rise(&self, time_s: u64) -> bool {
        self.last_s
            .is_none_or(|last_s| time_s >= last_s + self.constants.no_rise_s)
    }
}
