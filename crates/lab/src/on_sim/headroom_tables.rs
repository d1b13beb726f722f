//! The tables of `tidegate lab headroom --on sim`.

use super::control::Control;
use super::headroom::{Arm, Outcome, Slowdown};
use super::headroom_report::{By, Pick, of, ratio, reclaim_pct};
use crate::experiments::published;
use crate::report::Table;

fn cell(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".into(), |v| format!("{v:.digits$}"))
}

/// Ratios to no side work, one column a load.
pub fn ratios(outcomes: &[Outcome], cpus: u32, loads: &[f64], by: By) -> Table {
    let names: Vec<String> = loads.iter().map(|l| format!("{l:.1}")).collect();
    let mut columns = vec!["side work"];
    columns.extend(names.iter().map(String::as_str));
    columns.push("all loads");
    let title = format!(
        "Main's {} over no side work, {cpus} CPUs, by load",
        by.label()
    );
    let mut t = Table::new(&title, &columns);
    for arm in Arm::ALL.into_iter().skip(1) {
        let pick = Pick::new(cpus, arm);
        let mut cells = vec![arm.label()];
        cells.extend(
            loads
                .iter()
                .map(|&l| cell(ratio(outcomes, pick.load(l), Arm::NO_SIDE, by), 3)),
        );
        cells.push(cell(ratio(outcomes, pick, Arm::NO_SIDE, by), 3));
        t.push(cells);
    }
    if by == By::Average {
        for (key, name) in [
            ("weight_1", "published: weight 1"),
            ("tidegate_30", "published: headroom 30 %"),
            ("tidegate_20", "published: headroom 20 %"),
        ] {
            let mut cells = vec![name.to_string()];
            let seed = |l: f64| published::at_load(l).and_then(|r| r.ratio(key));
            cells.extend(loads.iter().map(|&l| cell(seed(l), 2)));
            cells.push("-".into());
            t.push(cells);
        }
    }
    t
}

/// What side got, over all loads.
pub fn side(outcomes: &[Outcome], cpus: u32) -> Table {
    let title = format!("Who had the machine, {cpus} CPUs, mean of all loads");
    let mut t = Table::new(
        &title,
        &[
            "side work",
            "main avg, ms",
            "main p99, ms",
            "main, %",
            "side, %",
            "idle, %",
            "reclaim",
            "side work done, of cpu.idle's",
        ],
    );
    let done = |arm| of(outcomes, Pick::new(cpus, arm), |o| o.side_work_cpus);
    let most = done(Arm::CPU_IDLE);
    for arm in Arm::ALL {
        let pick = Pick::new(cpus, arm);
        let f = |f: fn(&Outcome) -> f64| of(outcomes, pick, f);
        let side = arm.control != Control::NoSide;
        let part = done(arm)
            .zip(most)
            .map(|(a, b)| format!("{:.0} %", 100.0 * a / b));
        t.push([
            arm.label(),
            cell(f(|o| o.latency.avg_us / 1000.0), 3),
            cell(f(|o| o.latency.p99_us / 1000.0), 3),
            cell(f(|o| o.shares.main_pct), 1),
            cell(f(|o| o.shares.side_pct), 1),
            cell(f(|o| o.shares.idle_pct), 1),
            f(reclaim_pct)
                .filter(|_| side)
                .map_or("-".into(), |r| format!("{r:.1} %")),
            part.filter(|_| side).unwrap_or("-".into()),
        ]);
    }
    t
}

/// In the cpu.headroom patches' own form: everything over no side work at load 1.0.
pub fn as_the_seed(outcomes: &[Outcome], cpus: u32, loads: &[f64]) -> Table {
    let title = format!(
        "Main's average as the cpu.headroom patches (2019) print it (1: no side work at the first load), {cpus} CPUs"
    );
    let mut t = Table::new(
        &title,
        &[
            "load",
            "published: no side",
            "no side",
            "published: weight 1",
            "weight 1",
            "published: 30 %",
            "knobs 30 %",
            "ext 30 %",
            "published: 20 %",
            "knobs 20 %",
            "ext 20 %",
        ],
    );
    let avg = |control, headroom_pct, load| {
        let arm = Arm {
            control,
            headroom_pct,
        };
        of(outcomes, Pick::new(cpus, arm).load(load), |o| {
            o.latency.avg_us
        })
    };
    let Some(one) = loads.first().and_then(|&l| avg(Control::NoSide, 0, l)) else {
        return t;
    };
    for &load in loads {
        let seed = published::at_load(load);
        let ours = |control, pct| cell(avg(control, pct, load).map(|a| a / one), 2);
        t.push([
            format!("{load:.1}"),
            cell(seed.map(|r| r.alone), 2),
            ours(Control::NoSide, 0),
            cell(seed.and_then(|r| r.weight_one), 2),
            ours(Control::WeightOne, 0),
            cell(seed.and_then(|r| r.headroom_30), 2),
            ours(Control::KnobsBpf, 30),
            ours(Control::Ext, 30),
            cell(seed.and_then(|r| r.headroom_20), 2),
            ours(Control::KnobsBpf, 20),
            ours(Control::Ext, 20),
        ]);
    }
    t
}

/// Ratios over the range of the coefficients.
pub fn sweep(outcomes: &[Outcome]) -> Table {
    let swept: Vec<&Outcome> = outcomes
        .iter()
        .filter(|o| o.cell.slowdown != Slowdown::Shipped)
        .collect();
    let (cpus, load) = swept
        .first()
        .map_or((0, 0.0), |o| (o.cell.cpus, o.cell.load));
    let title = format!(
        "Contention swept, {cpus} CPUs, load {load:.1}: over no side work at the same contention"
    );
    let mut t = Table::new(
        &title,
        &[
            "contention",
            "avg: cpu.idle",
            "knobs 30 %",
            "whole cores",
            "ext 30 %",
            "p99: cpu.idle",
            "knobs 30 %",
            "whole cores",
            "ext 30 %",
        ],
    );
    let mut slowdowns = vec![Slowdown::Shipped];
    for o in &swept {
        if !slowdowns.contains(&o.cell.slowdown) {
            slowdowns.push(o.cell.slowdown);
        }
    }
    for slowdown in slowdowns {
        let mut cells = vec![slowdown.label()];
        for by in [By::Average, By::P99] {
            for (control, headroom_pct) in [
                (Control::CpuIdle, 0),
                (Control::KnobsBpf, 30),
                (Control::KnobsCores, 30),
                (Control::Ext, 30),
            ] {
                let arm = Arm {
                    control,
                    headroom_pct,
                };
                let pick = Pick {
                    slowdown,
                    ..Pick::new(cpus, arm).load(load)
                };
                cells.push(cell(ratio(outcomes, pick, Arm::NO_SIDE, by), 3));
            }
        }
        t.push(cells);
    }
    t
}
