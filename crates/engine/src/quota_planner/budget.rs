//! How many quota writes the last second has seen.

/// A budget of writes in any second, for one planner or for several that share it.
#[derive(Clone, Debug)]
pub struct WriteBudget {
    per_s_max: u32,
    times_ns: [Option<u64>; WriteBudget::REMEMBERED],
    next: usize,
}

impl WriteBudget {
    /// Writes that are remembered; more than this in a second count as this many.
    pub const REMEMBERED: usize = 128;
    const SECOND_NS: u64 = 1_000_000_000;

    /// At most `per_s_max` writes in any second before raises are refused.
    pub fn new(per_s_max: u32) -> Self {
        Self {
            per_s_max,
            times_ns: [None; Self::REMEMBERED],
            next: 0,
        }
    }

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
        self.used(now_ns).saturating_add(kept) < self.per_s_max
    }

    /// Counts one write. Cuts are counted too, but never refused.
    pub fn spend(&mut self, now_ns: u64) {
        self.times_ns[self.next] = Some(now_ns);
        self.next = (self.next + 1) % Self::REMEMBERED;
    }
}
