//! Second tries in `cargo test`: for tests of measured figures alone. They share a machine with much else, and a bound is missed
//! once in some dozens of runs; what is broken fails twice. Those tests are in programs called `alone`. Any other test, so each
//! that the failure contract names, fails at once.

use super::count::{Counts, Tally};
use super::{Step, capture};
use std::path::Path;

/// So many tests of a whole run may need a second try; where there are more, a bound or its bed is wrong.
pub const RETRIES_MAX: usize = 2;
/// The end of what cargo calls such a program.
const MEASURES: &str = " --test alone";

/// Takes what passes now out of the failures of `tally`.
pub fn once_more(step: &Step, log_path: &Path, lines: &[String], tally: &mut Tally) {
    // A program that crashed names fewer tests than it counts, or more.
    if step.counts != Counts::CargoTest || tally.failures.len() != tally.failed {
        return;
    }
    let mut output = Vec::new();
    for (number, target) in targets(lines).into_iter().enumerate() {
        let again = Step {
            name: step.name,
            program: step.program.clone(),
            words: command(target, &tally.failures),
            counts: step.counts,
        };
        let log_path = log_path.with_extension(format!("again-{}.log", number + 1));
        if let Ok((_, lines)) = capture(&again, &log_path) {
            output.extend(lines);
        }
    }
    settle(tally, &output);
}

/// The programs of measured figures that failed, as cargo names them at its end: "    `-p tidegate-engine --test alone`".
fn targets(lines: &[String]) -> Vec<&str> {
    let listed = lines
        .iter()
        .skip_while(|line| !(line.starts_with("error: ") && line.contains("failed:")));
    listed
        .filter_map(|line| line.strip_prefix("    `")?.strip_suffix('`'))
        .filter(|target| target.ends_with(MEASURES))
        .collect()
}

/// A run of that program with those tests alone (names that another program has are none of its own).
fn command(target: &str, failures: &[String]) -> Vec<String> {
    let words = ["test", "--locked"].into_iter().chain(target.split(' '));
    let words = words.chain(["--", "--show-output", "--exact"]);
    words
        .map(str::to_owned)
        .chain(failures.iter().cloned())
        .collect()
}

/// A name that two programs have leaves both failed: not each of them ran again.
fn settle(tally: &mut Tally, again: &[String]) {
    let names = tally.failures.clone();
    let once = |name: &String| names.iter().filter(|other| *other == name).count() == 1;
    let passed = |name: &String| once(name) && again.contains(&format!("test {name} ... ok"));
    let (flaky, failures) = tally.failures.drain(..).partition(passed);
    tally.failures = failures;
    tally.flaky = flaky;
    tally.failed -= tally.flaky.len();
    tally.passed += tally.flaky.len();
}

#[cfg(test)]
mod tests {
    use super::super::count::count;
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn only_programs_of_measured_figures_run_again() {
        let output = lines(
            "test a::b ... FAILED\n    `not a target`\nerror: 3 targets failed:\n    `-p x --lib`\n    `-p x --test all`\n    `-p x --test alone`",
        );
        assert_eq!(targets(&output), ["-p x --test alone"]);
        assert_eq!(
            command(targets(&output)[0], &["a::b".to_owned()]).join(" "),
            "test --locked -p x --test alone -- --show-output --exact a::b"
        );
    }

    #[test]
    fn what_passes_then_is_flaky_and_what_fails_twice_has_failed() {
        let text = "test a ... FAILED\ntest b ... FAILED\ntest result: FAILED. 5 passed; 2 failed;";
        let mut tally = count("cargo test", Counts::CargoTest, Some(101), &lines(text));
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
        let text = "test a ... FAILED\ntest result: FAILED. 5 passed; 1 failed;";
        let mut tally = count("cargo test", Counts::CargoTest, Some(101), &lines(text));
        settle(&mut tally, &lines("error: x"));
        assert_eq!((tally.failed, tally.flaky.len()), (1, 0));
    }

    #[test]
    fn a_name_that_two_programs_have_settles_nothing() {
        let ended = "test a ... FAILED\ntest result: FAILED. 5 passed; 1 failed;\n";
        let both = lines(&format!("{ended}{ended}"));
        let mut tally = count("cargo test", Counts::CargoTest, Some(101), &both);
        let again = "test a ... ok\ntest result: ok. 1 passed; 0 failed;";
        settle(&mut tally, &lines(again));
        assert_eq!((tally.failed, tally.flaky.len()), (2, 0));
    }
}
