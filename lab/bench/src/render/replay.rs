//! What was, beside what would have been.

use tidegate_lab::replay::view::{ArmView, FigureView, FiguresView, ReplayView};

use tidegate_api::cli::{BOLD, fit, span, wrapped};
use tidegate_recording::span::time;

/// So many arms stand beside each other.
const BESIDE: usize = 3;
const LABEL: usize = 20;
const COLUMN: usize = 19;

type Get = fn(&FiguresView) -> Option<FigureView>;

/// A figure's row: its name, how to get it, its decimals.
const ROWS: [(&str, Get, usize); 6] = [
    ("idle kept, %", |all| all.idle_kept_pct, 1),
    ("side work, CPUs", |all| all.side_cpus, 2),
    ("main, CPUs", |all| all.main_cpus, 2),
    ("main waits, us", |all| all.main_wait_mean_us, 0),
    ("  99 of 100, us", |all| all.main_wait_p99_us, 0),
    ("at tolerance, %", |all| all.at_tolerance_pct, 1),
];

/// Where two works have one name, or a name is long, this much of it tells them apart.
fn name_of(work: &str) -> String {
    let last = work.rsplit('/').next().unwrap_or(work);
    fit(last, LABEL - 1)
}

/// A value, and its interval where there is one.
pub fn interval(figure: Option<FigureView>, decimals: usize) -> String {
    let Some(figure) = figure else {
        return "-".to_owned();
    };
    let value = format!("{:.decimals$}", figure.value);
    let (from, to) = (
        format!("{:.decimals$}", figure.from),
        format!("{:.decimals$}", figure.to),
    );
    match from == to {
        true => value,
        false => format!("{value} ({from}-{to})"),
    }
}

pub fn page(view: &ReplayView) -> String {
    let recording = &view.recording;
    let mut out = format!(
        "{BOLD}recording{BOLD:#} {} to {}: {} of {} CPUs\n",
        time(recording.from_unix_seconds),
        time(recording.to_unix_seconds),
        span(recording.seconds as f64),
        recording.cpus
    );
    let (was, simulated) = view.arms.split_at(1.min(view.arms.len()));
    for beside in simulated.chunks(BESIDE - 1) {
        let arms: Vec<&ArmView> = was.iter().chain(beside).collect();
        out += &table(&arms);
    }
    out.push('\n');
    for assumption in &view.assumptions {
        out += &wrapped("- ", assumption);
    }
    out
}

fn row(label: &str, cells: impl Iterator<Item = String>) -> String {
    let mut line = format!("{label:LABEL$}");
    for cell in cells {
        line += &format!(" {cell:<COLUMN$}");
    }
    format!("{}\n", line.trim_end())
}

fn table(arms: &[&ArmView]) -> String {
    let names = arms.iter().map(|arm| {
        let last = arm.name.rsplit('/').next().unwrap_or(&arm.name);
        fit(last, COLUMN)
    });
    let mut out = format!("\n{BOLD}{}{BOLD:#}", row("", names));
    for (label, get, decimals) in ROWS {
        let cells = arms.iter().map(|arm| interval(get(&arm.figures), decimals));
        out += &row(label, cells);
    }
    let mut works: Vec<&str> = Vec::new();
    for work in arms.iter().flat_map(|arm| &arm.works) {
        if !works.contains(&work.name.as_str()) {
            works.push(&work.name);
        }
    }
    out += &row("work, CPUs", std::iter::empty());
    for work in works {
        let cells = arms.iter().map(|arm| {
            let found = arm.works.iter().find(|one| one.name == work);
            found.map_or("-".to_owned(), |one| {
                format!("{:.2} {}", one.used_cpus, one.class)
            })
        });
        out += &row(&format!(" {}", name_of(work)), cells);
    }
    out
}
