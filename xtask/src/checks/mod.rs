//! `cargo xtask lint` and `cargo xtask test`: every check and test in order, and one line at the end that counts them.
//!
//! Each step's whole output goes to a file under `target/checks`; the terminal shows a line a step, and all of a step that
//! failed. A test that finds what it needs missing prints `skipped: why` and is counted as skipped.
//!
//! Two lanes of steps may run at the same time: where one mostly waits, and nothing in either measures the machine.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

mod count;
mod retry;

use count::{Counts, Tally, count, faults};

struct Step {
    name: &'static str,
    program: String,
    words: Vec<String>,
    counts: Counts,
}

fn step(name: &'static str, counts: Counts, line: &str) -> Step {
    let mut words = line.split(' ').map(str::to_owned);
    Step {
        name,
        program: words.next().unwrap_or_default(),
        words: words.collect(),
        counts,
    }
}

fn own(name: &'static str, counts: Counts, line: &str) -> Step {
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("xtask"));
    Step {
        name,
        program: program.display().to_string(),
        words: line.split(' ').map(str::to_owned).collect(),
        counts,
    }
}

/// Steps one after another.
type Lane = Vec<Step>;

fn lints() -> Lane {
    vec![
        step("rustfmt", Counts::One, "cargo fmt --all --check"),
        step(
            "clippy",
            Counts::One,
            "cargo clippy --workspace --all-targets --locked -- -D warnings",
        ),
        // Links to items, private ones too.
        step(
            "rustdoc",
            Counts::One,
            "env RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --no-deps --document-private-items --locked --quiet",
        ),
        Step {
            name: "clang-format",
            program: "sh".to_owned(),
            words: vec![
                "-c".to_owned(),
                "git ls-files -z '*.c' '*.h' | xargs -0 -r clang-format-19 --dry-run -Werror"
                    .to_owned(),
            ],
            counts: Counts::One,
        },
        own("tidy", Counts::One, "tidy"),
        own("licences", Counts::One, "licences"),
        own("cost table", Counts::One, "ext-cost"),
    ]
}

fn tests() -> Vec<Vec<Lane>> {
    // With the tests, so that what they share with the programs has the same features, and is compiled once.
    let build = step(
        "build",
        Counts::One,
        "cargo test --workspace --locked --no-run",
    );
    // The command's tests, most of the time, wait for a running agent.
    let threads = 2 * std::thread::available_parallelism().map_or(2, usize::from);
    let cargo_test = step(
        "cargo test",
        Counts::CargoTest,
        &format!(
            "cargo test --workspace --locked --no-fail-fast -- --show-output --test-threads={threads}"
        ),
    );
    // Over before the first of cargo's programs is, that of the command, which mostly waits.
    let of_the_law = vec![
        own("support table", Counts::Suite, "support"),
        // A taste of it; `make fuzz` is the meal.
        own("fuzz", Counts::Suite, "fuzz --runs 50000"),
        // Every tenth of them; `make mutants` is all.
        own("mutants", Counts::Suite, "mutants --short"),
        step(
            "package",
            Counts::Suite,
            "scripts/check-deb.sh target/debug/tidegate",
        ),
    ];
    let virtual_machines = vec![own(
        "virtual machine",
        Counts::Suite,
        "vm --kernel all --tier short --limit 2700",
    )];
    vec![
        vec![vec![build]],
        vec![vec![cargo_test], of_the_law],
        vec![virtual_machines],
    ]
}

/// The checks of sources alone.
pub fn lint() -> ExitCode {
    run(&[vec![lints()]], 0)
}

/// Everything.
pub fn test() -> ExitCode {
    let mut phases = vec![vec![lints()]];
    phases.extend(tests());
    run(&phases, FAULTS_LEAST)
}

/// What docs/failure-contract.md says that `make test` injects, as root.
const FAULTS_LEAST: u64 = 3_000;

/// Each phase's lanes at the same time, one phase after another.
fn run(phases: &[Vec<Lane>], faults_least: u64) -> ExitCode {
    let folder = Path::new("target/checks");
    if let Err(error) = std::fs::create_dir_all(folder) {
        eprintln!(
            "tidegate: checks: {}: {error}; run it at the top of the checkout",
            folder.display()
        );
        return ExitCode::FAILURE;
    }
    let tally = Mutex::new(Tally::default());
    for lanes in phases {
        std::thread::scope(|scope| {
            for lane in lanes {
                let tally = &tally;
                scope.spawn(move || lane.iter().for_each(|step| perform(step, folder, tally)));
            }
        });
    }
    let mut tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!();
    if tally.flaky.len() > retry::RETRIES_MAX {
        tally.failed += 1;
        tally.failures.push(format!(
            "{} tests needed a second try, of which a run has {}: mend their bounds or their bed",
            tally.flaky.len(),
            retry::RETRIES_MAX
        ));
    }
    let injected: u64 = tally.faults.values().sum();
    // Without root they are skipped, and counted so.
    if rustix::process::geteuid().is_root() && injected < faults_least {
        tally.failed += 1;
        tally.failures.push(format!(
            "{injected} faults were injected; docs/failure-contract.md says {faults_least}"
        ));
    }
    if tally.passed == 0 {
        tally.failed += 1;
        tally
            .failures
            .push("nothing was tested: all was skipped".to_owned());
    }
    for reason in &tally.reasons {
        println!("skipped: {reason}");
    }
    for test in &tally.flaky {
        println!("flaky, passed when run once more: {test}");
    }
    for failure in &tally.failures {
        println!("failed: {failure}");
    }
    if let Some(line) = faults(&tally.faults) {
        println!("{line}");
    }
    println!(
        "{} passed, {} failed, {} skipped",
        tally.passed, tally.failed, tally.skipped
    );
    if tally.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn perform(step: &Step, folder: &Path, tally: &Mutex<Tally>) {
    let log_path = folder.join(format!("{}.log", step.name.replace(' ', "-")));
    let started = Instant::now();
    println!("{:<21} runs", step.name);
    let outcome = capture(step, &log_path);
    let (status, lines) = match outcome {
        Ok(done) => done,
        Err(why) => (None, vec![why]),
    };
    let mut part = count(step.name, step.counts, status, &lines);
    let failed = part.failed;
    retry::once_more(step, &log_path, &lines, &mut part);
    let seconds = started.elapsed().as_secs_f64();
    // Held while it prints: what two lanes say is not mixed.
    let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
    println!(
        "{:<21} {} passed, {} failed, {} skipped ({seconds:.1} s)",
        step.name, part.passed, part.failed, part.skipped
    );
    if failed > 0 {
        println!("--- {} ---", log_path.display());
        for line in interesting(step.counts, &lines) {
            println!("{line}");
        }
        println!("---");
    }
    tally.add(part);
}

/// Runs the step with both outputs in one file, and gives back its status (0, or what it failed with) and its lines.
fn capture(step: &Step, log_path: &Path) -> Result<(Option<i32>, Vec<String>), String> {
    let failed = |what: &str, error: std::io::Error| {
        format!("tidegate: checks: {}: {what}: {error}", step.name)
    };
    let log = File::create(log_path).map_err(|error| failed("log", error))?;
    let second = log.try_clone().map_err(|error| failed("log", error))?;
    let status = Command::new(&step.program)
        .args(&step.words)
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(second)
        .status()
        .map_err(|error| failed(&step.program, error))?;
    let file = File::open(log_path).map_err(|error| failed("log", error))?;
    // Bytes that are no text are shown as such, never a reason to lose the rest.
    let lines = BufReader::new(file).split(b'\n').map_while(Result::ok);
    Ok((
        status.code(),
        lines
            .map(|line| String::from_utf8_lossy(&line).into_owned())
            .collect(),
    ))
}

/// What to show of a failed step: of cargo test, only those programs that failed (or did not build), without what passed in them.
fn interesting(counts: Counts, lines: &[String]) -> Vec<&String> {
    const SHOWN_MAX: usize = 200;
    if counts != Counts::CargoTest {
        let first = lines.len().saturating_sub(SHOWN_MAX);
        return lines[first..].iter().collect();
    }
    let begins = |line: &String| {
        let line = line.trim_start();
        line.starts_with("Running ") || line.starts_with("Doc-tests ")
    };
    let mut shown = Vec::new();
    let mut part = Vec::new();
    let mut is_failed = false;
    let mut passed = false;
    for line in lines {
        if begins(line) {
            let done = std::mem::take(&mut part);
            shown.extend(if is_failed { done } else { Vec::new() });
            (is_failed, passed) = (false, false);
        }
        is_failed |= line.starts_with("test result: FAILED") || line.starts_with("error");
        // `--show-output` tells what passed before it tells what failed.
        match line.as_str() {
            "successes:" => passed = true,
            "failures:" => passed = false,
            _ => {}
        }
        if !passed && !line.ends_with("... ok") {
            part.push(line);
        }
    }
    shown.extend(if is_failed { part } else { Vec::new() });
    shown.into_iter().take(SHOWN_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn of_cargo_test_what_failed_is_shown_and_nothing_else() {
        let output = lines(
            "   Running a.rs\nsuccesses:\nb\nfailures:\ntest result: FAILED. 1 passed; 1 failed\n\
             error: test failed, to rerun pass a\n   Running c.rs\ntest d ... ok\nd\ntest result: ok. 1 passed\n\
             \x20 Running e.rs\ntest f ... FAILED\nsuccesses:\ng\n\nfailures:\n\nwhy\ntest result: FAILED. 0 passed; 1 failed\n",
        );
        let shown: Vec<&str> = interesting(Counts::CargoTest, &output)
            .into_iter()
            .map(String::as_str)
            .filter(|line| !line.is_empty())
            .collect();
        assert_eq!(
            shown,
            [
                "   Running a.rs",
                "failures:",
                "test result: FAILED. 1 passed; 1 failed",
                "error: test failed, to rerun pass a",
                "  Running e.rs",
                "test f ... FAILED",
                "failures:",
                "why",
                "test result: FAILED. 0 passed; 1 failed"
            ]
        );
    }
}
