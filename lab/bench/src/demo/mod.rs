//! `tidegate-lab demo`: main beside side work that is placed in four ways, measured on this machine and then
//! simulated on a larger one. It ends with one screen and a picture of each, all from the same figures.

mod host;
pub mod picture;
pub mod screen;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::experiment::Figures as Measured;
use crate::options::LabOptions;
use crate::progress::Progress;
use crate::report::plots::Plot;
use crate::report::{Report, Table, num};
use crate::runners::host::cleanup;
use crate::runners::{Guest, Machine};
use crate::{LabError, make_folder, stats, stop};

/// Load level of main: 25 % of the machine. Where CPUs share cores and side work has main's weight, 30 % are already more
/// than the half of the machine that main then gets.
pub const LOAD: f64 = 1.0;

/// A way of placing side work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// There is none.
    Alone,
    /// At default weight.
    AsStarted,
    /// In a group with `cpu.idle`.
    CpuIdle,
    /// Under Tidegate.
    Tidegate,
}

impl Way {
    /// In the order of the table.
    pub const ALL: [Way; 4] = [Way::Alone, Way::AsStarted, Way::CpuIdle, Way::Tidegate];

    /// In the table and the picture.
    pub fn label(self) -> &'static str {
        match self {
            Way::Alone => "alone",
            Way::AsStarted => "as people start it",
            Way::CpuIdle => "cpu.idle",
            Way::Tidegate => "Tidegate",
        }
    }

    /// In JSON and CSV.
    pub fn key(self) -> &'static str {
        match self {
            Way::Alone => "alone",
            Way::AsStarted => "as_started",
            Way::CpuIdle => "cpu_idle",
            Way::Tidegate => "tidegate",
        }
    }
}

/// One window of main beside side work.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// How side work was placed.
    pub way: Way,
    /// From 0.
    pub round: u32,
    /// Main's median; absent where no request was completed.
    pub p50_ms: Option<f64>,
    /// Main's 99th percentile; absent as well.
    pub p99_ms: Option<f64>,
    /// Side work done, in the comparison's unit.
    pub side_work: f64,
}

impl Window {
    /// From a run's figures; a main that completed nothing has no latency.
    fn new(way: Way, round: u32, found: &Measured) -> Self {
        let ms = |name| Some(found.get(name) / 1000.0).filter(|ms| ms.is_finite());
        Window {
            way,
            round,
            p50_ms: ms("p50_us"),
            p99_ms: ms("p99_us"),
            side_work: found.get("side_work_per_second"),
        }
    }
}

/// What one way gave, over all rounds.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// Median of the rounds' medians.
    pub p50_ms: f64,
    /// Median of the rounds' 99th percentiles.
    pub p99_ms: f64,
    /// Their least and their most, where there was more than one round.
    pub p99_range_ms: Option<(f64, f64)>,
    /// Mean over the rounds; absent where there is no side work.
    pub side_work: Option<f64>,
}

/// The four ways on one machine.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Which machine.
    pub machine: Machine,
    /// What main is, in a few words.
    pub main: String,
    /// ... and side.
    pub side: String,
    /// What side work is counted in, a second.
    pub side_unit: &'static str,
    /// Every window.
    pub windows: Vec<Window>,
    /// What was left out and why, one sentence each.
    pub missing: Vec<String>,
    /// Which headroom Tidegate kept, in one sentence.
    pub headroom: String,
    /// What programs that are not part of it took of the machine, percent.
    pub others_pct: f64,
    /// The command that repeats it.
    pub command: String,
}

impl Comparison {
    /// What a way gave; absent where it was not run, and infinite latencies where a round completed no request.
    pub fn figures(&self, way: Way) -> Option<Figures> {
        let of_way = || self.windows.iter().filter(move |w| w.way == way);
        let all = |of: fn(&Window) -> Option<f64>| -> Vec<f64> {
            of_way().map(|w| of(w).unwrap_or(f64::INFINITY)).collect()
        };
        let p99s = all(|w| w.p99_ms);
        let work: Vec<f64> = of_way().map(|w| w.side_work).collect();
        Some(Figures {
            p50_ms: stats::median(&all(|w| w.p50_ms))?,
            p99_ms: stats::median(&p99s)?,
            p99_range_ms: (p99s.len() > 1)
                .then(|| (stats::least(p99s.clone()), stats::most(p99s.clone()))),
            side_work: stats::mean(&work).filter(|_| way != Way::Alone),
        })
    }

    /// Main's p99 over its p99 alone; absent where either was not measured or main completed nothing.
    pub fn p99_ratio(&self, way: Way) -> Option<f64> {
        let (p99, alone) = (self.figures(way)?.p99_ms, self.figures(Way::Alone)?.p99_ms);
        (p99.is_finite() && alone.is_finite() && alone > 0.0).then(|| p99 / alone)
    }

    /// Side work done, percent of what it does as people start it.
    pub fn side_work_pct(&self, way: Way) -> Option<f64> {
        let started = self.figures(Way::AsStarted)?.side_work?;
        let work = self.figures(way)?.side_work?;
        (started > 0.0).then(|| 100.0 * work / started)
    }

    /// The machine in a few words, for titles and small print.
    pub fn place(&self) -> String {
        match &self.machine {
            Machine::Simulated(s) => format!(
                "{} CPUs, {} threads a core, {}, seed {}",
                s.cpus.iter().sum::<u32>(),
                s.threads_per_core,
                s.scheduler,
                s.seed
            ),
            Machine::Host(m) | Machine::Guest(Guest { machine: m, .. }) => {
                let plural = if m.cpus == 1 { "" } else { "s" };
                let cgroup = m.cgroup.map_or("".into(), |v| format!(", cgroup v{v}"));
                format!(
                    "{} CPU{plural} ({}), Linux {}{cgroup}, steal {:.1} %",
                    m.cpus, m.model, m.kernel, m.steal_pct
                )
            }
        }
    }

    /// Whether it was measured and not simulated.
    pub fn is_measured(&self) -> bool {
        !matches!(self.machine, Machine::Simulated(_))
    }

    fn table(&self) -> Table {
        screen::table(self)
    }

    fn rows(&self) -> Vec<Map<String, Value>> {
        let row = |w: &Window| {
            crate::report::row(json!({
                "side_work_placed": w.way.key(), "round": w.round + 1, "load": LOAD,
                "p50_ms": w.p50_ms.map(num), "p99_ms": w.p99_ms.map(num),
                "side_work": num(w.side_work), "side_unit": self.side_unit,
            }))
        };
        self.windows.iter().map(row).collect()
    }

    /// As a report, with the picture in its page.
    fn report(&self) -> Report {
        let mut report = Report::new("demo", self.machine.clone());
        report.title = "What side work costs main";
        report.rows = self.rows();
        report.tables.push(self.table());
        report.plots.push(Plot {
            title: screen::title(self),
            see: screen::finding(self),
            svg: picture::draw(self),
            legend: Vec::new(),
        });
        report.notes = vec![format!("Main: {}. Side work: {}.", self.main, self.side)];
        report.notes.push(self.headroom.clone());
        report.notes.extend(self.missing.clone());
        report
    }
}

/// What the demonstration found.
pub struct Demo {
    /// This machine, then the simulated one.
    pub comparisons: [Comparison; 2],
    /// The same as reports, with the files that were written.
    pub reports: [Report; 2],
    /// The pictures that were written.
    pub pictures: Vec<PathBuf>,
}

impl Demo {
    /// One screen.
    pub fn to_text(&self) -> String {
        let pages: Vec<&Path> = self.reports.iter().filter_map(Report::page).collect();
        screen::render(&self.comparisons, &self.pictures, &pages)
    }
}

/// Measures here, simulates, and writes the pages and pictures under [`LabOptions::out`].
///
/// # Errors
/// As [`crate::run`]; a way that cannot run here is left out and named instead.
pub fn run(options: &LabOptions) -> Result<Demo, LabError> {
    let dir = options.out_dir();
    make_folder(&dir)?;
    let _signals = stop::catch_signals();
    cleanup::sweep();
    let progress = Progress::new("demo", host::seconds(options), options.quiet);
    let comparisons = [
        host::measured(options, &progress)?,
        host::simulated(options, &progress)?,
    ];
    drop(progress);
    let mut reports = comparisons.each_ref().map(Comparison::report);
    let mut pictures = Vec::new();
    for (comparison, report) in comparisons.iter().zip(&mut reports) {
        report.write_files(&dir)?;
        let path = dir.join(if comparison.is_measured() {
            "demo.svg"
        } else {
            "demo-sim.svg"
        });
        std::fs::write(&path, picture::draw(comparison)).map_err(|source| LabError::Report {
            path: path.clone(),
            source,
        })?;
        pictures.push(path);
    }
    Ok(Demo {
        comparisons,
        reports,
        pictures,
    })
}
