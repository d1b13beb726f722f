//! The four ways on this machine.

use super::{Comparison, LOAD, Way, Window};
use crate::beds::Bed;
use crate::beds::host::arms::Arm;
use crate::beds::host::foreign::SideWork;
use crate::beds::host::tidegate::Tidegate;
use crate::experiments::headroom::LEVEL_ONE_PCT;
use crate::experiments::headroom::bench::{Bench, Times};
use crate::experiments::headroom::report::{Run, Slowdown};
use crate::options::LabOptions;
use crate::progress::Progress;
use crate::rng::Rng;
use crate::{LabError, stats};

/// Each way is run this often, in another order each time.
const ROUNDS: u32 = 3;
/// An encoder is at its speed, and Tidegate's allowance at its place, within a second.
const TIMES: Times = Times {
    warm: 1.2,
    window: 2.0,
};

/// What Tidegate does when nothing is asked for.
const NO_HEADROOM: &str =
    "Here Tidegate was asked for no headroom: side work is in the idle class, without a quota.";

fn arm(way: Way) -> Arm {
    match way {
        Way::Alone => Arm::NoSide,
        Way::AsStarted => Arm::Together,
        Way::CpuIdle => Arm::CpuIdle,
        Way::Tidegate => Arm::Default,
    }
}

/// What can be run here.
pub struct Host<'a> {
    options: &'a LabOptions,
    bench: Bench<'a>,
    tidegate: Option<Tidegate>,
    ways: Vec<Way>,
    rounds: u32,
}

impl<'a> Host<'a> {
    /// Looks at the machine and starts an agent of the demonstration's own.
    pub fn new(options: &'a LabOptions) -> Result<Self, LabError> {
        let arms = Way::ALL.map(arm).to_vec();
        let mut bench = Bench::new(options, arms, vec![LOAD], TIMES)?;
        let rounds = options.rounds.unwrap_or(ROUNDS).max(1);
        let tidegate = bench.start_tidegate()?;
        let runs = |way: &Way| bench.arms.contains(&arm(*way));
        Ok(Host {
            options,
            ways: Way::ALL.into_iter().filter(runs).collect(),
            rounds,
            bench,
            tidegate,
        })
    }

    /// How long it will take.
    pub fn seconds(&self) -> f64 {
        f64::from(self.rounds) * self.ways.len() as f64 * TIMES.cell()
    }

    /// Runs every way in every round. One that fails here is left out, and the others still run.
    pub fn measure(mut self, progress: &Progress) -> Result<Comparison, LabError> {
        let mut rng = Rng::new(self.options.seed);
        let (mut windows, mut others) = (Vec::new(), Vec::new());
        let mut headroom = "Tidegate could not be run here.";
        for round in 0..self.rounds {
            let mut order = self.ways.clone();
            rng.shuffle(&mut order);
            // The same arrivals for every way.
            let seed = rng.next_u64() >> 1;
            for way in order {
                let (n, of) = (round + 1, self.rounds);
                progress.stage(&format!("here, round {n} of {of}: {}", way.label()));
                let tidegate = self.tidegate.as_ref();
                let run = Run {
                    cpus: 0,
                    load: LOAD,
                    arm: arm(way),
                    slowdown: Slowdown::Shipped,
                    round,
                };
                match self.bench.cell(tidegate, run, seed) {
                    Ok(sample) => {
                        let done = sample.get("completed") > 0.0;
                        windows.push(Window::new(way, round, done, &sample, "side_rate"));
                        if way == Way::Tidegate {
                            headroom = NO_HEADROOM;
                        }
                        others.push(sample.get("other_pct"));
                    }
                    Err(LabError::Interrupted) => return Err(LabError::Interrupted),
                    Err(error) => {
                        self.ways.retain(|w| *w != way);
                        windows.retain(|w: &Window| w.way != way);
                        let line = format!("Not measured, {}: {error}.", way.label());
                        self.bench.missing.push(line);
                    }
                }
                progress.done(TIMES.cell());
            }
        }
        drop(self.tidegate);
        self.bench.setup.machine.finish();
        let rounds = match self.options.rounds {
            Some(n) => format!(" --rounds {n}"),
            None => String::new(),
        };
        Ok(Comparison {
            main: self.bench.main.clone(),
            side: match &self.bench.side {
                SideWork::Burner => "the built-in burner, a thread a CPU (no ffmpeg here)".into(),
                SideWork::Command(words) if words[0] == "ffmpeg" => {
                    "ffmpeg, which encodes a test picture (libx264)".into()
                }
                other => other.describe(),
            },
            side_unit: match self.bench.side_unit {
                "frames" => "frames/s",
                "loops" => "loops/s",
                _ => "CPUs",
            },
            windows,
            others_pct: stats::mean(&others).unwrap_or(0.0),
            missing: self.bench.missing.clone(),
            headroom: headroom.to_owned(),
            command: format!("tidegate lab demo{rounds}"),
            bed: Bed::Host(self.bench.setup.machine),
        })
    }
}

/// Main's load, percent of the machine.
pub fn main_pct() -> f64 {
    LOAD * LEVEL_ONE_PCT
}
