//! What `tidegate lab headroom --on sim` makes of its cells.

use serde_json::json;

use super::control::Control;
use super::headroom::{Arm, Cell, Outcome, Slowdown, config};
use super::headroom_tables as tables;
use super::setup::TOLERANCE_PCT;
use super::stage::Stage;
use crate::LabError;
use crate::experiments::headroom::LEVEL_ONE_PCT;
use crate::experiments::published;
use crate::experiments::{num, row};
use crate::report::{Headline, Met, Report, plots};
use crate::stats::{geometric_mean, least, mean};

/// What main's latency is judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Its mean.
    Average,
    /// Its 99th percentile.
    P99,
}

impl By {
    /// In words.
    pub fn label(self) -> &'static str {
        match self {
            By::Average => "average",
            By::P99 => "p99",
        }
    }

    /// Of one cell.
    pub fn of(self, o: &Outcome) -> f64 {
        match self {
            By::Average => o.latency.avg_us,
            By::P99 => o.latency.p99_us,
        }
    }
}

/// Which cells.
#[derive(Clone, Copy, Debug)]
pub struct Pick {
    /// Size.
    pub cpus: u32,
    /// Load, or all.
    pub load: Option<f64>,
    /// Arm.
    pub arm: Arm,
    /// Contention.
    pub slowdown: Slowdown,
}

impl Pick {
    /// As shipped, all loads.
    pub fn new(cpus: u32, arm: Arm) -> Self {
        Pick {
            cpus,
            load: None,
            arm,
            slowdown: Slowdown::Shipped,
        }
    }

    /// At one load.
    pub fn load(self, load: f64) -> Self {
        Pick {
            load: Some(load),
            ..self
        }
    }

    fn takes(&self, c: &Cell) -> bool {
        c.cpus == self.cpus
            && c.arm == self.arm
            && c.slowdown == self.slowdown
            && self.load.is_none_or(|l| l == c.load)
    }
}

/// The mean of a figure over the picked cells.
pub fn of(outcomes: &[Outcome], pick: Pick, f: impl Fn(&Outcome) -> f64) -> Option<f64> {
    let chosen = outcomes.iter().filter(|o| pick.takes(&o.cell));
    mean(&chosen.map(f).collect::<Vec<_>>())
}

/// Over another arm at the same size, load, contention and round (geometric mean).
pub fn ratio(outcomes: &[Outcome], pick: Pick, over: Arm, by: By) -> Option<f64> {
    let ratios: Vec<f64> = outcomes
        .iter()
        .filter(|o| pick.takes(&o.cell))
        .filter_map(|o| {
            let base = Cell {
                arm: over,
                ..o.cell
            };
            let base = outcomes.iter().find(|b| b.cell == base)?;
            // A main that got nothing done has no latency to show: the worst there is, not a cell to leave out.
            if o.latency.completed == 0 {
                return Some(f64::INFINITY);
            }
            let r = by.of(o) / by.of(base);
            (r.is_finite() && r > 0.0).then_some(r)
        })
        .collect();
    geometric_mean(&ratios)
}

/// The worst load's ratio.
fn worst(outcomes: &[Outcome], pick: Pick, loads: &[f64], over: Arm, by: By) -> Option<f64> {
    let at = |l: &f64| ratio(outcomes, pick.load(*l), over, by);
    loads
        .iter()
        .filter_map(at)
        .fold(None, |a, r| Some(r.max(a.unwrap_or(0.0))))
}

/// Side's CPU over what main left above the arm's headroom, percent.
pub fn reclaim_pct(o: &Outcome) -> f64 {
    let headroom = if o.cell.arm.control.is_tidegate() {
        f64::from(o.cell.arm.headroom_pct)
    } else {
        0.0
    };
    100.0 * o.shares.side_pct / (100.0 - headroom - o.shares.main_pct).max(TOLERANCE_PCT)
}

/// Builds the report.
pub fn report(
    stage: &Stage<'_>,
    sizes: &[u32],
    loads: &[f64],
    outcomes: &[Outcome],
) -> Result<Report, LabError> {
    let example = config(outcomes[0].cell, stage.options.seed)?;
    let bed = stage.bed(sizes, &example, "EEVDF; ext for its own arms");
    let mut report = Report::new("headroom", bed);
    report.rows = outcomes.iter().map(json_row).collect();
    for &cpus in sizes {
        report.headline.extend(headline(outcomes, cpus, loads));
        report
            .tables
            .push(tables::ratios(outcomes, cpus, loads, By::Average));
        report
            .tables
            .push(tables::ratios(outcomes, cpus, loads, By::P99));
        report.tables.push(tables::side(outcomes, cpus));
    }
    let shown = sizes[sizes.len() / 2];
    report
        .tables
        .push(tables::as_the_seed(outcomes, shown, loads));
    report.tables.push(tables::sweep(outcomes));
    if loads.len() > 1 {
        for by in [By::Average, By::P99] {
            report.plots.push(plot(outcomes, shown, loads, by)?);
        }
    }
    report.notes = notes(outcomes, sizes, loads);
    Ok(report)
}

fn json_row(o: &Outcome) -> serde_json::Map<String, serde_json::Value> {
    let (c, l, s) = (&o.cell, &o.latency, &o.shares);
    row(json!({
        "cpus": c.cpus, "load": c.load, "load_pct": num(c.load * LEVEL_ONE_PCT), "arm": c.arm.key(),
        "contention": c.slowdown.label(), "round": c.round + 1, "avg_us": num(l.avg_us),
        "p50_us": num(l.p50_us), "p90_us": num(l.p90_us), "p99_us": num(l.p99_us),
        "p999_us": num(l.p999_us), "max_us": num(l.max_us), "requests": l.completed,
        "main_pct": num(s.main_pct), "side_pct": num(s.side_pct), "idle_pct": num(s.idle_pct),
        "side_work_cpus": num(o.side_work_cpus), "reclaim_pct": num(reclaim_pct(o)),
        "seconds": num(s.seconds),
    }))
}

fn headline(outcomes: &[Outcome], cpus: u32, loads: &[f64]) -> Vec<Headline> {
    let mut lines = Vec::new();
    for (by, limit) in [(By::Average, 1.05), (By::P99, 1.15)] {
        for arm in Arm::ALL.into_iter().skip(1) {
            let Some(r) = worst(outcomes, Pick::new(cpus, arm), loads, Arm::NO_SIDE, by) else {
                continue;
            };
            let what = by.label();
            let name = format!(
                "main's {what} over no side work, {cpus} CPUs, worst load: {}",
                arm.label()
            );
            let mut h = Headline::new(&name, r, "×");
            if by == By::Average {
                let seed = loads
                    .iter()
                    .filter_map(|&l| published::at_load(l)?.ratio(&arm.seed_key()));
                h = h.published(seed.fold(None, |a: Option<f64>, r| Some(r.max(a.unwrap_or(0.0)))));
            }
            if arm.has_target() {
                h = h.target(&format!("≤ {limit}"), Met::of(r <= limit));
            }
            lines.push(h);
        }
    }
    for arm in Arm::ALL.into_iter().filter(|a| a.has_target()) {
        for by in [By::Average, By::P99] {
            if let Some(r) = worst(outcomes, Pick::new(cpus, arm), loads, Arm::CPU_IDLE, by) {
                let what = by.label();
                let name = format!(
                    "main's {what} over cpu.idle alone, {cpus} CPUs, worst load: {}",
                    arm.label()
                );
                lines.push(Headline::new(&name, r, "×").target("< 1", Met::of(r < 1.0)));
            }
        }
        let cells = outcomes
            .iter()
            .filter(|o| Pick::new(cpus, arm).takes(&o.cell));
        let worst = least(cells.map(reclaim_pct));
        let name = format!("reclaim, {cpus} CPUs, worst cell: {}", arm.label());
        lines.push(Headline::new(&name, worst, "%").target("≥ 95", Met::of(worst >= 95.0)));
    }
    lines
}

fn notes(outcomes: &[Outcome], sizes: &[u32], loads: &[f64]) -> Vec<String> {
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
    for &cpus in sizes {
        for control in [Control::KnobsBpf, Control::Ext] {
            for by in [By::Average, By::P99] {
                if let Some(line) = no_gain(outcomes, cpus, loads, control, by) {
                    notes.push(line);
                }
            }
        }
    }
    notes
}

/// Where Tidegate at 30 % does not gain over cpu.idle alone.
fn no_gain(
    outcomes: &[Outcome],
    cpus: u32,
    loads: &[f64],
    control: Control,
    by: By,
) -> Option<String> {
    let arm = Arm {
        control,
        headroom_pct: 30,
    };
    let at = |l: f64| ratio(outcomes, Pick::new(cpus, arm).load(l), Arm::CPU_IDLE, by);
    let worse: Vec<String> = loads
        .iter()
        .filter_map(|&l| Some((l, at(l)?)))
        .filter(|(_, r)| *r >= 1.0)
        .map(|(l, r)| format!("{l:.1} ({r:.3} ×)"))
        .collect();
    if worse.is_empty() {
        return None;
    }
    Some(format!(
        "No gain over cpu.idle alone in main's {}: {} on {cpus} CPUs, at load {}.",
        by.label(),
        arm.label(),
        worse.join(", ")
    ))
}

fn plot(outcomes: &[Outcome], cpus: u32, loads: &[f64], by: By) -> Result<plots::Plot, LabError> {
    const SHOWN: [Control; 7] = [
        Control::WeightOne,
        Control::CpuIdle,
        Control::KnobsBpf,
        Control::Ext,
        Control::StaticMax,
        Control::Sideloader,
        Control::Koordlet,
    ];
    let mut loads = loads.to_vec();
    loads.sort_by(f64::total_cmp);
    let (low, high) = (loads[0], loads[loads.len() - 1]);
    let arms: Vec<Arm> = Arm::ALL
        .into_iter()
        .filter(|a| {
            SHOWN.contains(&a.control) && (!a.control.is_tidegate() || a.headroom_pct == 30)
        })
        .collect();
    let at = |arm, l| {
        let r = ratio(outcomes, Pick::new(cpus, arm).load(l), Arm::NO_SIDE, by);
        r.filter(|r| r.is_finite())
    };
    let all = arms
        .iter()
        .flat_map(|&a| loads.iter().filter_map(move |&l| at(a, l)));
    let most = all.fold(1.1, f64::max);
    let title = format!("Main's {} over no side work, {cpus} CPUs", by.label());
    let mut plot = plots::Lines::new(&title, "load (1.0 is 25 % of the machine)", "ratio")
        .see("1 is main alone; each line is a way of holding side work back.")
        .range(low..high.max(low + 0.01), 0.95..most + 0.05)
        .dots()
        .level("target", if by == By::Average { 1.05 } else { 1.15 });
    for (i, &arm) in arms.iter().enumerate() {
        let line = loads.iter().filter_map(|&l| Some((l, at(arm, l)?)));
        plot = plot.series(&arm.label(), i, line.collect());
    }
    plot.draw()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::Latency;
    use crate::samplers::Shares;

    fn outcome(arm: Arm, load: f64, round: u32, avg_us: f64) -> Outcome {
        Outcome {
            cell: Cell {
                cpus: 16,
                load,
                arm,
                slowdown: Slowdown::Shipped,
                round,
            },
            latency: Latency {
                completed: 1,
                avg_us,
                p99_us: 3.0 * avg_us,
                ..Latency::default()
            },
            shares: Shares {
                main_pct: 25.0,
                side_pct: 44.0,
                ..Shares::default()
            },
            side_work_cpus: 5.0,
        }
    }

    #[test]
    fn ratios_pair_by_size_load_and_round() {
        let side = Arm::CPU_IDLE;
        let all = [
            outcome(Arm::NO_SIDE, 1.0, 0, 1.0),
            outcome(side, 1.0, 0, 2.0),
            outcome(Arm::NO_SIDE, 1.0, 1, 10.0),
            outcome(side, 1.0, 1, 20.0),
            outcome(Arm::NO_SIDE, 1.2, 0, 1.0),
            outcome(side, 1.2, 0, 3.0),
            outcome(side, 1.4, 0, 99.0),
        ];
        let pick = Pick::new(16, side);
        let near = |r: Option<f64>, want: f64| r.is_some_and(|r| (r - want).abs() < 1e-9);
        assert!(near(
            ratio(&all, pick.load(1.0), Arm::NO_SIDE, By::P99),
            2.0
        ));
        let worst = worst(&all, pick, &[1.0, 1.2, 1.4], Arm::NO_SIDE, By::Average);
        assert!(near(worst, 3.0), "an unpaired cell does not count");
        assert!(ratio(&all, Pick::new(64, side), Arm::NO_SIDE, By::P99).is_none());
    }

    #[test]
    fn a_starved_main_is_the_worst_and_not_left_out() {
        let mut all = [
            outcome(Arm::NO_SIDE, 1.0, 0, 1.0),
            outcome(Arm::CPU_IDLE, 1.0, 0, 2.0),
        ];
        all[1].latency = Latency::default();
        let got = ratio(&all, Pick::new(16, Arm::CPU_IDLE), Arm::NO_SIDE, By::P99);
        assert_eq!(got, Some(f64::INFINITY));
    }

    #[test]
    fn reclaim_counts_what_the_headroom_left() {
        let tidegate = Arm {
            control: Control::Ext,
            headroom_pct: 30,
        };
        let r = reclaim_pct(&outcome(tidegate, 1.0, 0, 1.0));
        assert!((r - 100.0 * 44.0 / 45.0).abs() < 1e-9);
        let idle = reclaim_pct(&outcome(Arm::CPU_IDLE, 1.0, 0, 1.0));
        assert!((idle - 100.0 * 44.0 / 75.0).abs() < 1e-9);
    }

    #[test]
    fn where_there_is_no_gain_the_report_says_so() {
        let knobs = Arm {
            control: Control::KnobsBpf,
            headroom_pct: 30,
        };
        let all = [
            outcome(Arm::CPU_IDLE, 1.0, 0, 2.0),
            outcome(knobs, 1.0, 0, 1.0),
            outcome(Arm::CPU_IDLE, 1.2, 0, 2.0),
            outcome(knobs, 1.2, 0, 3.0),
        ];
        let line = no_gain(&all, 16, &[1.0, 1.2], Control::KnobsBpf, By::Average);
        let line = line.expect("a load without gain");
        assert!(line.contains("at load 1.2 (1.500 ×)"), "{line}");
    }
}
