//! `cargo xtask fuzz-parsers [--runs N] [TARGET...]`: libFuzzer over what reads others' input: kernel files, terms, units, targets,
//! requests, the configuration, the ledger, the gates' file and the lease.
//!
//! The targets are `crates/fuzz`'s, in the layout of cargo-fuzz; this needs neither cargo-fuzz nor a nightly compiler: LLVM's
//! coverage pass is asked for as cargo-fuzz asks for it, and libfuzzer-sys brings the fuzzer. Sanitizers would need nightly;
//! overflow checks and assertions are on. Seeds are `crates/fuzz/corpus/TARGET.hex`, one input a line, which an ordinary test
//! replays; a finding is shown as a line for that file.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use crate::fuzz::{executed, run_fuzzer, unpack};

const TARGETS: [&str; 9] = [
    "config",
    "gates",
    "kernel_files",
    "lease",
    "ledger",
    "requests",
    "targets",
    "terms",
    "units",
];
const RUNS: u64 = 2_000_000;
/// The longest input: of files that hold records, two or three of them.
const LENGTH_MAX: u32 = 512;
const LENGTH_OF_RECORDS_MAX: u32 = 1_536;
const TRIPLE: &str = "x86_64-unknown-linux-gnu";
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 --cfg fuzzing";

/// Runs the task.
pub fn main(arguments: &[String]) -> ExitCode {
    let (runs, chosen) = match parse(arguments) {
        Ok(asked) => asked,
        Err(why) => {
            eprintln!("tidegate: fuzz-parsers: {why}");
            return ExitCode::from(2);
        }
    };
    let binary = match build() {
        Ok(binary) => binary,
        Err(why) => {
            eprintln!("tidegate: fuzz-parsers: {why}");
            return ExitCode::FAILURE;
        }
    };
    let mut failed = 0;
    for name in &chosen {
        let started = Instant::now();
        match fuzz(&binary, name, runs) {
            Ok(runs) => {
                let seconds = started.elapsed().as_secs_f64();
                println!("{name}: {runs} executions, no finding ({seconds:.0} s)");
            }
            Err(why) => {
                failed += 1;
                println!("{name}: FAILED: {why}");
            }
        }
    }
    let passed = chosen.len() - failed;
    println!("{passed} passed, {failed} failed, 0 skipped");
    match failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn parse(arguments: &[String]) -> Result<(u64, Vec<&str>), String> {
    let mut runs = RUNS;
    let mut chosen = Vec::new();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        if word == "--runs" {
            let text = words.next().ok_or("--runs: a number is missing")?;
            runs = text
                .parse()
                .map_err(|error| format!("--runs {text}: {error}; give a whole number"))?;
        } else if let Some(name) = TARGETS.iter().find(|name| *name == word) {
            chosen.push(*name);
        } else {
            let known = TARGETS.join(", ");
            return Err(format!("{word}: no such target; there are {known}"));
        }
    }
    if chosen.is_empty() {
        chosen.extend(TARGETS);
    }
    Ok((runs, chosen))
}

/// Instrumented, for a target triple of its own, so that build scripts are not.
fn build() -> Result<PathBuf, String> {
    let target_dir = Path::new("target/fuzz/rust");
    let status = Command::new("cargo")
        .args(["build", "--quiet", "--locked", "--package", "tidegate-fuzz"])
        .args(["--features", "libfuzzer", "--bin", "parsers"])
        .args(["--target", TRIPLE, "--target-dir"])
        .arg(target_dir)
        .args(["--config", "profile.dev.opt-level=2"])
        .env("RUSTFLAGS", COVERAGE)
        .env("CARGO_INCREMENTAL", "0")
        .status()
        .map_err(|error| format!("cargo build: {error}"))?;
    match status.success() {
        true => Ok(target_dir.join(TRIPLE).join("debug/parsers")),
        false => Err(format!("cargo build: {status}; see above")),
    }
}

fn fuzz(binary: &Path, name: &str, runs: u64) -> Result<u64, String> {
    let corpus = PathBuf::from(format!("target/fuzz/corpus/parsers-{name}"));
    let seeds = PathBuf::from(format!("crates/fuzz/corpus/{name}.hex"));
    unpack(&seeds, &corpus)?;
    let log_path = format!("target/fuzz/parsers-{name}.log");
    let length_max = match name {
        "gates" | "ledger" => LENGTH_OF_RECORDS_MAX,
        _ => LENGTH_MAX,
    };
    let mut fuzzer = Command::new(binary);
    // In memory, and gone with this run.
    let scratch = tempfile::tempdir_in("/dev/shm").map_err(|error| format!("/dev/shm: {error}"))?;
    fuzzer
        .env("TIDEGATE_FUZZ", name)
        .env("TMPDIR", scratch.path())
        .arg(format!("-runs={runs}"))
        .arg(format!("-max_len={length_max}"))
        .arg(format!("-artifact_prefix=target/fuzz/finding-{name}-"));
    let again = PathBuf::from(format!("TIDEGATE_FUZZ={name} {}", binary.display()));
    let said = run_fuzzer(&mut fuzzer, &again, &corpus, &seeds, &log_path)?;
    executed(&said).ok_or_else(|| format!("{log_path}: it does not say how many inputs it ran"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let words =
            |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_owned).collect() };
        assert_eq!(parse(&words("--runs 5 units")).unwrap(), (5, vec!["units"]));
        assert_eq!(parse(&[]).unwrap(), (RUNS, TARGETS.to_vec()));
        for bad in ["--runs", "--runs x", "nothing"] {
            assert!(parse(&words(bad)).is_err(), "{bad}");
        }
    }
}
