//! What `tidegate lab caps` makes of its cells.

use serde_json::json;

use super::caps::{Keeper, Lengths, Load, Outcome};
use super::caps_soft::{Cell, Soft};
use super::{Setup, num, row};
use crate::LabError;
use crate::report::{Headline, Met, Report, Table};
use crate::stats::{median, most};
use crate::tables::caps::{self, Rate, Series};

/// On a machine that others use; in virtual time it is one part per thousand.
const TARGET_HOST_PPT: f64 = 5.0;
const TARGET_VIRTUAL_PPT: f64 = 1.0;
const TARGET_YIELD_MS: f64 = 20.0;

/// Builds the report.
pub fn report(
    setup: Setup,
    lengths: &Lengths,
    outcomes: &[Outcome],
    soft_caps: &[Soft],
    missing: Vec<String>,
) -> Result<Report, LabError> {
    if outcomes.is_empty() && soft_caps.is_empty() {
        return Err(LabError::process("caps", missing.join(" ")));
    }
    let cpus = setup.machine.cpus;
    let mut report = Report::new("caps", setup.machine);
    report.rows = outcomes.iter().map(json_row).collect();
    report
        .rows
        .extend(soft_caps.iter().map(|s| soft_row(s, cpus)));
    report.headline = headline(outcomes, soft_caps, cpus);
    let window = format!("{:.0} s", lengths.window_s);
    for load in Load::ALL {
        let title = format!("Hard caps on {}, ‰ of one CPU", load.label());
        report
            .tables
            .push(caps::accuracy(&title, &series(outcomes, load, &window)));
    }
    report.tables.push(manners_table(outcomes));
    report.tables.push(soft_table(soft_caps, cpus));
    report.plots.push(caps::plot(
        "How far use is from the cap in the worst window, a hog",
        &series(outcomes, Load::Hog, &window),
    )?);
    report.notes.push(format!(
        "Caps are in ‰ of one CPU; windows of {window}, {} of them, after {:.0} s to settle. The group that forks is two \
         parents with four children of 5 ms each at a time; the task that sleeps works 4 ms and sleeps 1 ms, so that it \
         wants 800 ‰: under a higher cap that is what it is due. {} The longest \
         stop is the longest time for which a hog wanted to run and did not, seen by itself. Cost is the CPU of whoever \
         keeps the cap: the agent's process, or the thread that sends cpulimit's signals; what the kernel's own \
         accounting costs is not in it.",
        lengths.windows,
        lengths.settle_s,
        read_from(outcomes)
    ));
    report.notes.push(
        "Soft caps: one hog and one newcomer on each CPU. The hogs have yielded when they are within 5 points of what they \
         may have, over the next 20 ms and over the next 200 (the same measure as in `tidegate lab step`). Reading their clocks each \
         millisecond takes CPU as well: a tenth of the bed's."
            .into(),
    );
    report.notes.extend(missing);
    Ok(report)
}

/// Whose clock the use is read from.
fn read_from(outcomes: &[Outcome]) -> String {
    const GROUP: &str = "Use is perf's clock of the load's group: all that its tasks ran, forks and switches included";
    let told: Vec<&str> = keepers(outcomes)
        .into_iter()
        .filter(|k| of(outcomes, *k, None).any(|o| !o.by_group))
        .map(Keeper::label)
        .collect();
    if told.is_empty() {
        return format!("{GROUP}.");
    }
    let rest = "what the loads tell of themselves, which misses the end of what is forked (perf's events of a group of \
                cgroup v2 are not available)";
    if told.len() == keepers(outcomes).len() {
        return format!("Use is {rest}.");
    }
    format!("{GROUP}; of {} it is {rest}.", told.join(" and "))
}

fn rate(o: &Outcome) -> Rate {
    let due_ppt = o.load.due_ppt(o.cap_ppt);
    let mut rate = Rate::of(o.cap_ppt, due_ppt, &o.windows_ppt);
    if due_ppt < f64::from(o.cap_ppt) {
        // A cap that does not bind is kept by whatever stays below it: its sleeps take longer than they should.
        rate.due_ppt = rate.worst_ppt.min(f64::from(o.cap_ppt));
    }
    rate
}

/// Those that were run, in the tables' order.
fn keepers(outcomes: &[Outcome]) -> Vec<Keeper> {
    let was_run = |k: &Keeper| outcomes.iter().any(|o| o.keeper == *k);
    Keeper::ALL.into_iter().filter(was_run).collect()
}

fn series(outcomes: &[Outcome], load: Load, window: &str) -> Vec<Series> {
    keepers(outcomes)
        .into_iter()
        .map(|keeper| Series {
            label: keeper.label(),
            window: window.into(),
            rates: of(outcomes, keeper, Some(load)).map(rate).collect(),
        })
        .collect()
}

fn of(outcomes: &[Outcome], keeper: Keeper, load: Option<Load>) -> impl Iterator<Item = &Outcome> {
    let ours = move |o: &&Outcome| o.keeper == keeper && load.is_none_or(|l| o.load == l);
    outcomes.iter().filter(ours)
}

fn worst(outcomes: &[Outcome], keeper: Keeper, load: Option<Load>) -> f64 {
    let rates: Vec<Rate> = of(outcomes, keeper, load).map(rate).collect();
    caps::worst(&rates)
}

fn json_row(o: &Outcome) -> serde_json::Map<String, serde_json::Value> {
    let r = rate(o);
    row(json!({
        "kind": "hard", "keeper": o.keeper.key(), "load": o.load.key(), "cap_ppt": o.cap_ppt,
        "used_ppt": num(r.used_ppt), "worst_window_ppt": num(r.worst_ppt), "off_ppt": num(r.off()),
        "longest_stop_ms": num(o.longest_stop_ms), "cost_ppt": num(o.cost_ppt),
        "clock": if o.by_group { "group" } else { "loads" },
    }))
}

fn soft_row(s: &Soft, cpus: usize) -> serde_json::Map<String, serde_json::Value> {
    let yields: Vec<serde_json::Value> = s.yields_ms.iter().map(|ms| num(*ms)).collect();
    row(json!({
        "kind": "soft", "keeper": s.cell.key(), "due_pct": num(s.cell.due_pct(cpus)),
        "alone_pct": num(s.alone_pct), "beside_pct": num(s.beside_pct), "yields_ms": yields,
    }))
}

fn headline(outcomes: &[Outcome], soft_caps: &[Soft], cpus: usize) -> Vec<Headline> {
    let mut lines = Vec::new();
    let target = if crate::worker::spin::by_nops() {
        TARGET_VIRTUAL_PPT
    } else {
        TARGET_HOST_PPT
    };
    for keeper in keepers(outcomes) {
        for load in Load::ALL {
            let off = worst(outcomes, keeper, Some(load));
            let name = format!(
                "hard caps against use, {}: {}",
                load.label(),
                keeper.label()
            );
            let h = Headline::new(&name, off, "‰");
            lines.push(match keeper {
                Keeper::Tidegate | Keeper::Ext => {
                    h.target(&format!("≤ {target}"), Met::judged(off, off <= target))
                }
                _ => h,
            });
        }
    }
    for keeper in keepers(outcomes) {
        let stop = most(of(outcomes, keeper, Some(Load::Hog)).map(|o| o.longest_stop_ms));
        let name = format!("longest stop of a hog at any cap: {}", keeper.label());
        lines.push(Headline::new(&name, stop, "ms"));
        let cost = most(of(outcomes, keeper, None).map(|o| o.cost_ppt));
        let name = format!("cost of the keeper, most: {}", keeper.label());
        lines.push(Headline::new(&name, cost, "‰"));
    }
    for s in soft_caps {
        if let Cell::Tidegate(ppt) | Cell::Ext(ppt) = s.cell {
            let worst = most(s.yields_ms.iter().copied());
            let by = if matches!(s.cell, Cell::Ext(_)) {
                "ext engine: "
            } else {
                ""
            };
            let name = format!("{by}a soft cap of {ppt} ‰ yields to a newcomer, worst");
            let met = Met::judged(worst, worst <= TARGET_YIELD_MS);
            lines.push(Headline::new(&name, worst, "ms").target("≤ 20", met));
            let beside = s.beside_pct * 10.0 * cpus as f64;
            let name = format!("{by}a soft cap of {ppt} ‰ beside newcomers gets");
            lines.push(Headline::new(&name, beside, "‰"));
        }
    }
    lines
}

/// How smoothly, and at what cost.
fn manners_table(outcomes: &[Outcome]) -> Table {
    let mut heads = vec!["cap, ‰".to_string()];
    let keepers = keepers(outcomes);
    heads.extend(
        keepers
            .iter()
            .map(|k| format!("{}: longest stop, ms", k.label())),
    );
    heads.extend(keepers.iter().map(|k| format!("{}: cost, ‰", k.label())));
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let mut t = Table::new("A hog: how smoothly, and at what cost", &heads);
    let mut caps: Vec<u32> = outcomes.iter().map(|o| o.cap_ppt).collect();
    caps.sort_unstable();
    caps.dedup();
    for cap in caps {
        let cell = |keeper, f: fn(&Outcome) -> f64, digits: usize| {
            let mut own = of(outcomes, keeper, Some(Load::Hog));
            let o = own.find(|o| o.cap_ppt == cap);
            o.map_or("-".to_string(), |o| format!("{:.digits$}", f(o)))
        };
        let mut cells = vec![cap.to_string()];
        cells.extend(keepers.iter().map(|k| cell(*k, |o| o.longest_stop_ms, 1)));
        cells.extend(keepers.iter().map(|k| cell(*k, |o| o.cost_ppt, 2)));
        t.push(cells);
    }
    t
}

fn soft_table(soft_caps: &[Soft], cpus: usize) -> Table {
    let mut t = Table::new(
        "Soft caps, ‰ of one CPU",
        &[
            "held back by",
            "alone",
            "may have beside",
            "has beside",
            "yields, ms",
            "worst",
        ],
    );
    let ppt = |pct: f64| format!("{:.1}", pct * 10.0 * cpus as f64);
    let ms = |ms: f64| {
        if ms.is_finite() {
            format!("{ms:.0}")
        } else {
            "not seen".into()
        }
    };
    for s in soft_caps {
        t.push([
            s.cell.label(),
            ppt(s.alone_pct),
            ppt(s.cell.due_pct(cpus)),
            ppt(s.beside_pct),
            ms(median(&s.yields_ms).unwrap_or(f64::NAN)),
            ms(most(s.yields_ms.iter().copied())),
        ]);
    }
    t
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(keeper: Keeper, by_group: bool) -> Outcome {
        Outcome {
            keeper,
            load: Load::Forks,
            cap_ppt: 200,
            windows_ppt: vec![200.0],
            by_group,
            longest_stop_ms: f64::NAN,
            cost_ppt: 0.0,
        }
    }

    #[test]
    fn the_report_says_whose_clock_the_use_is_read_from() {
        let said = |tidegate, quota| {
            let all = [(Keeper::Tidegate, tidegate), (Keeper::Quota, quota)];
            read_from(&all.map(|(keeper, by_group)| outcome(keeper, by_group)))
        };
        assert!(
            said(true, true).starts_with("Use is perf's clock")
                && !said(true, true).contains("tell")
        );
        assert!(said(false, false).starts_with("Use is what the loads tell"));
        let mixed = said(true, false);
        assert!(
            mixed.contains("perf's clock of the load's group")
                && mixed.contains("of quota by hand it is what the loads tell"),
            "{mixed}"
        );
        assert_eq!(json_row(&outcome(Keeper::Ext, true))["clock"], "group");
        assert_eq!(json_row(&outcome(Keeper::Ext, false))["clock"], "loads");
    }
}
