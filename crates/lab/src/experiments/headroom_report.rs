//! What `tidegate lab headroom` makes of its cells: paired ratios, the cpu.headroom patches' table beside ours.

use serde_json::json;

use super::headroom::{Bench, Cell, LEVEL_ONE_PCT};
use super::law::TOLERANCE_PCT;
use super::{LOUD_PCT, num, published, row};
use crate::LabError;
use crate::arms::Arm;
use crate::report::{Headline, Met, Report, Table, plots};
use crate::stats::{bootstrap95, geometric_mean, mean, with_interval};

const STEAL_LOUD_PCT: f64 = 5.0;

/// A ratio to *no side work* of the same round and level.
#[derive(Clone, Copy, Debug)]
pub struct Ratio {
    value: f64,
    interval: Option<(f64, f64)>,
}

/// Ratios of an arm, over one level or all of them.
pub fn ratio(cells: &[Cell], arm: Arm, load: Option<f64>, of: fn(&Cell) -> f64) -> Option<Ratio> {
    let ratios: Vec<f64> = cells
        .iter()
        .filter(|c| c.arm == arm && load.is_none_or(|l| l == c.load))
        .filter_map(|c| {
            let alone = cells
                .iter()
                .find(|b| b.arm == Arm::NoSide && b.round == c.round && b.load == c.load)?;
            let r = of(c) / of(alone);
            (r.is_finite() && r > 0.0).then_some(r)
        })
        .collect();
    let value = geometric_mean(&ratios)?;
    Some(Ratio {
        value,
        interval: bootstrap95(&ratios, 1, geometric_mean),
    })
}

fn avg(c: &Cell) -> f64 {
    c.latency.avg_us
}

fn p99(c: &Cell) -> f64 {
    c.latency.p99_us
}

/// Side's CPU over what main left above the arm's headroom.
pub fn reclaim_pct(c: &Cell) -> Option<f64> {
    let headroom = match c.arm {
        Arm::NoSide => return None,
        arm => f64::from(arm.headroom_pct().unwrap_or(0)),
    };
    let busy = c.shares.main_pct + c.shares.other_pct;
    Some(100.0 * c.shares.side_pct / (100.0 - headroom - busy).max(TOLERANCE_PCT))
}

fn of_arm(cells: &[Cell], arm: Arm, load: Option<f64>, of: impl Fn(&Cell) -> f64) -> Option<f64> {
    let chosen = cells
        .iter()
        .filter(|c| c.arm == arm && load.is_none_or(|l| l == c.load));
    mean(&chosen.map(of).collect::<Vec<_>>())
}

/// The cpu.headroom patches' ratio over the levels that were run, where it has them.
fn seed_ratio(arm: Arm, loads: &[f64]) -> Option<f64> {
    let ratios: Vec<f64> = loads
        .iter()
        .filter_map(|&l| published::at_load(l)?.ratio(&arm.key()))
        .collect();
    geometric_mean(&ratios)
}

/// Side work of an arm over that of cpu.idle alone.
fn throughput_pct(cells: &[Cell], arm: Arm, load: Option<f64>) -> Option<f64> {
    let idle = of_arm(cells, Arm::CpuIdle, load, |c| c.side_rate).filter(|r| *r > 0.0)?;
    Some(100.0 * of_arm(cells, arm, load, |c| c.side_rate)? / idle)
}

fn level_table(bench: &Bench<'_>, cells: &[Cell], load: f64) -> Table {
    let percent = load * LEVEL_ONE_PCT;
    let mut t = Table::new(
        &format!("Load {load:.1} ({percent:.0} % of the machine)"),
        &[
            "side work",
            "avg ms",
            "p50",
            "p99",
            "p99.9",
            "avg / no side",
            "p99 / no side",
            "published: avg /",
            "main %",
            "side %",
            "idle %",
            "side work/s",
            "of cpu.idle's",
            "reclaim",
        ],
    );
    let cell = |v: Option<f64>, digits: usize| v.map_or("-".into(), |v| format!("{v:.digits$}"));
    for &arm in &bench.arms {
        let of = |f: fn(&Cell) -> f64| of_arm(cells, arm, Some(load), f);
        let shown =
            |r: Option<Ratio>| r.map_or("-".into(), |r| with_interval(r.value, r.interval, 2));
        let side = arm != Arm::NoSide;
        let reclaim = of_arm(cells, arm, Some(load), |c| {
            reclaim_pct(c).unwrap_or(f64::NAN)
        });
        t.push([
            arm.label(),
            cell(of(|c| c.latency.avg_us / 1000.0), 2),
            cell(of(|c| c.latency.p50_us / 1000.0), 2),
            cell(of(|c| c.latency.p99_us / 1000.0), 1),
            cell(of(|c| c.latency.p999_us / 1000.0), 1),
            shown(ratio(cells, arm, Some(load), avg)),
            shown(ratio(cells, arm, Some(load), p99)),
            cell(
                published::at_load(load).and_then(|r| r.ratio(&arm.key())),
                2,
            ),
            cell(of(|c| c.shares.main_pct), 1),
            cell(of(|c| c.shares.side_pct), 1),
            cell(of(|c| c.shares.idle_pct), 1),
            cell(of(|c| c.side_rate).filter(|_| side), 1),
            throughput_pct(cells, arm, Some(load))
                .filter(|_| side)
                .map_or("-".into(), |p| format!("{p:.0} %")),
            reclaim
                .filter(|r| r.is_finite())
                .map_or("-".into(), |r| format!("{r:.0} %")),
        ]);
    }
    t
}

fn of_round(cells: &[Cell], round: u32, of: impl Fn(&Cell) -> f64) -> f64 {
    let chosen = cells.iter().filter(|c| c.round == round);
    mean(&chosen.map(of).collect::<Vec<_>>()).unwrap_or(0.0)
}

fn rounds_table(cells: &[Cell]) -> Table {
    let columns = [
        "round",
        "mean steal",
        "worst cell",
        "other programs",
        "mark",
    ];
    let mut t = Table::new("Disturbance by round", &columns);
    let last = cells.iter().map(|c| c.round).max().unwrap_or(0);
    for round in 0..=last {
        let steal: Vec<f64> = cells
            .iter()
            .filter(|c| c.round == round)
            .map(|c| c.shares.steal_pct)
            .collect();
        let worst = steal.iter().copied().fold(0.0, f64::max);
        let m = mean(&steal).unwrap_or(0.0);
        let others = of_round(cells, round, |c| c.shares.other_pct);
        let mark = match (m > STEAL_LOUD_PCT, others > LOUD_PCT) {
            (true, _) => "loud: steal above 5 %",
            (_, true) => "loud: other programs",
            _ => "",
        };
        t.push([
            (round + 1).to_string(),
            format!("{m:.1} %"),
            format!("{worst:.1} %"),
            format!("{others:.1} %"),
            mark.into(),
        ]);
    }
    t
}

fn headline(bench: &Bench<'_>, cells: &[Cell]) -> Vec<Headline> {
    let mut lines = Vec::new();
    let mut add = |arm: Arm, what: &str, of: fn(&Cell) -> f64, target: Option<f64>| {
        let Some(r) = ratio(cells, arm, None, of) else {
            return;
        };
        let name = format!("main's {what} over no side work: {}", arm.label());
        let mut h = Headline::new(&name, r.value, "×").interval(r.interval);
        if what == "average" {
            h = h.published(seed_ratio(arm, &bench.loads));
        }
        if let Some(limit) = target {
            h = h.target(&format!("≤ {limit}"), Met::of(r.value <= limit));
        }
        lines.push(h);
    };
    add(Arm::Together, "average", avg, None);
    add(Arm::WeightOne, "average", avg, None);
    add(Arm::CpuIdle, "average", avg, None);
    add(
        Arm::Tidegate { headroom_pct: 30 },
        "average",
        avg,
        Some(1.05),
    );
    add(Arm::Tidegate { headroom_pct: 20 }, "average", avg, None);
    add(Arm::Together, "p99", p99, None);
    add(Arm::CpuIdle, "p99", p99, None);
    add(Arm::Tidegate { headroom_pct: 30 }, "p99", p99, Some(1.15));
    let ext = Arm::Ext { headroom_pct: 30 };
    add(ext, "average", avg, Some(1.05));
    add(ext, "p99", p99, Some(1.15));
    for arm in [
        Arm::Tidegate { headroom_pct: 30 },
        Arm::Tidegate { headroom_pct: 20 },
        ext,
    ] {
        if let Some(r) = of_arm(cells, arm, None, |c| reclaim_pct(c).unwrap_or(f64::NAN)) {
            let name = format!("reclaim: {}", arm.label());
            lines.push(Headline::new(&name, r, "%").target("≥ 95", Met::of(r >= 95.0)));
        }
        if let Some(p) = throughput_pct(cells, arm, None) {
            let name = format!("side work done, of cpu.idle's: {}", arm.label());
            lines.push(Headline::new(&name, p, "%"));
        }
    }
    lines
}

/// Builds the report.
pub fn report(bench: Bench<'_>, cells: &[Cell]) -> Result<Report, LabError> {
    let mut report = Report::new("headroom", bench.setup.machine.clone());
    for c in cells {
        let (l, s) = (&c.latency, &c.shares);
        report.rows.push(row(json!({
            "round": c.round + 1, "load": c.load, "load_pct": num(c.load * LEVEL_ONE_PCT),
            "arm": c.arm.key(), "avg_us": num(l.avg_us), "p50_us": num(l.p50_us),
            "p90_us": num(l.p90_us), "p99_us": num(l.p99_us), "p999_us": num(l.p999_us),
            "max_us": num(l.max_us), "offered": l.offered, "completed": l.completed,
            "main_pct": num(s.main_pct), "side_pct": num(s.side_pct), "other_pct": num(s.other_pct),
            "idle_pct": num(s.idle_pct), "steal_pct": num(s.steal_pct),
            "loud": s.steal_pct > STEAL_LOUD_PCT || s.other_pct > LOUD_PCT, "side_rate": num(c.side_rate),
            "side_unit": bench.side_unit, "reclaim_pct": reclaim_pct(c).map(num),
            "agent_cpu_pct": num(s.agent_cpu_pct), "seconds": num(s.seconds),
        })));
    }
    report.headline = headline(&bench, cells);
    for &load in &bench.loads {
        report.tables.push(level_table(&bench, cells, load));
    }
    report.tables.push(rounds_table(cells));
    if bench.loads.len() > 1 {
        report
            .plots
            .push(latency_plot(&bench, cells, "average", avg)?);
        report
            .plots
            .push(latency_plot(&bench, cells, "99th percentile", p99)?);
    }
    report.notes = notes(&bench);
    Ok(report)
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

fn latency_plot(
    bench: &Bench<'_>,
    cells: &[Cell],
    what: &str,
    of: fn(&Cell) -> f64,
) -> Result<plots::Plot, LabError> {
    let mut loads = bench.loads.clone();
    loads.sort_by(f64::total_cmp);
    let (low, high) = (loads[0], loads[loads.len() - 1]);
    let title = format!("Main's {what} latency");
    let mut plot = plots::Lines::new(&title, "load (1.0 is 25 % of the machine)", "latency, ms")
        .see("Each line is a way of placing side work; lower is better, and 'no side work' is the floor.")
        .range(low..high.max(low + 0.01), 0.0..1.0)
        .dots()
        .log_y();
    for (i, &arm) in bench.arms.iter().enumerate() {
        let at = |l: f64| Some((l, of_arm(cells, arm, Some(l), of)? / 1000.0));
        plot = plot.series(
            &arm.label(),
            i,
            loads.iter().filter_map(|&l| at(l)).collect(),
        );
    }
    plot.draw()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::Latency;
    use crate::samplers::Shares;

    fn cell(round: u32, load: f64, arm: Arm, avg_us: f64) -> Cell {
        let latency = Latency {
            avg_us,
            p99_us: 4.0 * avg_us,
            ..Latency::default()
        };
        let shares = Shares {
            main_pct: 25.0,
            side_pct: 43.0,
            other_pct: 1.0,
            ..Shares::default()
        };
        Cell {
            round,
            load,
            arm,
            latency,
            shares,
            side_rate: 10.0,
        }
    }

    #[test]
    fn a_ratio_pairs_with_its_own_round_and_level() {
        let cells = [
            cell(0, 1.0, Arm::NoSide, 1000.0),
            cell(0, 1.0, Arm::Together, 2000.0),
            cell(1, 1.0, Arm::NoSide, 4000.0),
            cell(1, 1.0, Arm::Together, 8000.0),
            cell(0, 1.4, Arm::Together, 9000.0),
        ];
        let r = ratio(&cells, Arm::Together, None, avg).expect("pairs");
        assert!(
            (r.value - 2.0).abs() < 1e-9,
            "an unpaired cell does not count"
        );
        assert!(r.interval.is_none(), "two pairs give no interval");
        assert!(ratio(&cells, Arm::CpuIdle, None, avg).is_none());
    }

    #[test]
    fn reclaim_counts_what_the_headroom_left() {
        let tidegate = cell(0, 1.0, Arm::Tidegate { headroom_pct: 30 }, 1.0);
        assert!((reclaim_pct(&tidegate).expect("side") - 100.0 * 43.0 / 44.0).abs() < 1e-9);
        let idle = cell(0, 1.0, Arm::CpuIdle, 1.0);
        assert!((reclaim_pct(&idle).expect("side") - 100.0 * 43.0 / 74.0).abs() < 1e-9);
        assert!(reclaim_pct(&cell(0, 1.0, Arm::NoSide, 1.0)).is_none());
    }

    #[test]
    fn the_seed_stands_beside_its_own_arms() {
        let near = |a: Option<f64>, b: f64| a.is_some_and(|a| (a - b).abs() < 1e-6);
        assert!(near(
            seed_ratio(Arm::Tidegate { headroom_pct: 30 }, &[1.0]),
            1.26
        ));
        assert!(near(seed_ratio(Arm::WeightOne, &[1.0, 1.2]), 1.82));
        assert!(seed_ratio(Arm::Together, &[1.0]).is_none());
    }
}
