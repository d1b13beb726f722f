//! The report of simulated machines: ratios by load and size, and over the range of the contention coefficients.

use super::report::{AVERAGE, By, P99, Pick, Placing, Slowdown};
use super::sim_cells::{Arm, Cell, arm, config};
use crate::LabError;
use crate::beds::sim::Stage;
use crate::beds::sim::control::Control;
use crate::experiments::published;
use crate::report::samples::Column;
use crate::report::{Headline, Report, Sample, Samples, Table, cell, plots};
use crate::stats::least;

const BOTH: [By; 2] = [AVERAGE, P99];

/// All runs, and what was chosen for them.
struct SimRuns {
    samples: Samples<Cell>,
    sizes: Vec<u32>,
    loads: Vec<f64>,
}

/// Builds the report.
pub fn report(
    stage: &Stage<'_>,
    sizes: Vec<u32>,
    loads: Vec<f64>,
    samples: Vec<Sample<Cell>>,
) -> Result<Report, LabError> {
    let example = config(samples[0].key, stage.options.seed)?;
    let bed = stage.bed(&sizes, &example, "EEVDF; ext for its own arms");
    let shown = sizes[sizes.len() / 2];
    let found = SimRuns {
        samples: Samples(samples),
        sizes,
        loads,
    };
    let mut report = Report::new("headroom", bed);
    report.rows = found.samples.rows();
    for &cpus in &found.sizes {
        report.add_always_measured(found.headline(cpus));
        let ratios = BOTH.map(|by| found.ratios(cpus, by));
        report.tables.extend(ratios);
        report.tables.push(found.side(cpus));
    }
    report.tables.push(found.as_published(shown));
    report.tables.push(found.sweep());
    if found.loads.len() > 1 {
        for by in BOTH {
            report.plots.push(found.plot(shown, by)?);
        }
    }
    report.notes = found.notes();
    Ok(report)
}

impl SimRuns {
    fn mean(&self, pick: Pick<Arm>, name: &str) -> Option<f64> {
        self.samples.of_pick(pick, name)
    }

    fn ratio(&self, pick: Pick<Arm>, by: By) -> Option<f64> {
        self.samples.ratio(pick, Arm::NO_SIDE, by)
    }

    /// The worst load's ratio.
    fn worst(&self, cpus: u32, arm: Arm, over: Arm, by: By) -> Option<f64> {
        let at = |l: &f64| self.samples.ratio(Pick::new(cpus, arm).load(*l), over, by);
        self.loads.iter().filter_map(at).reduce(f64::max)
    }

    fn headline(&self, cpus: u32) -> Vec<Headline> {
        let mut lines = Vec::new();
        let worst_load = |arm: Arm, by: By, over: &str, r| {
            let what = by.0;
            let name = format!(
                "main's {what} over {over}, {cpus} CPUs, worst load: {}",
                arm.label()
            );
            Headline::new(&name, r, "×")
        };
        for (by, limit) in [(AVERAGE, 1.05), (P99, 1.15)] {
            for arm in Arm::ALL.into_iter().skip(1) {
                let Some(r) = self.worst(cpus, arm, Arm::NO_SIDE, by) else {
                    continue;
                };
                let of_load = |l: &f64| published::at_load(*l)?.ratio(&arm.published_key());
                let published = self.loads.iter().filter_map(of_load).reduce(f64::max);
                let h = worst_load(arm, by, "no side work", r)
                    .published(published.filter(|_| by == AVERAGE));
                lines.push(h.when(arm.has_target(), |h| h.at_most(limit)));
            }
        }
        for arm in Arm::ALL.into_iter().filter(|a| a.has_target()) {
            for by in BOTH {
                let r = self.worst(cpus, arm, Arm::CPU_IDLE, by);
                lines.extend(r.map(|r| {
                    let met = crate::report::Met::of(r < 1.0);
                    worst_load(arm, by, "cpu.idle alone", r).target("< 1", met)
                }));
            }
            let pick = Pick::new(cpus, arm);
            let worst = least(self.samples.all("reclaim_pct", |run| pick.takes(run)));
            let name = format!("reclaim, {cpus} CPUs, worst cell: {}", arm.label());
            lines.push(Headline::new(&name, worst, "%").at_least(95.0));
        }
        lines
    }

    /// Ratios to no side work, one column a load.
    fn ratios(&self, cpus: u32, by: By) -> Table {
        let names: Vec<String> = self.loads.iter().map(|l| format!("{l:.1}")).collect();
        let mut columns = vec!["side work"];
        columns.extend(names.iter().map(String::as_str));
        columns.push("all loads");
        let title = format!("Main's {} over no side work, {cpus} CPUs, by load", by.0);
        let mut t = Table::new(&title, &columns);
        for arm in Arm::ALL.into_iter().skip(1) {
            let pick = Pick::new(cpus, arm);
            let picks = self.loads.iter().map(|l| pick.load(*l)).chain([pick]);
            let cells = picks.map(|pick| cell(self.ratio(pick, by), 3, ""));
            t.push(std::iter::once(arm.label()).chain(cells));
        }
        for (key, name) in [
            ("weight_1", "published: weight 1"),
            ("tidegate_30", "published: headroom 30 %"),
            ("tidegate_20", "published: headroom 20 %"),
        ] {
            if by == AVERAGE {
                let published =
                    |l: &f64| cell(published::at_load(*l).and_then(|r| r.ratio(key)), 2, "");
                let cells = self.loads.iter().map(published);
                t.push(
                    std::iter::once(name.into())
                        .chain(cells)
                        .chain(["-".into()]),
                );
            }
        }
        t
    }

    /// What side got, over all loads.
    fn side(&self, cpus: u32) -> Table {
        let pick = |arm: &Arm| Pick::new(cpus, *arm);
        let f = |arm: &Arm, name, scale: f64, digits| {
            cell(self.mean(pick(arm), name).map(|v| v / scale), digits, "")
        };
        let side = |arm: &Arm, value: Option<f64>, digits| {
            cell(value.filter(|_| *arm != Arm::NO_SIDE), digits, " %")
        };
        let done = |arm: &Arm| self.samples.side_work_pct(pick(arm), "side_work_cpus");
        Table::of(
            &format!("Who had the machine, {cpus} CPUs, mean of all loads"),
            Arm::ALL,
            &[
                ("side work", &|a| a.label()),
                ("main avg, ms", &|a| f(a, "avg_us", 1e3, 3)),
                ("main p99, ms", &|a| f(a, "p99_us", 1e3, 3)),
                ("main, %", &|a| f(a, "main_pct", 1.0, 1)),
                ("side, %", &|a| f(a, "side_pct", 1.0, 1)),
                ("idle, %", &|a| f(a, "idle_pct", 1.0, 1)),
                ("reclaim", &|a| {
                    side(a, self.mean(pick(a), "reclaim_pct"), 1)
                }),
                ("side work done, of cpu.idle's", &|a| side(a, done(a), 0)),
            ],
        )
    }

    /// In the cpu.headroom patches' own form: everything over no side work at load 1.0.
    fn as_published(&self, cpus: u32) -> Table {
        let avg =
            |control, pct, load| self.mean(Pick::new(cpus, arm(control, pct)).load(load), "avg_us");
        let one = self.loads.first().and_then(|l| avg(Control::NoSide, 0, *l));
        let ours = |l: &f64, control, pct| {
            cell(
                avg(control, pct, *l).zip(one).map(|(a, one)| a / one),
                2,
                "",
            )
        };
        let published = |l: &f64, of: fn(&published::LatencyRow) -> Option<f64>| {
            cell(published::at_load(*l).and_then(of), 2, "")
        };
        let title = format!(
            "Main's average as the cpu.headroom patches (2019) print it (1: no side work at the first load), {cpus} CPUs"
        );
        Table::of(
            &title,
            self.loads.iter().copied().filter(|_| one.is_some()),
            &[
                ("load", &|l| format!("{l:.1}")),
                ("published: no side", &|l| published(l, |r| Some(r.alone))),
                ("no side", &|l| ours(l, Control::NoSide, 0)),
                ("published: weight 1", &|l| published(l, |r| r.weight_one)),
                ("weight 1", &|l| ours(l, Control::WeightOne, 0)),
                ("published: 30 %", &|l| published(l, |r| r.headroom_30)),
                ("knobs 30 %", &|l| ours(l, Control::KnobsBpf, 30)),
                ("published: 20 %", &|l| published(l, |r| r.headroom_20)),
                ("knobs 20 %", &|l| ours(l, Control::KnobsBpf, 20)),
            ],
        )
    }

    /// Ratios over the range of the coefficients.
    fn sweep(&self) -> Table {
        let swept = self
            .samples
            .of(|run| run.slowdown != Slowdown::Shipped)
            .next();
        let (cpus, load) = swept.map_or((0, 0.0), |s| (s.key.cpus, s.key.load));
        let slowdowns = self.samples.chosen(|run| run.slowdown);
        let f = |slowdown: &Slowdown, control, headroom_pct, by| {
            let pick = Pick::new(cpus, arm(control, headroom_pct)).load(load);
            let slowdown = *slowdown;
            cell(self.ratio(Pick { slowdown, ..pick }, by), 3, "")
        };
        let columns: [Column<'_, Slowdown>; 7] = [
            ("contention", &|s| s.label()),
            ("avg: cpu.idle", &|s| f(s, Control::CpuIdle, 0, AVERAGE)),
            ("knobs 30 %", &|s| f(s, Control::KnobsBpf, 30, AVERAGE)),
            ("whole cores", &|s| f(s, Control::KnobsCores, 30, AVERAGE)),
            ("p99: cpu.idle", &|s| f(s, Control::CpuIdle, 0, P99)),
            ("knobs 30 %", &|s| f(s, Control::KnobsBpf, 30, P99)),
            ("whole cores", &|s| f(s, Control::KnobsCores, 30, P99)),
        ];
        let title = format!(
            "Contention swept, {cpus} CPUs, load {load:.1}: over no side work at the same contention"
        );
        Table::of(&title, slowdowns, &columns)
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = vec![
        "Main: the host lab's server (Poisson arrivals, requests of 0.5 to 1.5 ms, two workers a CPU, \
         latency from the scheduled arrival); load 1.0 is 25 % of the machine. Side: one thread a CPU that \
         always wants more, in a group with cpu.idle except under 'weight 1'. Every arm meets the same \
         arrivals; ratios are to no side work of the same size, load and round."
            .to_string(),
        "Mechanism: who runs where and when, by the kernel's rules for wakeup placement, preemption, weights, \
         idle groups and quotas, and by Tidegate's own control step (its code, with its sensing and its writes) \
         or the published laws. The model's: how much a busy neighbour slows a CPU (one function, the same for \
         every pair of programs), what switches and wakeups cost, and the server. With contention at 0 % what \
         is left is scheduling alone; the sweep shows what each part makes of the result."
            .to_string(),
        "Where CPUs share cores, a quota that is raised slows main (and each write frees every CPU until its next tick), \
         which looks like a step of main; the law knows what its own raise does and does not answer it. The full form's \
         knobs arms run for 16 s on 64 CPUs and more, and for 4 s on smaller machines, before they are judged."
            .to_string(),
    ];
        for &cpus in &self.sizes {
            let no_gain = BOTH.iter().filter_map(|by| self.no_gain(cpus, *by));
            notes.extend(no_gain);
        }
        notes
    }

    /// Where Tidegate at 30 % does not gain over cpu.idle alone.
    fn no_gain(&self, cpus: u32, by: By) -> Option<String> {
        let arm = arm(Control::KnobsBpf, 30);
        let at = |l| {
            self.samples
                .ratio(Pick::new(cpus, arm).load(l), Arm::CPU_IDLE, by)
        };
        let worse: Vec<String> = self
            .loads
            .iter()
            .filter_map(|&l| Some((l, at(l)?)))
            .filter(|(_, r)| *r >= 1.0)
            .map(|(l, r)| format!("{l:.1} ({r:.3} ×)"))
            .collect();
        (!worse.is_empty()).then(|| {
            format!(
                "No gain over cpu.idle alone in main's {}: {} on {cpus} CPUs, at load {}.",
                by.0,
                arm.label(),
                worse.join(", ")
            )
        })
    }

    fn plot(&self, cpus: u32, by: By) -> Result<plots::Plot, LabError> {
        const SHOWN: [Arm; 6] = [
            arm(Control::WeightOne, 0),
            Arm::CPU_IDLE,
            arm(Control::KnobsBpf, 30),
            arm(Control::StaticMax, 30),
            arm(Control::Sideloader, 30),
            arm(Control::Koordlet, 35),
        ];
        let mut loads = self.loads.clone();
        loads.sort_by(f64::total_cmp);
        let (low, high) = (loads[0], loads[loads.len() - 1]);
        let line = |arm: &Arm| -> Vec<(f64, f64)> {
            let at = |l: &f64| Some((*l, self.ratio(Pick::new(cpus, *arm).load(*l), by)?));
            loads
                .iter()
                .filter_map(at)
                .filter(|(_, r)| r.is_finite())
                .collect()
        };
        let lines = SHOWN.map(|arm| line(&arm));
        let most = lines.iter().flatten().map(|(_, r)| *r).fold(1.1, f64::max);
        let title = format!("Main's {} over no side work, {cpus} CPUs", by.0);
        let mut plot = plots::Lines::new(&title, "load (1.0 is 25 % of the machine)", "ratio")
            .see("1 is main alone; each line is a way of holding side work back.")
            .range(low..high.max(low + 0.01), 0.95..most + 0.05)
            .dots()
            .level("target", if by == AVERAGE { 1.05 } else { 1.15 });
        for (i, (arm, line)) in SHOWN.iter().zip(lines).enumerate() {
            plot = plot.series(&arm.label(), i, line);
        }
        plot.draw()
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::{Run, sample};
    use super::*;
    use crate::beds::host::samplers::Shares;
    use crate::dist::Latency;

    fn run(arm: Arm, load: f64, round: u32, avg_us: f64) -> Sample<Cell> {
        let latency = Latency {
            avg_us,
            p99_us: 3.0 * avg_us,
            ..Latency::default()
        };
        let run = Run {
            cpus: 16,
            load,
            arm,
            slowdown: Slowdown::Shipped,
            round,
        };
        sample(run, &latency, &Shares::default())
    }

    fn found(samples: Vec<Sample<Cell>>) -> SimRuns {
        SimRuns {
            samples: Samples(samples),
            sizes: vec![16],
            loads: vec![1.0, 1.2, 1.4],
        }
    }

    #[test]
    fn ratios_pair_by_size_load_and_round() {
        let side = Arm::CPU_IDLE;
        let all = found(vec![
            run(Arm::NO_SIDE, 1.0, 0, 1.0),
            run(side, 1.0, 0, 2.0),
            run(Arm::NO_SIDE, 1.0, 1, 10.0),
            run(side, 1.0, 1, 20.0),
            run(Arm::NO_SIDE, 1.2, 0, 1.0),
            run(side, 1.2, 0, 3.0),
            run(side, 1.4, 0, 99.0),
        ]);
        let near = |r: Option<f64>, want: f64| r.is_some_and(|r| (r - want).abs() < 1e-9);
        assert!(near(all.ratio(Pick::new(16, side).load(1.0), P99), 2.0));
        let worst = all.worst(16, side, Arm::NO_SIDE, AVERAGE);
        assert!(near(worst, 3.0), "an unpaired cell does not count");
        assert!(all.ratio(Pick::new(64, side), P99).is_none());
    }

    #[test]
    fn a_starved_main_is_the_worst_and_not_left_out() {
        let starved = run(Arm::CPU_IDLE, 1.0, 0, 0.0).aside("starved", 1.0);
        let all = found(vec![run(Arm::NO_SIDE, 1.0, 0, 1.0), starved]);
        let got = all.ratio(Pick::new(16, Arm::CPU_IDLE), P99);
        assert_eq!(got, Some(f64::INFINITY));
    }

    #[test]
    fn where_there_is_no_gain_the_report_says_so() {
        let knobs = arm(Control::KnobsBpf, 30);
        let all = found(vec![
            run(Arm::CPU_IDLE, 1.0, 0, 2.0),
            run(knobs, 1.0, 0, 1.0),
            run(Arm::CPU_IDLE, 1.2, 0, 2.0),
            run(knobs, 1.2, 0, 3.0),
        ]);
        let line = all.no_gain(16, Control::KnobsBpf, AVERAGE);
        let line = line.expect("a load without gain");
        assert!(line.contains("at load 1.2 (1.500 ×)"), "{line}");
    }
}
