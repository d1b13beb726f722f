//! The four ways on a simulated machine that is larger than most at hand.

use super::{Comparison, LOAD, Way, Window};
use crate::LabError;
use crate::beds::Bed;
use crate::beds::sim::control::Control;
use crate::beds::sim::{MS, Stage, jobs};
use crate::experiments::headroom::report::Slowdown;
use crate::experiments::headroom::sim::{Lengths, simulate};
use crate::experiments::headroom::sim_cells::{Arm, Cell, config};
use crate::options::LabOptions;
use crate::progress::Progress;

/// Percent of the machine.
const HEADROOM_PCT: u32 = 30;
/// A server of 32 cores.
const CPUS: u32 = 64;
/// Tidegate's allowance begins at the tolerance and takes this long to be where it stays.
const WARM_MS: u64 = 16_000;
/// Without a controller there is nothing to settle.
const WARM_PLAIN_MS: u64 = 1_500;
const WINDOW_MS: u64 = 2_000;
/// Simulated CPU-milliseconds in a second on one CPU of 2024, for the bar alone.
const CPU_MS_A_SECOND: f64 = 150_000.0;

/// What will be simulated.
pub struct Cells<'a> {
    options: &'a LabOptions,
    jobs: usize,
    cpus: u32,
}

fn lengths(way: Way) -> Lengths {
    let warm_ms = match way {
        Way::Tidegate => WARM_MS,
        _ => WARM_PLAIN_MS,
    };
    Lengths {
        warm_ns: warm_ms * MS,
        window_ns: WINDOW_MS * MS,
    }
}

fn arm(way: Way) -> Arm {
    let (control, headroom_pct) = match way {
        Way::Alone => (Control::NoSide, 0),
        Way::AsStarted => (Control::OwnGroup, 0),
        Way::CpuIdle => (Control::CpuIdle, 0),
        // What the agent does by itself on a machine of so many CPUs.
        Way::Tidegate => (Control::KnobsCores, HEADROOM_PCT),
    };
    Arm {
        control,
        headroom_pct,
    }
}

impl<'a> Cells<'a> {
    /// For these options.
    pub fn new(options: &'a LabOptions) -> Self {
        Cells {
            options,
            jobs: options.jobs.unwrap_or_else(jobs::default_jobs),
            cpus: CPUS,
        }
    }

    fn cost_ms(&self, way: Way) -> u64 {
        let l = lengths(way);
        (l.warm_ns + l.window_ns) / MS * u64::from(self.cpus)
    }

    /// The part of one cell by weight, 0 to 1.
    fn part(&self, way: Way) -> f64 {
        let all: u64 = Way::ALL.iter().map(|way| self.cost_ms(*way)).sum();
        self.cost_ms(way) as f64 / all as f64
    }

    /// About how long it will take: as the threads share it, but never less than the longest cell.
    pub fn seconds(&self) -> f64 {
        let costs = Way::ALL.map(|way| self.cost_ms(way));
        let longest = costs.iter().max().copied().unwrap_or(0);
        let shared = costs.iter().sum::<u64>() / self.jobs.max(1) as u64;
        longest.max(shared) as f64 / CPU_MS_A_SECOND
    }

    /// Simulates the four.
    pub fn run(&self, progress: &Progress) -> Result<Comparison, LabError> {
        progress.stage(&format!("simulating {} CPUs", self.cpus));
        let cell = |way| Cell {
            cpus: self.cpus,
            load: LOAD,
            arm: arm(way),
            slowdown: Slowdown::Shipped,
            round: 0,
        };
        let window = |way: &Way| {
            let outcome = simulate(cell(*way), &lengths(*way), self.options.seed)?;
            progress.done(self.part(*way) * self.seconds());
            let done = outcome.get("requests") > 0.0;
            Ok(Window::new(*way, 0, done, &outcome, "side_work_cpus"))
        };
        let windows = jobs::map(self.jobs, &Way::ALL, |way| self.cost_ms(*way), window)?;
        let example = config(cell(Way::Alone), self.options.seed)?;
        let command = format!("tidegate lab demo --seed {}", self.options.seed);
        let mut bed = Stage::new(self.options).bed(&[self.cpus], &example, "EEVDF");
        bed.command.clone_from(&command);
        Ok(Comparison {
            bed: Bed::Sim(bed),
            main: "Poisson arrivals, 500 to 1500 us requests".into(),
            side: "a thread a CPU that always wants more, in a group of its own".into(),
            side_unit: "CPUs",
            windows,
            missing: Vec::new(),
            headroom: format!("There Tidegate was asked for {HEADROOM_PCT} % of headroom."),
            others_pct: 0.0,
            command,
        })
    }
}
