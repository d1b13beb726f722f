//! koordlet's CPU burst by quota (Koordinator; `qosmanager/plugins/cpuburst`, strategy `cfsQuotaBurstOnly`): each second,
//! the quota of a container that was throttled is multiplied by 1.2, up to three times what it was given; when the
//! node is overloaded it is multiplied by 0.8, down to what it was given; nothing grows while the node is close to that.
//! Overloaded means that half of the node's CPUs were in use over the last five seconds; close is nine tenths of it.
//! It never comes down by itself while the node has room.

/// Time between two looks.
pub const INTERVAL_NS: u64 = 1_000_000_000;
/// The node's use is averaged over so many looks.
pub const LOOKS: usize = 5;
const OVERLOAD_PPM: u64 = 500_000;
const COOLING_PPM: u64 = OVERLOAD_PPM * 9 / 10;
const MOST_PCT: u64 = 300;

/// What it looks at.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Whether the group was throttled since the last look.
    pub throttled: bool,
    /// The machine's use over the last five looks.
    pub busy_ppm: u64,
}

/// The law for one group.
#[derive(Clone, Copy, Debug)]
pub struct CpuBurst {
    given_us: u64,
    quota_us: u64,
}

impl CpuBurst {
    /// For a group with this quota.
    pub fn new(given_us: u64) -> Self {
        CpuBurst {
            given_us,
            quota_us: given_us,
        }
    }

    /// One look; the new quota where there is one.
    pub fn look(&mut self, look: Look) -> Option<u64> {
        let wanted = if look.busy_ppm >= OVERLOAD_PPM {
            self.quota_us * 8 / 10
        } else if look.throttled && look.busy_ppm < COOLING_PPM {
            self.quota_us * 12 / 10
        } else {
            self.quota_us
        };
        let wanted = wanted.clamp(self.given_us, self.given_us * MOST_PCT / 100);
        let changed = wanted != self.quota_us;
        self.quota_us = wanted;
        changed.then_some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn look(throttled: bool, busy_ppm: u64) -> Look {
        Look {
            throttled,
            busy_ppm,
        }
    }

    #[test]
    fn it_grows_while_throttled_up_to_three_times_and_stays() {
        let mut law = CpuBurst::new(40_000);
        assert_eq!(law.look(look(false, 300_000)), None);
        assert_eq!(law.look(look(true, 300_000)), Some(48_000));
        for _ in 0..20 {
            law.look(look(true, 300_000));
        }
        assert_eq!(law.look(look(true, 300_000)), None, "at its most");
        assert_eq!(law.quota_us, 120_000);
        assert_eq!(
            law.look(look(false, 300_000)),
            None,
            "it does not come down by itself"
        );
    }

    #[test]
    fn an_overloaded_node_takes_back_and_a_close_one_gives_nothing() {
        let mut law = CpuBurst::new(40_000);
        law.look(look(true, 0));
        assert_eq!(law.look(look(true, 460_000)), None);
        assert_eq!(
            law.look(look(true, 500_000)),
            Some(40_000),
            "down to what it was given"
        );
        assert_eq!(law.look(look(true, 990_000)), None);
    }
}
