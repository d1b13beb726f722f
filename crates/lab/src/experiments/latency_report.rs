//! What `tidegate lab latency` makes of its cells.

use serde_json::json;

use super::latency::{BESIDE_GROUPS, Beside, Cell, How, Lengths, Part, SENSITIVE, YIELDING};
use super::latency_cells::Outcome;
use super::published::{CYCLICTEST, HACKBENCH};
use super::{Setup, num, row};
use crate::LabError;
use crate::dist::{self, Latency};
use crate::report::{Headline, Met, Report, Table};
use crate::stats::{mean, most};
use crate::tables::latency::{self as tables, Messages, Shares, Timer};

/// Those that were run, in the tables' order.
fn hows(outcomes: &[Outcome]) -> impl Iterator<Item = How> {
    let was_run = |how: &How| outcomes.iter().any(|o| o.cell.how == *how);
    How::ALL.into_iter().filter(was_run)
}

/// Tidegate's way of hinting that was run, and what the sentence calls the case without it.
fn ours(outcomes: &[Outcome]) -> How {
    match hows(outcomes).any(|how| how == How::Ext) {
        true => How::Ext,
        false => How::Tidegate,
    }
}

/// Every round of a cell.
fn of(outcomes: &[Outcome], part: Part, how: How) -> Vec<&Outcome> {
    let cell = Cell { part, how };
    outcomes.iter().filter(|o| o.cell == cell).collect()
}

fn value(outcomes: &[Outcome], part: Part, how: How, f: fn(&Outcome) -> f64) -> Option<f64> {
    let values: Vec<f64> = of(outcomes, part, how).into_iter().map(f).collect();
    mean(&values)
}

fn wakeup(outcomes: &[Outcome], part: Part, how: How) -> Option<Latency> {
    let all = of(outcomes, part, how);
    let windows: Vec<&Latency> = all.iter().map(|o| &o.wakeup).collect();
    (!windows.is_empty()).then(|| dist::mean(&windows))
}

fn p99(outcomes: &[Outcome], how: How, beside: Beside) -> f64 {
    wakeup(outcomes, Part::Cyclictest { beside }, how).map_or(f64::NAN, |l| l.p99_us)
}

/// Builds the report.
pub fn report(
    setup: Setup,
    lengths: &Lengths,
    outcomes: &[Outcome],
    missing: Vec<String>,
) -> Result<Report, LabError> {
    if outcomes.is_empty() {
        return Err(LabError::process("latency", missing.join(" ")));
    }
    let preemption = setup.machine.preemption.clone();
    let mut report = Report::new("latency", setup.machine);
    report.rows = outcomes.iter().map(json_row).collect();
    report.headline = headline(outcomes);
    let timers = timers(outcomes);
    report.tables = vec![
        tables::cyclictest("hinted by", &timers),
        beside_table(outcomes),
        tables::hackbench("hackbench alone, seconds", "hinted by", &messages(outcomes)),
        tables::fairness("hinted by", &shares(outcomes)),
        schbench_table(outcomes),
    ];
    report.plots.push(tables::plot(&timers)?);
    report.notes.push(format!(
        "cyclictest is one thread with a timer each millisecond; beside it runs hackbench -p -g {BESIDE_GROUPS} ({} tasks) \
         without end, in the same group, or apart in another group of the same weight. hackbench alone sends {}/group messages from each sender to each receiver, \
         with a hint of {YIELDING} for all its tasks. By hand: sched_setattr with the kernel's shortest slice (100 us), \
         or for {YIELDING} its longest (100 ms), which is the most that a stock kernel offers. Fairness: three hogs and the \
         hinting task on one CPU, worst share against its fair one: an equal part where a hog hints; where a task hints \
         that sleeps in between and asks for more than its quarter, each hog's against their mean, and against a quarter \
         where it has less. schbench: one thread that wakes four workers in turn, 100 requests of 1 ms a second on each \
         CPU, beside two hogs a CPU. Windows of {:.0} s ({:.0} s for shares). The slice shown is what the kernel tells of \
         the thread from outside.",
        BESIDE_GROUPS * 40,
        lengths.loops,
        lengths.window_s,
        lengths.shares_s,
    ));
    report.notes.push(format!(
        "What a hint cannot do on a stock kernel. A fair class lets nobody run who has had more than a fair share: beside \
         {} tasks in one group, a timer task that runs for some microseconds in each millisecond has, so that it waits \
         until the others have caught up, however short its slice is (EEVDF's eligibility). In a group of its own its \
         share is half of the machine, and it runs at once. Preemption here is '{preemption}': unless it is full, a task \
         that is in a system call finishes it first.",
        BESIDE_GROUPS * 40,
    ));
    if ours(outcomes) == How::Ext {
        report.notes.push(
            "Under the ext engine a hint is a group's: what hints is in a group of its own, whose weight makes it one of \
             as many equals as it is in one group with the others (cyclictest 15 beside 10000, the fourth of four hogs \
             100 beside 300). Apart, and schbench beside its hogs, both groups weigh the same. Gains of hackbench are over \
             the fair class without a hint."
                .into(),
        );
    }
    report.notes.extend(missing);
    Ok(report)
}

fn json_row(o: &Outcome) -> serde_json::Map<String, serde_json::Value> {
    let (l, r) = (&o.wakeup, &o.request);
    let how = o.cell.how;
    let slice_us = o.slice_us.map(num);
    row(match o.cell.part {
        Part::Cyclictest { beside } => json!({
            "part": "cyclictest", "how": how.key(), "hint": how.hint(SENSITIVE), "beside": beside.key(),
            "avg_us": num(l.avg_us), "p50_us": num(l.p50_us), "p90_us": num(l.p90_us), "p99_us": num(l.p99_us),
            "p999_us": num(l.p999_us), "max_us": num(l.max_us), "wakeups": l.completed,
            "kept_pct": num(kept_pct(o)), "own_pct": num(o.own_pct), "others_pct": num(o.others_pct), "messages_per_s": num(o.messages_per_s), "slice_us": slice_us,
        }),
        Part::Hackbench { groups } => json!({
            "part": "hackbench", "how": how.key(), "hint": how.hint(YIELDING), "groups": groups,
            "seconds": num(o.seconds), "slice_us": slice_us,
        }),
        Part::Schbench => json!({
            "part": "schbench", "how": how.key(), "hint": how.hint(SENSITIVE),
            "p50_us": num(l.p50_us), "p99_us": num(l.p99_us), "max_us": num(l.max_us), "wakeups": l.completed,
            "request_p50_us": num(r.p50_us), "request_p99_us": num(r.p99_us), "slice_us": slice_us,
        }),
        Part::Fairness { hog } => json!({
            "part": "fairness", "how": how.key(), "hint": how.hint(SENSITIVE), "hinting_is_hog": hog,
            "worst_share_off_pct": num(o.unfair_pct), "slice_us": slice_us,
        }),
    })
}

/// The timer's p99 over that of an idle machine, beside each neighbour.
fn over_idle(outcomes: &[Outcome]) -> Vec<Headline> {
    let mut lines = Vec::new();
    for beside in [Beside::Together, Beside::Apart] {
        for how in hows(outcomes) {
            let over = p99(outcomes, how, beside) / p99(outcomes, how, Beside::Nothing);
            let beside = beside.label();
            let name = format!(
                "cyclictest p99 beside {beside} over an idle machine: {}",
                how.label()
            );
            let h = Headline::new(&name, over, "×");
            match how {
                How::Tidegate | How::Ext => {
                    lines.push(h.target("≤ 2", Met::judged(over, over <= 2.0)))
                }
                How::SliceFull if over.is_nan() => {}
                _ => lines.push(h),
            }
        }
    }
    lines
}

fn headline(outcomes: &[Outcome]) -> Vec<Headline> {
    let mut lines = over_idle(outcomes);
    let ours = ours(outcomes);
    for beside in [Beside::Together, Beside::Apart] {
        let against = p99(outcomes, ours, beside) / p99(outcomes, How::Slice, beside);
        let name = format!(
            "the p99 beside {}, {} over the shortest slice by hand",
            beside.label(),
            ours.label()
        );
        let h = Headline::new(&name, against, "×");
        // Two runs of the same thing differ by the phase of the ticks.
        lines.push(h.target("≤ 1.05", Met::judged(against, against <= 1.05)));
    }
    let seed = CYCLICTEST.iter().find(|r| r.stat == "p99").map(|r| r.b);
    let without = if ours == How::Ext {
        How::ExtNothing
    } else {
        How::Nothing
    };
    let ratio = p99(outcomes, without, Beside::Together) / p99(outcomes, ours, Beside::Together);
    lines.push(
        Headline::new(
            "cyclictest p99 beside hackbench, hint 0 over −20",
            ratio,
            "×",
        )
        .published(seed.map(|(without, with)| f64::from(without) / f64::from(with))),
    );
    let rate = |how| {
        let part = Part::Cyclictest {
            beside: Beside::Together,
        };
        value(outcomes, part, how, |o| o.messages_per_s)
    };
    if let (Some(without), Some(with)) = (rate(without), rate(ours)) {
        let loss = 100.0 * (1.0 - with / without);
        let name = "hackbench's messages fewer beside a hint of −20";
        lines.push(Headline::new(name, loss, "%"));
    }
    for how in hows(outcomes).filter(|how| *how != How::SliceFull) {
        let off = most([false, true].map(|hog| {
            value(outcomes, Part::Fairness { hog }, how, |o| o.unfair_pct).unwrap_or(f64::NAN)
        }));
        let name = format!("worst share against its fair one: {}", how.label());
        let h = Headline::new(&name, off, "%");
        lines.push(match how {
            How::Tidegate | How::Ext => h.target("≤ 1", Met::judged(off, off <= 1.0)),
            _ => h,
        });
    }
    for m in messages(outcomes)
        .iter()
        .filter(|m| m.label == ours.label())
    {
        let seed = HACKBENCH.iter().find(|r| r.groups == m.groups);
        let name = format!("hackbench, {} groups, faster with hints", m.groups);
        lines.extend(
            m.gain_pct()
                .map(|gain| Headline::new(&name, gain, "%").published(seed.map(|r| r.gain_pct))),
        );
    }
    lines
}

fn timers(outcomes: &[Outcome]) -> Vec<Timer> {
    let mut all = Vec::new();
    for beside in Beside::ALL {
        let part = Part::Cyclictest { beside };
        all.extend(hows(outcomes).filter_map(|how| {
            Some(Timer {
                label: how.label().into(),
                hint: how.hint(SENSITIVE),
                beside: (beside != Beside::Nothing).then_some(beside.label()),
                wakeup: wakeup(outcomes, part, how)?,
                others_pct: value(outcomes, part, how, |o| o.others_pct)?,
            })
        }));
    }
    all
}

fn messages(outcomes: &[Outcome]) -> Vec<Messages> {
    let groups = |o: &Outcome| match o.cell.part {
        Part::Hackbench { groups } => Some(groups),
        _ => None,
    };
    let mut all: Vec<u32> = outcomes.iter().filter_map(groups).collect();
    all.sort_unstable();
    all.dedup();
    let seconds = |groups, how| value(outcomes, Part::Hackbench { groups }, how, |o| o.seconds);
    let compared = |how: &How| !matches!(how, How::Nothing | How::SliceFull);
    let of = |groups| {
        let hows = hows(outcomes).filter(compared);
        hows.map(move |how| Messages {
            groups,
            label: how.label().into(),
            without_s: seconds(groups, How::Nothing),
            with_s: seconds(groups, how),
        })
    };
    all.into_iter().flat_map(of).collect()
}

fn shares(outcomes: &[Outcome]) -> Vec<Shares> {
    let off = |hog, how| value(outcomes, Part::Fairness { hog }, how, |o| o.unfair_pct);
    hows(outcomes)
        .filter(|how| *how != How::SliceFull)
        .map(|how| Shares {
            label: how.label().into(),
            hint: how.hint(SENSITIVE),
            hog_pct: off(true, how),
            asking_pct: off(false, how),
        })
        .collect()
}

/// cyclictest's wakeups of the moments that were due: what it has missed is in no latency.
fn kept_pct(o: &Outcome) -> f64 {
    100.0 * o.wakeup.completed as f64 / o.wakeup.offered as f64
}

/// What hackbench does beside cyclictest, and the slice that is really in force.
fn beside_table(outcomes: &[Outcome]) -> Table {
    let mut t = Table::new(
        "hackbench beside cyclictest",
        &[
            "where",
            "cyclictest hinted by",
            "its slice, us",
            "its own use",
            "moments that it kept",
            "messages a second",
            "against no hint",
        ],
    );
    for beside in [Beside::Together, Beside::Apart] {
        let part = Part::Cyclictest { beside };
        let without = value(outcomes, part, How::Nothing, |o| o.messages_per_s);
        for how in hows(outcomes) {
            let Some(rate) = value(outcomes, part, how, |o| o.messages_per_s) else {
                continue;
            };
            let slice = of(outcomes, part, how).iter().find_map(|o| o.slice_us);
            let percent =
                |f| value(outcomes, part, how, f).map_or("-".into(), |pct| format!("{pct:.2} %"));
            t.push([
                beside.label().to_string(),
                how.label().to_string(),
                slice.map_or("-".into(), |us| format!("{us:.0}")),
                percent(|o| o.own_pct),
                percent(kept_pct),
                format!("{rate:.0}"),
                without.map_or("-".into(), |w| {
                    format!("{:+.2} %", 100.0 * (rate / w - 1.0))
                }),
            ]);
        }
    }
    t
}

fn schbench_table(outcomes: &[Outcome]) -> Table {
    let mut t = Table::new(
        "schbench beside two hogs a CPU",
        &[
            "hinted by",
            "hint",
            "wakeup p50, us",
            "p99",
            "max",
            "request p50, us",
            "p99",
            "max",
        ],
    );
    for how in hows(outcomes) {
        for o in of(outcomes, Part::Schbench, how) {
            let (w, r) = (&o.wakeup, &o.request);
            let mut cells = vec![how.label().to_string(), how.hint(SENSITIVE).to_string()];
            let values = [w.p50_us, w.p99_us, w.max_us, r.p50_us, r.p99_us, r.max_us];
            cells.extend(values.map(|us| format!("{us:.1}")));
            t.push(cells);
        }
    }
    t
}
