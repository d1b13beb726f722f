//! What `tidegate lab caps --on sim` makes of its cells.

use serde_json::json;
use tidegate_sim::CapScope;

use super::caps::{Build, Cell, Engine, Outcome, SOFT, STORM_PPT, config};
use super::stage::Stage;
use crate::LabError;
use crate::experiments::published::KERNBENCH_ELAPSED_S;
use crate::experiments::{num, row};
use crate::report::{Headline, Met, Report, Table};
use crate::tables::caps::{self, Series};

/// A tick: what a soft cap may take to yield.
const TICK_MS: f64 = 4.0;
/// ext looks by timers at the very moment; its least run is its granularity.
const EXT_LEAST_MS: f64 = 0.01;

fn find(outcomes: &[Outcome], cell: Cell) -> Option<&Outcome> {
    outcomes.iter().find(|o| o.cell == cell)
}

/// Builds the report.
pub fn report(stage: &Stage<'_>, outcomes: &[Outcome]) -> Result<Report, LabError> {
    let example = config(Engine::Ext, 1, stage.options.seed);
    let bed = stage.bed(
        &[1, 2, 8, 16],
        &example,
        "ext; EEVDF with cpu.max for knobs",
    );
    let mut report = Report::new("caps", bed);
    report.rows = outcomes.iter().flat_map(json_rows).collect();
    report.headline = headline(outcomes);
    report.tables = vec![
        caps::accuracy("Hard caps, ‰ of one CPU", &series(outcomes)),
        soft_table(outcomes),
        storm_table(outcomes),
    ];
    report.plots.push(caps::plot(
        "How far use is from the cap in the worst window",
        &series(outcomes),
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

fn worst(outcomes: &[Outcome], engine: Engine) -> Option<f64> {
    let o = find(outcomes, Cell::Continuous(engine))?;
    Some(caps::worst(&o.rates))
}

fn json_rows(o: &Outcome) -> Vec<serde_json::Map<String, serde_json::Value>> {
    let one = |value| vec![row(value)];
    match o.cell {
        Cell::Continuous(engine) => o
            .rates
            .iter()
            .map(|r| {
                row(json!({
                    "kind": "continuous", "engine": engine.label(), "cap_ppt": r.cap_ppt,
                    "used_ppt": num(r.used_ppt), "worst_window_ppt": num(r.worst_ppt),
                }))
            })
            .collect(),
        Cell::AfterSleep(engine, ppt) => one(json!({
            "kind": "after_sleep", "engine": engine.label(), "cap_ppt": ppt, "above_ms": num(o.above_ms),
        })),
        Cell::SoftIdle(ppt) => one(json!({
            "kind": "soft_idle", "engine": "ext", "soft_ppt": ppt, "used_ppt": num(o.used_ppt),
        })),
        Cell::SoftBusy(ppt) => one(json!({
            "kind": "soft_busy", "engine": "ext", "soft_ppt": ppt, "used_ppt": num(o.used_ppt),
        })),
        Cell::SoftYields(ppt) => one(json!({
            "kind": "soft_yields", "engine": "ext", "soft_ppt": ppt, "used_ppt": num(o.used_ppt),
            "wakeup_p50_us": num(o.wakeup.p50_us), "wakeup_p99_us": num(o.wakeup.p99_us),
            "wakeup_max_us": num(o.wakeup.max_us),
        })),
        Cell::Storm(engine, scope) => one(json!({
            "kind": "storm", "engine": engine.label(), "scope": scope_name(scope), "cap_ppt": STORM_PPT,
            "used_ppt": num(o.used_ppt), "children_done": o.forked,
        })),
        Cell::Build(build) => one(json!({
            "kind": "build", "engine": "ext", "caps": build_name(build), "elapsed_s": num(o.elapsed_s),
        })),
    }
}

fn scope_name(scope: CapScope) -> &'static str {
    match scope {
        CapScope::Task => "task",
        CapScope::Process => "process",
        CapScope::Group => "group",
    }
}

fn build_name(build: Build) -> &'static str {
    match build {
        Build::Uncapped => "none",
        Build::Unused => "unused",
        Build::SoftZero => "soft 0",
    }
}

fn headline(outcomes: &[Outcome]) -> Vec<Headline> {
    let mut lines = Vec::new();
    for (engine, window) in [(Engine::Ext, "1 s"), (Engine::Knobs, "10 s")] {
        if let Some(w) = worst(outcomes, engine) {
            let name = format!(
                "hard caps 1–1000 ‰ against their use, worst {window}: {}",
                engine.label()
            );
            lines.push(Headline::new(&name, w, "‰").target("≤ 1", Met::of(w <= 1.0)));
        }
    }
    for ppt in [1, 100, 500] {
        if let Some(o) = find(outcomes, Cell::AfterSleep(Engine::Ext, ppt)) {
            // The law's: the depth and one granularity.
            let bound = (f64::from(ppt) / 100.0).max(EXT_LEAST_MS) + EXT_LEAST_MS;
            let name = format!("above a cap of {ppt} ‰ after a sleep: ext");
            let met = Met::of(o.above_ms <= bound);
            lines.push(Headline::new(&name, o.above_ms, "ms").target(&format!("≤ {bound}"), met));
        }
    }
    for ppt in SOFT {
        if let Some(o) = find(outcomes, Cell::SoftIdle(ppt)) {
            let name = format!("soft cap of {ppt} ‰ on an idle CPU gets");
            let met = Met::of(o.used_ppt >= 990.0);
            lines.push(Headline::new(&name, o.used_ppt, "‰").target("≥ 990", met));
        }
        if let Some(o) = find(outcomes, Cell::SoftBusy(ppt)) {
            let name = format!("soft cap of {ppt} ‰ on a busy CPU gets");
            // No more than the cap, and no less: what it may have in the foreground is not background's to lose.
            let met = Met::of((o.used_ppt - f64::from(ppt)).abs() <= 1.0);
            lines.push(Headline::new(&name, o.used_ppt, "‰").target(&format!("{ppt} ± 1"), met));
        }
    }
    if let Some(o) = find(outcomes, Cell::SoftYields(Some(0))) {
        let ms = o.wakeup.max_us / 1000.0;
        lines.push(
            Headline::new("a soft cap of 0 yields to a wakeup, worst", ms, "ms")
                .target("≤ 4", Met::of(o.wakeup.completed > 0 && ms <= TICK_MS)),
        );
    }
    for engine in [Engine::Ext, Engine::Knobs] {
        if let Some(o) = find(outcomes, Cell::Storm(engine, CapScope::Group)) {
            let (least, most) = (f64::from(STORM_PPT) * 0.95, f64::from(STORM_PPT) * 1.01);
            let name = format!(
                "a fork storm under a group's cap of {STORM_PPT} ‰: {}",
                engine.label()
            );
            // A storm that gets nothing is not capped but starved.
            let met = Met::of((least..=most).contains(&o.used_ppt));
            lines.push(
                Headline::new(&name, o.used_ppt, "‰").target(&format!("{least}–{most}"), met),
            );
        }
    }
    if let Some(o) = find(outcomes, Cell::Storm(Engine::Ext, CapScope::Task)) {
        let name = format!("the same storm with {STORM_PPT} ‰ a task");
        lines.push(Headline::new(&name, o.used_ppt, "‰"));
    }
    lines.extend(builds(outcomes));
    lines
}

/// What caps cost a build, beside what the patches say.
fn builds(outcomes: &[Outcome]) -> Vec<Headline> {
    let mut lines = Vec::new();
    let elapsed = |build| find(outcomes, Cell::Build(build)).map(|o| o.elapsed_s);
    if let Some(none) = elapsed(Build::Uncapped) {
        for (build, seed, name) in [
            (
                Build::Unused,
                1,
                "a build with caps that never bind, longer",
            ),
            (Build::SoftZero, 2, "a build under soft caps of 0, longer"),
        ] {
            let more = |with: f64, without: f64| 100.0 * (with / without - 1.0);
            if let Some(e) = elapsed(build) {
                let seed = more(KERNBENCH_ELAPSED_S[seed], KERNBENCH_ELAPSED_S[0]);
                let value = more(e, none);
                let most = if build == Build::Unused { 0.5 } else { 1.0 };
                lines.push(
                    Headline::new(name, value, "%")
                        .published(Some(seed))
                        .target(&format!("≤ {most}"), Met::of(value <= most)),
                );
            }
        }
    }
    lines
}

fn series(outcomes: &[Outcome]) -> [Series; 2] {
    [(Engine::Ext, "1 s"), (Engine::Knobs, "10 s")].map(|(engine, window)| Series {
        label: engine.label(),
        window: window.into(),
        rates: find(outcomes, Cell::Continuous(engine)).map_or(Vec::new(), |o| o.rates.clone()),
    })
}

fn soft_table(outcomes: &[Outcome]) -> Table {
    let mut t = Table::new(
        "Soft caps on one CPU under ext, ‰ of it",
        &[
            "soft cap",
            "alone",
            "beside a hog",
            "beside a task of 22 % in 4 ms",
            "its wakeup p50, us",
            "p99",
            "max",
        ],
    );
    for ppt in SOFT.map(Some).into_iter().chain([None]) {
        let used = |o: Option<&Outcome>| o.map_or("-".into(), |o| format!("{:.1}", o.used_ppt));
        let Some(yields) = find(outcomes, Cell::SoftYields(ppt)) else {
            continue;
        };
        t.push([
            ppt.map_or("none".into(), |p| p.to_string()),
            used(ppt.and_then(|p| find(outcomes, Cell::SoftIdle(p)))),
            used(ppt.and_then(|p| find(outcomes, Cell::SoftBusy(p)))),
            used(Some(yields)),
            format!("{:.1}", yields.wakeup.p50_us),
            format!("{:.1}", yields.wakeup.p99_us),
            format!("{:.1}", yields.wakeup.max_us),
        ]);
    }
    t
}

fn storm_table(outcomes: &[Outcome]) -> Table {
    let mut t = Table::new(
        "After a sleep, in fork storms, and a build",
        &["what", "engine", "cap, ‰", "figure", "unit"],
    );
    for o in outcomes {
        let (what, engine, cap, figure, unit) = match o.cell {
            Cell::AfterSleep(engine, ppt) => {
                let ms = format!("{:.2}", o.above_ms);
                (
                    "above the rate after a sleep".into(),
                    engine.label(),
                    ppt.to_string(),
                    ms,
                    "ms",
                )
            }
            Cell::Storm(engine, scope) => (
                format!(
                    "fork storm, {} scope, {} children done",
                    scope_name(scope),
                    o.forked
                ),
                engine.label(),
                STORM_PPT.to_string(),
                format!("{:.1}", o.used_ppt),
                "‰ of a CPU in all",
            ),
            Cell::Build(build) => (
                "build".into(),
                "ext",
                build_name(build).into(),
                format!("{:.3}", o.elapsed_s),
                "s",
            ),
            _ => continue,
        };
        t.push([what, engine.into(), cap, figure, unit.into()]);
    }
    t
}
