//! PerfIso's CPU blind isolation (Microsoft Bing; Iorgulescu et al., *PerfIso: Performance Isolation for Commercial
//! Latency-Sensitive Services*, USENIX ATC 2018): some CPUs, the buffer, are idle at all times, whatever main uses. Which CPUs are
//! idle is polled without a pause; side work's CPUs (its affinity) become fewer while less than the buffer is idle, and more
//! while more is. Main may run everywhere.
//!
//! The buffer is found by hand for each service: 8 of the 48 CPUs of an index server, so a sixth of the machine here. Ours is
//! the poll of a millisecond, and that side work's CPUs change by all that is missing or left over at once.

use super::{ALL_PPM, Counters, Order, Policy};

const POLL_NS: u64 = 1_000_000;
const BUFFER_PARTS: u32 = 6;

/// The law and the CPUs that side work has.
pub struct PerfIso {
    cpus: u32,
    buffer: u32,
    pool: u32,
}

impl PerfIso {
    /// For a machine of `cpus` CPUs.
    pub fn new(cpus: u32) -> Self {
        Self {
            cpus,
            buffer: cpus.div_ceil(BUFFER_PARTS),
            pool: 1,
        }
    }

    /// A pool has a CPU at least, and never one of the buffer's.
    fn clamped(&self, pool: u32) -> u32 {
        pool.clamp(1, (self.cpus - self.buffer).max(1))
    }

    fn pool_beside(&self, busy_ppm: u64) -> u32 {
        let main = (busy_ppm * u64::from(self.cpus)).div_ceil(ALL_PPM) as u32;
        self.clamped(self.cpus.saturating_sub(self.buffer + main))
    }

    fn order(&self) -> Order {
        Order::Pool {
            cpus: self.pool,
            exclusive: false,
        }
    }
}

impl Policy for PerfIso {
    fn name(&self) -> &'static str {
        "PerfIso's law"
    }

    fn period_us(&self) -> u64 {
        100_000
    }

    fn interval_ns(&self) -> u64 {
        POLL_NS
    }

    fn looks_at_cpus(&self) -> bool {
        true
    }

    fn tick(&mut self, counters: Counters) -> Option<Order> {
        let pool = self.clamped((self.pool + counters.idle_cpus).saturating_sub(self.buffer));
        (std::mem::replace(&mut self.pool, pool) != pool).then(|| self.order())
    }

    fn allowance_ppm(&self, busy_ppm: u64) -> u64 {
        u64::from(self.pool_beside(busy_ppm)) * ALL_PPM / u64::from(self.cpus)
    }

    fn prime(&mut self, busy_ppm: u64, _: Counters) -> Order {
        self.pool = self.pool_beside(busy_ppm);
        self.order()
    }
}

#[cfg(test)]
mod tests {
    use super::super::plant::settle;
    use super::*;

    #[test]
    fn it_settles_at_its_allowance() {
        // 48 CPUs, 8 of them the buffer; main on 12 and on 36.
        for (main, side_cpus) in [(250_000, 28), (750_000, 4)] {
            let mut law = PerfIso::new(48);
            let want = side_cpus * ALL_PPM / 48;
            assert_eq!(law.allowance_ppm(main), want);
            assert_eq!(settle(&mut law, 48, main, 1), want, "main {main}");
        }
        assert_eq!(PerfIso::new(48).allowance_ppm(ALL_PPM), ALL_PPM / 48);
    }

    #[test]
    fn main_has_the_buffer_back_within_a_poll() {
        let mut law = PerfIso::new(48);
        law.prime(250_000, Counters::default());
        let idle = |idle_cpus| Counters {
            idle_cpus,
            ..Counters::default()
        };
        let pool = |cpus| {
            Some(Order::Pool {
                cpus,
                exclusive: false,
            })
        };
        assert_eq!(law.tick(idle(8)), None);
        assert_eq!(law.tick(idle(2)), pool(22));
        assert_eq!(law.tick(idle(11)), pool(25));
    }

    #[test]
    fn the_smallest_machines_have_a_pool_and_a_buffer() {
        for cpus in 1..=4 {
            let mut law = PerfIso::new(cpus);
            let Order::Pool { cpus: pool, .. } = law.prime(0, Counters::default()) else {
                panic!("a pool")
            };
            assert!(pool >= 1 && (cpus == 1 || pool < cpus), "{pool} of {cpus}");
        }
    }
}
