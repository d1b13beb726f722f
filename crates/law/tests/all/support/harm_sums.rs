//! One signal of the measurement of harm, in 128-bit integers.

use tidegate_law::harm::Config;

pub const UNIT: i128 = 1 << 17;
pub const ONE: i128 = 1_000_000;
pub const MOST: i128 = 1_000_000_000;

#[derive(Clone, Copy, Debug, Default)]
pub struct Sums {
    pub diff: i128,
    pub sum: i128,
    pub diff_square: i128,
    pub level: i128,
    pub noise: i128,
}

pub fn root(x: i128) -> i128 {
    (x as u128).isqrt() as i128
}

pub fn mean(old: i128, now: i128, weight: i128) -> i128 {
    let by = ((now - old).abs() * weight + 32_768) >> 16;
    if now < old { old - by } else { old + by }
}

/// Towards zero.
pub fn part(x: i128, weight: i128) -> i128 {
    ((x.abs() * weight) >> 16) * x.signum()
}

impl Sums {
    pub fn scale(&mut self, high: i128, low: i128, weight: i128) -> (i128, i128) {
        let total = high + low;
        if self.level == 0 {
            self.level = total;
            return (0, 0);
        }
        let unit = self.level.max((total + 3) / 4);
        self.level = mean(self.level, total.min(8 * self.level), weight);
        (high * UNIT / unit, low * UNIT / unit)
    }

    pub fn share(&self) -> i128 {
        (self.diff.abs() << 20) / self.sum.max(1) * self.diff.signum()
    }

    pub fn add(&mut self, (high, low): (i128, i128), forget: i128, weight: i128) {
        let (high, low) = self.scale(high, low, weight);
        let (diff, sum) = (high - low, high + low);
        let less = |x: i128| x - (((x >> 8) * forget) >> 8);
        self.diff += diff - part(self.diff, forget);
        self.sum += sum - part(self.sum, forget);
        self.diff_square = less(less(self.diff_square)) + diff * diff;
        let off = off(diff, sum, self.share());
        self.noise = mean(self.noise, off * off, weight);
    }

    pub fn reach(&self, cfg: &Config) -> i128 {
        ((root(self.diff_square) + 1) * i128::from(cfg.z_pct) / 100).min(self.sum)
    }

    pub fn bounds(&self, cfg: &Config) -> [u32; 3] {
        if self.sum == 0 {
            return [1_000_000, 0, 1_000_000_000];
        }
        let ratio = |high: i128, low: i128| (high.max(0) * ONE / low.max(1)).min(MOST) as u32;
        let (high, low, reach) = (self.sum + self.diff, self.sum - self.diff, self.reach(cfg));
        [
            ratio(high, low),
            ratio(high - reach, low + reach),
            ratio(high + reach, low - reach),
        ]
    }

    pub fn shares(&self, cfg: &Config) -> [i32; 3] {
        if self.sum == 0 {
            return [0, -1_000_000, 1_000_000];
        }
        let reach = self.reach(cfg);
        let of = |diff: i128| {
            let ppm = diff.abs() * 2 * ONE / self.sum;
            (ppm.min(ONE) * diff.signum()) as i32
        };
        [of(self.diff), of(self.diff - reach), of(self.diff + reach)]
    }
}

pub fn off(diff: i128, sum: i128, at: i128) -> i128 {
    diff - ((at.abs() * sum) >> 20) * at.signum()
}
