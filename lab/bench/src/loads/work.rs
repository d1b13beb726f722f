//! The unit of service work: dependent loads over a buffer larger than a core's first cache, and
//! integer work between them, so that a neighbour on the same core or cache slows it as it would
//! slow a real request.

use rand::RngExt as _;

use crate::clock::thread_cpu_ns;

/// 384 KiB: past a 32–64 KiB first-level cache, within a usual second- or third-level one.
const RING_ENTRIES: usize = 96 * 1024;

/// A random cycle through a buffer, and a state that the work keeps mixing.
pub struct Work {
    ring: Vec<u32>,
    at: u32,
    mixed: u64,
}

impl Work {
    /// A cycle through all entries (Sattolo's shuffle), so that the walk never shortens.
    pub fn new(seed: u64) -> Self {
        let mut rng = crate::seeded(seed);
        let mut ring: Vec<u32> = (0..RING_ENTRIES as u32).collect();
        for i in (1..ring.len()).rev() {
            ring.swap(i, rng.random_range(0..i));
        }
        Work {
            ring,
            at: 0,
            mixed: seed | 1,
        }
    }

    /// Does `steps` steps: one load that depends on the one before, eight multiplications.
    pub fn run(&mut self, steps: u64) {
        let (mut at, mut mixed) = (self.at, self.mixed);
        for _ in 0..steps {
            at = self.ring[at as usize];
            for _ in 0..8 {
                mixed = (mixed ^ u64::from(at)).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (mixed >> 29);
            }
        }
        self.at = at;
        self.mixed = std::hint::black_box(mixed);
    }

    /// Steps that take a millisecond of CPU here, from the fastest of `tries` stretches: the one
    /// that was disturbed least.
    pub fn calibrate(&mut self, tries: u32) -> u64 {
        let mut steps = 1000u64;
        loop {
            let took_ns = self.timed(steps);
            if took_ns > 4_000_000 {
                break;
            }
            steps *= 2;
        }
        let best_ns = (0..tries.max(1))
            .map(|_| self.timed(steps))
            .min()
            .unwrap_or(1)
            .max(1);
        (steps * 1_000_000 / best_ns).max(1)
    }

    fn timed(&mut self, steps: u64) -> u64 {
        let start = thread_cpu_ns();
        self.run(steps);
        thread_cpu_ns() - start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_walk_visits_every_entry() {
        let mut work = Work::new(1);
        let mut seen = vec![false; RING_ENTRIES];
        for _ in 0..RING_ENTRIES {
            work.run(1);
            seen[work.at as usize] = true;
        }
        assert!(seen.iter().all(|&s| s));
    }

    #[test]
    fn calibration_is_a_usable_number() {
        let steps = Work::new(1).calibrate(3);
        assert!(
            (100..100_000_000).contains(&steps),
            "{steps} steps a millisecond"
        );
    }
}
