//! Which waits of main are long: longer than its turns take in the mean, at the highest headroom.
//!
//! The bound is measured before the first level and from then on in the blocks at the highest headroom; a level is compared under one bound.

use tidegate_law::harm::Window;

/// The highest headroom is kept for this long before the first level, for so many turns, or until there are hardly any.
const FIRST_NS: u64 = 1_000_000_000;
const FIRST_MOST_NS: u64 = 5_000_000_000;
const TURNS_MIN: u64 = 100;

/// The bound, and what is measured for the next.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tail {
    late_after_ns: Option<u64>,
    time_ns: u64,
    used_ns: u64,
    turns: u64,
}

impl Tail {
    /// A longer wait is long; none before it is known.
    pub fn late_after_ns(&self) -> Option<u64> {
        self.late_after_ns
    }

    /// A window at the highest headroom, if that was so all the time. Whether there is a bound that there was not before, of a
    /// main that had hardly any turns.
    pub fn seen(&mut self, window: &Window, is_sound: bool) -> bool {
        self.time_ns += window.length_ns;
        if is_sound {
            self.used_ns += window.cpu_ns;
            self.turns += window.turns;
        }
        let is_enough = self.time_ns >= FIRST_NS && self.turns >= TURNS_MIN;
        let before = self.late_after_ns;
        let is_due = match before {
            None => is_enough || self.time_ns >= FIRST_MOST_NS,
            Some(bound_ns) => bound_ns == u64::MAX && is_enough,
        };
        if is_due {
            self.late_after_ns = Some(u64::MAX);
            self.begin_level();
        }
        is_due && before.is_some()
    }

    /// Another level is compared: the bound is what was measured last.
    pub fn begin_level(&mut self) {
        if self.turns >= TURNS_MIN && self.late_after_ns.is_some() {
            self.late_after_ns = Some((self.used_ns / self.turns).max(1));
        }
        (self.time_ns, self.used_ns, self.turns) = (0, 0, 0);
    }
}
