//! `cargo xtask lint` and `cargo xtask test`: every check and test in order, and one line at the
//! end that counts them.
//!
//! Each step's whole output goes to a file under `target/checks`; the terminal shows a line a step,
//! and all of a step that failed. A test that lacks something on this machine prints `skipped: why`
//! and is counted as skipped.
//!
//! Two lanes of steps may run at the same time: where one mostly waits, and nothing in either
//! measures the machine.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

mod count;

use count::{Counts, SUMMARY, Tally, count, faults};

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
        step(
            "licences",
            Counts::One,
            "scripts/tool.sh cargo-deny --log-level warn check licenses bans sources",
        ),
        step("spelling", Counts::One, "scripts/tool.sh typos"),
        step(
            "whitespace",
            Counts::One,
            "git diff --check 4b825dc642cb6eb9a060e54bf8d69288fbee4904",
        ),
    ]
}

fn tests() -> Vec<Vec<Lane>> {
    // With the tests, so that what they share with the programs has the same features, and is
    // compiled once.
    let build = step(
        "build with lints",
        Counts::One,
        "cargo test --workspace --locked --no-run",
    );
    let tests = vec![step(
        "tests",
        Counts::Nextest,
        "scripts/tool.sh cargo-nextest nextest run --workspace --locked --color never",
    )];
    let packages = vec![step(
        "package",
        Counts::Suite,
        "scripts/check-deb.sh target/debug/tidegate",
    )];
    let virtual_machines = vec![own(
        "virtual machine",
        Counts::Suite,
        "vm --kernel all --tier short --limit 2700",
    )];
    vec![
        vec![vec![build]],
        vec![tests, packages],
        vec![virtual_machines],
    ]
}

/// The checks of sources alone.
pub fn lint() -> ExitCode {
    let mut lints = lints();
    lints.push(step(
        "clippy",
        Counts::One,
        "cargo clippy --workspace --all-targets --locked -- -D warnings",
    ));
    // Links to items, private ones too.
    lints.push(step(
        "rustdoc",
        Counts::One,
        "env RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --no-deps --document-private-items --locked --quiet",
    ));
    run(&[vec![lints]], &[], 0)
}

/// Clippy's compiler lints what it compiles, so that linting is not a build of its own. All steps
/// have the same, because cargo builds again where a wrapper differs.
const LINTED: [(&str, &str); 2] = [
    ("RUSTC_WORKSPACE_WRAPPER", "clippy-driver"),
    ("CLIPPY_ARGS", "-Dwarnings"),
];

pub fn test() -> ExitCode {
    let mut phases = vec![vec![lints()]];
    phases.extend(tests());
    run(&phases, &LINTED, FAULTS_LEAST)
}

/// What docs/failure-contract.md says that `make test` injects, as root.
const FAULTS_LEAST: u64 = 3_000;

/// Each phase's lanes at the same time, one phase after another.
fn run(phases: &[Vec<Lane>], variables: &[(&str, &str)], faults_least: u64) -> ExitCode {
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
                let perform = |step| perform(step, variables, folder, tally);
                scope.spawn(move || lane.iter().for_each(perform));
            }
        });
    }
    let mut tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!();
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

fn perform(step: &Step, variables: &[(&str, &str)], folder: &Path, tally: &Mutex<Tally>) {
    let log_path = folder.join(format!("{}.log", step.name.replace(' ', "-")));
    let started = Instant::now();
    println!("{:<21} runs", step.name);
    let outcome = capture(step, variables, &log_path);
    let (status, lines) = match outcome {
        Ok(done) => done,
        Err(why) => (None, vec![why]),
    };
    let part = count(step.name, step.counts, status, &lines);
    let seconds = started.elapsed().as_secs_f64();
    // Held while it prints: what two lanes say is not mixed.
    let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
    println!(
        "{:<21} {} passed, {} failed, {} skipped ({seconds:.1} s)",
        step.name, part.passed, part.failed, part.skipped
    );
    if part.failed > 0 {
        println!("--- {} ---", log_path.display());
        for line in interesting(step.counts, &lines) {
            println!("{line}");
        }
        println!("---");
    }
    tally.add(part);
}

/// Runs the step with both outputs in one file, and gives back its status (0, or what it failed
/// with) and its lines.
fn capture(
    step: &Step,
    variables: &[(&str, &str)],
    log_path: &Path,
) -> Result<(Option<i32>, Vec<String>), String> {
    let failed = |what: &str, error: std::io::Error| {
        format!("tidegate: checks: {}: {what}: {error}", step.name)
    };
    let log = File::create(log_path).map_err(|error| failed("log", error))?;
    let second = log.try_clone().map_err(|error| failed("log", error))?;
    let status = Command::new(&step.program)
        .args(&step.words)
        .envs(variables.iter().copied())
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

/// The lines to show of a failed step: the last ones, and of nextest the beginning of its report.
fn interesting(counts: Counts, lines: &[String]) -> &[String] {
    const SHOWN_MAX: usize = 200;
    let summary = || {
        lines
            .iter()
            .position(|line| line.trim_start().starts_with(SUMMARY))
    };
    let report = match counts {
        Counts::Nextest => summary(),
        Counts::One | Counts::Suite => None,
    };
    let first = report.unwrap_or(lines.len().saturating_sub(SHOWN_MAX));
    &lines[first..lines.len().min(first + SHOWN_MAX)]
}
