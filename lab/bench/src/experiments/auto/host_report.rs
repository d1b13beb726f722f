//! The report of this machine: every arm beside main alone, and what is lost by finding a headroom against the oracle.

use super::regret::{Done, Regret, oracle};
use super::{MEAN_AIM, P99_AIM};
use crate::LabError;
use crate::beds::host::arms::Arm;
use crate::experiments::headroom::LEVEL_ONE_PCT;
use crate::experiments::headroom::bench::Bench;
use crate::experiments::headroom::report::{AVERAGE, P99, Pick, Run, WORK};
use crate::report::{Headline, Report, Sample, Samples, Table, cell, plots};
use crate::stats::most;

/// All runs and what was set up for them.
struct HostRuns<'a> {
    bench: &'a Bench<'a>,
    samples: Samples<Run<Arm>>,
}

/// A load with what was done there.
struct Place {
    load: f64,
    oracle: (Arm, Done),
    auto: Option<Done>,
}

/// Builds the report.
pub fn report(bench: &Bench<'_>, samples: Vec<Sample<Run<Arm>>>) -> Result<Report, LabError> {
    let mut report = Report::new("auto", bench.setup.machine.clone());
    let found = HostRuns {
        bench,
        samples: Samples(samples),
    };
    let places = found.places();
    report.rows = found.samples.rows();
    report.headline = headline(&places);
    report.tables.push(found.regret_table(&places));
    for &load in &bench.loads {
        report.tables.push(found.load_table(load));
        report.plots.push(found.plot(load)?);
    }
    report.notes = notes(bench);
    Ok(report)
}

/// Whether the oracle may choose it.
fn is_settable(arm: Arm) -> bool {
    matches!(arm, Arm::Together | Arm::CpuIdle | Arm::Tidegate { .. })
}

impl HostRuns<'_> {
    fn mean(&self, arm: Arm, load: f64, name: &str) -> Option<f64> {
        self.samples.of_pick(Pick::new(0, arm).load(load), name)
    }

    fn done(&self, arm: Arm, load: f64) -> Option<Done> {
        let pick = Pick::new(0, arm).load(load);
        let ratio = |by| self.samples.ratio(pick, Arm::NoSide, by);
        Some(Done {
            mean: ratio(AVERAGE)?,
            p99: ratio(P99)?,
            work: self.mean(arm, load, "side_rate")?,
        })
    }

    fn places(&self) -> Vec<Place> {
        let place = |&load: &f64| {
            let settable = self.bench.arms.iter().filter(|arm| is_settable(**arm));
            let done = |arm: &Arm| Some((*arm, self.done(*arm, load)?));
            let all: Vec<(Arm, Done)> = settable.filter_map(done).collect();
            Some(Place {
                load,
                oracle: oracle(&all)?,
                auto: self.done(Arm::Auto, load),
            })
        };
        self.bench.loads.iter().filter_map(place).collect()
    }

    fn regret_table(&self, places: &[Place]) -> Table {
        let over = |p: &Place, arm, by| {
            let pick = Pick::new(0, Arm::Auto).load(p.load);
            self.samples.ratio_cell(pick, arm, by)
        };
        let f = |p: &Place, name| cell(self.mean(Arm::Auto, p.load, name), 0, "");
        let oracle = |p: &Place| {
            let mark = if p.oracle.1.holds() { "" } else { " (harms)" };
            format!("{}{mark}", p.oracle.0.label())
        };
        let found = |p: &Place| match self.mean(Arm::Auto, p.load, "found_s") {
            Some(seconds) if !seconds.is_nan() => format!("{seconds:.0}"),
            _ => format!("not in {}", f(p, "search_s")),
        };
        Table::of(
            "auto against the oracle",
            places,
            &[
                ("main", &|p: &&Place| {
                    format!("{:.0} %", p.load * LEVEL_ONE_PCT)
                }),
                ("the oracle", &|p| oracle(p)),
                ("auto, %", &|p| f(p, "level_pct")),
                ("main's mean /", &|p| over(p, Arm::NoSide, AVERAGE)),
                ("p99 /", &|p| over(p, Arm::NoSide, P99)),
                ("of the oracle's: mean", &|p| over(p, p.oracle.0, AVERAGE)),
                ("p99", &|p| over(p, p.oracle.0, P99)),
                ("side's work", &|p| over(p, p.oracle.0, WORK)),
                ("found, s", &|p| found(p)),
            ],
        )
    }

    fn load_table(&self, load: f64) -> Table {
        let f = |arm: &Arm, name, scale: f64, digits| {
            cell(self.mean(*arm, load, name).map(|v| v / scale), digits, "")
        };
        let ratio = |arm: &Arm, by| {
            let pick = Pick::new(0, *arm).load(load);
            self.samples.ratio_cell(pick, Arm::NoSide, by)
        };
        let holds = |arm: &Arm| match self.done(*arm, load) {
            Some(done) if done.holds() => "yes",
            Some(_) => "no",
            None => "-",
        };
        let title = format!(
            "Load {load:.1} ({:.0} % of the machine)",
            load * LEVEL_ONE_PCT
        );
        Table::of(
            &title,
            self.bench.arms.clone(),
            &[
                ("side work", &|a| a.label()),
                ("avg ms", &|a| f(a, "avg_us", 1e3, 2)),
                ("p99", &|a| f(a, "p99_us", 1e3, 1)),
                ("avg / no side", &|a| ratio(a, AVERAGE)),
                ("p99 / no side", &|a| ratio(a, P99)),
                ("unharmed", &|a| holds(a).into()),
                ("main %", &|a| f(a, "main_pct", 1.0, 1)),
                ("side %", &|a| f(a, "side_pct", 1.0, 1)),
                ("side work/s", &|a| f(a, "side_rate", 1.0, 1)),
                ("steal %", &|a| f(a, "steal_pct", 1.0, 1)),
            ],
        )
    }

    fn plot(&self, load: f64) -> Result<plots::Plot, LabError> {
        let point = |arm: &Arm| {
            let done = self.done(*arm, load)?;
            Some((done.work, done.mean))
        };
        let settable = self.bench.arms.iter().filter(|arm| is_settable(**arm));
        let mut fixed: Vec<(f64, f64)> = settable.filter_map(point).collect();
        fixed.sort_by(|a, b| a.0.total_cmp(&b.0));
        let auto = point(&Arm::Auto);
        let right = most(fixed.iter().chain(&auto).map(|p| p.0)).max(0.1);
        let top = most(fixed.iter().chain(&auto).map(|p| p.1)).max(MEAN_AIM);
        let title = format!(
            "Main's mean over main alone, main {:.0} %",
            load * LEVEL_ONE_PCT
        );
        let x = format!("side's work, {} a second", self.bench.side_unit);
        plots::Lines::new(&title, &x, "ratio")
            .see("Down and to the right is better. The line is what can be set once.")
            .range(0.0..right * 1.05, 0.8..top + 0.1)
            .dots()
            .level("no harm", MEAN_AIM)
            .series("set once", 0, fixed)
            .series("Tidegate auto", 1, auto.into_iter().collect())
            .draw()
    }
}

fn headline(places: &[Place]) -> Vec<Headline> {
    let autos = || places.iter().filter_map(|p| Some((p.auto?, p.oracle.1)));
    if autos().next().is_none() {
        return Vec::new();
    }
    let worst = |name: &str, of: fn(Done, Done) -> f64, unit: &str| {
        let values = autos().map(|(auto, oracle)| of(auto, oracle));
        let value = most(values.filter(|value| value.is_finite()));
        Headline::new(&format!("{name}, worst load"), value, unit)
    };
    vec![
        worst(
            "auto: main's mean over main alone",
            |auto, _| auto.mean,
            "×",
        )
        .at_most(MEAN_AIM),
        worst("auto: main's p99 over main alone", |auto, _| auto.p99, "×").at_most(P99_AIM),
        worst(
            "auto: side's work lost to the oracle",
            |auto, oracle| Regret::of(auto, oracle).work_pct,
            "%",
        ),
    ]
}

fn notes(bench: &Bench<'_>) -> Vec<String> {
    let mut notes = bench.missing.clone();
    notes.push(format!(
        "Main: {}. Side: {}; its rate is in {}. The oracle takes, of side work as people start it, cpu.idle alone and the fixed \
         headrooms, the one with the most side work among those that keep main's mean within {MEAN_AIM} and its p99 within {P99_AIM} \
         of main alone in the same round; where none does, the one that is nearest ('harms'). Each of Tidegate's runs has an agent \
         of its own; auto is measured once a headroom is found, or after {:.0} s.",
        bench.main,
        bench.side.describe(),
        bench.side_unit,
        bench.search_s
    ));
    notes.push(
        "Others' laws (sideloader, koordlet, Katalyst, PerfIso, SmartHarvest) and a main that changes are in the simulated report \
         (--on sim) alone."
            .into(),
    );
    notes
}
