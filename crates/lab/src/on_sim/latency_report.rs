//! What `tidegate lab latency --on sim` makes of its cells.

use serde_json::json;

use super::classes::Class;
use super::latency::{BESIDE_GROUPS, Cell, Outcome, Part, SENSITIVE, YIELDING, config};
use super::stage::Stage;
use crate::LabError;
use crate::dist::Latency;
use crate::experiments::published::{CYCLICTEST, HACKBENCH};
use crate::experiments::{num, row};
use crate::report::{Headline, Met, Report};
use crate::stats::most;
use crate::tables::latency::{self as tables, Messages, Shares, Timer};

fn find(outcomes: &[Outcome], class: Class, part: Part) -> Option<&Outcome> {
    outcomes
        .iter()
        .find(|o| o.cell.class == class && o.cell.part == part)
}

fn wakeup(outcomes: &[Outcome], class: Class, hint: i8, beside: bool) -> Option<&Latency> {
    find(outcomes, class, Part::Cyclictest { hint, beside }).map(|o| &o.wakeup)
}

fn groups(outcomes: &[Outcome]) -> Vec<u32> {
    let mut all: Vec<u32> = outcomes
        .iter()
        .filter_map(|o| match o.cell.part {
            Part::Hackbench { groups, .. } => Some(groups),
            _ => None,
        })
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// hackbench's gain from its hint, percent of its time without.
fn gain_pct(outcomes: &[Outcome], class: Class, groups: u32) -> Option<f64> {
    let of = |hint| Some(find(outcomes, class, Part::Hackbench { groups, hint })?.seconds);
    Some(100.0 * (1.0 - of(YIELDING)? / of(0)?))
}

/// Builds the report.
pub fn report(
    stage: &Stage<'_>,
    cpus: u32,
    loops: u32,
    outcomes: &[Outcome],
) -> Result<Report, LabError> {
    let example = config(outcomes[0].cell, stage.options.seed);
    let bed = stage.bed(&[cpus], &example, "CFS, EEVDF and ext in turn");
    let mut report = Report::new("latency", bed);
    report.rows = outcomes.iter().map(json_row).collect();
    report.headline = headline(outcomes);
    let timers = timers(outcomes);
    report.tables = vec![
        tables::cyclictest("scheduler", &timers),
        tables::hackbench("hackbench alone, seconds", "scheduler", &messages(outcomes)),
        tables::fairness("scheduler", &shares(outcomes)),
    ];
    report.plots.push(tables::plot(&timers)?);
    report.notes.push(format!(
        "cyclictest is one thread with a timer each millisecond; beside it runs hackbench -p -g {BESIDE_GROUPS} \
         ({} tasks). hackbench alone sends {loops}/group messages from each sender to each receiver; with a hint, \
         all its tasks have {YIELDING}. Under EEVDF a hint is a slice (sched_setattr), which is what Tidegate can \
         do on a stock kernel; under CFS it is an offset in the wakeup comparison, as in the latency-nice series; \
         under ext an offset of the deadline. Fairness: three hogs and the hinting task on one CPU, worst share \
         against its fair one: an equal part of the CPU where a hog hints; where a task hints that sleeps in \
         between and asks for more than its quarter, each hog's against their mean, and against a quarter \
         where it has less.",
        BESIDE_GROUPS * 40
    ));
    report.notes.push(
        "Mechanism: who runs next and who preempts whom, by each class's rules, and by Tidegate's law of hints \
         in ext. The model's: the machine (the series does not name its own), what a switch, a wakeup and a \
         message cost, no interrupts and no sections with preemption off (the series' cyclictest takes 60 us \
         at the least), so compare ratios and shapes, not microseconds."
            .into(),
    );
    Ok(report)
}

fn json_row(o: &Outcome) -> serde_json::Map<String, serde_json::Value> {
    let l = &o.wakeup;
    let Cell { class, part, cpus } = o.cell;
    row(match part {
        Part::Cyclictest { hint, beside } => json!({
            "part": "cyclictest", "class": class.key(), "cpus": cpus, "hint": hint, "beside_hackbench": beside,
            "avg_us": num(l.avg_us), "p50_us": num(l.p50_us), "p90_us": num(l.p90_us), "p99_us": num(l.p99_us),
            "p999_us": num(l.p999_us), "max_us": num(l.max_us), "wakeups": l.completed,
            "others_pct": num(o.beside_pct),
        }),
        Part::Hackbench { groups, hint } => json!({
            "part": "hackbench", "class": class.key(), "cpus": cpus, "hint": hint, "groups": groups,
            "seconds": num(o.seconds),
        }),
        Part::Fairness { hog, hint } => json!({
            "part": "fairness", "class": class.key(), "cpus": cpus, "hint": hint, "hinting_is_hog": hog,
            "worst_share_off_pct": num(o.unfair_pct),
        }),
    })
}

fn headline(outcomes: &[Outcome]) -> Vec<Headline> {
    let mut lines = Vec::new();
    let p99 =
        |class, hint, beside| wakeup(outcomes, class, hint, beside).map_or(f64::NAN, |l| l.p99_us);
    for class in Class::ALL.into_iter().filter(|c| c.takes_hints()) {
        let over = p99(class, SENSITIVE, true) / p99(class, SENSITIVE, false);
        let name = format!(
            "cyclictest p99 beside hackbench over an idle machine, hint −20: {}",
            class.label()
        );
        let h = Headline::new(&name, over, "×");
        lines.push(match class {
            // The latency-nice series is a comparison.
            Class::CfsPatched => h,
            _ => h.target("≤ 2", Met::of(over <= 2.0)),
        });
    }
    let against = p99(Class::Ext, SENSITIVE, true) / p99(Class::Eevdf, SENSITIVE, true);
    lines.push(
        Headline::new(
            "the same p99, ext over EEVDF with the shortest slice",
            against,
            "×",
        )
        .target("≤ 1", Met::of(against <= 1.0)),
    );
    let row = CYCLICTEST.iter().find(|r| r.stat == "p99").map(|r| r.b);
    let seed = row.map(|(without, with)| f64::from(without) / f64::from(with));
    for class in Class::ALL.into_iter().filter(|c| c.takes_hints()) {
        let ratio = p99(class, 0, true) / p99(class, SENSITIVE, true);
        let name = format!(
            "cyclictest p99 beside hackbench, hint 0 over −20: {}",
            class.label()
        );
        lines.push(
            Headline::new(&name, ratio, "×").published(seed.filter(|_| class == Class::CfsPatched)),
        );
    }
    for class in [Class::Eevdf, Class::Ext] {
        let off = most([false, true].map(|hog| {
            let part = Part::Fairness {
                hog,
                hint: SENSITIVE,
            };
            find(outcomes, class, part).map_or(f64::NAN, |o| o.unfair_pct)
        }));
        let name = format!(
            "worst share against its fair one beside a hint of −20: {}",
            class.label()
        );
        lines.push(Headline::new(&name, off, "%").target("≤ 1", Met::of(off <= 1.0)));
    }
    for class in [Class::CfsPatched, Class::Eevdf, Class::Ext] {
        for groups in groups(outcomes) {
            let Some(gain) = gain_pct(outcomes, class, groups) else {
                continue;
            };
            let seed = HACKBENCH.iter().find(|r| r.groups == groups);
            let name = format!(
                "hackbench, {groups} groups, faster with hints: {}",
                class.label()
            );
            lines.push(Headline::new(&name, gain, "%").published(seed.map(|r| r.gain_pct)));
        }
    }
    lines
}

/// By scheduler, alone first.
fn timers(outcomes: &[Outcome]) -> Vec<Timer> {
    let mut all = Vec::new();
    for class in Class::ALL {
        for (hint, beside) in [(0, false), (SENSITIVE, false), (0, true), (SENSITIVE, true)] {
            let o = find(outcomes, class, Part::Cyclictest { hint, beside });
            all.extend(o.map(|o| Timer {
                label: class.label().into(),
                hint,
                beside: beside.then_some("hackbench"),
                wakeup: o.wakeup.clone(),
                others_pct: o.beside_pct,
            }));
        }
    }
    all
}

fn messages(outcomes: &[Outcome]) -> Vec<Messages> {
    let mut all = Vec::new();
    for groups in groups(outcomes) {
        all.extend(Class::ALL.map(|class| {
            let of = |hint| Some(find(outcomes, class, Part::Hackbench { groups, hint })?.seconds);
            Messages {
                groups,
                label: class.label().into(),
                without_s: of(0),
                with_s: of(YIELDING),
            }
        }));
    }
    all
}

fn shares(outcomes: &[Outcome]) -> Vec<Shares> {
    let mut all = Vec::new();
    for class in Class::ALL {
        for hint in [0, SENSITIVE] {
            let of = |hog| Some(find(outcomes, class, Part::Fairness { hog, hint })?.unfair_pct);
            all.extend(of(true).map(|pct| Shares {
                label: class.label().into(),
                hint,
                hog_pct: Some(pct),
                asking_pct: of(false),
            }));
        }
    }
    all
}
