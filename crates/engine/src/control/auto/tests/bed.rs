//! A main, side work and the machine's answer, step by step.

use super::super::*;
use crate::control::meter::Use;
use crate::sense::Waits;

const STEP_NS: u64 = 20_000_000;
const CPUS: u32 = 2;

/// Two CPUs. Main's work takes `ratio(level)` times as long as without side work, which takes all that it may have.
pub(super) struct Bed {
    pub(super) auto: Auto,
    pub(super) now_ns: u64,
    pub(super) random: u64,
    /// Main's tasks that run or wait, beside no side work, in millionths.
    pub(super) main_ppm: u64,
    /// Its turns in a step.
    pub(super) runs: u64,
    pub(super) has_main: bool,
    pub(super) tells_waits: bool,
    pub(super) side: bool,
    pub(super) written: bool,
    /// Time at the highest headroom, to compare.
    pub(super) low_ns: u64,
    /// What the headroom law finds main to use, of which and of the headroom side work has the rest; none: side work has one CPU.
    pub(super) main_ucpu: Option<u64>,
    /// Each CPU of side work brings main so many CPUs' work.
    pub(super) brings: u64,
    /// Of a hundred steps so many have one late turn of ten, below this level.
    pub(super) late: (u64, u32),
    /// Main has as much to do for so many steps.
    pub(super) noise_steps: u64,
    noise_age: u64,
    noise: u64,
    /// What side work may have.
    allowance_ucpu: u64,
}

impl Bed {
    pub(super) fn new() -> Self {
        let mut auto = Auto::default();
        auto.follow(Some(50_000), 200_000);
        Self {
            auto,
            now_ns: 1,
            random: 88_172_645_463_325_252,
            main_ppm: 400_000,
            runs: 10,
            has_main: true,
            tells_waits: true,
            side: true,
            written: true,
            low_ns: 0,
            main_ucpu: None,
            brings: 0,
            late: (0, 0),
            noise_steps: 1,
            noise_age: 0,
            noise: 0,
            allowance_ucpu: 20_000,
        }
    }

    fn given_ucpu(&self, level_ppm: u32) -> u64 {
        let Some(main_ucpu) = self.main_ucpu else {
            return 1_000_000;
        };
        let machine_ucpu = u64::from(CPUS) * 1_000_000;
        let kept_ucpu = machine_ucpu * u64::from(level_ppm) / 1_000_000;
        machine_ucpu
            .saturating_sub(kept_ucpu + main_ucpu)
            .max(20_000)
    }

    /// From 0.5 to 1.5, so that a pair of blocks is as noisy as main is.
    fn noise_ppm(&mut self) -> u64 {
        self.noise_age = (self.noise_age + 1) % self.noise_steps;
        if self.noise_age == 0 {
            self.noise = self.new_noise_ppm();
        }
        self.noise
    }

    fn new_noise_ppm(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        500_000 + self.random % 1_000_001
    }

    pub(super) fn run(&mut self, seconds: u64, ratio_ppm: impl Fn(u32) -> u64) {
        let until_ns = self.now_ns + seconds * 1_000_000_000;
        while self.now_ns < until_ns {
            self.now_ns += STEP_NS;
            let is_low = self.auto.was_low;
            let level_ppm = self.auto.level_ppm().unwrap();
            let in_force_ppm = if is_low { MOST_PPM } else { level_ppm };
            let ratio_ppm = ratio_ppm(in_force_ppm);
            let given_ucpu = self.given_ucpu(level_ppm);
            let side_ppm = if self.side { self.allowance_ucpu } else { 0 };
            let base_ppm = (self.main_ppm + self.brings * side_ppm) * self.noise_ppm() / 1_000_000;
            let part_ns = |ppm: u64| STEP_NS * ppm / 1_000_000;
            let (late_pct, late_below_ppm) = self.late;
            let is_late = self.new_noise_ppm() / 10 % 100 < late_pct;
            let is_late = is_late && in_force_ppm < late_below_ppm;
            let (cpu_ns, side_ns) = (part_ns(base_ppm), part_ns(side_ppm));
            let seen = Seen {
                now_ns: self.now_ns,
                dt_ns: STEP_NS,
                window: Use {
                    wall_ns: STEP_NS,
                    capacity_ns: 2 * STEP_NS,
                    busy_ns: cpu_ns + side_ns,
                    side_ns,
                    main_ns: if self.has_main { cpu_ns } else { 0 },
                    ..Use::default()
                },
                waits: Waits {
                    runs: self.runs,
                    late: u64::from(is_late).min(self.runs),
                    wait_ns: part_ns(base_ppm * (ratio_ppm - 1_000_000) / 1_000_000),
                    ..Waits::default()
                },
                has_main: self.has_main,
                tells_waits: self.tells_waits,
                has_side: true,
                cpus: CPUS,
                floor_ucpu: 20_000,
            };
            self.auto.step(&seen);
            let decision = self.auto.hold(HeadroomDecision {
                allowance_ucpu: given_ucpu,
                floor_ucpu: 20_000,
                capacity_ucpu: u64::from(CPUS) * 1_000_000,
                reason: Reason::Track,
                ..HeadroomDecision::default()
            });
            self.allowance_ucpu = decision.allowance_ucpu;
            self.low_ns += if self.auto.is_low() { STEP_NS } else { 0 };
            self.auto.written(self.written);
        }
    }

    pub(super) fn found(&self) -> (u32, State) {
        let found = self.auto.found().unwrap();
        (found.level_ppm, found.state)
    }
}
