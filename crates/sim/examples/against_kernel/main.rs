//! The simulator against the real kernel: reads a kernel's figures for the scenarios of `tests/check`, runs the same
//! scenarios on a simulated machine of that description, and judges. `cargo xtask check-sim` gathers the figures and
//! calls this; the test below does the same with the virtual machine's, as kept in `tests/check/vm.txt`.
//!
//! ```text
//! against_kernel scenarios=FILE [vm=FILE] [host=FILE] [host_span_ms=N] [write=DOCUMENT]
//! ```
//!
//! Exit code 1 when more than a tenth of the virtual machine's figures are outside the criteria: two boots of the same
//! kernel differ in single ones (see docs/simulator.md). The host's are shown, as time on a busy machine proves nothing.

mod figures;
mod judge;
mod programs;
mod run;
mod scenario;
mod table;

use figures::Figures;
use scenario::Scenario;
use std::process::ExitCode;
use table::{Pair, Row};

/// The simulator on the machine that `kernel` was taken on, over the scenarios that it has figures for.
fn rehearsed(all: &[Scenario], kernel: Figures, span_max_ms: u64) -> Result<Pair, String> {
    let description = kernel.machine()?;
    let mut sim = Figures::default();
    for scenario in all {
        let prefix = format!("{}.", scenario.name);
        if kernel.names().any(|name| name.starts_with(&prefix)) {
            run::run(scenario, &description, span_max_ms, &mut sim)?;
        }
    }
    Ok(Pair { kernel, sim })
}

fn read(path: &str) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))
}

fn pair(all: &[Scenario], path: Option<&str>, span_max_ms: u64) -> Result<Option<Pair>, String> {
    let Some(path) = path else {
        return Ok(None);
    };
    let kernel = Figures::parse(&read(path)?).map_err(|why| format!("{path}: {why}"))?;
    rehearsed(all, kernel, span_max_ms).map(Some)
}

/// Of the figures, how many may be outside: what two boots of one kernel differ by.
const OUTSIDE_MAX_PCT: usize = 10;

/// Prints what is outside and the count; true when that is no more than boots differ by.
fn summary(bed: &str, (good, bad): (usize, Vec<&str>)) -> bool {
    for name in &bad {
        println!("outside: {bed}: {name}");
    }
    println!(
        "{bed}: {good} figures within, {} outside; {OUTSIDE_MAX_PCT} % may be",
        bad.len()
    );
    tolerable(good, bad.len())
}

fn tolerable(good: usize, bad: usize) -> bool {
    bad * 100 <= (good + bad) * OUTSIDE_MAX_PCT
}

fn compare(words: &[String]) -> Result<bool, String> {
    let get = |key: &str| {
        words
            .iter()
            .find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    };
    let scenarios = get("scenarios").ok_or("no scenarios=FILE")?;
    let all = scenario::parse(&read(scenarios)?)?;
    let host_span_ms = get("host_span_ms").unwrap_or("60000");
    let host_span_ms = host_span_ms
        .parse()
        .map_err(|_| format!("host_span_ms={host_span_ms}: not a number"))?;
    let vm = pair(&all, get("vm"), u64::MAX)?;
    let host = pair(&all, get("host"), host_span_ms)?;
    let with_rows: Vec<(&Scenario, Vec<Row>)> = all
        .iter()
        .map(|scenario| (scenario, table::rows(scenario, vm.as_ref(), host.as_ref())))
        .filter(|(_, rows)| !rows.is_empty())
        .collect();
    let constants = table::constants(vm.as_ref(), host.as_ref());
    let text = table::markdown(&with_rows, vm.as_ref(), host.as_ref());
    let text = format!("{constants}\n{text}");
    println!("{text}");
    if let Some(document) = get("write") {
        let old = read(document)?;
        let new = table::spliced(&old, &text).map_err(|why| format!("{document}: {why}"))?;
        std::fs::write(document, new).map_err(|e| format!("{document}: {e}"))?;
    }
    let mut good = true;
    let rows: Vec<Row> = with_rows.into_iter().flat_map(|(_, rows)| rows).collect();
    if vm.is_some() {
        good = summary("vm", table::outside(&rows, |row| &row.vm));
    }
    if host.is_some() {
        summary("host", table::outside(&rows, |row| &row.host));
    }
    // What `cargo xtask test` counts: the virtual machine's, as one check.
    println!(
        "{} passed, {} failed, 0 skipped",
        u8::from(good),
        u8::from(!good)
    );
    Ok(good)
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
