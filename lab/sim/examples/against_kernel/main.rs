//! The simulator against the real kernel: reads a kernel's figures for the scenarios of `tests/check`, runs the same
//! scenarios on a simulated machine of that description, and judges. `cargo xtask check-sim` gathers the figures and
//! calls this; the tests below do the same with the virtual machine's, as kept in `tests/check`.
//!
//! ```text
//! against_kernel scenarios=FILE [vm=FILE] [host=FILE] [host_span_ms=N] [write=DOCUMENT]
//! against_kernel scenarios=FILE [ext-6.18=FILE] [ext-7.3=FILE] [write=DOCUMENT]
//! against_kernel scenarios=FILE export=vm|host|ext [part=TEXT...]
//! ```
//!
//! The first compares the fair class, the second the ext engine, the third prints what the kernels' runner reads. Exit
//! code 1 when more than a tenth of a virtual machine's figures are outside the criteria, for two boots of the same
//! kernel differ in single ones (see docs/simulator.md); of the ext engine's none may be, but for those that are known to
//! be. The host's are shown, as time on a busy machine proves nothing.

mod export;
mod figures;
mod judge;
mod programs;
mod run;
mod scenario;
mod table;

use figures::{Figures, Of};
use scenario::Scenario;
use std::process::ExitCode;
use table::{Both, Pair, Row, Table};

/// The simulator on the machine that `kernel` was taken on, over the scenarios that it has figures for.
fn rehearsed(of: Of, all: &[Scenario], kernel: Figures, span_max_ms: u64) -> Result<Pair, String> {
    let description = kernel.machine()?;
    let mut sim = Figures::default();
    for scenario in all {
        let prefix = format!("{}.", scenario.of.name);
        if kernel.names().any(|name| name.starts_with(&prefix)) {
            run::run(scenario, &description, of, span_max_ms, &mut sim)?;
        }
    }
    Ok(Pair { kernel, sim })
}

fn read(path: &str) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))
}

fn pair(
    of: Of,
    all: &[Scenario],
    path: Option<&str>,
    span_max_ms: u64,
) -> Result<Option<Pair>, String> {
    let Some(path) = path else {
        return Ok(None);
    };
    let kernel = Figures::parse(&read(path)?).map_err(|why| format!("{path}: {why}"))?;
    rehearsed(of, all, kernel, span_max_ms).map(Some)
}

/// Outside the criteria, and known: docs/simulator.md says why.
const KNOWN: [&str; 2] = ["step-down-500.share.side", "wake-messages.p50.s"];

/// Of the figures, how many may be outside: what two boots of one kernel differ by. The ext engine's repeat.
fn outside_max_pct(of: Of) -> usize {
    match of {
        Of::Fair => 10,
        Of::Ext => 0,
    }
}

/// Prints what is outside and the count; true when that is no more than boots differ by.
fn summary(of: Of, bed: &str, (good, mut bad): (usize, Vec<&str>)) -> bool {
    for name in &bad {
        println!("outside: {bed}: {name}");
    }
    if of == Of::Ext {
        bad.retain(|name| !KNOWN.contains(name));
    }
    println!(
        "{bed}: {good} figures within, {} outside and not known to be; {} % may be",
        bad.len(),
        outside_max_pct(of)
    );
    bad.len() * 100 <= (good + bad.len()) * outside_max_pct(of)
}

fn compare(words: &[String]) -> Result<bool, String> {
    let get = |key: &str| {
        words
            .iter()
            .find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    };
    let scenarios = get("scenarios").ok_or("no scenarios=FILE")?;
    let all = scenario::load(scenarios)?;
    if let Some(bed) = get("export") {
        return export_for(bed, &all, words).map(|()| true);
    }
    let host_span_ms = get("host_span_ms").unwrap_or("60000");
    let host_span_ms = host_span_ms
        .parse()
        .map_err(|_| format!("host_span_ms={host_span_ms}: not a number"))?;
    let table = match words.iter().any(|word| word.starts_with("ext-")) {
        true => &table::EXT,
        false => &table::FAIR,
    };
    let [left, right] = table.beds;
    let pairs: Both<Pair> = [
        pair(table.of, &all, get(left), u64::MAX)?,
        pair(table.of, &all, get(right), span_of(right, host_span_ms))?,
    ];
    let with_rows: Vec<(&Scenario, Vec<Row>)> = all
        .iter()
        .map(|scenario| (scenario, table::rows(table.of, scenario, &pairs)))
        .filter(|(_, rows)| !rows.is_empty())
        .collect();
    let constants = table::constants(table, &pairs);
    let text = table::markdown(table, &with_rows, &pairs);
    let text = format!("{constants}\n{text}");
    println!("{text}");
    if let Some(document) = get("write") {
        let old = read(document)?;
        let new = table.spliced(&old, &text);
        let new = new.map_err(|why| format!("{document}: {why}"))?;
        std::fs::write(document, new).map_err(|e| format!("{document}: {e}"))?;
    }
    let rows: Vec<Row> = with_rows.into_iter().flat_map(|(_, rows)| rows).collect();
    Ok(verdict(table, &pairs, &rows))
}

/// Prints the scenarios for a kernel; with any `part=`, those with one in their names.
fn export_for(bed: &str, all: &[Scenario], words: &[String]) -> Result<(), String> {
    let parts: Vec<&str> = words
        .iter()
        .filter_map(|w| w.strip_prefix("part="))
        .collect();
    for scenario in all.iter().filter(|scenario| {
        let named = |part: &&str| scenario.of.name.contains(part);
        scenario.on.iter().any(|on| on == bed) && (parts.is_empty() || parts.iter().any(named))
    }) {
        print!("{}", export::lines(scenario)?);
    }
    Ok(())
}

fn span_of(bed: &str, host_span_ms: u64) -> u64 {
    if bed == "host" {
        host_span_ms
    } else {
        u64::MAX
    }
}

/// What `cargo xtask test` counts: each of the virtual machine's kernels as one check. The host's fails nothing.
fn verdict(table: &Table, pairs: &Both<Pair>, rows: &[Row]) -> bool {
    let (mut passed, mut failed) = (0, 0);
    for (bed, pair) in pairs.iter().enumerate() {
        if pair.is_none() {
            continue;
        }
        let name = table.beds[bed];
        let good = summary(table.of, name, table::outside(rows, bed));
        if name == "host" {
            continue;
        }
        passed += u32::from(good);
        failed += u32::from(!good);
    }
    println!("{passed} passed, {failed} failed, 0 skipped");
    failed == 0
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match compare(&words) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("tidegate: against_kernel: {why}");
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests;
