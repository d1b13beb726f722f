//! Rests between the pairs of blocks of a level that takes long to tell: side work has what the level leaves, and the law is told nothing.

use tidegate_law::harm::Window;

/// Most levels are told by the law's second look, half a minute after the first switch: half of side work's CPU is the price of that.
const EARLY_PAIRS: u32 = 26;
/// From then on, after each pair of blocks of 0.5 s: side work keeps 80 % of its CPU.
const REST_US: u64 = 1_500_000;
/// What side work left behind in the rest does not count, as after each switch between blocks. Where the block after the rest is at
/// the level of the block before it, the law does not know of a switch.
const REMAINS_US: u64 = 50_000;

/// Of one level.
#[derive(Default)]
pub(super) struct Rest {
    /// The law's pairs at the last rest.
    pairs: u32,
    left_us: u64,
    remains_us: u64,
}

impl Rest {
    /// The level is held, and nothing is compared.
    pub fn is_on(&self) -> bool {
        self.left_us > 0
    }

    /// Time in the rest.
    pub fn pass(&mut self, us: u64) {
        self.left_us = self.left_us.saturating_sub(us);
        self.remains_us = REMAINS_US;
    }

    /// The law has come to this many pairs and not to a finding.
    pub fn after(&mut self, pairs: u32) {
        let is_new = pairs != std::mem::replace(&mut self.pairs, pairs);
        if is_new && pairs >= EARLY_PAIRS {
            self.left_us = REST_US;
        }
    }

    /// The window, void where it is too soon after a rest.
    pub fn without_remains(&mut self, window: &Window) -> Window {
        if self.remains_us == 0 {
            return *window;
        }
        self.remains_us = self.remains_us.saturating_sub(window.length_ns / 1_000);
        window.void()
    }
}
