//! The few tests of `cargo test` that failed, once more by name. They share a machine with much else, and a wait that a busy
//! host outlasts fails one run in some dozens; what is broken fails twice, and what passes now is told in the summary.

use super::count::{Counts, Tally, count};
use super::{Step, capture};
use std::path::Path;

/// Where more than these fail, something is broken.
const RETRIES_MAX: usize = 3;

/// Takes what passes now out of the failures of `tally`.
pub fn once_more(step: &Step, log_path: &Path, lines: &[String], tally: &mut Tally) {
    let targets = targets(lines);
    if step.counts != Counts::CargoTest
        || !(1..=RETRIES_MAX).contains(&tally.failed)
        || !all_told(&targets, lines, tally)
    {
        return;
    }
    let mut output = Vec::new();
    for (number, words) in commands(&targets, &tally.failures).into_iter().enumerate() {
        let again = Step {
            name: step.name,
            program: step.program.clone(),
            words,
            counts: step.counts,
        };
        let log_path = log_path.with_extension(format!("again-{}.log", number + 1));
        match capture(&again, &log_path) {
            Ok((_, lines)) => output.extend(lines),
            Err(_) => return,
        }
    }
    settle(tally, &output);
}

/// Whether each program that failed came to its end, and said which tests failed: one that crashed says less.
fn all_told(targets: &[&str], lines: &[String], tally: &Tally) -> bool {
    let ended = |line: &&String| line.starts_with("test result: FAILED");
    lines.iter().filter(ended).count() == targets.len() && tally.failures.len() == tally.failed
}

/// The test programs that failed, as cargo names them at its end: "    `-p tidegate --test e2e_run`".
fn targets(lines: &[String]) -> Vec<&str> {
    let listed = lines
        .iter()
        .skip_while(|line| !(line.starts_with("error: ") && line.contains("failed:")));
    listed
        .filter_map(|line| line.strip_prefix("    `")?.strip_suffix('`'))
        .collect()
}

/// A run of each such program with those tests alone (names that another program has are none of its own).
fn commands(targets: &[&str], failures: &[String]) -> Vec<Vec<String>> {
    let command = |target: &&str| {
        let words = ["test", "--locked"].into_iter().chain(target.split(' '));
        let words = words.chain(["--", "--show-output", "--exact"]);
        words
            .map(str::to_owned)
            .chain(failures.iter().cloned())
            .collect()
    };
    targets.iter().map(command).collect()
}

/// A name that two programs have, or a program that breaks now, leaves all as it was: then not each of them ran once.
fn settle(tally: &mut Tally, again: &[String]) {
    let ran = count("", Counts::CargoTest, Some(0), again);
    if ran.passed + ran.failed + ran.skipped != tally.failures.len() {
        return;
    }
    let passed = |name: &String| again.contains(&format!("test {name} ... ok"));
    let (flaky, failures) = tally.failures.drain(..).partition(passed);
    tally.failures = failures;
    tally.flaky = flaky;
    tally.failed -= tally.flaky.len();
    tally.passed += tally.flaky.len();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn what_failed_runs_again_by_program_and_name() {
        let output = lines(
            "test a::b ... FAILED\n    `not a target`\nerror: 2 targets failed:\n    `-p x --lib`\n    `-p tidegate --test e2e`",
        );
        assert_eq!(targets(&output), ["-p x --lib", "-p tidegate --test e2e"]);
        let commands = commands(&targets(&output), &["a::b".to_owned()]);
        assert_eq!(
            commands[1].join(" "),
            "test --locked -p tidegate --test e2e -- --show-output --exact a::b"
        );
    }

    fn failed(text: &str) -> Tally {
        count("cargo test", Counts::CargoTest, Some(101), &lines(text))
    }

    #[test]
    fn what_passes_then_is_flaky_and_what_fails_twice_has_failed() {
        let mut tally = failed(
            "test a ... FAILED\ntest b ... FAILED\ntest result: FAILED. 5 passed; 2 failed;",
        );
        settle(
            &mut tally,
            &lines("test a ... ok\ntest b ... FAILED\ntest result: FAILED. 1 passed; 1 failed;"),
        );
        assert_eq!((tally.passed, tally.failed), (6, 1));
        assert_eq!(tally.failures, ["b"]);
        assert_eq!(tally.flaky, ["a"]);
    }

    #[test]
    fn a_program_that_breaks_settles_nothing() {
        let mut tally = failed("test a ... FAILED\ntest result: FAILED. 5 passed; 1 failed;");
        settle(&mut tally, &lines("error: x"));
        assert_eq!((tally.failed, tally.flaky.len()), (1, 0));
    }

    #[test]
    fn a_name_that_two_programs_have_settles_nothing() {
        let ended = "test a ... FAILED\ntest result: FAILED. 5 passed; 1 failed;\n";
        let mut tally = failed(&format!("{ended}{ended}"));
        settle(
            &mut tally,
            &lines(&format!(
                "test a ... ok\ntest result: ok. 1 passed; 0 failed;\n{ended}"
            )),
        );
        // Five and one of `ended`, and one: not two.
        assert_eq!((tally.failed, tally.flaky.len()), (2, 0));
    }

    #[test]
    fn a_program_that_crashed_leaves_no_second_try() {
        let one = "test a ... FAILED\ntest result: FAILED. 5 passed; 1 failed;\n";
        let told = "error: 2 targets failed:\n    `-p x --lib`\n    `-p y --lib`";
        let output = lines(&format!("{one}error: test failed (signal: 6)\n{told}"));
        assert!(!all_told(&targets(&output), &output, &failed(one)));
        let output = lines(&format!("{one}error: 1 target failed:\n    `-p x --lib`"));
        assert!(all_told(&targets(&output), &output, &failed(one)));
        let broken = failed("test a ... FAILED\n");
        assert!(!all_told(&[], &[], &broken));
    }
}
