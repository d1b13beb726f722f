//! `tidegate lab law --engine ext`: main at 0…80 % of the machine beside side work that always wants more, under the
//! kernel's own scheduler with cpu.idle, under the knobs and under the ext engine, one after the other in one boot.

use serde_json::json;

use super::law::{At, HEADROOM_PCT, Plan, RAMP, SQUARE, TOLERANCE_PCT, Varying};
use super::law_report::varying_plot;
use super::law_rows::{Constant, Row, least_when_quiet};
use super::{Setup, num, row, start_constant};
use crate::arms::{Arm, Placement, Stage};
use crate::options::LabOptions;
use crate::progress::Progress;
use crate::report::{Headline, Met, Report, Table, bars};
use crate::rng::Rng;
use crate::tidegate::Tidegate;
use crate::{LabError, stop};

const ARMS: [Arm; 3] = [
    Arm::CpuIdle,
    Arm::Tidegate {
        headroom_pct: HEADROOM_PCT as u32,
    },
    EXT,
];
const EXT: Arm = Arm::Ext {
    headroom_pct: HEADROOM_PCT as u32,
};

/// What one arm gave in one round.
struct Visit {
    arm: Arm,
    constant: Vec<Constant>,
    varying: Vec<Varying>,
}

/// Runs the experiment.
pub fn run(options: &LabOptions) -> Result<Report, LabError> {
    let mut setup = Setup::new(options)?;
    setup.need_hierarchy()?;
    let plan = Plan::new(options.quick);
    let rounds = options.rounds.unwrap_or(1).max(1);
    let constant_s = Row::count() * (plan.settle + plan.window);
    let varying_s = 3.0 * (1.0 + plan.varying);
    let total = f64::from(rounds) * (3.0 * constant_s + 2.0 * varying_s);
    let progress = Progress::new("law", total, options.quiet);
    let mut rng = Rng::new(options.seed);
    let mut visits = Vec::new();
    for _ in 0..rounds {
        let mut arms = ARMS;
        rng.shuffle(&mut arms);
        for arm in arms {
            visits.push(visit(&setup, arm, options, &plan, &progress)?);
        }
    }
    drop(progress);
    setup.machine.finish();
    report(setup, &visits, plan.window)
}

fn visit(
    setup: &Setup,
    arm: Arm,
    options: &LabOptions,
    plan: &Plan,
    progress: &Progress,
) -> Result<Visit, LabError> {
    let tidegate = match arm {
        Arm::Tidegate { .. } => Some(Tidegate::start(&setup.exe, options.sense)?),
        _ => None,
    };
    let stage = Stage {
        exe: &setup.exe,
        hierarchy: setup.hierarchy.as_ref().ok(),
        tidegate: tidegate.as_ref(),
    };
    let placement = Placement::new(&stage, arm)?;
    let main = start_constant(setup, &placement, 300_000)?;
    let at = At {
        setup,
        placement: &placement,
        tidegate: tidegate.as_ref(),
        main: &main,
    };
    let (constant, side) = at.levels(plan, progress, &format!("{}, ", arm.label()))?;
    let bench = at.bench(&side);
    let mut found = Visit {
        arm,
        constant,
        varying: Vec::new(),
    };
    // cpu.idle keeps nothing idle, whatever main does.
    if arm.headroom_pct().is_some() {
        for pattern in [SQUARE, RAMP] {
            progress.stage(&format!("{}, main as a {}", arm.label(), pattern.name));
            let varying = bench.varying(&pattern, plan.varying, options.seed)?;
            found.varying.push(varying);
            progress.done(1.0 + plan.varying);
        }
        progress.stage(&format!("{}, main as an open-loop server", arm.label()));
        found
            .varying
            .push(bench.poisson(plan.varying, options.seed)?);
        progress.done(1.0 + plan.varying);
    }
    placement.still_in_force()?;
    stop::check()?;
    Ok(found)
}

fn of(visits: &[Visit], arm: Arm) -> impl Iterator<Item = &Visit> {
    visits.iter().filter(move |v| v.arm == arm)
}

fn worst_off(visits: &[Visit], arm: Arm) -> f64 {
    let all = of(visits, arm).flat_map(|v| &v.constant);
    all.map(|c| c.off_points().abs()).fold(f64::NAN, f64::max)
}

/// Where main leaves less than the headroom, side has its tolerance: the least and the most of it.
fn at_floor(visits: &[Visit], arm: Arm) -> (f64, f64) {
    let all = of(visits, arm).flat_map(|v| &v.constant);
    let side = all.filter(|c| c.row.is_at_floor());
    side.map(|c| c.shares.side_pct)
        .fold((f64::INFINITY, f64::NAN), |(least, most), pct| {
            (f64::min(least, pct), f64::max(most, pct))
        })
}

fn headline(visits: &[Visit]) -> Vec<Headline> {
    let mut lines = Vec::new();
    for arm in ARMS
        .into_iter()
        .rev()
        .filter(|a| a.headroom_pct().is_some())
    {
        let name = |what: &str| format!("{what}: {}", arm.label());
        let off = worst_off(visits, arm);
        let h = Headline::new(
            &name("idle against due, constant main, worst row"),
            off,
            "points",
        );
        lines.push(if arm == EXT {
            h.target("≤ 0.5", Met::judged(off, off <= 0.5))
        } else {
            h
        });
        let seconds = of(visits, arm).flat_map(|v| &v.varying);
        let worst = seconds.map(|v| v.worst_points).fold(f64::NAN, f64::min);
        lines.push(
            Headline::new(
                &name("idle against due, varying main, worst second"),
                worst,
                "points",
            )
            .target("≥ −1", Met::judged(worst, worst >= -1.0)),
        );
        let quiet = least_when_quiet(of(visits, arm).flat_map(|v| &v.constant));
        lines.push(
            Headline::new(&name("reclaim at 0 and 1 % main, worst row"), quiet, "%")
                .target("≥ 98", Met::judged(quiet, quiet >= 98.0)),
        );
        let (least, most) = at_floor(visits, arm);
        lines.push(
            Headline::new(
                &name("side at 70 and 80 % main (tolerance 1 %), least"),
                least,
                "%",
            )
            .target("≥ 0.95", Met::judged(least, least >= 0.95 * TOLERANCE_PCT)),
        );
        let what = "side at 70 and 80 % main (tolerance 1 %), most";
        lines.push(
            Headline::new(&name(what), most, "%")
                .target("≤ 2", Met::judged(most, most <= TOLERANCE_PCT + 1.0)),
        );
    }
    lines
}

fn table(visits: &[Visit]) -> Table {
    let mut t = Table::new(
        "Constant main, headroom 30 % (percent of the machine)",
        &[
            "main asked",
            "how",
            "main",
            "other",
            "side",
            "published: side",
            "idle",
            "published: idle",
            "due",
            "off by",
            "reclaim",
            "keeper, % of a CPU",
        ],
    );
    for (at, row) in Row::all().enumerate() {
        let [seed_side, seed_idle] = row.seed_cells();
        for arm in ARMS {
            for c in of(visits, arm).filter_map(|v| v.constant.get(at)) {
                let s = &c.shares;
                let asked = arm.headroom_pct().is_some();
                let mut cells = vec![row.label(), arm.label()];
                cells.extend([s.main_pct, s.other_pct].map(|p| format!("{p:.2}")));
                cells.push(format!("{:.2}", s.side_pct));
                cells.push(seed_side.clone());
                cells.push(format!("{:.2}", s.idle_pct));
                cells.push(seed_idle.clone());
                let due = [
                    format!("{:.2}", c.expected_idle),
                    format!("{:+.2}", c.off_points()),
                    format!("{:.1} %", c.reclaim_pct),
                    format!("{:.2}", s.agent_cpu_pct),
                ];
                // Nothing is asked of cpu.idle, and nobody keeps it.
                cells.extend(due.map(|cell| if asked { cell } else { "-".into() }));
                t.push(cells);
            }
        }
    }
    t
}

fn varying_table(visits: &[Visit]) -> Table {
    let mut t = Table::new(
        "Varying main, headroom 30 %: every second, looked at each 100 ms",
        &[
            "main",
            "how",
            "mean main",
            "mean side",
            "mean idle",
            "idle in the worst second",
            "against due",
        ],
    );
    let patterns = visits.iter().map(|v| v.varying.len()).max().unwrap_or(0);
    for at in 0..patterns {
        for arm in ARMS {
            for v in of(visits, arm).filter_map(|v| v.varying.get(at)) {
                let m = &v.mean;
                let mut cells = vec![v.name.to_string(), arm.label()];
                let values = [m.main_pct, m.side_pct, m.idle_pct, v.worst_idle];
                cells.extend(values.map(|pct| format!("{pct:.1}")));
                cells.push(format!("{:+.2}", v.worst_points));
                t.push(cells);
            }
        }
    }
    t
}

fn rows(visits: &[Visit]) -> Vec<serde_json::Map<String, serde_json::Value>> {
    let mut rows = Vec::new();
    for v in visits {
        for c in &v.constant {
            let s = &c.shares;
            let due = v.arm.headroom_pct().map(|_| num(c.expected_idle));
            rows.push(row(json!({
                "kind": "constant", "arm": v.arm.key(), "main_asked_pct": c.row.main_pct,
                "main_pct": num(s.main_pct), "side_pct": num(s.side_pct), "other_pct": num(s.other_pct),
                "idle_pct": num(s.idle_pct), "published_idle_pct": c.row.seed.map(|seed| seed.idle_pct),
                "published_side_pct": c.row.seed.map(|seed| seed.side_pct),
                "due_idle_pct": due, "keeper_cpu_pct": num(s.agent_cpu_pct), "seconds": num(s.seconds),
            })));
        }
        for p in &v.varying {
            rows.push(row(json!({
                "kind": "varying", "arm": v.arm.key(), "pattern": p.name, "main_pct": num(p.mean.main_pct),
                "side_pct": num(p.mean.side_pct), "idle_pct": num(p.mean.idle_pct),
                "worst_second_idle_pct": num(p.worst_idle), "worst_second_points": num(p.worst_points),
            })));
        }
    }
    rows
}

fn report(setup: Setup, visits: &[Visit], window_s: f64) -> Result<Report, LabError> {
    let mut report = Report::new("law", setup.machine);
    report.rows = rows(visits);
    report.headline = headline(visits);
    report.tables = vec![table(visits), varying_table(visits)];
    if let Some(v) = of(visits, EXT).next() {
        let bars: Vec<(String, [f64; 4])> = v
            .constant
            .iter()
            .map(|c| {
                let s = &c.shares;
                let parts = [s.main_pct, s.side_pct, s.other_pct, s.idle_pct];
                (c.row.label(), parts)
            })
            .collect();
        report.plots.push(bars::shares(
            "Who has the machine under the ext engine, main at 0…80 %",
            "Idle (the top of each bar) stays at 30 % of the machine until main alone leaves less.",
            &bars,
            100.0 - HEADROOM_PCT,
        )?);
        for p in &v.varying {
            let title = format!("Main as a {}, ext engine", p.name);
            report.plots.push(varying_plot(&title, p)?);
        }
    }
    report.notes.push(format!(
        "Due is what the terms ask: the headroom, or what main, the rest and the tolerance (1 %) leave. Windows of \
         {window_s:.0} s, read from the threads' own clocks; other is the lab and who keeps the headroom (the agent, or the \
         process that has loaded the scheduler). What the kernel does for nobody (interrupts in idle) counts as idle."
    ));
    Ok(report)
}
