//! The kinds of workloads: one row each, with its keys and its reader.

use super::Text;
use super::patterns::{self, PATTERN};
use super::read::Section;
use super::tree::{Node, Table, Value};
use crate::ids::GroupId;
use crate::workloads::{
    ClosedLoop, Cyclictest, Fibtest, ForkStorm, Frames, Hackbench, Hog, Kind, LockHolder, OpenLoop,
    Schbench, Work,
};

pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) keys: &'static [&'static [&'static str]],
    pub(super) read: fn(&Section<'_>, &Text) -> Kind,
}

/// More tasks of one workload than anyone runs; a mistyped count should not fill the memory.
const TASKS_MAX: u32 = 100_000;
const MS: u64 = 1_000_000;

/// Of kinds whose tasks never wait for each other.
const END: &[&str] = &["end"];
const OPEN_LOOP: &[&str] = &["workers", "work", "work_shape"];
const CLOSED_LOOP: &[&str] = &["clients", "work", "work_shape", "think", "think_shape"];
const HOG: &[&str] = &["tasks", "busy", "period"];
const FRAMES: &[&str] = &["workers", "work", "work_shape", "serial", "rate"];
const HACKBENCH: &[&str] = &["groups", "pairs", "loops", "message", "capacity"];
const CYCLICTEST: &[&str] = &[
    "threads",
    "interval",
    "distance",
    "pinned",
    "work",
    "step_work",
    "step_at",
];
const SCHBENCH: &[&str] = &[
    "messengers",
    "workers",
    "work",
    "work_shape",
    "rate",
    "batch",
];
const FIBTEST: &[&str] = &["threads", "fast", "chunk", "work", "sleep"];
const FORK_STORM: &[&str] = &[
    "parents",
    "children",
    "interval",
    "work",
    "work_shape",
    "depth",
];
const LOCK_HOLDER: &[&str] = &[
    "tasks",
    "interval",
    "work",
    "work_shape",
    "side_group",
    "side_tasks",
    "hold",
    "hold_shape",
    "outside",
    "outside_shape",
];

const fn row(
    name: &'static str,
    keys: &'static [&'static [&'static str]],
    read: fn(&Section<'_>, &Text) -> Kind,
) -> Row {
    Row { name, keys, read }
}

pub(super) const ROWS: &[Row] = &[
    row("open-loop", &[OPEN_LOOP, PATTERN, END], open_loop),
    row("closed-loop", &[CLOSED_LOOP, END], closed_loop),
    row("hog", &[HOG, END], hog),
    row("frames", &[FRAMES], frames),
    row("hackbench", &[HACKBENCH], hackbench),
    row("cyclictest", &[CYCLICTEST], cyclictest),
    row("schbench", &[SCHBENCH], schbench),
    row("fibtest", &[FIBTEST], fibtest),
    row("fork-storm", &[FORK_STORM], fork_storm),
    row("lock-holder", &[LOCK_HOLDER], lock_holder),
];

/// The row of a table's kind, if it names one.
pub(super) fn of_table(table: &Table) -> Option<&'static Row> {
    let Some(Node::Leaf(leaf)) = table.get("kind") else {
        return None;
    };
    let Value::One(text) = &leaf.value else {
        return None;
    };
    ROWS.iter().find(|row| row.name == text.trim())
}

/// The row of a section's kind; a missing or unknown kind is a finding.
pub(super) fn choose(section: &Section<'_>) -> Option<&'static Row> {
    section.must("kind", "\"open-loop\"");
    let choices: Vec<_> = ROWS.iter().map(|row| (row.name, row)).collect();
    section.choice("kind", &choices)
}

fn tasks(section: &Section<'_>, key: &str, default: u32) -> u32 {
    section.count(key, 1, TASKS_MAX).unwrap_or(default)
}

fn open_loop(section: &Section<'_>, text: &Text) -> Kind {
    let work = section.work("work", Work::uniform(MS));
    Kind::OpenLoop(OpenLoop {
        workers: tasks(section, "workers", section.cpus.saturating_mul(2)),
        work,
        pattern: patterns::read(section, text, work.mean_ns),
    })
}

fn closed_loop(section: &Section<'_>, _: &Text) -> Kind {
    Kind::ClosedLoop(ClosedLoop {
        clients: tasks(section, "clients", section.cpus),
        work: section.work("work", Work::uniform(MS)),
        think: section.work("think", Work::exponential(10 * MS)),
    })
}

fn hog(section: &Section<'_>, _: &Text) -> Kind {
    let period_ns = section.some_time("period").unwrap_or(10 * MS);
    if section.has("period") && !section.has("busy") {
        section.refuse_key(
            "period",
            "means nothing without busy".into(),
            "add busy = \"30%\"",
        );
    }
    // A share of the period: at most the period, so the product is far below 2^64 (a day · 10^6 < 2^67 is not; 128 bits).
    let busy = section.share("busy").map(|ppm| {
        let work_ns = u128::from(period_ns) * u128::from(ppm) / 1_000_000;
        (work_ns.max(1) as u64, period_ns)
    });
    Kind::Hog(Hog {
        tasks: tasks(section, "tasks", section.cpus),
        busy,
    })
}

fn frames(section: &Section<'_>, _: &Text) -> Kind {
    Kind::Frames(Frames {
        workers: tasks(section, "workers", section.cpus),
        piece: section.work("work", Work::uniform(8 * MS)),
        serial: Work::fixed(section.any_time("serial").unwrap_or(MS)),
        interval_ns: section.gap("rate"),
    })
}

fn hackbench(section: &Section<'_>, _: &Text) -> Kind {
    let pairs = section.count("pairs", 1, 1_000).unwrap_or(20);
    Kind::Hackbench(Hackbench {
        groups: section.count("groups", 1, 1_000).unwrap_or(1),
        pairs,
        loops: section.count("loops", 1, 100_000_000).unwrap_or(100),
        message_ns: section.any_time("message").unwrap_or(1_000),
        capacity: section.count("capacity", 1, 1 << 20).unwrap_or(655),
    })
}

fn cyclictest(section: &Section<'_>, _: &Text) -> Kind {
    let threads = tasks(section, "threads", section.cpus);
    let pinned = section.truth("pinned").unwrap_or(false);
    if pinned && threads > section.cpus {
        let why = format!(
            "there are more threads ({threads}) than CPUs ({})",
            section.cpus
        );
        section.refuse_key(
            "pinned",
            why,
            "make threads at most cpus, or leave pinned out",
        );
    }
    for (key, other) in [("step_work", "step_at"), ("step_at", "step_work")] {
        if section.has(key) && !section.has(other) {
            let why = format!("means nothing without {other}");
            section.refuse_key(key, why, "write both, step_work and step_at");
        }
    }
    let step_work = section.any_time("step_work");
    Kind::Cyclictest(Cyclictest {
        step: step_work.zip(section.any_time("step_at")),
        threads,
        interval_ns: section.some_time("interval").unwrap_or(MS),
        distance_ns: section.any_time("distance").unwrap_or(500_000),
        pinned,
        work_ns: section.any_time("work").unwrap_or(0),
    })
}

fn schbench(section: &Section<'_>, _: &Text) -> Kind {
    let messengers = section.count("messengers", 1, 1_000).unwrap_or(1);
    let batch = section.count("batch", 1, 10_000);
    if batch.is_some() && !section.has("rate") {
        section.refuse_key(
            "batch",
            "means nothing without a rate".into(),
            "add rate = \"500/s\"",
        );
    }
    let batch = batch.unwrap_or(1);
    // The rate is that of all message threads together: 10^12 ns · 10^4 · 10^3 < 2^64.
    let beat = section
        .gap("rate")
        .map(|gap_ns| (gap_ns * u64::from(batch) * u64::from(messengers), batch));
    Kind::Schbench(Schbench {
        messengers,
        workers: section
            .count("workers", 1, 10_000)
            .unwrap_or(section.cpus.min(10_000)),
        work: section.work("work", Work::fixed(10 * MS)),
        batch: beat,
    })
}

fn fibtest(section: &Section<'_>, _: &Text) -> Kind {
    Kind::Fibtest(Fibtest {
        threads: tasks(section, "threads", section.cpus),
        fast: section.count("fast", 0, TASKS_MAX).unwrap_or(1),
        cpus: section.cpus,
        chunk_ns: section.some_time("chunk").unwrap_or(500_000),
        slow_ns: section.some_time("work").unwrap_or(1_000),
        sleep_ns: section.any_time("sleep").unwrap_or(10 * MS),
    })
}

fn fork_storm(section: &Section<'_>, _: &Text) -> Kind {
    let (children, depth) = (
        section.count("children", 1, TASKS_MAX).unwrap_or(1_000),
        section.count("depth", 1, 16).unwrap_or(1),
    );
    let family = u64::from(children).checked_pow(depth).unwrap_or(u64::MAX);
    if family > u64::from(TASKS_MAX) {
        let why = format!(
            "{children} children in each of {depth} generations are more than {TASKS_MAX} tasks"
        );
        section.refuse_key("depth", why, "lower children or depth");
    }
    Kind::ForkStorm(ForkStorm {
        parents: section.count("parents", 1, 1_000).unwrap_or(1),
        interval_ns: section.some_time("interval"),
        children,
        work: section.work("work", Work::exponential(MS)),
        depth,
    })
}

fn lock_holder(section: &Section<'_>, _: &Text) -> Kind {
    section.must("side_group", "\"batch\"");
    Kind::LockHolder(LockHolder {
        tasks: tasks(section, "tasks", 1),
        interval_ns: section.some_time("interval").unwrap_or(10 * MS),
        work: section.work("work", Work::fixed(100_000)),
        side_group: GroupId::ROOT,
        side_tasks: tasks(section, "side_tasks", 1),
        hold: section.work("hold", Work::fixed(MS)),
        outside: section.work("outside", Work::exponential(10 * MS)),
    })
}
