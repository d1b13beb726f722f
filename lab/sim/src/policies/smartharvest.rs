//! SmartHarvest's online learning (Azure; Wang et al., *SmartHarvest: Harvesting Idle CPUs Safely and Efficiently in the Cloud*,
//! EuroSys 2021). The CPUs that run main are counted many times in a window of 25 ms. From least, most, mean, deviation and median
//! of a window the most of the next one is predicted, by cost-sensitive classification: one linear regression a class learns
//! what it would have cost to choose that class, where too few CPUs cost more than too many, and the cheapest is chosen. Main has as
//! many CPUs, side work the others, at least one. The guard: when main runs on all of its CPUs, it has all of them at once until the
//! window ends.
//!
//! Ours: a count every 0.25 ms (50 us there), that a CPU too few costs as much as ten too many, and that one more than the most
//! is aimed at, since on all of its CPUs main may have wanted more. Left out is the second guard, which ends harvesting for a
//! while where virtual CPUs wait too often: counters do not tell how long each wait was.

use super::{ALL_PPM, Counters, Order, Policy};

const COUNT_NS: u64 = 250_000;
const COUNTS: u64 = 25_000_000 / COUNT_NS;
/// A CPU too few costs as much as so many too many.
const TOO_FEW_COSTS: i64 = 10;
/// The part of an error that is learnt from one window: with six features of at most 1 each, less than 2 in all, so it converges.
const LEARN_DIVISOR: i64 = 10;
const ONE: i64 = 1_000_000;
/// Those named above, and a constant.
const FEATURES: usize = 6;

/// Features in millionths of the machine.
type Features = [i64; FEATURES];

/// The law and what it has learnt.
pub struct SmartHarvest {
    cpus: u32,
    /// Of each number of CPUs that main may have, from 1: what a feature adds to its cost, in millionths of a CPU.
    weights: Vec<Features>,
    /// How often main was seen on so many CPUs in this window.
    seen: Vec<u64>,
    counts: u64,
    before: Option<Features>,
    /// The CPUs that main has.
    main: u32,
}

impl SmartHarvest {
    /// For a machine of `cpus` CPUs.
    pub fn new(cpus: u32) -> Self {
        let most = cpus.saturating_sub(1).max(1);
        Self {
            cpus,
            weights: vec![[0; FEATURES]; most as usize],
            seen: vec![0; cpus as usize + 1],
            counts: 0,
            before: None,
            main: most,
        }
    }

    /// Side work keeps a CPU.
    fn most(&self) -> u32 {
        self.cpus.saturating_sub(1).max(1)
    }

    fn features(&self) -> Features {
        let mut at_least = 0;
        let mut median = 0;
        let (mut sum, mut squares) = (0, 0);
        for (busy, &times) in (0..).zip(&self.seen) {
            if at_least * 2 < self.counts {
                median = busy;
            }
            at_least += times;
            // At most 2^10 CPUs and 100 counts.
            sum += busy * times;
            squares += busy * busy * times;
        }
        let n = self.counts.max(1);
        let least = self.seen.iter().position(|times| *times > 0).unwrap_or(0) as u64;
        // In millionths of a CPU: 10^12 · 10^4 · 2^20 would not fit, so the root of the variance in thousandths.
        let deviation = ((squares * n).saturating_sub(sum * sum) * 1_000_000).isqrt() * 1_000 / n;
        let part = |cpus_ppm: u64| (cpus_ppm / u64::from(self.cpus)) as i64;
        [
            part(least * ALL_PPM),
            part(u64::from(self.peak()) * ALL_PPM),
            part(sum * ALL_PPM / n),
            part(deviation),
            part(median * ALL_PPM),
            ONE,
        ]
    }

    fn peak(&self) -> u32 {
        self.seen.iter().rposition(|times| *times > 0).unwrap_or(0) as u32
    }

    /// Each class learns what it would have cost in a window in which `need` CPUs were enough.
    fn learn(&mut self, features: &Features, need: i64) {
        for (class, weights) in (1..).zip(&mut self.weights) {
            let cost = match need - class {
                missing if missing > 0 => missing * TOO_FEW_COSTS,
                spare => -spare,
            };
            let error = cost * ONE - cost_of(weights, features);
            for (weight, feature) in weights.iter_mut().zip(features) {
                *weight += error * feature / ONE / LEARN_DIVISOR;
            }
        }
    }

    /// The cheapest number of CPUs; the larger of two.
    fn predict(&self, features: &Features) -> u32 {
        let costs = (1..).zip(&self.weights);
        let costs = costs.map(|(class, weights)| (cost_of(weights, features), class));
        let cheapest = costs.min_by_key(|(cost, class)| (*cost, std::cmp::Reverse(*class)));
        cheapest.map_or(1, |(_, class)| class)
    }

    fn window_ended(&mut self) -> u32 {
        let features = self.features();
        let need = (self.peak() + 1).min(self.most());
        if let Some(before) = self.before.replace(features) {
            self.learn(&before, i64::from(need));
        }
        self.counts = 0;
        self.seen.fill(0);
        self.predict(&features)
    }

    fn order(&self) -> Order {
        Order::Pool {
            cpus: self.cpus.saturating_sub(self.main).max(1),
            exclusive: true,
        }
    }
}

/// What is expected of a class, in millionths of a CPU.
fn cost_of(weights: &Features, features: &Features) -> i64 {
    // Costs are at most 10^10 and features 10^6.
    weights
        .iter()
        .zip(features)
        .map(|(w, f)| w * f)
        .sum::<i64>()
        / ONE
}

impl Policy for SmartHarvest {
    fn name(&self) -> &'static str {
        "SmartHarvest's law"
    }

    fn period_us(&self) -> u64 {
        100_000
    }

    fn interval_ns(&self) -> u64 {
        COUNT_NS
    }

    fn looks_at_cpus(&self) -> bool {
        true
    }

    fn tick(&mut self, counters: Counters) -> Option<Order> {
        let busy = counters.main_cpus.min(self.cpus);
        self.seen[busy as usize] += 1;
        self.counts += 1;
        let main = if self.counts == COUNTS {
            self.window_ended()
        } else if busy >= self.main {
            self.most()
        } else {
            return None;
        };
        (std::mem::replace(&mut self.main, main) != main).then(|| self.order())
    }

    fn allowance_ppm(&self, busy_ppm: u64) -> u64 {
        let main = (busy_ppm * u64::from(self.cpus)).div_ceil(ALL_PPM) + 1;
        let main = main.min(u64::from(self.most()));
        (u64::from(self.cpus) - main) * ALL_PPM / u64::from(self.cpus)
    }

    /// What it has learnt by then depends on more than a mean: it begins untaught, with all CPUs but one for main.
    fn prime(&mut self, _: u64, _: Counters) -> Order {
        self.order()
    }
}

#[cfg(test)]
mod tests {
    use super::super::plant::settle;
    use super::*;

    #[test]
    fn it_learns_a_steady_main() {
        for (main, side_cpus) in [(125_000, 55), (500_000, 31)] {
            let mut law = SmartHarvest::new(64);
            assert_eq!(law.allowance_ppm(main), side_cpus * ALL_PPM / 64);
            let got = settle(&mut law, 64, main, 10);
            assert_eq!(got, side_cpus * ALL_PPM / 64, "main {main}");
        }
        assert_eq!(SmartHarvest::new(64).allowance_ppm(ALL_PPM), ALL_PPM / 64);
    }

    fn count(law: &mut SmartHarvest, main_cpus: u32) -> Option<Order> {
        law.tick(Counters {
            main_cpus,
            ..Counters::default()
        })
    }

    #[test]
    fn main_on_all_of_its_cpus_has_the_others_at_once() {
        let mut law = SmartHarvest::new(64);
        for _ in 0..400 * COUNTS {
            count(&mut law, 8);
        }
        assert_eq!(law.main, 9);
        let all = Some(Order::Pool {
            cpus: 1,
            exclusive: true,
        });
        assert_eq!((count(&mut law, 9), law.main), (all, 63));
    }

    #[test]
    fn a_peak_in_every_other_window_is_kept_for() {
        let mut law = SmartHarvest::new(64);
        for window in 0..2_000 {
            let main = if window % 2 == 0 { 8 } else { 24 };
            for _ in 0..COUNTS {
                count(&mut law, main);
            }
        }
        // Features tell which window comes next, so both are known.
        assert!((9..=25).contains(&law.main), "{}", law.main);
    }

    #[test]
    fn a_small_machine_has_both_pools() {
        for cpus in [2, 3, 4] {
            let mut law = SmartHarvest::new(cpus);
            for at in 0..5 * COUNTS {
                count(&mut law, (at % u64::from(cpus + 1)) as u32);
                assert!(law.main >= 1 && law.main < cpus);
            }
        }
    }
}
