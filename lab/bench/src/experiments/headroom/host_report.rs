//! The report of a real kernel: paired ratios with their intervals, the cpu.headroom patches' table beside ours.

use super::LEVEL_ONE_PCT;
use super::bench::{Bench, STEAL_LOUD_PCT};
use super::report::{AVERAGE, By, P99, Pick, Run};
use crate::LabError;
use crate::beds::host::LOUD_PCT;
use crate::beds::host::arms::Arm;
use crate::experiments::published;
use crate::report::{Headline, Report, Sample, Samples, Table, cell, plots};
use crate::stats::{geometric_mean, mean, most};

const TIDEGATE: Arm = Arm::Tidegate { headroom_pct: 30 };
const TIDEGATE_20: Arm = Arm::Tidegate { headroom_pct: 20 };
const EXT: Arm = Arm::Ext { headroom_pct: 30 };

/// All runs and what was set up for them.
struct HostRuns<'a> {
    bench: &'a Bench<'a>,
    samples: Samples<Run<Arm>>,
}

/// Builds the report.
pub fn report(bench: Bench<'_>, samples: Vec<Sample<Run<Arm>>>) -> Result<Report, LabError> {
    let mut report = Report::new("headroom", bench.setup.machine.clone());
    let found = HostRuns {
        bench: &bench,
        samples: Samples(samples),
    };
    report.rows = found.samples.rows();
    report.headline = found.headline();
    let levels = bench.loads.iter().map(|load| found.level_table(*load));
    report.tables = levels.chain([found.rounds_table()]).collect();
    if bench.loads.len() > 1 {
        report.plots = vec![
            found.latency_plot("average", AVERAGE)?,
            found.latency_plot("99th percentile", P99)?,
        ];
    }
    report.notes = notes(&bench);
    Ok(report)
}

impl HostRuns<'_> {
    fn mean(&self, arm: Arm, load: Option<f64>, name: &str) -> Option<f64> {
        let pick = Pick { load, ..pick(arm) };
        self.samples.of_pick(pick, name)
    }

    fn level_table(&self, load: f64) -> Table {
        let at = Some(load);
        let f = |arm: &Arm, name, scale: f64, digits| {
            cell(self.mean(*arm, at, name).map(|v| v / scale), digits, "")
        };
        let ratio = |arm: &Arm, by| {
            let pick = pick(*arm).load(load);
            self.samples.ratio_cell(pick, Arm::NoSide, by)
        };
        let published = |arm: &Arm| published::at_load(load).and_then(|r| r.ratio(&arm.key()));
        let done = |arm: &Arm| {
            self.samples
                .side_work_pct(pick(*arm).load(load), "side_rate")
        };
        let side = |arm: &Arm, text: String| {
            if *arm == Arm::NoSide {
                "-".into()
            } else {
                text
            }
        };
        Table::of(
            &format!(
                "Load {load:.1} ({:.0} % of the machine)",
                load * LEVEL_ONE_PCT
            ),
            self.bench.arms.clone(),
            &[
                ("side work", &|a| a.label()),
                ("avg ms", &|a| f(a, "avg_us", 1e3, 2)),
                ("p50", &|a| f(a, "p50_us", 1e3, 2)),
                ("p99", &|a| f(a, "p99_us", 1e3, 1)),
                ("p99.9", &|a| f(a, "p999_us", 1e3, 1)),
                ("avg / no side", &|a| ratio(a, AVERAGE)),
                ("p99 / no side", &|a| ratio(a, P99)),
                ("published: avg /", &|a| cell(published(a), 2, "")),
                ("main %", &|a| f(a, "main_pct", 1.0, 1)),
                ("side %", &|a| f(a, "side_pct", 1.0, 1)),
                ("idle %", &|a| f(a, "idle_pct", 1.0, 1)),
                ("side work/s", &|a| side(a, f(a, "side_rate", 1.0, 1))),
                ("of cpu.idle's", &|a| side(a, cell(done(a), 0, " %"))),
                ("reclaim", &|a| {
                    cell(self.mean(*a, at, "reclaim_pct"), 0, " %")
                }),
            ],
        )
    }

    fn rounds_table(&self) -> Table {
        let all = |round: u32, name| self.samples.all(name, |run| run.round == round);
        let average = |round, name| mean(&all(round, name)).unwrap_or(0.0);
        let mark = |round| {
            let (steal, others) = (average(round, "steal_pct"), average(round, "other_pct"));
            match (steal > STEAL_LOUD_PCT, others > LOUD_PCT) {
                (true, _) => "loud: steal above 5 %",
                (_, true) => "loud: other programs",
                _ => "",
            }
        };
        let rounds = self.samples.0.iter().map(|s| s.key.round + 1).max();
        let pct = |value: f64| format!("{value:.1} %");
        Table::of(
            "Disturbance by round",
            0..rounds.unwrap_or(1),
            &[
                ("round", &|r| (r + 1).to_string()),
                ("mean steal", &|r| pct(average(*r, "steal_pct"))),
                ("worst cell", &|r| pct(most(all(*r, "steal_pct")))),
                ("other programs", &|r| pct(average(*r, "other_pct"))),
                ("mark", &|r| mark(*r).into()),
            ],
        )
    }

    fn headline(&self) -> Vec<Headline> {
        let mut lines = Vec::new();
        for (arm, by, target) in [
            (Arm::Together, AVERAGE, None),
            (Arm::WeightOne, AVERAGE, None),
            (Arm::CpuIdle, AVERAGE, None),
            (TIDEGATE, AVERAGE, Some(1.05)),
            (TIDEGATE_20, AVERAGE, None),
            (Arm::Together, P99, None),
            (Arm::CpuIdle, P99, None),
            (TIDEGATE, P99, Some(1.15)),
            (EXT, AVERAGE, Some(1.05)),
            (EXT, P99, Some(1.15)),
        ] {
            let Some((value, interval)) = self.samples.ratio95(pick(arm), Arm::NoSide, by) else {
                continue;
            };
            let name = format!("main's {} over no side work: {}", by.0, arm.label());
            let h = Headline::new(&name, value, "×").interval(interval);
            let h = h.when(by == AVERAGE, |h| {
                h.published(published_ratio(arm, &self.bench.loads))
            });
            lines.push(match target {
                Some(limit) => h.at_most(limit),
                None => h,
            });
        }
        for arm in [TIDEGATE, TIDEGATE_20, EXT] {
            let of =
                |what: &str, value| Headline::new(&format!("{what}: {}", arm.label()), value, "%");
            let reclaim = self.mean(arm, None, "reclaim_pct");
            lines.extend(reclaim.map(|pct| of("reclaim", pct).at_least(95.0)));
            let done = self.samples.side_work_pct(pick(arm), "side_rate");
            lines.extend(done.map(|pct| of("side work done, of cpu.idle's", pct)));
        }
        lines
    }

    fn latency_plot(&self, what: &str, by: By) -> Result<plots::Plot, LabError> {
        let mut loads = self.bench.loads.clone();
        loads.sort_by(f64::total_cmp);
        let (low, high) = (loads[0], loads[loads.len() - 1]);
        let title = format!("Main's {what} latency");
        let mut plot = plots::Lines::new(&title, "load (1.0 is 25 % of the machine)", "latency, ms")
            .see("Each line is a way of placing side work; lower is better, and 'no side work' is the floor.")
            .range(low..high.max(low + 0.01), 0.0..1.0)
            .dots()
            .log_y();
        for (i, &arm) in self.bench.arms.iter().enumerate() {
            let at = |l: &f64| Some((*l, self.mean(arm, Some(*l), by.1)? / 1000.0));
            plot = plot.series(&arm.label(), i, loads.iter().filter_map(at).collect());
        }
        plot.draw()
    }
}

/// The cpu.headroom patches' ratio over the levels that were run, where it has them.
fn published_ratio(arm: Arm, loads: &[f64]) -> Option<f64> {
    let of_load = |load: &f64| published::at_load(*load)?.ratio(&arm.key());
    let ratios: Vec<f64> = loads.iter().filter_map(of_load).collect();
    geometric_mean(&ratios)
}

/// This machine is one, as it is.
fn pick(arm: Arm) -> Pick<Arm> {
    Pick::new(0, arm)
}

fn notes(bench: &Bench<'_>) -> Vec<String> {
    let mut notes = bench.missing.clone();
    notes.push(format!(
        "Main: {}. Side: {}; its rate is in {}. Load 1.0 is {LEVEL_ONE_PCT:.0} % of the machine; one \
         millisecond of work is {} steps, calibrated once on an idle CPU, so every arm does the same \
         work. Ratios are to no side work in the same round at the same load (geometric mean, 95 % \
         bootstrap interval from three rounds on); headlines are over all loads. Published (cpu.headroom patches, 2019): side at \
         cpu.weight 1, 'weight 1' is its arm without headroom.",
        bench.main,
        bench.side.describe(),
        bench.side_unit,
        bench.steps_per_ms
    ));
    if bench.setup.machine.cpus <= 4 {
        notes.push(
            "On a machine of few CPUs, and more so on virtual ones that share a core, busy CPUs slow \
             each other: the large effect of side work as people start it shows, one of a few percent \
             does not, and the targets of 1.05 and 1.15 are for larger machines."
                .into(),
        );
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::super::report::{Slowdown, reclaim_pct, sample};
    use super::*;
    use crate::beds::host::samplers::Shares;
    use crate::dist::Latency;

    fn shares() -> Shares {
        Shares {
            main_pct: 25.0,
            side_pct: 43.0,
            other_pct: 1.0,
            ..Shares::default()
        }
    }

    fn run(round: u32, load: f64, arm: Arm, avg_us: f64) -> Sample<Run<Arm>> {
        let latency = Latency {
            avg_us,
            p99_us: 4.0 * avg_us,
            ..Latency::default()
        };
        let (cpus, slowdown) = (0, Slowdown::Shipped);
        let run = Run {
            cpus,
            load,
            arm,
            slowdown,
            round,
        };
        sample(run, &latency, &shares())
    }

    #[test]
    fn a_ratio_pairs_with_its_own_round_and_level() {
        let samples = Samples(vec![
            run(0, 1.0, Arm::NoSide, 1000.0),
            run(0, 1.0, Arm::Together, 2000.0),
            run(1, 1.0, Arm::NoSide, 4000.0),
            run(1, 1.0, Arm::Together, 8000.0),
            run(0, 1.4, Arm::Together, 9000.0),
        ]);
        let ratios = samples.ratios(pick(Arm::Together), Arm::NoSide, AVERAGE);
        assert_eq!(ratios, [2.0, 2.0], "an unpaired run does not count");
        assert!(
            samples
                .ratio(pick(Arm::CpuIdle), Arm::NoSide, P99)
                .is_none()
        );
    }

    #[test]
    fn reclaim_counts_what_the_headroom_left() {
        assert!((reclaim_pct(TIDEGATE, &shares()) - 100.0 * 43.0 / 44.0).abs() < 1e-9);
        assert!((reclaim_pct(Arm::CpuIdle, &shares()) - 100.0 * 43.0 / 74.0).abs() < 1e-9);
    }

    #[test]
    fn the_published_ratio_stands_beside_its_own_arms() {
        let near = |a: Option<f64>, b: f64| a.is_some_and(|a| (a - b).abs() < 1e-6);
        assert!(near(published_ratio(TIDEGATE, &[1.0]), 1.26));
        assert!(near(published_ratio(Arm::WeightOne, &[1.0, 1.2]), 1.82));
        assert!(published_ratio(Arm::Together, &[1.0]).is_none());
    }
}
