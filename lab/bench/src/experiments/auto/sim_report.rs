//! The report of simulated machines: every arm beside main alone, and what is lost by finding a headroom against the oracle.

use super::regret::{Done, Regret, oracle};
use super::sim::arms;
use super::sim_cells::{Bench, Cell, Contender, Main, Shared};
use super::{MEAN_AIM, P99_AIM};
use crate::LabError;
use crate::beds::sim::Stage;
use crate::report::{Headline, Report, Samples, Table, cell, plots};
use crate::stats::{geometric_mean, mean, most};

/// Main cannot keep up, and its latency grows for as long as the window is.
const MUCH: f64 = 100.0;
/// Higher is not drawn.
const DRAWN: f64 = 5.0;
/// A headroom is to be found by then, s.
const FOUND_BY_S: f64 = 60.0;

/// All runs.
struct SimRuns {
    samples: Samples<Cell>,
    arms: Vec<Contender>,
}

/// A machine and a main, with the arms that were run there.
struct Place {
    bench: Bench,
    main: Main,
    oracle: (Contender, Done),
    auto: Done,
}

/// Builds the report.
pub fn report(
    stage: &Stage<'_>,
    sizes: &[u32],
    samples: Samples<Cell>,
) -> Result<Report, LabError> {
    let example = samples.0[samples.0.len() - 1]
        .key
        .bench
        .config(stage.options.seed)?;
    let bed = stage.bed(sizes, &example, "EEVDF; Tidegate's engine on kernel files");
    let found = SimRuns {
        samples,
        arms: arms(stage.options.quick),
    };
    let places = found.places();
    let mut report = Report::new("auto", bed);
    report.rows = found.samples.rows();
    report.add_always_measured(found.headline(&places));
    report.tables.push(found.regret_table(&places));
    report.tables.push(found.all_places_table(&places));
    for bench in found.samples.chosen(|c| c.bench) {
        report.tables.push(found.arms_table(bench));
    }
    let shown = sizes[sizes.len() / 2];
    for bench in found.samples.chosen(|c| c.bench) {
        if bench.cpus == shown {
            report
                .plots
                .push(found.plot(bench, "mean", MEAN_AIM, |done| done.mean)?);
            report
                .plots
                .push(found.plot(bench, "p99", P99_AIM, |done| done.p99)?);
        }
    }
    report.notes = notes();
    Ok(report)
}

impl SimRuns {
    /// An arm beside main alone in the same round; a main that got nothing done is the worst there is.
    fn done(&self, bench: Bench, main: Main, arm: Contender) -> Option<Done> {
        let at = |c: &Cell, arm| (c.bench, c.main, c.arm) == (bench, main, arm);
        let ratio = |name: &str| {
            let over = |sample: &crate::report::Sample<Cell>| {
                let round = sample.key.round;
                let mut alone = self
                    .samples
                    .of(|c| at(c, Contender::Alone) && c.round == round);
                let base = alone.next()?.get(name);
                Some(match sample.get("requests") {
                    0.0 => f64::INFINITY,
                    _ => sample.get(name) / base,
                })
            };
            let ratios: Vec<f64> = self.samples.of(|c| at(c, arm)).filter_map(over).collect();
            geometric_mean(&ratios)
        };
        Some(Done {
            mean: ratio("avg_us")?,
            p99: ratio("p99_us")?,
            work: self.samples.mean("side_work_cpus", |c| at(c, arm)),
        })
    }

    fn places(&self) -> Vec<Place> {
        let place = |(bench, main)| {
            let settable = self.arms.iter().copied().filter(|arm| arm.is_settable());
            let done = |arm| Some((arm, self.done(bench, main, arm)?));
            let all: Vec<(Contender, Done)> = settable.filter_map(done).collect();
            Some(Place {
                bench,
                main,
                oracle: oracle(&all)?,
                auto: self.done(bench, main, Contender::Auto)?,
            })
        };
        let places = self.samples.chosen(|c| (c.bench, c.main));
        places.into_iter().filter_map(place).collect()
    }

    /// A figure of the search.
    fn searched(&self, place: &Place, name: &str) -> f64 {
        let at = |c: &Cell| (c.bench, c.main, c.arm) == (place.bench, place.main, Contender::Auto);
        self.samples.mean(name, at)
    }

    fn headline(&self, places: &[Place]) -> Vec<Headline> {
        let mut lines = Vec::new();
        for shared in Shared::ALL {
            let name = shared.name();
            let here: Vec<&Place> = places.iter().filter(|p| p.bench.shared == shared).collect();
            if here.is_empty() {
                continue;
            }
            let worst = |of: &dyn Fn(&Place) -> f64| most(here.iter().map(|p| of(p)));
            let regret = |p: &Place| Regret::of(p.auto, p.oracle.1);
            let line = |what: &str, value, unit: &str| {
                Headline::new(&format!("{what}, {name} shared, worst place"), value, unit)
            };
            lines.push(
                line("main's mean over main alone", worst(&|p| p.auto.mean), "×").at_most(MEAN_AIM),
            );
            lines.push(
                line("main's p99 over main alone", worst(&|p| p.auto.p99), "×").at_most(P99_AIM),
            );
            let lost_pct = |p: &Place| 100.0 * regret(p).work / f64::from(p.bench.cpus);
            let what = "side's work lost to the oracle";
            lines.push(line(what, worst(&lost_pct), "% of the machine"));
            let all: Vec<f64> = here.iter().map(|p| lost_pct(p)).collect();
            let what = format!("{what}, {name} shared, mean of places");
            let lost_pct = mean(&all).unwrap_or(f64::NAN);
            lines.push(Headline::new(&what, lost_pct, "% of the machine"));
            let seconds = |p: &Place| match self.searched(p, "found_s") {
                none if none.is_nan() => f64::INFINITY,
                seconds => seconds,
            };
            lines.push(line("time until found", worst(&seconds), "s").at_most(FOUND_BY_S));
            let held = |p: &Place| self.searched(p, "held_pct");
            lines.push(line(
                "time at 60 % after the search, to compare",
                worst(&held),
                "%",
            ));
        }
        lines
    }

    /// What finding a headroom loses.
    fn regret_table(&self, places: &[Place]) -> Table {
        let regret = |p: &Place| Regret::of(p.auto, p.oracle.1);
        let f = |p: &Place, name, digits, unit| cell(self.searched(p, name), digits, unit);
        let signed = |pct: f64| format!("{pct:+.1} %");
        let oracle = |p: &Place| {
            let mark = if p.oracle.1.holds() { "" } else { " (harms)" };
            format!("{}{mark}", p.oracle.0.label())
        };
        let found = |p: &Place| match self.searched(p, "found_s") {
            none if none.is_nan() => format!("not in {}", f(p, "search_s", 0, "")),
            seconds => format!("{seconds:.0}"),
        };
        Table::of(
            "auto against the oracle",
            places,
            &[
                ("machine", &|p: &&Place| p.bench.label()),
                ("main", &|p| p.main.label()),
                ("the oracle", &|p| oracle(p)),
                ("auto", &|p| f(p, "level_pct", 0, " %")),
                ("main's mean /", &|p| format!("{:.3}", p.auto.mean)),
                ("p99 /", &|p| format!("{:.3}", p.auto.p99)),
                ("mean, of the oracle's", &|p| signed(regret(p).mean_pct)),
                ("p99", &|p| signed(regret(p).p99_pct)),
                ("side's work", &|p| signed(-regret(p).work_pct)),
                ("of the machine", &|p| {
                    signed(-100.0 * regret(p).work / f64::from(p.bench.cpus))
                }),
                ("found, s", &|p| found(p)),
                ("held, searching", &|p| f(p, "held_searching_pct", 1, " %")),
                ("held, after", &|p| f(p, "held_pct", 1, " %")),
            ],
        )
    }

    /// Every arm over all machines and mains.
    fn all_places_table(&self, places: &[Place]) -> Table {
        let at = |arm: &Contender| -> Vec<(u32, Done)> {
            let done = |p: &Place| Some((p.bench.cpus, self.done(p.bench, p.main, *arm)?));
            places.iter().filter_map(done).collect()
        };
        let unharmed = |arm: &Contender| {
            let held = at(arm).iter().filter(|(_, done)| done.holds()).count();
            format!("{held} of {}", places.len())
        };
        let work = |arm: &Contender| {
            let parts = at(arm);
            let parts: Vec<f64> = parts
                .iter()
                .map(|(cpus, done)| 100.0 * done.work / f64::from(*cpus))
                .collect();
            cell(mean(&parts), 1, " %")
        };
        Table::of(
            "All machines and mains: where main is unharmed, and side's work of the machine",
            self.arms.iter().copied(),
            &[
                ("side work", &|arm| arm.label()),
                ("main unharmed", &|arm| unharmed(arm)),
                ("side's work", &|arm| work(arm)),
            ],
        )
    }

    /// Every arm at every main of a machine.
    fn arms_table(&self, bench: Bench) -> Table {
        let mains = self.samples.chosen(|c| c.main);
        let mains: Vec<Main> = mains
            .into_iter()
            .filter(|main| self.done(bench, *main, Contender::Alone).is_some())
            .collect();
        let mut columns = vec!["side work".to_owned()];
        columns.extend(mains.iter().map(|main| format!("main {}", main.label())));
        let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
        let title = format!(
            "{}: main's mean and p99 over main alone, side's work in CPUs at full speed (* within {MEAN_AIM} and {P99_AIM})",
            bench.label()
        );
        let mut table = Table::new(&title, &columns);
        let one = |main: &Main, arm| match self.done(bench, *main, arm) {
            Some(done) => {
                let mark = if done.holds() { " *" } else { "" };
                let [mean, p99] = [done.mean, done.p99].map(|ratio| match ratio {
                    much if much >= MUCH => format!("over {MUCH}"),
                    ratio => format!("{ratio:.3}"),
                });
                format!("{mean}  {p99}  {:.2}{mark}", done.work)
            }
            None => "-".into(),
        };
        for &arm in &self.arms {
            table.push(
                [arm.label()]
                    .into_iter()
                    .chain(mains.iter().map(|m| one(m, arm))),
            );
        }
        table
    }

    /// Harm over side's work, at the first load level of the machine that is in the middle.
    fn plot(
        &self,
        bench: Bench,
        what: &str,
        aim: f64,
        of: fn(Done) -> f64,
    ) -> Result<plots::Plot, LabError> {
        let steady: Vec<Main> = self
            .samples
            .chosen(|c| c.main)
            .into_iter()
            .filter(|m| !m.changes)
            .collect();
        let main = steady[steady.len() / 2];
        let point = |arm: Contender| {
            let done = self.done(bench, main, arm)?;
            Some((done.work, of(done))).filter(|point| point.1 <= DRAWN)
        };
        let settable = self.arms.iter().filter(|arm| arm.is_settable());
        let mut fixed: Vec<(f64, f64)> = settable.filter_map(|arm| point(*arm)).collect();
        fixed.sort_by(|a, b| a.0.total_cmp(&b.0));
        let others = Contender::LAWS.into_iter().chain([Contender::Auto]);
        let others: Vec<(Contender, (f64, f64))> =
            others.filter_map(|arm| Some((arm, point(arm)?))).collect();
        let all = || fixed.iter().chain(others.iter().map(|(_, p)| p));
        let right = most(all().map(|p| p.0)).max(0.1);
        let top = most(all().map(|p| p.1)).max(aim);
        let title = format!(
            "Main's {what} over main alone, {}, main {}",
            bench.label(),
            main.label()
        );
        let mut plot = plots::Lines::new(&title, "side's work, CPUs at full speed", "ratio")
            .see("Down and to the right is better. The line is what can be set once, from 60 % of headroom to as people start it.")
            .range(0.0..right * 1.05, 0.95..top + 0.05)
            .dots()
            .level("no harm", aim)
            .series("set once", 0, fixed.clone());
        for (colour, (arm, point)) in (1..).zip(&others) {
            plot = plot.series(&arm.label(), colour, vec![*point]);
        }
        plot.draw()
    }
}

fn notes() -> Vec<String> {
    let aims = format!(
        "The oracle takes, of side work as people start it, cpu.idle alone and the fixed headrooms, the one with the most side work \
         among those that keep main's mean within {MEAN_AIM} and its p99 within {P99_AIM} of main alone; where none does, the one \
         that is nearest ('harms'). `auto` itself aims at main's CPU time and waits within 5 % of what they are at 60 % of \
         headroom, and at 0.75 points more turns that wait long; it knows nothing of latencies."
    );
    vec![
        aims,
        "Main: the host lab's server (Poisson arrivals, requests of 0.5 to 1.5 ms, two workers a CPU, latency from the scheduled \
         arrival). Side: one thread a CPU that always wants more, in a group with cpu.idle except as people start it, and at weight 1 \
         where Tidegate keeps whole cores (cores shared, from 32 CPUs). Every arm meets arrivals from the same seed; `auto` is \
         measured once it has found a headroom, or after the longest search, so in a later window. A main that changes does so every \
         2 minutes beside `auto`, sooner beside the others, which remember seconds (Katalyst's law half a minute)."
            .into(),
        "Held: 60 % of headroom is kept, to compare. That is what probes cost side work: until a headroom is found first (or the \
         search ended), and after that, where it may be searched again."
            .into(),
        "Mechanism: the agent's own control step and search, the law of harm, the kernel's quota, idle class, cpusets and placement, \
         and the published laws (PerfIso's buffer is a sixth of the machine). The model's: how much a busy neighbour slows a CPU, \
         and the server. Cores shared: two threads a core. Caches shared: one. Nothing shared: CPUs do not slow each other at all."
            .into(),
    ]
}
