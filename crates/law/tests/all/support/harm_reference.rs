//! The measurement of harm as its page tells it, in 128-bit integers, pair by pair; no clamp that only guards a machine word.

use tidegate_law::harm::{Arm, Config, Reason, Verdict, Window, Wish};

const UNIT: i128 = 1 << 17;
const ONE: i128 = 1_000_000;
const MOST: i128 = 1_000_000_000;

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    diff: i128,
    sum: i128,
    diff_square: i128,
    level: i128,
    noise: i128,
}

#[derive(Clone, Copy, Debug, Default)]
struct Block {
    us: i128,
    cpu: i128,
    delay: i128,
    turns: i128,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Gap(i128),
    First,
    Second,
}

#[derive(Clone, Debug)]
pub struct Reference {
    cfg: Config,
    random: u64,
    learning: bool,
    high: bool,
    held_high: bool,
    place: Place,
    guard: bool,
    blocks: [Block; 2],
    sums: [Sums; 4],
    trend: i128,
    pairs: i128,
    look: i128,
    turns: i128,
    phase_us: i128,
    void_us: i128,
    used_us: i128,
    since_us: i128,
    age_us: i128,
    known: i128,
    watch: i128,
    why: Reason,
    pub verdict: Verdict,
    pub wish: Wish,
    pub bounds: [u32; 3],
    pub closed: bool,
}

fn root(x: i128) -> i128 {
    (x as u128).isqrt() as i128
}

fn mean(old: i128, now: i128, weight: i128) -> i128 {
    let by = ((now - old).abs() * weight + 32_768) >> 16;
    if now < old { old - by } else { old + by }
}

/// Towards zero.
fn part(x: i128, weight: i128) -> i128 {
    ((x.abs() * weight) >> 16) * x.signum()
}

impl Sums {
    fn scale(&mut self, high: i128, low: i128, weight: i128) -> (i128, i128) {
        let total = high + low;
        if self.level == 0 {
            self.level = total;
            return (0, 0);
        }
        let unit = self.level.max((total + 3) / 4);
        self.level = mean(self.level, total.min(8 * self.level), weight);
        (high * UNIT / unit, low * UNIT / unit)
    }

    fn share(&self) -> i128 {
        (self.diff.abs() << 20) / self.sum.max(1) * self.diff.signum()
    }

    fn add(&mut self, (high, low): (i128, i128), forget: i128, weight: i128) {
        let (high, low) = self.scale(high, low, weight);
        let (diff, sum) = (high - low, high + low);
        let less = |x: i128| x - (((x >> 8) * forget) >> 8);
        self.diff += diff - part(self.diff, forget);
        self.sum += sum - part(self.sum, forget);
        self.diff_square = less(less(self.diff_square)) + diff * diff;
        let off = off(diff, sum, self.share());
        self.noise = mean(self.noise, off * off, weight);
    }

    fn reach(&self, cfg: &Config) -> i128 {
        ((root(self.diff_square) + 1) * i128::from(cfg.z_pct) / 100).min(self.sum)
    }

    fn bounds(&self, cfg: &Config) -> [u32; 3] {
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
}

fn off(diff: i128, sum: i128, at: i128) -> i128 {
    diff - ((at.abs() * sum) >> 20) * at.signum()
}

impl Reference {
    pub fn new(cfg: Config, seed: u64) -> Self {
        let block_us = cfg.block_us.clamp(1_000, 10_000_000);
        let cfg = Config {
            aim_ppm: cfg.aim_ppm.clamp(1, 1_000_000),
            z_pct: cfg.z_pct.clamp(100, 1_000),
            block_us,
            guard_us: cfg.guard_us.min(block_us / 2),
            pairs_min: cfg.pairs_min.clamp(4, 1_000),
            half_us: cfg.half_us.max(1_000_000),
            probe_us: cfg.probe_us.max(10 * block_us),
            window_max_us: cfg.window_max_us.clamp(1, 10_000_000),
            ..cfg
        };
        let mut new = Self {
            cfg,
            random: (seed ^ 0x9e37_79b9_7f4a_7c15).max(1),
            learning: true,
            high: false,
            held_high: false,
            place: Place::First,
            guard: false,
            blocks: [Block::default(); 2],
            sums: [Sums::default(); 4],
            trend: 0,
            pairs: 0,
            look: 0,
            turns: 0,
            phase_us: 0,
            void_us: 0,
            used_us: 0,
            since_us: 0,
            age_us: 0,
            known: 0,
            watch: 0,
            why: Reason::TooLittle,
            verdict: Verdict::Unknown(Reason::TooLittle),
            wish: Wish::Hold,
            bounds: [0; 3],
            closed: false,
        };
        for _ in 0..16 {
            new.random();
        }
        new.restart();
        new
    }

    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    pub fn arm(&self) -> Arm {
        if self.high { Arm::High } else { Arm::Low }
    }

    pub fn restart(&mut self) {
        self.learn(Reason::TooLittle);
        self.bounds = [1_000_000, 0, 1_000_000_000];
    }

    fn learn(&mut self, why: Reason) {
        self.sums = [Sums::default(); 4];
        (self.learning, self.why) = (true, why);
        (self.pairs, self.turns, self.trend) = (0, 0, 0);
        self.look = i128::from(self.cfg.pairs_min);
        (self.phase_us, self.void_us, self.used_us, self.since_us) = (0, 0, 0, 0);
        self.verdict = Verdict::Unknown(why);
        self.wish = Wish::Hold;
        self.closed = false;
        self.begin_pair();
    }

    fn set(&mut self, high: bool) {
        self.guard = high != self.high;
        self.high = high;
        self.age_us = 0;
        self.blocks[usize::from(high)] = Block::default();
    }

    fn begin_pair(&mut self) {
        self.place = Place::First;
        let high = self.random() >> 63 == 1;
        self.set(high);
    }

    fn begin_gap(&mut self) {
        self.set(self.held_high);
        let probe = u64::from(self.cfg.probe_us);
        let gap = probe / 2 + (self.random() >> 32) % probe;
        self.place = Place::Gap(i128::from(gap));
    }

    fn next(&mut self) {
        if self.learning {
            self.begin_pair();
        } else {
            self.begin_gap();
        }
    }

    fn settle(&mut self, high: bool) {
        self.learning = false;
        self.phase_us = 0;
        self.held_high = high;
        self.watch = 0;
        let sums = &mut self.sums[if self.closed { 3 } else { 0 }];
        self.known = sums.share();
        sums.noise = sums.noise * 5 / 8;
        self.begin_gap();
    }

    fn judge(&mut self) {
        let [run, cpu, delay, stretch] = [0, 1, 2, 3].map(|n| self.sums[n].bounds(&self.cfg));
        let accepted = 1_000_000 + self.cfg.aim_ppm;
        let closed = cpu[2] < 1_000_000 && delay[1] > 1_000_000 && run[2] >= 1_000_000;
        let agree = closed || run[2] < 1_000_000 || stretch[2] < accepted;
        let bounds = if closed { stretch } else { run };
        let (found, within) = (bounds[1] > 1_000_000, bounds[2] < accepted);
        let early = self.pairs < i128::from(self.cfg.pairs_min);
        if self.pairs >= self.look {
            self.look *= 2;
        } else if found || !within || !agree || early {
            return;
        }
        (self.closed, self.bounds) = (closed, bounds);
        self.verdict = if found {
            Verdict::Found
        } else if within && !agree {
            Verdict::Unknown(Reason::Contradicting)
        } else if self.trend.abs() > self.sums[0].reach(&self.cfg) {
            Verdict::Unknown(Reason::Drift)
        } else {
            Verdict::Unknown(self.why)
        };
        if within && agree && self.turns >= i128::from(self.cfg.turns_min) {
            if !found {
                self.verdict = Verdict::None;
            }
            self.wish = Wish::Lower;
            self.settle(true);
        } else if found && self.bounds[1] > accepted {
            self.wish = Wish::Raise;
            self.settle(false);
        }
    }

    fn end_pair(&mut self) {
        let first_high = !self.high;
        let [lo, hi] = self.blocks;
        let rate = |ns: i128, us: i128| ns * 100 / (us / 10).max(1);
        let cpu = (rate(hi.cpu, hi.us), rate(lo.cpu, lo.us));
        let delay = (rate(hi.delay, hi.us), rate(lo.delay, lo.us));
        let run = (cpu.0 + delay.0, cpu.1 + delay.1);
        let of = |run: i128, cpu: i128| ((run << 16) / cpu.max(1)).min(1 << 37);
        let stretch = (of(run.0, cpu.0), of(run.1, cpu.1));
        let pair_us = std::mem::take(&mut self.since_us);
        if run == (0, 0) {
            return self.next();
        }
        if !self.learning {
            if matches!(self.verdict, Verdict::Unknown(_)) {
                return self.begin_gap();
            }
            return self.probe(if self.closed { stretch } else { run });
        }
        let forget = (pair_us * 45_426 / i128::from(self.cfg.half_us)).clamp(64, 32_768);
        self.turns += lo.turns + hi.turns;
        self.pairs = (self.pairs + 1).min(1 << 20);
        let weight = (65_536 / self.pairs).max(2_048);
        let before = self.sums[0].diff - part(self.sums[0].diff, forget);
        for (sums, pair) in self.sums.iter_mut().zip([run, cpu, delay, stretch]) {
            sums.add(pair, forget, weight);
        }
        let diff = self.sums[0].diff - before;
        self.trend += if first_high { -diff } else { diff } - part(self.trend, forget);
        self.judge();
        if self.learning {
            self.begin_pair();
        }
    }

    fn probe(&mut self, pair: (i128, i128)) {
        let sums = &mut self.sums[if self.closed { 3 } else { 0 }];
        let most = 3 * (root(sums.noise) + 1);
        let (high, low) = sums.scale(pair.0, pair.1, 2_048);
        let off = off(high - low, high + low, self.known).clamp(-most, most);
        self.watch += off - part(self.watch, 10_427);
        sums.noise = mean(sums.noise, off * off, 2_048);
        let bound = (root(sums.noise * 7 / 2) + 1) * i128::from(self.cfg.suspect_pct);
        if self.watch.abs() * 100 > bound {
            self.learn(Reason::Drift);
        } else {
            self.begin_gap();
        }
    }

    fn collect(&mut self, w: &Window, us: i128) {
        if self.guard {
            self.guard = self.age_us < i128::from(self.cfg.guard_us);
            return;
        }
        let block = &mut self.blocks[usize::from(self.high)];
        block.us += us;
        block.cpu += i128::from(w.cpu_ns);
        block.delay += i128::from(w.delay_ns);
        block.turns += i128::from(w.turns.min(1 << 32));
        self.used_us += us;
    }

    pub fn step(&mut self, w: &Window, valid: bool) {
        let mut us = i128::from(w.length_ns / 1_000);
        if us > i128::from(self.cfg.window_max_us) {
            us = 0;
        }
        self.phase_us += us;
        self.since_us += us;
        self.age_us += us;
        let sane = w.cpu_ns / 8_192 <= w.length_ns && w.delay_ns / 131_072 <= w.length_ns;
        if valid && sane && us > 0 {
            if !matches!(self.place, Place::Gap(_)) {
                self.collect(w, us);
            }
        } else {
            self.void_us += us;
        }
        match self.place {
            Place::Gap(left) if left > us => self.place = Place::Gap(left - us),
            Place::Gap(_) => self.begin_pair(),
            _ => self.block_age(),
        }
        self.phase_age();
    }

    fn block_age(&mut self) {
        let long = !self.learning && self.high == self.held_high;
        let full = i128::from(self.cfg.block_us) * if long { 4 } else { 1 };
        let used = self.blocks[usize::from(self.high)].us;
        if self.age_us >= full && used >= full / 2 {
            if self.place == Place::Second {
                self.end_pair();
            } else {
                self.place = Place::Second;
                self.set(!self.high);
            }
        } else if self.age_us >= 4 * full + 2 * i128::from(self.cfg.window_max_us) {
            self.next();
        }
    }

    fn phase_age(&mut self) {
        let knows = !matches!(self.verdict, Verdict::Unknown(_));
        let learn_us = i128::from(self.cfg.learn_us);
        if self.learning {
            if !knows && self.void_us > self.used_us {
                self.verdict = Verdict::Unknown(Reason::Void);
            }
            if self.phase_us >= learn_us {
                self.settle(knows && self.bounds[0] <= 1_000_000 + self.cfg.aim_ppm);
            }
        } else if !knows && self.phase_us >= i128::from(self.cfg.retry_us) {
            self.learn(Reason::TooLittle);
        } else if knows && self.since_us >= learn_us + 2 * i128::from(self.cfg.probe_us) {
            self.learn(Reason::Void);
        }
    }
}
