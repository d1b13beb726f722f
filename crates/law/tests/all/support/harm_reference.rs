//! The measurement of harm as its page tells it, in 128-bit integers, pair by pair; no clamp that only guards a machine word.

use super::harm_sums::{ONE, Sums, UNIT, mean, off, part, root};
use tidegate_law::harm::{Arm, Config, Reason, Verdict, Window, Wish};

#[derive(Clone, Copy, Debug, Default)]
struct Block {
    us: i128,
    cpu: i128,
    delay: i128,
    turns: i128,
    late: i128,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Gap(i128),
    First,
    Second,
}

/// What the time that work takes tells, and the tail.
struct Told {
    bounds: [u32; 3],
    tail: [i32; 3],
    stretch: u32,
    closed: bool,
    agree: bool,
    found: [bool; 2],
    above: [bool; 2],
    within: [bool; 2],
}

#[derive(Clone, Debug)]
pub struct Reference {
    cfg: Config,
    random: u64,
    learning: bool,
    high: bool,
    pub held_high: bool,
    place: Place,
    guard: bool,
    blocks: [Block; 2],
    sums: [Sums; 5],
    trend: i128,
    pairs: i128,
    look: i128,
    turns: i128,
    phase_us: i128,
    void_us: i128,
    used_us: i128,
    since_us: i128,
    age_us: i128,
    known: [i128; 2],
    watch: [i128; 2],
    why: Reason,
    pub verdict: Verdict,
    pub wish: Wish,
    pub bounds: [u32; 3],
    pub closed: bool,
    pub tail: [i32; 3],
    pub by_tail: bool,
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
            tail_ppm: cfg.tail_ppm.min(1_000_000),
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
            sums: [Sums::default(); 5],
            trend: 0,
            pairs: 0,
            look: 0,
            turns: 0,
            phase_us: 0,
            void_us: 0,
            used_us: 0,
            since_us: 0,
            age_us: 0,
            known: [0; 2],
            watch: [0; 2],
            why: Reason::TooLittle,
            verdict: Verdict::Unknown(Reason::TooLittle),
            wish: Wish::Hold,
            bounds: [0; 3],
            closed: false,
            tail: [0; 3],
            by_tail: false,
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
        self.tail = [0, -1_000_000, 1_000_000];
    }

    fn learn(&mut self, why: Reason) {
        self.sums = [Sums::default(); 5];
        (self.learning, self.why) = (true, why);
        (self.pairs, self.turns, self.trend) = (0, 0, 0);
        self.look = i128::from(self.cfg.pairs_min);
        (self.phase_us, self.void_us, self.used_us, self.since_us) = (0, 0, 0, 0);
        self.verdict = Verdict::Unknown(why);
        self.wish = Wish::Hold;
        (self.closed, self.by_tail) = (false, false);
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
        self.watch = [0; 2];
        for tail in [0, 1] {
            let sums = &mut self.sums[Self::told(tail, self.closed)];
            self.known[tail] = sums.share();
            sums.noise = sums.noise * 5 / 8;
        }
        self.begin_gap();
    }

    fn told(tail: usize, closed: bool) -> usize {
        match (tail, closed) {
            (1, _) => 4,
            (_, true) => 3,
            (_, false) => 0,
        }
    }

    fn weigh(&self) -> Told {
        let [run, cpu, delay, stretch] = [0, 1, 2, 3].map(|n| self.sums[n].bounds(&self.cfg));
        let accepted = 1_000_000 + self.cfg.aim_ppm;
        let closed = cpu[2] < 1_000_000 && delay[1] > 1_000_000 && run[2] >= 1_000_000;
        let agree = closed || run[2] < 1_000_000 || stretch[2] < accepted;
        let bounds = if closed { stretch } else { run };
        let (tail, most) = (self.sums[4].shares(&self.cfg), self.cfg.tail_ppm as i32);
        let counts = most > 0;
        Told {
            bounds,
            tail,
            stretch: stretch[0],
            closed,
            agree,
            found: [bounds[1] > 1_000_000, counts && tail[1] > most / 2],
            above: [bounds[1] > accepted, counts && tail[1] > most],
            within: [bounds[2] < accepted, !counts || tail[2] < most],
        }
    }

    fn tell(&mut self, told: &Told) {
        let ([time_found, tail_found], [time_above, tail_above]) = (told.found, told.above);
        (self.closed, self.bounds, self.tail) = (told.closed, told.bounds, told.tail);
        self.by_tail = match tail_above {
            true => !time_above,
            false => tail_found && !time_found,
        };
        self.verdict = if time_found || tail_found {
            Verdict::Found
        } else if told.within[0] && !told.agree {
            Verdict::Unknown(Reason::Contradicting)
        } else if self.trend.abs() > self.sums[0].reach(&self.cfg) {
            Verdict::Unknown(Reason::Drift)
        } else {
            Verdict::Unknown(self.why)
        };
    }

    fn accept(&mut self) {
        if self.verdict != Verdict::Found {
            self.verdict = Verdict::None;
        }
        self.wish = Wish::Lower;
        self.settle(true);
    }

    fn fits(&self, tail: [i32; 3]) -> bool {
        self.cfg.tail_ppm == 0 || tail[0] <= self.cfg.tail_ppm as i32
    }

    fn end_learning(&mut self) {
        let told = self.weigh();
        if self.pairs < i128::from(self.cfg.pairs_min) {
            return self.settle(false);
        }
        self.tell(&told);
        let fits = told.bounds[0] <= 1_000_000 + self.cfg.aim_ppm && self.fits(told.tail);
        let found = self.verdict == Verdict::Found;
        let enough = self.turns >= i128::from(self.cfg.turns_min);
        if fits && told.within[0] && told.agree && !found && enough {
            return self.accept();
        }
        if told.above != [false, false] {
            self.wish = Wish::Raise;
            return self.settle(false);
        }
        self.settle(if found {
            fits
        } else {
            enough && self.would_show(&told)
        });
    }

    fn would_show(&self, told: &Told) -> bool {
        let accepted = 1_000_000 + self.cfg.aim_ppm;
        let agree = told.closed || told.bounds[0] > accepted || told.stretch <= accepted;
        let reach = u64::from(told.bounds[2] - told.bounds[0]) * 100;
        agree
            && self.used_us >= self.void_us
            && reach <= u64::from(self.cfg.aim_ppm) * u64::from(self.cfg.z_pct)
            && self.trend.abs() <= self.sums[0].reach(&self.cfg)
    }

    fn judge(&mut self) {
        let told = self.weigh();
        let within = told.within == [true, true] && told.agree;
        let found = told.found != [false, false];
        let early = self.pairs < i128::from(self.cfg.pairs_min);
        if self.pairs >= self.look {
            self.look *= 2;
        } else if found || !within || early {
            return;
        }
        self.tell(&told);
        if within && self.turns >= i128::from(self.cfg.turns_min) {
            self.accept();
        } else if told.above != [false, false] {
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
        let tail = self.tail_pair().filter(|_| self.cfg.tail_ppm > 0);
        let pair_us = std::mem::take(&mut self.since_us);
        if run == (0, 0) {
            return self.next();
        }
        if !self.learning {
            if matches!(self.verdict, Verdict::Unknown(_)) && !self.held_high {
                return self.begin_gap();
            }
            let off = self.is_off(0, if self.closed { stretch } else { run });
            let off = tail.is_some_and(|pair| self.is_off(1, pair)) | off;
            match off {
                true => self.learn(Reason::Drift),
                false => self.begin_gap(),
            }
            return;
        }
        let forget = (pair_us * 45_426 / i128::from(self.cfg.half_us)).clamp(64, 32_768);
        self.turns += lo.turns + hi.turns;
        self.pairs = (self.pairs + 1).min(1 << 20);
        let weight = (65_536 / self.pairs).max(2_048);
        let before = self.sums[0].diff - part(self.sums[0].diff, forget);
        for (sums, pair) in self.sums.iter_mut().zip([run, cpu, delay, stretch]) {
            sums.add(pair, forget, weight);
        }
        if let Some(pair) = tail {
            self.sums[4].add(pair, forget, weight);
        }
        let diff = self.sums[0].diff - before;
        self.trend += if first_high { -diff } else { diff } - part(self.trend, forget);
        self.judge();
        if self.learning {
            self.begin_pair();
        }
    }

    /// Turns, and half of the difference in the share of late ones on either side.
    fn tail_pair(&self) -> Option<(i128, i128)> {
        let [lo, hi] = self.blocks;
        if lo.turns == 0 || hi.turns == 0 {
            return None;
        }
        let share = |block: Block| (block.late << 20) / block.turns;
        let weight = (lo.turns + hi.turns).min(1 << 26);
        let off = share(hi) - share(lo);
        let half = ((weight * off.abs()) >> 11) * off.signum();
        Some(((weight << 10) + half, (weight << 10) - half))
    }

    fn is_off(&mut self, tail: usize, pair: (i128, i128)) -> bool {
        let least = i128::from(self.cfg.tail_ppm) * (UNIT / 4) / ONE * tail as i128;
        let sums = &mut self.sums[Self::told(tail, self.closed)];
        let most = 3 * (root(sums.noise.max(least * least)) + 1);
        let (high, low) = sums.scale(pair.0, pair.1, 2_048);
        let off = off(high - low, high + low, self.known[tail]).clamp(-most, most);
        let watch = &mut self.watch[tail];
        *watch += off - part(*watch, 10_427);
        sums.noise = mean(sums.noise, off * off, 2_048);
        let noise = sums.noise.max(least * least);
        let bound = (root(noise * 7 / 2) + 1) * i128::from(self.cfg.suspect_pct);
        watch.abs() * 100 * 3 > bound * (3 + tail as i128)
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
        block.late += i128::from(w.late.min(w.turns).min(1 << 32));
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
            if self.phase_us >= learn_us {
                self.end_learning();
            }
            let knows = !matches!(self.verdict, Verdict::Unknown(_));
            if !knows && self.void_us > self.used_us {
                self.verdict = Verdict::Unknown(Reason::Void);
            }
        } else if !knows && self.phase_us >= i128::from(self.cfg.retry_us) {
            self.learn(Reason::TooLittle);
        } else if knows && self.since_us >= learn_us + 2 * i128::from(self.cfg.probe_us) {
            self.learn(Reason::Void);
        }
    }
}
