//! A run queue's load over the last while: a mean that forgets half in 32 ms.
//!
//! The kernel's PELT (kernel/sched/pelt.c) sums each entity's load with a
//! decay of y per 1.05 ms, y^32 = 1/2, and a group's weight on a CPU is shared
//! out by these sums. Here the sum is kept per run queue: its load of the
//! moment, through the same filter. The kernel moves an entity's own history
//! along when the entity moves; here what comes brings its whole weight and
//! what goes takes it along, which is exact for tasks that always run and too
//! quick for others by at most the filter's own time.

use crate::Ns;

/// 2^24 · y^n for n = 0..32: `round(2^24 · 2^(-n/32))`.
const DECAY: [u32; 33] = [
    16777216, 16417715, 16065917, 15721658, 15384775, 15055111, 14732511, 14416824, 14107901,
    13805598, 13509772, 13220286, 12937002, 12659789, 12388516, 12123055, 11863283, 11609078,
    11360319, 11116891, 10878679, 10645571, 10417458, 10194234, 9975792, 9762032, 9552851, 9348154,
    9147842, 8951823, 8760003, 8572295, 8388608,
];
const ONE: u64 = 1 << 24;
/// 1024 · 1024 ns, the kernel's period.
const PERIOD_SHIFT: u32 = 20;

/// How much is left after a time, of 2^24.
fn decay(delta_ns: u64) -> u64 {
    let periods = delta_ns >> PERIOD_SHIFT;
    let halvings = periods / 32;
    if halvings >= 40 {
        return 0;
    }
    let n = (periods % 32) as usize;
    let within = delta_ns & ((1 << PERIOD_SHIFT) - 1);
    let (a, b) = (u64::from(DECAY[n]), u64::from(DECAY[n + 1]));
    // Straight between two points of the curve: off by less than 1 in 10^4.
    (a - (((a - b) * within) >> PERIOD_SHIFT)) >> halvings
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LoadAvg {
    /// Load · 2^10, so that small changes are not rounded away.
    fine: u64,
    updated: Ns,
}

impl LoadAvg {
    /// The mean, in units of load.
    pub(crate) fn load(&self) -> u64 {
        self.fine >> 10
    }

    /// Brings the mean up to now; `load` was the load since the last time.
    ///
    /// No overflow: load < 2^27 (1000 tasks of the largest weight), fine < 2^37,
    /// times 2^24 < 2^61, and the two products add to at most the larger's.
    #[inline]
    pub(crate) fn update(&mut self, now: Ns, load: u64) {
        let delta = now - self.updated;
        // Less than 4 µs moves the mean by less than 1 in 10^4: let it gather.
        if delta < 4096 && self.updated != 0 {
            return;
        }
        self.updated = now;
        let left = decay(delta);
        self.fine = (self.fine * left + (load << 10) * (ONE - left)) >> 24;
    }

    /// An entity came with its history, or left with it.
    pub(crate) fn attach(&mut self, load: u64) {
        self.fine += load << 10;
    }

    pub(crate) fn detach(&mut self, load: u64) {
        self.fine = self.fine.saturating_sub(load << 10);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_is_forgotten_in_32_periods() {
        let mut avg = LoadAvg::default();
        avg.attach(1024);
        avg.updated = 1;
        avg.update(1 + (32 << PERIOD_SHIFT), 0);
        assert_eq!(avg.load(), 512);
        avg.update(1 + (64 << PERIOD_SHIFT), 0);
        assert_eq!(avg.load(), 256);
    }

    #[test]
    fn a_constant_load_is_its_own_mean_whenever_it_is_looked_at() {
        let mut avg = LoadAvg::default();
        avg.attach(3072);
        let mut now = 1;
        for step in 1..5000u64 {
            now += (step * 7919) % 3_000_000;
            avg.update(now, 3072);
            assert!((3070..=3072).contains(&avg.load()), "{}", avg.load());
        }
    }

    #[test]
    fn the_table_is_the_curve() {
        for (n, &value) in DECAY.iter().enumerate() {
            let exact = (2f64.powi(24) * 2f64.powf(-(n as f64) / 32.0)).round();
            assert!(
                (f64::from(value) - exact).abs() <= 0.5,
                "{n}: {value} {exact}"
            );
        }
    }
}
