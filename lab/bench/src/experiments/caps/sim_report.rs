//! The report of simulated machines: caps by size, after a sleep, in storms and under builds.

use tidegate_sim::CapScope;

use super::sim_cells::{Build, Cell, Engine, SOFT, STORM_PPT, config, scope_name};
use super::tables::{self, Rate, Series};
use crate::LabError;
use crate::beds::sim::Stage;
use crate::experiments::published::KERNBENCH_ELAPSED_S;
use crate::report::{Headline, Met, Report, Samples, Table, cell};

/// A tick: what a soft cap may take to yield.
const TICK_MS: f64 = 4.0;
/// ext looks by timers at the very moment; its least run is its granularity.
const EXT_LEAST_MS: f64 = 0.01;

/// A cell's figure; NaN where it was not run.
fn figure(samples: &Samples<Cell>, cell: Cell, name: &str) -> f64 {
    samples.mean(name, |c| *c == cell)
}

/// Builds the report.
pub fn report(stage: &Stage<'_>, samples: Samples<Cell>) -> Result<Report, LabError> {
    let example = config(Engine::Ext, 1, stage.options.seed);
    let bed = stage.bed(
        &[1, 2, 8, 16],
        &example,
        "ext; EEVDF with cpu.max for knobs",
    );
    let mut report = Report::new("caps", bed);
    report.rows = samples.rows();
    report.add_always_measured(headline(&samples));
    report.tables = vec![
        tables::accuracy("Hard caps, ‰ of one CPU", &series(&samples)),
        soft_table(&samples),
        storm_table(&samples),
    ];
    report.plots.push(tables::plot(
        "How far use is from the cap in the worst window",
        &series(&samples),
    )?);
    report.notes.push(
        "Caps are in ‰ of one CPU. Accuracy: windows of 1 s (ext) and of 10 s (knobs) of a task that always \
         wants to run, the worst window. After a sleep: the most above the rate over any time since the task began \
         to run after five idle seconds; the bound is the bucket's depth (10 ms of the rate) and one granularity. \
         Knobs means a quota on a group of the task's own. Mechanism: the buckets, their scopes and the parking of \
         Tidegate's law, and cpu.max as the kernel does it. The model's: that ext enforces within its slice, what \
         a switch costs, and no contention."
            .into(),
    );
    report.notes.push(
        "The build is kernbench's shape in small (8 jobs on two CPUs, nothing beside); it shows what caps cost in \
         scheduling. What their accounting costs in instructions is not in the model."
            .into(),
    );
    Ok(report)
}

fn headline(samples: &Samples<Cell>) -> Vec<Headline> {
    let mut lines = Vec::new();
    let f = |cell, name| figure(samples, cell, name);
    for s in series(samples) {
        let name = format!(
            "hard caps 1–1000 ‰ against their use, worst {}: {}",
            s.window, s.label
        );
        lines.push(Headline::new(&name, tables::worst(&s.rates), "‰").at_most(1.0));
    }
    for ppt in [1, 100, 500] {
        // The law's: the depth and one granularity.
        let bound = (f64::from(ppt) / 100.0).max(EXT_LEAST_MS) + EXT_LEAST_MS;
        let name = format!("above a cap of {ppt} ‰ after a sleep: ext");
        let above_ms = f(Cell::AfterSleep(Engine::Ext, ppt), "above_ms");
        lines.push(Headline::new(&name, above_ms, "ms").at_most(bound));
    }
    for ppt in SOFT {
        let name = format!("soft cap of {ppt} ‰ on an idle CPU gets");
        let used = f(Cell::SoftIdle(ppt), "used_ppt");
        lines.push(Headline::new(&name, used, "‰").at_least(990.0));
        let name = format!("soft cap of {ppt} ‰ on a busy CPU gets");
        let used = f(Cell::SoftBusy(ppt), "used_ppt");
        // No more than the cap, and no less: what it may have in the foreground is not background's to lose.
        let met = Met::of((used - f64::from(ppt)).abs() <= 1.0);
        lines.push(Headline::new(&name, used, "‰").target(&format!("{ppt} ± 1"), met));
    }
    let zero = Cell::SoftYields(Some(0));
    let ms = f(zero, "wakeup_max_us") / 1000.0;
    let met = Met::of(f(zero, "wakeups") > 0.0 && ms <= TICK_MS);
    let name = "a soft cap of 0 yields to a wakeup, worst";
    lines.push(Headline::new(name, ms, "ms").target("≤ 4", met));
    for engine in [Engine::Ext, Engine::Knobs] {
        let used = f(Cell::Storm(engine, CapScope::Group), "used_ppt");
        let (least, most) = (f64::from(STORM_PPT) * 0.95, f64::from(STORM_PPT) * 1.01);
        let name = format!(
            "a fork storm under a group's cap of {STORM_PPT} ‰: {}",
            engine.label()
        );
        // A storm that gets nothing is not capped but starved.
        let met = Met::of((least..=most).contains(&used));
        lines.push(Headline::new(&name, used, "‰").target(&format!("{least}–{most}"), met));
    }
    let name = format!("the same storm with {STORM_PPT} ‰ a task");
    let used = f(Cell::Storm(Engine::Ext, CapScope::Task), "used_ppt");
    lines.push(Headline::new(&name, used, "‰"));
    // What caps cost a build, beside what the patches say.
    let more = |with: f64, without: f64| 100.0 * (with / without - 1.0);
    let elapsed = |build| f(Cell::Build(build), "elapsed_s");
    for (build, row, most, name) in [
        (
            Build::Unused,
            1,
            0.5,
            "a build with caps that never bind, longer",
        ),
        (
            Build::SoftZero,
            2,
            1.0,
            "a build under soft caps of 0, longer",
        ),
    ] {
        let published = more(KERNBENCH_ELAPSED_S[row], KERNBENCH_ELAPSED_S[0]);
        let value = more(elapsed(build), elapsed(Build::Uncapped));
        let h = Headline::new(name, value, "%").published(Some(published));
        lines.push(h.at_most(most));
    }
    lines
}

fn series(samples: &Samples<Cell>) -> [Series; 2] {
    [(Engine::Ext, "1 s"), (Engine::Knobs, "10 s")].map(|(engine, window)| Series {
        label: engine.label(),
        window: window.into(),
        rates: samples
            .of(|c| *c == Cell::Continuous(engine))
            .map(Rate::from)
            .collect(),
    })
}

fn soft_table(samples: &Samples<Cell>) -> Table {
    let yields =
        |ppt: &Option<u32>, name| cell(figure(samples, Cell::SoftYields(*ppt), name), 1, "");
    let used = |ppt: &Option<u32>, of: fn(u32) -> Cell| {
        cell(ppt.map(|ppt| figure(samples, of(ppt), "used_ppt")), 1, "")
    };
    Table::of(
        "Soft caps on one CPU under ext, ‰ of it",
        SOFT.map(Some).into_iter().chain([None]),
        &[
            ("soft cap", &|p| p.map_or("none".into(), |p| p.to_string())),
            ("alone", &|p| used(p, Cell::SoftIdle)),
            ("beside a hog", &|p| used(p, Cell::SoftBusy)),
            ("beside a task of 22 % in 4 ms", &|p| yields(p, "used_ppt")),
            ("its wakeup p50, us", &|p| yields(p, "wakeup_p50_us")),
            ("p99", &|p| yields(p, "wakeup_p99_us")),
            ("max", &|p| yields(p, "wakeup_max_us")),
        ],
    )
}

fn storm_table(samples: &Samples<Cell>) -> Table {
    let mut t = Table::new(
        "After a sleep, in fork storms, and a build",
        &["what", "engine", "cap, ‰", "figure", "unit"],
    );
    for s in &samples.0 {
        let f = |name, digits| cell(s.get(name), digits, "");
        let (what, engine, cap, figure, unit) = match s.key {
            Cell::AfterSleep(engine, ppt) => {
                let what = "above the rate after a sleep".to_string();
                (what, engine, ppt.to_string(), f("above_ms", 2), "ms")
            }
            Cell::Storm(engine, scope) => {
                let done = f("children_done", 0);
                let what = format!(
                    "fork storm, {} scope, {done} children done",
                    scope_name(scope)
                );
                let used = f("used_ppt", 1);
                (
                    what,
                    engine,
                    STORM_PPT.to_string(),
                    used,
                    "‰ of a CPU in all",
                )
            }
            Cell::Build(build) => {
                let elapsed = f("elapsed_s", 3);
                (
                    "build".to_string(),
                    Engine::Ext,
                    build.name().into(),
                    elapsed,
                    "s",
                )
            }
            _ => continue,
        };
        t.push([what, engine.label().into(), cap, figure, unit.into()]);
    }
    t
}
