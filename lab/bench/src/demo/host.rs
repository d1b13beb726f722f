//! The four ways on this machine, and on a simulated one that is larger than most at hand.

use rand::seq::SliceRandom as _;

use super::{Comparison, LOAD, Way, Window};
use crate::experiment::{Ask, Case, Cell};
use crate::experiments::headroom::{LEVEL_ONE, cell, figures, scene};
use crate::experiments::placing::Placing;
use crate::options::{LabOptions, On};
use crate::progress::Progress;
use crate::runners::host::{Host, foreign};
use crate::runners::{Machine, Simulated, jobs, sim};
use crate::scene::{MS, S, Scene, Slowdown, Yields};
use crate::{LabError, seeded, stats};

/// Each way is run this often, in another order each time.
const ROUNDS: u32 = 3;
/// An encoder is at its speed, and Tidegate's allowance at its place, within a second.
const WARM_NS: u64 = 1_200 * MS;
const WINDOW_NS: u64 = 2_000 * MS;
/// Percent of the machine.
const HEADROOM_PCT: u32 = 20;
const SIMULATED_HEADROOM_PCT: u32 = 30;
/// A server of 32 cores.
const SIMULATED_CPUS: u32 = 64;
/// Tidegate's allowance begins at the tolerance and takes this long to be where it stays on so many CPUs.
const SIMULATED_WARM_NS: u64 = 16 * S;
/// Simulated CPU-nanoseconds in a second on one CPU of 2024, for the bar alone.
const CPU_NS_A_SECOND: f64 = 1.5e11;

fn placing(way: Way, simulated: bool) -> Placing {
    match way {
        Way::Alone => Placing::NoSide,
        Way::AsStarted if simulated => Placing::OwnGroup,
        Way::AsStarted => Placing::AsStarted,
        Way::CpuIdle => Placing::CpuIdle,
        // What the agent does by itself on a machine of so many CPUs.
        Way::Tidegate if simulated => {
            Placing::Tidegate(SIMULATED_HEADROOM_PCT, None, Yields::Cores)
        }
        Way::Tidegate => Placing::tidegate(HEADROOM_PCT),
    }
}

fn windowed(mut scene: Scene, warm_ns: u64) -> Scene {
    (scene.warm_ns, scene.window_ns) = (warm_ns, WINDOW_NS);
    scene
}

/// How long both will take.
pub fn seconds(options: &LabOptions) -> f64 {
    let cells = f64::from(options.rounds.unwrap_or(ROUNDS).max(1) * 4);
    cells * ((WARM_NS + WINDOW_NS) as f64 / 1e9 + 0.5) + simulated_seconds()
}

fn simulated_seconds() -> f64 {
    (SIMULATED_WARM_NS + WINDOW_NS) as f64 * f64::from(SIMULATED_CPUS) / CPU_NS_A_SECOND
}

/// Runs every way in every round here. One that fails is left out, and the others still run.
pub fn measured(options: &LabOptions, progress: &Progress) -> Result<Comparison, LabError> {
    let mut host = Host::new(options)?;
    let ask = Ask {
        options,
        cpus: host.machine.cpus as u32,
        hz: host.machine.hz,
    };
    let side = foreign::side_words(options.side_cmd.as_deref());
    let rounds = options.rounds.unwrap_or(ROUNDS).max(1);
    let mut rng = seeded(options.seed);
    let (mut windows, mut others, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    let mut ways = Way::ALL.to_vec();
    for round in 0..rounds {
        ways.shuffle(&mut rng);
        for way in ways.clone() {
            let (n, label) = (round + 1, way.label());
            progress.stage(&format!("here, round {n} of {rounds}: {label}"));
            let arm = placing(way, false);
            let scene = scene(&ask, arm, (ask.cpus, LOAD, round), Slowdown::Shipped)?;
            let cell = cell(&Case::default(), arm, round, windowed(scene, WARM_NS));
            match host.run(&cell.scene) {
                Ok(outcome) => {
                    for found in figures(&cell, &outcome) {
                        windows.push(Window::new(way, round, &found));
                        others.push(100.0 * found.get("other_ratio"));
                    }
                }
                Err(LabError::Interrupted) => return Err(LabError::Interrupted),
                Err(error) => {
                    ways.retain(|w| *w != way);
                    windows.retain(|w: &Window| w.way != way);
                    missing.push(format!("Not measured, {label}: {error}."));
                }
            }
            progress.done((WARM_NS + WINDOW_NS) as f64 / 1e9 + 0.5);
        }
    }
    let rounds = options
        .rounds
        .map_or(String::new(), |n| format!(" --rounds {n}"));
    let is_ffmpeg = side.as_ref().is_some_and(|words| words[0] == "ffmpeg");
    let main = "the built-in server: Poisson arrivals, 1000 us requests";
    Ok(Comparison {
        main: options.main_cmd.clone().unwrap_or_else(|| main.into()),
        side: match &side {
            None => "the built-in hog, a thread a CPU (no ffmpeg here)".into(),
            Some(_) if is_ffmpeg => "ffmpeg, which encodes a test picture (libx264)".into(),
            Some(words) => words.join(" "),
        },
        side_unit: match &side {
            None => "loops/s",
            Some(_) if is_ffmpeg => "frames/s",
            Some(_) => "CPUs",
        },
        windows,
        others_pct: stats::mean(&others).unwrap_or(0.0),
        missing,
        headroom: format!("Tidegate was asked for {HEADROOM_PCT} % of headroom."),
        command: format!("tidegate-lab demo{rounds}"),
        machine: Machine::Host(host.finish()),
    })
}

/// Simulates the four.
pub fn simulated(options: &LabOptions, progress: &Progress) -> Result<Comparison, LabError> {
    progress.stage(&format!("simulating {SIMULATED_CPUS} CPUs"));
    let options = &LabOptions {
        on: On::Sim,
        ..options.clone()
    };
    let ask = Ask {
        options,
        cpus: SIMULATED_CPUS,
        hz: 250,
    };
    let mut cells: Vec<(Way, Cell)> = Vec::new();
    for way in Way::ALL {
        let arm = placing(way, true);
        let scene = scene(&ask, arm, (SIMULATED_CPUS, LOAD, 0), Slowdown::Shipped)?;
        // Without a controller there is nothing to settle.
        let warm_ns = if way == Way::Tidegate {
            SIMULATED_WARM_NS
        } else {
            1_500 * MS
        };
        cells.push((
            way,
            cell(&Case::default(), arm, 0, windowed(scene, warm_ns)),
        ));
    }
    let windows = jobs::map(
        options.jobs,
        &cells,
        |c| c.1.scene.end_ns(),
        |(way, cell)| {
            let outcome = sim::run(&cell.scene)?;
            progress.done(simulated_seconds() / 4.0);
            let figures = figures(cell, &outcome);
            Ok(Window::new(*way, 0, &figures[0]))
        },
    )?;
    let command = format!("tidegate-lab demo --seed {}", options.seed);
    let scenes: Vec<&Scene> = cells.iter().map(|c| &c.1.scene).collect();
    Ok(Comparison {
        machine: Machine::Simulated(Simulated {
            command: command.clone(),
            ..Simulated::of(options, &scenes)?
        }),
        main: "Poisson arrivals, 500 to 1500 us requests".into(),
        side: "a thread a CPU that always wants more, in a group of its own".into(),
        side_unit: "CPUs",
        windows,
        missing: Vec::new(),
        headroom: format!("There Tidegate was asked for {SIMULATED_HEADROOM_PCT} % of headroom."),
        others_pct: 0.0,
        command,
    })
}

/// Main's load, percent of the machine.
pub fn main_pct() -> f64 {
    LOAD * LEVEL_ONE * 100.0
}
