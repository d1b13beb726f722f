//! `cargo xtask lint` and `cargo xtask test`: every check and test in order, and one line at the end that counts them.
//!
//! Each step's whole output goes to a file under `target/checks`; the terminal shows a line a step, and all of a step that
//! failed. A test that finds what it needs missing prints `skipped: why` and is counted as skipped.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

const SKIPPED: &str = "skipped: ";

/// What came of it so far.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
    /// Why something was skipped, in the order met.
    reasons: Vec<String>,
    /// What failed.
    failures: Vec<String>,
    /// Faults that tests injected, by where and what: `faults: WHERE: KIND: N`.
    faults: BTreeMap<String, u64>,
}

/// How a step's output is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counts {
    /// The step is one check.
    One,
    /// `test result:` lines of cargo test.
    CargoTest,
    /// A closing `N passed, N failed, N skipped`.
    Suite,
}

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

fn lints() -> Vec<Step> {
    vec![
        step("rustfmt", Counts::One, "cargo fmt --all --check"),
        step(
            "clippy",
            Counts::One,
            "cargo clippy --workspace --locked -- -D warnings",
        ),
        // Tests may unwrap: there a panic is the report.
        step(
            "clippy of tests",
            Counts::One,
            "cargo clippy --workspace --all-targets --locked -- -D warnings -A clippy::unwrap_used",
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

fn tests() -> Vec<Step> {
    vec![
        step("build", Counts::One, "cargo build --workspace --locked"),
        step(
            "cargo test",
            Counts::CargoTest,
            "cargo test --workspace --locked --no-fail-fast -- --show-output",
        ),
        own("support table", Counts::Suite, "support"),
        // A taste of it; `make fuzz` is the meal.
        own("fuzz", Counts::Suite, "fuzz --runs 50000"),
        // Every fifth of them; `make mutants` is all.
        own("mutants", Counts::Suite, "mutants --short"),
        own(
            "virtual machine",
            Counts::Suite,
            "vm --kernel all --tier short --limit 2700",
        ),
        // In virtual time, which does not depend on what else this machine does.
        own("simulator check", Counts::Suite, "check-sim --vm"),
        own(
            "simulator check, ext",
            Counts::Suite,
            "check-sim --ext --short --kernel 6.18",
        ),
    ]
}

/// The checks of sources alone.
pub fn lint() -> ExitCode {
    run(&lints())
}

/// Everything.
pub fn test() -> ExitCode {
    let mut steps = lints();
    steps.extend(tests());
    run(&steps)
}

fn run(steps: &[Step]) -> ExitCode {
    let folder = Path::new("target/checks");
    if let Err(error) = std::fs::create_dir_all(folder) {
        eprintln!(
            "tidegate: checks: {}: {error}; run it at the top of the checkout",
            folder.display()
        );
        return ExitCode::FAILURE;
    }
    let mut tally = Tally::default();
    for step in steps {
        perform(step, folder, &mut tally);
    }
    println!();
    for reason in &tally.reasons {
        println!("skipped: {reason}");
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

fn perform(step: &Step, folder: &Path, tally: &mut Tally) {
    let log_path = folder.join(format!("{}.log", step.name.replace(' ', "-")));
    print!("{:<16} ", step.name);
    let _ = std::io::stdout().flush();
    let started = Instant::now();
    let outcome = capture(step, &log_path);
    let (status, lines) = match outcome {
        Ok(done) => done,
        Err(why) => (None, vec![why]),
    };
    let part = count(step, status, &lines);
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{} passed, {} failed, {} skipped ({seconds:.1} s)",
        part.passed, part.failed, part.skipped
    );
    if part.failed > 0 {
        println!("--- {} ---", log_path.display());
        for line in interesting(step.counts, &lines) {
            println!("{line}");
        }
        println!("---");
    }
    tally.passed += part.passed;
    tally.failed += part.failed;
    tally.skipped += part.skipped;
    tally.reasons.extend(part.reasons);
    tally.failures.extend(part.failures);
    for (kind, count) in part.faults {
        *tally.faults.entry(kind).or_default() += count;
    }
}

/// What was injected, in one line.
fn faults(counts: &BTreeMap<String, u64>) -> Option<String> {
    let total: u64 = counts.values().sum();
    let kinds: Vec<String> = counts
        .iter()
        .map(|(kind, count)| format!("{kind} {count}"))
        .collect();
    (total > 0).then(|| format!("faults injected: {total} ({})", kinds.join(", ")))
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

fn count(step: &Step, status: Option<i32>, lines: &[String]) -> Tally {
    let mut tally = Tally::default();
    if step.counts != Counts::One {
        for line in lines {
            let reason = line
                .strip_prefix(SKIPPED)
                .or_else(|| line.split_once(": skipped: ").map(|(_, why)| why));
            tally.reasons.extend(reason.map(str::to_owned));
        }
    }
    match step.counts {
        Counts::One => {}
        Counts::CargoTest => count_cargo(lines, &mut tally),
        Counts::Suite => {
            if let Some(numbers) = lines.iter().rev().find_map(|line| suite_line(line)) {
                [tally.passed, tally.failed, tally.skipped] = numbers;
            }
        }
    }
    // A step that failed without a failed test in it (it did not build, it crashed) is one failure.
    let good = status == Some(0) || (step.counts == Counts::Suite && status == Some(77));
    if !good && tally.failed == 0 {
        tally.failed = 1;
        tally.failures.push(step.name.to_owned());
    } else if step.counts == Counts::One {
        tally.passed = 1;
    } else if step.counts == Counts::Suite && tally.failed > 0 {
        tally
            .failures
            .push(format!("{}: {} tests", step.name, tally.failed));
    }
    tally
}

fn count_cargo(lines: &[String], tally: &mut Tally) {
    let mut said_skipped = 0;
    for line in lines {
        if let Some(rest) = line.strip_prefix("test result: ") {
            let number = |word: &str| number_before(rest, word);
            tally.passed += number("passed");
            tally.failed += number("failed");
            let ignored = number("ignored");
            tally.skipped += ignored;
            if ignored > 0 {
                tally.reasons.push(format!(
                    "{ignored} tests marked #[ignore] (see their reason there)"
                ));
            }
        } else if let Some(name) = line
            .strip_prefix("test ")
            .and_then(|rest| rest.strip_suffix(" ... FAILED"))
        {
            tally.failures.push(name.to_owned());
        } else if line.starts_with(SKIPPED) {
            said_skipped += 1;
        } else if let Some((kind, count)) = line
            .strip_prefix("faults: ")
            .and_then(|rest| rest.rsplit_once(": "))
        {
            *tally.faults.entry(kind.to_owned()).or_default() += count.parse().unwrap_or(0);
        }
    }
    // Such a test returned early, so libtest counted it as passed.
    let moved = said_skipped.min(tally.passed);
    tally.passed -= moved;
    tally.skipped += moved;
}

fn number_before(text: &str, word: &str) -> usize {
    let words: Vec<&str> = text
        .split([' ', ';', ','])
        .filter(|word| !word.is_empty())
        .collect();
    let found = words.windows(2).find(|pair| pair[1] == word);
    found.and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
}

/// `N passed, N failed, N skipped`.
fn suite_line(line: &str) -> Option<[usize; 3]> {
    let mut numbers = [0; 3];
    let mut parts = line.split(", ");
    for (number, word) in numbers.iter_mut().zip([" passed", " failed", " skipped"]) {
        *number = parts.next()?.strip_suffix(word)?.parse().ok()?;
    }
    parts.next().is_none().then_some(numbers)
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
    fn cargo_tests_are_summed_and_skips_are_told_apart() {
        let output = lines(
            "test a ... ok\nskipped: not root\ntest b ... FAILED\n\
             test result: FAILED. 3 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.03s\n\
             test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n",
        );
        let step = step("cargo test", Counts::CargoTest, "cargo test");
        let tally = count(&step, Some(101), &output);
        assert_eq!((tally.passed, tally.failed, tally.skipped), (7, 1, 3));
        assert_eq!(tally.reasons[0], "not root");
        assert_eq!(tally.failures, ["b"]);
        let told = lines("faults: memory: owner: death: 5\nfaults: memory: owner: death: 2\n");
        let tally = count(&step, Some(0), &told);
        assert_eq!(
            faults(&tally.faults).unwrap(),
            "faults injected: 7 (memory: owner: death 7)"
        );
        assert!(faults(&BTreeMap::new()).is_none());
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

    #[test]
    fn a_step_that_breaks_is_a_failure() {
        let cargo = step("cargo test", Counts::CargoTest, "cargo test");
        assert_eq!(
            count(&cargo, Some(101), &lines("error: could not compile")).failed,
            1
        );
        assert_eq!(count(&cargo, None, &[]).failed, 1);
        let one = step("tidy", Counts::One, "x");
        assert_eq!(count(&one, Some(0), &[]).passed, 1);
        assert_eq!(count(&one, Some(1), &[]).failures, ["tidy"]);
    }

    #[test]
    fn a_suite_is_counted_by_its_last_line() {
        let vm = step("vm", Counts::Suite, "x");
        let output = lines("skipped: no qemu\n0 passed, 0 failed, 14 skipped");
        let tally = count(&vm, Some(77), &output);
        assert_eq!((tally.passed, tally.failed, tally.skipped), (0, 0, 14));
        assert_eq!(tally.reasons, ["no qemu"]);
        assert_eq!(suite_line("1 passed, 2 failed"), None);
    }
}
