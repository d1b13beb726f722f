//! `tidegate-lab demo`: main with side work that is placed in four ways, measured on this machine
//! and then simulated on a larger one. It is an experiment like the others, with a picture of its
//! own.

pub mod picture;

use std::path::PathBuf;

use tidegate_sim::Contention;

use crate::LabError;
use crate::experiment::LabOptions;
use crate::experiment::{Arm, Ask, Case, Cell, Experiment, Metric, Part, Target, metric, scaled};
use crate::experiments::headroom;
use crate::experiments::placing::Placing;
use crate::options::{Engine, On};
use crate::report::Report;
use crate::runners::host::foreign;
use crate::scene::{MS, S};

/// It is not among the experiments that `all` runs.
static DEMO: Experiment = Experiment {
    name: "demo",
    question: "What side work costs main",
    places: &[(On::Host, Engine::Cgroup), (On::Sim, Engine::Cgroup)],
    parts,
    notes: &[
        "Main is a server that takes 25 % of the machine: Poisson arrivals, requests of 0.5 to 1.5 ms. Tidegate was asked \
         for 20 % of headroom here, for 30 % on the simulated machine.",
    ],
};

/// Load level of main: 25 % of the machine. Where CPUs share cores and side work has main's weight,
/// 30 % are already more than the half of the machine that main then gets.
const LOAD: f64 = 1.0;
const ROUNDS: u32 = 3;
/// An encoder is at its speed, and Tidegate's allowance at its place, within a second.
const WARM_NS: u64 = 1_200 * MS;
const WINDOW_NS: u64 = 2_000 * MS;
/// A server of 32 cores, on which Tidegate's allowance takes longer to get to its place.
const SIMULATED_CPUS: u32 = 64;
const SIMULATED_WARM_NS: u64 = 16 * S;

/// Keys and labels of the arms.
const WAYS: [(&str, &str); 4] = [
    ("alone", "alone"),
    ("as_started", "as people start it"),
    ("cpu_idle", "cpu.idle"),
    ("tidegate", "Tidegate"),
];
const HERE: [Placing; 4] = [
    Placing::NoSide,
    Placing::AsStarted,
    Placing::CpuIdle,
    Placing::tidegate(20),
];
/// Whole cores are what the agent gives side work by itself on a machine of so many CPUs.
const SIMULATED: [Placing; 4] = [
    Placing::NoSide,
    Placing::OwnGroup,
    Placing::CpuIdle,
    Placing::Tidegate(30, None, true),
];

const P99: Metric = scaled("p99_us", "p99, ms", 1e-3, 2);
const WORK: Metric = metric("side_work_per_second", "side work a second", 1);
const METRICS: [Metric; 3] = [P99, scaled("p50_us", "p50, ms", 1e-3, 2), WORK];

fn parts(ask: &Ask<'_>) -> Result<Vec<Part>, LabError> {
    let (placings, cpus, rounds) = match ask.is_simulated() {
        true => (SIMULATED, SIMULATED_CPUS, 1),
        false => (HERE, ask.cpus, ask.rounds(ROUNDS, ROUNDS)),
    };
    let words = foreign::side_words(ask.options.side_cmd.as_deref());
    let unit = match words.filter(|_| !ask.is_simulated()) {
        Some(words) if words[0] == "ffmpeg" => "frames/s",
        None if !ask.is_simulated() => "loops/s",
        _ => "CPUs",
    };
    let case = Case::new("", "load 1.0").with("load", LOAD);
    let case = case.with("side_unit", unit);
    let mut cells = Vec::new();
    for round in 0..rounds {
        for (placing, (key, label)) in placings.into_iter().zip(WAYS) {
            let at = (cpus, LOAD, round);
            let mut scene = headroom::scene(ask, placing, at, Contention::MEASURED)?;
            scene.window_ns = WINDOW_NS;
            scene.warm_ns = match placing {
                Placing::Tidegate(..) if ask.is_simulated() => SIMULATED_WARM_NS,
                _ => WARM_NS,
            };
            let cell = headroom::cell(&case, placing, round, scene);
            let arm = Arm::new(key, label);
            cells.push(Cell { arm, ..cell });
        }
    }
    let slower = ["as_started", "cpu_idle", "tidegate"];
    let slower = Target::new("main's p99 over main alone: {arm}", &slower, P99, "×");
    let done = "side work over that of people who just start it: {arm}";
    let done = Target::new(done, &["cpu_idle", "tidegate"], WORK, "×");
    let title = "Main's latency and the side work done";
    let part = Part::new("ways", title, cells, headroom::figures, &METRICS).pooled();
    Ok(vec![
        part.targets([slower.over("alone"), done.over("as_started")]),
    ])
}

/// What the demonstration found.
pub struct Demo {
    /// This machine, then the simulated one.
    pub reports: [Report; 2],
    pub pictures: [PathBuf; 2],
}

impl Demo {
    pub fn to_text(&self) -> String {
        let [here, simulated] = self.reports.each_ref().map(Report::to_text);
        let [picture, other] = self.pictures.each_ref().map(|path| path.display());
        format!("{here}\n{simulated}\nPictures: {picture}, {other}\n")
    }
}

/// Measures here, simulates, and writes the reports and pictures under [`LabOptions::out`]. An arm
/// that cannot run here is left out and named.
pub fn run(options: &LabOptions) -> Result<Demo, LabError> {
    let on = |on| {
        crate::run(&LabOptions {
            experiment: Some(&DEMO),
            on,
            ..options.clone()
        })
    };
    let reports = [on(On::Host)?, on(On::Sim)?];
    let pictures = ["demo.svg", "demo-sim.svg"].map(|name| options.out_dir().join(name));
    for (report, path) in reports.iter().zip(&pictures) {
        std::fs::write(path, picture::draw(report)).map_err(|source| LabError::Report {
            path: path.clone(),
            source,
        })?;
    }
    Ok(Demo { reports, pictures })
}
