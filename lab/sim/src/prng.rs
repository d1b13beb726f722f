//! The simulator's own random numbers: integers only, so that no platform's floating point can
//! change a run.
//!
//! The generator is xoshiro256++, seeded through SplitMix64. Each user of random numbers has a
//! stream of its own ([`Prng::stream`]), so that one workload's draws never move another's.

use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rand_xoshiro::{SplitMix64, Xoshiro256PlusPlus};

/// A generator of random numbers.
#[derive(Clone, Debug)]
pub struct Prng(Xoshiro256PlusPlus);

impl Prng {
    /// The generator of this seed.
    pub fn new(seed: u64) -> Prng {
        Prng::stream(seed, 0)
    }

    /// One of this seed's independent streams.
    ///
    /// Seed and stream number each go through a full mixing step, so neighbouring numbers give
    /// unrelated states. That two streams of one seed overlap within n draws has odds of about n /
    /// 2^256 a pair.
    pub fn stream(seed: u64, stream: u64) -> Prng {
        let mixed = |number| SplitMix64::seed_from_u64(number).next_u64();
        Prng(Xoshiro256PlusPlus::seed_from_u64(
            mixed(seed) ^ mixed(stream),
        ))
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `n`.
    ///
    /// # Panics
    /// When `n` is 0: there is no such number.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0.random_range(..n)
    }

    /// A number from `lo` to `hi`, both included.
    ///
    /// # Panics
    /// When `hi` is below `lo`.
    pub fn between(&mut self, lo: u64, hi: u64) -> u64 {
        self.0.random_range(lo..=hi)
    }

    /// True with odds of `ppm` in a million.
    pub fn chance_ppm(&mut self, ppm: u32) -> bool {
        self.below(1_000_000) < u64::from(ppm)
    }

    /// An exponentially distributed time of this mean.
    ///
    /// `-ln(u)` for a random `u` of 64 bits, by the table below: off by less than 2^-22 of the
    /// mean, at most 44.4 means (`64·ln 2`). The largest mean, 2^58 ns, is nine years, so the
    /// product stays below 2^64: 2^58·44.4 < 2^64.
    pub fn exp_ns(&mut self, mean_ns: u64) -> u64 {
        let uniform = self.next_u64().max(1);
        let scaled = u128::from(mean_ns.min(MEAN_MAX_NS)) * u128::from(minus_ln_q32(uniform));
        (scaled >> 32) as u64
    }
}

const MEAN_MAX_NS: u64 = 1 << 58;

const TABLE_BITS: u32 = 10;
const TABLE_STEPS: usize = 1 << TABLE_BITS;
const LN2_Q32: u64 = ln_q32(2 << 40, 1 << 40);

/// `ln(1 + i/1024)` in units of 2^-32, computed by the compiler, in integers.
static LN_Q32: [u32; TABLE_STEPS + 1] = {
    let mut table = [0; TABLE_STEPS + 1];
    let mut i = 0;
    while i <= TABLE_STEPS {
        // ln 2 · 2^32 < 2^32.
        table[i] = ln_q32((TABLE_STEPS + i) as u128, TABLE_STEPS as u128) as u32;
        i += 1;
    }
    table
};

/// `ln(y / unit)` for `unit ≤ y ≤ 2·unit < 2^42`, in units of 2^-32.
///
/// `2·atanh(t)` with `t = (y − unit)/(y + unit) ≤ 1/3`: each term is less than a ninth of the one
/// before, so 24 of them leave less than 2^-70. Everything is in units of 2^-60; `t < 2^59`, so its
/// square fits.
const fn ln_q32(y: u128, unit: u128) -> u64 {
    let t = ((y - unit) << 60) / (y + unit);
    let square = (t * t) >> 60;
    let mut power = t;
    let mut sum = 0;
    let mut k = 1;
    while k < 48 {
        sum += power / k;
        power = (power * square) >> 60;
        k += 2;
    }
    // 2·sum, rounded from 2^-60 to 2^-32.
    ((2 * sum + (1 << 27)) >> 28) as u64
}

/// `−ln(u / 2^64)` in units of 2^-32, for `u ≥ 1`.
///
/// With `u = 2^(63−z)·(1+f)` this is `(z+1)·ln 2 − ln(1+f)`, and `ln(1+f)` is interpolated in the
/// table. A chord of the logarithm over a step of h lies at most h²/8 = 2^-23 below it; rounding
/// adds less than 2^-30.
fn minus_ln_q32(uniform: u64) -> u64 {
    let zeros = uniform.leading_zeros();
    // The leading one is shifted out: what stays is f, in units of 2^-64.
    let fraction = if zeros == 63 {
        0
    } else {
        uniform << (zeros + 1)
    };
    let index = (fraction >> (64 - TABLE_BITS)) as usize;
    let within_q32 = (fraction << TABLE_BITS) >> 32;
    let (low, high) = (u64::from(LN_Q32[index]), u64::from(LN_Q32[index + 1]));
    let ln_q32 = low + (((high - low) * within_q32) >> 32);
    // ln(1+f) < ln 2 by the table's last entry, so nothing goes below 0.
    (u64::from(zeros) + 1) * LN2_Q32 - ln_q32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_draws_are_what_they_always_were() {
        let mut rng = Prng::new(1);
        let draws = [rng.next_u64(), rng.next_u64(), rng.next_u64()];
        assert_eq!(draws, FIRST_DRAWS);
    }
    const FIRST_DRAWS: [u64; 3] = [
        1_646_395_559_605_995_438,
        15_365_770_740_830_996_313,
        12_768_747_413_620_547_920,
    ];

    #[test]
    fn streams_differ() {
        let mut firsts: Vec<u64> = (0..1000).map(|s| Prng::stream(7, s).next_u64()).collect();
        firsts.extend((0..1000).map(|seed| Prng::stream(seed + 8, 0).next_u64()));
        firsts.sort_unstable();
        firsts.dedup();
        assert_eq!(firsts.len(), 2000);
    }

    #[test]
    fn the_logarithm_is_within_its_bound() {
        let mut rng = Prng::new(3);
        let mut worst = 0.0_f64;
        let ends = (0..64).flat_map(|bit| [1_u64 << bit, (1 << bit) | ((1 << bit) - 1)]);
        let draws: Vec<u64> = ends.chain((0..200_000).map(|_| rng.next_u64())).collect();
        for uniform in draws {
            let exact = 64.0 * std::f64::consts::LN_2 - (uniform as f64).ln();
            let ours = minus_ln_q32(uniform) as f64 / 2_f64.powi(32);
            worst = worst.max((exact - ours).abs());
        }
        assert!(worst < 2_f64.powi(-22), "off by {worst:e}");
        assert!(
            worst > 2_f64.powi(-25),
            "the bound says too little: {worst:e}"
        );
    }

    #[test]
    fn exponential_times_have_their_mean_and_tail() {
        let mut rng = Prng::new(11);
        let mean_ns = 1_000_000;
        let draws: Vec<u64> = (0..400_000).map(|_| rng.exp_ns(mean_ns)).collect();
        let mean = draws.iter().sum::<u64>() as f64 / draws.len() as f64;
        // The mean of n draws is off by mean/sqrt(n) = 0.16 % (one sigma).
        assert!((mean / 1e6 - 1.0).abs() < 0.007, "{mean}");
        for times in [1_u64, 3, 6] {
            let above = draws.iter().filter(|&&d| d > times * mean_ns).count() as f64;
            let due = draws.len() as f64 * (-(times as f64)).exp();
            assert!(
                (above - due).abs() < 5.0 * due.sqrt(),
                "{times}: {above}, {due}"
            );
        }
        assert_eq!(Prng::new(1).exp_ns(0), 0);
    }

    proptest! {
        #[test]
        fn draws_stay_in_range(seed: u64, lo: u64, hi: u64, mean: u64) {
            let (lo, hi) = (lo.min(hi), lo.max(hi));
            let mut rng = Prng::new(seed);
            prop_assert!((lo..=hi).contains(&rng.between(lo, hi)));
            prop_assert!(rng.below(hi.max(1)) < hi.max(1));
            let bound = u128::from(mean) * 45;
            prop_assert!(u128::from(rng.exp_ns(mean)) <= bound);
        }
    }
}
