//! When a starved pod must move to another node.

/// Side work stands at its tolerance this long, and the node can promise less than this part of what is bound to it.
const STARVED_S: u64 = 600;
const ENOUGH_PERCENT: u64 = 60;
/// One pod at a time.
const GAP_S: u64 = 60;
/// After one the estimate does not rise for so long: the pod that left would come back.
const NO_RISE_S: u64 = 900;

/// Since when side work is starved, and when a pod was last told to move.
#[derive(Default)]
pub struct Eviction {
    starved_since_s: Option<u64>,
    last_s: Option<u64>,
}

impl Eviction {
    /// Whether a pod must move now. `bound_milli` is without the pods that are leaving already.
    pub fn is_due(
        &mut self,
        time_s: u64,
        is_starved: bool,
        promise_milli: u64,
        bound_milli: u64,
    ) -> bool {
        let is_short = promise_milli * 100 < bound_milli * ENOUGH_PERCENT;
        if !is_starved || !is_short {
            self.starved_since_s = None;
            return false;
        }
        let since_s = *self.starved_since_s.get_or_insert(time_s);
        let is_due = time_s >= since_s + STARVED_S
            && self.last_s.is_none_or(|last_s| time_s >= last_s + GAP_S);
        if is_due {
            self.last_s = Some(time_s);
        }
        is_due
    }

    /// A second that nobody saw ends the ten minutes.
    pub fn unseen(&mut self) {
        self.starved_since_s = None;
    }

    /// Whether the estimate may rise.
    pub fn may_rise(&self, time_s: u64) -> bool {
        self.last_s
            .is_none_or(|last_s| time_s >= last_s + NO_RISE_S)
    }
}
