//! What side work costs main: a randomised experiment and its analysis, without a clock or a file.
//!
//! Time is cut into blocks of half a second. A random order decides which level of side work is in
//! force in each, so that every level meets the same arrivals. Compared is main's mean number of
//! runnable tasks, R = (CPU time + run delay) / time, which is arrivals times the time that a piece
//! of work takes (Little, 1961). `docs/decisions/measuring-harm.md` has the reasons, the traps and
//! the coverage of the intervals.
//!
//! - **Levels** of headroom: a round has one block for each level and one for the reference, side
//!   work at its tolerance. A level is compared with the reference of its own round.
//! - **Gates**: a round has two blocks. A coin for each gate decides whether it is free in the
//!   first or in the second; in the other it is held at the tolerance.

use tidegate_api::{EffectView, IntervalView};

use crate::sense::{WAIT_BUCKETS, Waits};

pub const BLOCK_NS: u64 = 500_000_000;
/// This time after a switch belongs to no block: work is carried over, and the kernel owes side
/// work that was throttled its share.
const GUARD_NS: u64 = 150_000_000;
/// A measurement whose client was silent for this long ends: the length of the agent's lease.
const PATIENCE_NS: u64 = 2_000_000_000;
/// Headroom of the reference: side work has its tolerance.
const ALL_PPM: u32 = 1_000_000;
/// Fewer rounds than this have no interval.
pub const ROUNDS_MIN: usize = 4;
/// The normal quantile of 98.75 %: two statistics are looked at, and either bound of either may be
/// wrong.
const Z: f64 = 2.241_403;
/// A slowdown is known well enough with half an interval of at most this.
const WANTED_HALF: f64 = 0.03;
/// The same of the share of late runs.
const WANTED_LATE_HALF: f64 = 0.0075;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Switched {
    /// Levels of headroom, ppm of the machine.
    Levels(Vec<u32>),
    /// So many gates, at this headroom.
    Gates { count: usize, headroom_ppm: u32 },
}

impl Switched {
    fn blocks_per_round(&self) -> usize {
        match self {
            Switched::Levels(levels_ppm) => levels_ppm.len() + 1,
            Switched::Gates { .. } => 2,
        }
    }

    fn rounds_min(&self) -> usize {
        match self {
            Switched::Levels(_) => ROUNDS_MIN,
            Switched::Gates { count, .. } => ROUNDS_MIN + count,
        }
    }

    /// The shortest measurement that has an interval.
    pub fn length_min_ns(&self) -> u64 {
        (self.rounds_min() * self.blocks_per_round()) as u64 * BLOCK_NS
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Running,
    Done,
    /// Ended early, for this reason.
    Ended(String),
}

/// What main and side work did between two steps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Window {
    pub wall_ns: u64,
    pub main_ns: u64,
    pub side_ns: u64,
    pub behind_side_ns: u64,
    pub waits: Waits,
    /// The level was in force, by a sample that can be true.
    pub is_usable: bool,
}

/// The usable part of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// The level, 0 for the reference; the gates that were free, a bit each.
    arm: u32,
    used_ns: u64,
    cpu_ns: u64,
    delay_ns: u64,
    side_ns: u64,
    behind_side_ns: u64,
    runs: u64,
    /// Main's waits by length, of the whole block.
    waits: [u32; WAIT_BUCKETS],
}

impl Block {
    fn add(&mut self, window: &Window) {
        self.used_ns += window.wall_ns;
        self.cpu_ns += window.main_ns;
        self.side_ns += window.side_ns;
        self.behind_side_ns += window.behind_side_ns;
        self.delay_ns += window.waits.wait_ns;
        self.runs += window.waits.runs;
    }

    fn rate(&self, part_ns: u64) -> f64 {
        part_ns as f64 / self.used_ns.max(1) as f64
    }

    fn cpu(&self) -> f64 {
        self.rate(self.cpu_ns)
    }

    /// The mean number of main's runnable tasks.
    fn runnable(&self) -> f64 {
        self.rate(self.cpu_ns + self.delay_ns)
    }

    fn waits_all(&self) -> f64 {
        self.waits.iter().map(|count| f64::from(*count)).sum()
    }

    /// How many of the waits were longer than this: whole buckets, and a part of the one that it
    /// falls into.
    fn waits_above(&self, ns: f64) -> f64 {
        let mut begin_ns = 0.0;
        let mut above = 0.0;
        for (at, count) in self.waits.iter().enumerate() {
            let end_ns = (1024_u64 << at) as f64;
            above += f64::from(*count) * ((end_ns - ns) / (end_ns - begin_ns)).clamp(0.0, 1.0);
            begin_ns = end_ns;
        }
        above
    }
}

/// Which level is in force, and what was seen under each.
#[derive(Clone, Debug)]
pub struct Experiment {
    switched: Switched,
    rounds_planned: usize,
    /// When its client last gave a sign of life.
    heard_ns: u64,
    random: u64,
    state: State,
    /// The arms of the round in their order, and which of them is in force.
    order: Vec<u32>,
    place: usize,
    /// None before the first step.
    block_began_ns: Option<u64>,
    /// The waits at the end of the guard; none within it.
    waits_before: Option<[u64; WAIT_BUCKETS]>,
    open: Block,
    /// Every round's blocks, one place for each level; nothing is used of a void one.
    blocks: Vec<Block>,
    rounds: usize,
}

impl Experiment {
    /// Allocates everything that it will need. `seed` decides the order of the levels.
    pub fn new(switched: Switched, length_ns: u64, seed: u64, now_ns: u64) -> Self {
        let per_round = switched.blocks_per_round();
        let round_ns = per_round as u64 * BLOCK_NS;
        let rounds_planned = usize::try_from(length_ns.div_ceil(round_ns)).unwrap_or(usize::MAX);
        let rounds_planned = rounds_planned.max(switched.rounds_min());
        let mut experiment = Self {
            order: vec![0; per_round],
            blocks: vec![Block::default(); rounds_planned * per_round],
            switched,
            rounds_planned,
            heard_ns: now_ns,
            random: seed,
            state: State::Running,
            place: 0,
            block_began_ns: None,
            waits_before: None,
            open: Block::default(),
            rounds: 0,
        };
        experiment.shuffle();
        experiment
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    pub fn is_running(&self) -> bool {
        self.state == State::Running
    }

    pub fn switched(&self) -> &Switched {
        &self.switched
    }

    /// The headroom that is in force now.
    pub fn headroom_ppm(&self) -> u32 {
        match &self.switched {
            Switched::Levels(levels_ppm) => match self.arm() {
                0 => ALL_PPM,
                level => levels_ppm[level as usize - 1],
            },
            Switched::Gates { headroom_ppm, .. } => *headroom_ppm,
        }
    }

    /// Whether side work is held at its tolerance as a whole.
    pub fn is_reference(&self) -> bool {
        matches!(self.switched, Switched::Levels(_)) && self.arm() == 0
    }

    /// Whether this gate is held at the tolerance now, where gates are switched.
    pub fn holds(&self, gate: usize) -> bool {
        matches!(self.switched, Switched::Gates { .. }) && self.arm() & 1 << gate == 0
    }

    pub fn length_ns(&self) -> u64 {
        (self.rounds_planned * self.order.len()) as u64 * BLOCK_NS
    }

    /// By blocks: what is over of the one in force does not count.
    pub fn elapsed_ns(&self) -> u64 {
        (self.rounds * self.order.len() + self.place) as u64 * BLOCK_NS
    }

    pub fn heard(&mut self, now_ns: u64) {
        self.heard_ns = now_ns;
    }

    pub fn end(&mut self, why: &str) {
        if self.is_running() {
            self.state = State::Ended(why.to_owned());
        }
    }

    fn arm(&self) -> u32 {
        self.order[self.place]
    }

    /// SplitMix64 (Steele, Lea and Flood, 2014).
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ self.random >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// The order of the next round.
    fn shuffle(&mut self) {
        if let Switched::Gates { count, .. } = self.switched {
            let all = u32::MAX >> (32 - count.clamp(1, 32));
            let free = (self.next_random() >> 32) as u32 & all;
            self.order[0] = free;
            self.order[1] = !free & all;
            return;
        }
        for at in 0..self.order.len() {
            self.order[at] = at as u32;
        }
        for last in (1..self.order.len()).rev() {
            let other = self.next_random() % (last as u64 + 1);
            self.order.swap(last, other as usize);
        }
    }

    /// One window in; whether another level is in force from now on. `waits` are main's since the
    /// sensor was opened, by length.
    pub fn step(
        &mut self,
        now_ns: u64,
        window: &Window,
        waits: impl FnOnce() -> [u64; WAIT_BUCKETS],
    ) -> bool {
        if !self.is_running() {
            return false;
        }
        if now_ns.saturating_sub(self.heard_ns) > PATIENCE_NS {
            self.end("its client gave no sign of life for 2 s");
            return true;
        }
        let Some(block_began_ns) = self.block_began_ns else {
            self.block_began_ns = Some(now_ns);
            return true;
        };
        let age_ns = now_ns.saturating_sub(block_began_ns);
        let Some(before) = &self.waits_before else {
            if age_ns >= GUARD_NS {
                self.waits_before = Some(waits());
            }
            return false;
        };
        if window.is_usable {
            self.open.add(window);
        }
        if age_ns < BLOCK_NS {
            return false;
        }
        for (at, count) in waits().iter().enumerate() {
            let since = count.saturating_sub(before[at]);
            self.open.waits[at] = u32::try_from(since).unwrap_or(u32::MAX);
        }
        self.close(now_ns);
        true
    }

    /// The block is over: the next one begins.
    fn close(&mut self, now_ns: u64) {
        let arm = self.arm();
        let mut block = std::mem::take(&mut self.open);
        block.arm = arm;
        if block.used_ns < (BLOCK_NS - GUARD_NS) / 2 {
            block = Block::default();
        }
        let at = match self.switched {
            Switched::Levels(_) => arm as usize,
            Switched::Gates { .. } => self.place,
        };
        self.blocks[self.rounds * self.order.len() + at] = block;
        self.waits_before = None;
        self.block_began_ns = Some(now_ns);
        self.place += 1;
        if self.place == self.order.len() {
            self.place = 0;
            self.rounds += 1;
            if self.rounds == self.rounds_planned {
                self.state = State::Done;
                return;
            }
            self.shuffle();
        }
    }

    /// What was seen so far, for [`Data::findings`] without the experiment.
    pub fn data(&self) -> Data {
        Data {
            switched: self.switched.clone(),
            blocks: self.blocks[..self.rounds * self.order.len()].to_vec(),
        }
    }
}

/// What a measurement saw in the rounds that are over.
#[derive(Clone, Debug)]
pub struct Data {
    switched: Switched,
    blocks: Vec<Block>,
}

fn around(estimate: f64, reach: f64) -> IntervalView {
    IntervalView {
        estimate,
        lower: estimate - reach,
        upper: estimate + reach,
    }
}

fn half(interval: &IntervalView) -> f64 {
    (interval.upper - interval.lower) / 2.0
}

/// The ratio less 1 of an interval of logarithms.
fn ratio_less_one(logs: &IntervalView) -> IntervalView {
    IntervalView {
        estimate: logs.estimate.exp_m1(),
        lower: logs.lower.exp_m1(),
        upper: logs.upper.exp_m1(),
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// A run is late if it waited for longer than main's mean run takes.
    pub late_after_ns: f64,
    /// Main's CPU time in all blocks.
    pub main_cpus: f64,
    /// What side work used at the reference.
    pub reference_side_cpus: f64,
    /// For each level or gate, in order; none where there are too few rounds.
    pub effects: Vec<Option<EffectView>>,
}

impl Findings {
    /// How many times as long a measurement had to be for intervals of ±3 %, and of ±0.75 % for the
    /// share of late runs; none where they are narrow enough.
    pub fn times_longer(&self) -> Option<f64> {
        let too_wide = |effect: &EffectView| {
            let slowdown = half(&effect.slowdown_ratio) / WANTED_HALF;
            slowdown.max(half(&effect.late_ratio) / WANTED_LATE_HALF)
        };
        let widest = self.effects.iter().flatten().map(too_wide);
        let widest = widest.fold(0.0, f64::max);
        (widest > 1.0).then(|| widest.powi(2))
    }
}

impl Data {
    pub fn rounds(&self) -> usize {
        self.blocks.len() / self.switched.blocks_per_round()
    }

    pub fn findings(&self) -> Findings {
        let used = || self.blocks.iter().filter(|block| block.used_ns > 0);
        let is_reference = |block: &&Block| match self.switched {
            Switched::Levels(_) => block.arm == 0,
            Switched::Gates { .. } => true,
        };
        let reference = Sum::of(used().filter(is_reference));
        let all = Sum::of(used());
        let late_after_ns = reference.cpu_ns / reference.runs.max(1.0);
        Findings {
            late_after_ns,
            main_cpus: all.cpu_ns / all.used_ns.max(1.0),
            reference_side_cpus: match self.switched {
                Switched::Levels(_) => reference.side_ns / reference.used_ns.max(1.0),
                Switched::Gates { .. } => 0.0,
            },
            effects: match &self.switched {
                Switched::Levels(levels_ppm) => (1..=levels_ppm.len())
                    .map(|level| self.of_level(level, late_after_ns))
                    .collect(),
                Switched::Gates { count, .. } => self.of_gates(*count, late_after_ns),
            },
        }
    }

    fn of_level(&self, level: usize, late_after_ns: f64) -> Option<EffectView> {
        let rounds = self.blocks.chunks_exact(self.switched.blocks_per_round());
        let pairs: Vec<(&Block, &Block)> = rounds
            .map(|round| (&round[level], &round[0]))
            .filter(|(high, low)| high.used_ns > 0 && low.used_ns > 0)
            .collect();
        let of = |value: fn(&Block) -> f64| -> [Vec<f64>; 2] {
            [
                pairs.iter().map(|(high, _)| value(high)).collect(),
                pairs.iter().map(|(_, low)| value(low)).collect(),
            ]
        };
        let [run_high, run_low] = of(Block::runnable);
        let [cpu_high, cpu_low] = of(Block::cpu);
        let runnable = log_ratio(&[(1.0, &run_high), (-1.0, &run_low)])?;
        let cpu = log_ratio(&[(1.0, &cpu_high), (-1.0, &cpu_low)])?;
        let stretch = log_ratio(&[
            (1.0, &run_high),
            (-1.0, &cpu_high),
            (-1.0, &run_low),
            (1.0, &cpu_low),
        ])?;
        let freedom = pairs.len() - 1;
        let side = Sum::of(pairs.iter().map(|(high, _)| *high));
        Some(EffectView {
            rounds: pairs.len() as u64,
            slowdown_ratio: slowdown(runnable, stretch, cpu, freedom),
            late_ratio: late_difference(&pairs, late_after_ns),
            side_cpus: side.side_ns / side.used_ns.max(1.0),
            behind_side_ratio: Some(side.behind_side_ns / side.used_ns.max(1.0)),
            main_cpu_ratio: cpu.log.exp(),
        })
    }

    /// A linear model of each pair's difference: gates that differ between its blocks add up.
    fn of_gates(&self, count: usize, late_after_ns: f64) -> Vec<Option<EffectView>> {
        let pairs = self.blocks.chunks_exact(2);
        let pairs: Vec<&[Block]> = pairs
            .filter(|pair| pair.iter().all(|block| block.cpu_ns > 0))
            .collect();
        if pairs.len() < ROUNDS_MIN + count {
            return vec![None; count];
        }
        let signs: Vec<Vec<f64>> = pairs
            .iter()
            .map(|pair| {
                let sign = |gate| {
                    if pair[0].arm >> gate & 1 == 1 {
                        1.0
                    } else {
                        -1.0
                    }
                };
                (0..count).map(sign).collect()
            })
            .collect();
        let fit = |value: &dyn Fn(&Block) -> f64| {
            let values: Vec<[f64; 2]> = pairs
                .iter()
                .map(|pair| [value(&pair[0]), value(&pair[1])])
                .collect();
            fit_gates(&signs, &values)
        };
        let late_share =
            |block: &Block| block.waits_above(late_after_ns) / block.waits_all().max(1.0);
        let fits = (
            fit(&Block::runnable),
            fit(&Block::cpu),
            fit(&|block| block.runnable() / block.cpu()),
            fit(&late_share),
            fit(&|block| block.rate(block.side_ns)),
        );
        let (Some(runnable), Some(cpu), Some(stretch), Some(late), Some(side)) = fits else {
            return vec![None; count];
        };
        let freedom = pairs.len() - count;
        let reach = t_quantile(Z, freedom);
        let effect = |gate: usize| {
            Some(EffectView {
                rounds: pairs.len() as u64,
                slowdown_ratio: slowdown(
                    runnable.log_of(gate)?,
                    stretch.log_of(gate)?,
                    cpu.log_of(gate)?,
                    freedom,
                ),
                late_ratio: around(late.effects[gate], reach * late.errors[gate]),
                side_cpus: side.effects[gate],
                behind_side_ratio: None,
                main_cpu_ratio: cpu.log_of(gate)?.log.exp(),
            })
        };
        (0..count).map(effect).collect()
    }
}

#[derive(Default)]
struct Sum {
    used_ns: f64,
    cpu_ns: f64,
    side_ns: f64,
    behind_side_ns: f64,
    runs: f64,
}

impl Sum {
    fn of<'a>(blocks: impl Iterator<Item = &'a Block>) -> Self {
        blocks.fold(Self::default(), |sum, block| Self {
            used_ns: sum.used_ns + block.used_ns as f64,
            cpu_ns: sum.cpu_ns + block.cpu_ns as f64,
            side_ns: sum.side_ns + block.side_ns as f64,
            behind_side_ns: sum.behind_side_ns + block.behind_side_ns as f64,
            runs: sum.runs + block.runs as f64,
        })
    }
}

/// The logarithm of a ratio, with its standard error.
#[derive(Clone, Copy, Debug)]
struct LogRatio {
    log: f64,
    error: f64,
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The sum of the logarithms of means, each with a sign; the error follows from what each round
/// adds to it (the delta method).
fn log_ratio(terms: &[(f64, &Vec<f64>)]) -> Option<LogRatio> {
    let count = terms.first()?.1.len();
    let means: Vec<f64> = terms.iter().map(|(_, values)| mean(values)).collect();
    if count < ROUNDS_MIN || means.iter().any(|mean| *mean <= 0.0) {
        return None;
    }
    let log = terms
        .iter()
        .zip(&means)
        .map(|((sign, _), mean)| sign * mean.ln());
    let adds = |round: usize| -> f64 {
        let parts = terms.iter().zip(&means);
        parts
            .map(|((sign, values), mean)| sign * values[round] / mean)
            .sum()
    };
    let squares: f64 = (0..count).map(|round| adds(round).powi(2)).sum();
    let count = count as f64;
    Some(LogRatio {
        log: log.sum(),
        error: (squares / (count * (count - 1.0))).sqrt(),
    })
}

/// A piece of work takes at least R's ratio longer, since callers that wait send no more than
/// others, and at least the stretch's (R over CPU time), since side work makes no CPU faster. An
/// open main is R's; one with a fixed set of callers, whose arrivals fall as it slows down, is the
/// stretch's. So it is the larger of both, unless main surely got faster.
fn slowdown(runnable: LogRatio, stretch: LogRatio, cpu: LogRatio, freedom: usize) -> IntervalView {
    let reach = t_quantile(Z, freedom);
    let of = |ratio: LogRatio| around(ratio.log, reach * ratio.error);
    let (of_runnable, of_stretch, of_cpu) = (of(runnable), of(stretch), of(cpu));
    if of_runnable.upper < 0.0 {
        return ratio_less_one(&of_runnable);
    }
    let estimate = match of_cpu.lower <= 0.0 && of_cpu.upper >= 0.0 {
        // Both say the same: their mean, each by its certainty.
        true => {
            let weights = [runnable, stretch].map(|ratio| 1.0 / ratio.error.powi(2).max(1e-12));
            (weights[0] * runnable.log + weights[1] * stretch.log) / (weights[0] + weights[1])
        }
        false => runnable.log.max(stretch.log),
    };
    ratio_less_one(&IntervalView {
        estimate,
        lower: of_runnable.lower.max(of_stretch.lower),
        upper: of_runnable.upper.max(of_stretch.upper),
    })
}

/// By how much the share of late runs is larger at the level than at the reference.
fn late_difference(pairs: &[(&Block, &Block)], late_after_ns: f64) -> IntervalView {
    let counts = |block: &Block| [block.waits_above(late_after_ns), block.waits_all()];
    let counts: Vec<[[f64; 2]; 2]> = pairs
        .iter()
        .map(|(high, low)| [counts(high), counts(low)])
        .collect();
    let total = |side: usize, of: usize| counts.iter().map(|pair| pair[side][of]).sum::<f64>();
    let count = counts.len() as f64;
    let all = [0, 1].map(|side| (total(side, 1) / count).max(f64::MIN_POSITIVE));
    let shares = [0, 1].map(|side| total(side, 0) / total(side, 1).max(1.0));
    let adds = |pair: &[[f64; 2]; 2]| {
        let off = |side: usize| (pair[side][0] - shares[side] * pair[side][1]) / all[side];
        off(0) - off(1)
    };
    let squares: f64 = counts.iter().map(|pair| adds(pair).powi(2)).sum();
    let error = (squares / (count * (count - 1.0))).sqrt();
    let reach = t_quantile(Z, counts.len() - 1);
    around(shares[0] - shares[1], reach * error)
}

/// What each gate adds to a figure while it is free, and the figure while all are held.
struct GateFit {
    held: f64,
    effects: Vec<f64>,
    errors: Vec<f64>,
}

impl GateFit {
    fn log_of(&self, gate: usize) -> Option<LogRatio> {
        let ratio = 1.0 + self.effects[gate] / self.held;
        (self.held > 0.0 && ratio > 0.0).then(|| LogRatio {
            log: ratio.ln(),
            error: self.errors[gate] / self.held / ratio,
        })
    }
}

/// Least squares over the pairs' differences, with errors that hold whatever the pairs' variances
/// (HC3; MacKinnon and White, 1985).
fn fit_gates(signs: &[Vec<f64>], values: &[[f64; 2]]) -> Option<GateFit> {
    let count = signs.first()?.len();
    let mut cross = vec![vec![0.0; count]; count];
    let mut against = vec![0.0; count];
    for (signs, [first, second]) in signs.iter().zip(values) {
        for row in 0..count {
            against[row] += signs[row] * (first - second);
            for column in 0..count {
                cross[row][column] += signs[row] * signs[column];
            }
        }
    }
    let inverse = inverse(cross)?;
    let times = |vector: &[f64]| -> Vec<f64> {
        let row = |row: &Vec<f64>| row.iter().zip(vector).map(|(a, b)| a * b).sum();
        inverse.iter().map(row).collect()
    };
    let effects = times(&against);
    let mut squares = vec![0.0; count];
    for (signs, [first, second]) in signs.iter().zip(values) {
        let weighed = times(signs);
        let dot = |other: &[f64]| signs.iter().zip(other).map(|(a, b)| a * b).sum::<f64>();
        let off = (first - second - dot(&effects)) / (1.0 - dot(&weighed)).max(1e-9);
        for (square, weight) in squares.iter_mut().zip(&weighed) {
            *square += (weight * off).powi(2);
        }
    }
    let middle: Vec<f64> = values
        .iter()
        .map(|pair| (pair[0] + pair[1]) / 2.0)
        .collect();
    Some(GateFit {
        held: mean(&middle) - effects.iter().sum::<f64>() / 2.0,
        errors: squares.into_iter().map(f64::sqrt).collect(),
        effects,
    })
}

/// Gauss and Jordan, with pivots; none where two gates were always switched together.
fn inverse(mut matrix: Vec<Vec<f64>>) -> Option<Vec<Vec<f64>>> {
    let count = matrix.len();
    for (at, row) in matrix.iter_mut().enumerate() {
        row.extend((0..count).map(|column| f64::from(u8::from(column == at))));
    }
    for at in 0..count {
        let size = |row: &usize| matrix[*row][at].abs();
        let pivot = (at..count).max_by(|a, b| size(a).total_cmp(&size(b)))?;
        if size(&pivot) < 1e-9 {
            return None;
        }
        matrix.swap(at, pivot);
        let lead = matrix[at][at];
        matrix[at].iter_mut().for_each(|value| *value /= lead);
        let chosen = matrix[at].clone();
        for row in (0..count).filter(|row| *row != at) {
            let factor = matrix[row][at];
            for (value, chosen) in matrix[row].iter_mut().zip(&chosen) {
                *value -= factor * chosen;
            }
        }
    }
    Some(
        matrix
            .into_iter()
            .map(|row| row[count..].to_vec())
            .collect(),
    )
}

/// Student's quantile from the normal one, for three degrees of freedom and more (Fisher and
/// Cornish, 1960): off by less than 2 % at three, 0.1 % from ten on.
fn t_quantile(z: f64, freedom: usize) -> f64 {
    let n = freedom.max(1) as f64;
    let power = |exponent| z.powi(exponent);
    z + (power(3) + z) / (4.0 * n)
        + (5.0 * power(5) + 16.0 * power(3) + 3.0 * z) / (96.0 * n * n)
        + (3.0 * power(7) + 19.0 * power(5) + 17.0 * power(3) - 15.0 * z) / (384.0 * n.powi(3))
}

#[cfg(test)]
mod tests;
