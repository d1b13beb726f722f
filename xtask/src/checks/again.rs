//! The few tests of `cargo test` that failed, once more by name. They share a machine with much else, and a wait that a busy
//! host outlasts fails one run in some dozens; what is broken fails twice, and what passes now is told in the summary.

use super::count::{Counts, Tally, count};
use super::{Step, capture};
use std::path::Path;

/// Where more than these fail, something is broken.
const AGAIN_MAX: usize = 3;

/// Takes what passes now out of the failures of `tally`.
pub fn once_more(step: &Step, log_path: &Path, lines: &[String], tally: &mut Tally) {
    if step.counts != Counts::CargoTest || tally.failed > AGAIN_MAX {
        return;
    }
    for words in commands(&targets(lines), &tally.failures) {
        let again = Step {
            name: step.name,
            program: step.program.clone(),
            words,
            counts: step.counts,
        };
        if let Ok((status, lines)) = capture(&again, &log_path.with_extension("again.log")) {
            settle(
                tally,
                &count(step.name, step.counts, status, &lines),
                &lines,
            );
        }
    }
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

fn settle(tally: &mut Tally, again: &Tally, lines: &[String]) {
    let passed = |name: &String| lines.contains(&format!("test {name} ... ok"));
    let flaky: Vec<String> = tally
        .failures
        .iter()
        .filter(|n| passed(n))
        .cloned()
        .collect();
    // A program that did not get to its end has settled nothing.
    if again
        .failures
        .iter()
        .any(|name| !tally.failures.contains(name))
    {
        return;
    }
    tally.failures.retain(|name| !flaky.contains(name));
    tally.failed -= flaky.len();
    tally.passed += flaky.len();
    tally.flaky.extend(flaky);
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

    #[test]
    fn what_passes_then_is_flaky_and_what_fails_twice_has_failed() {
        let mut tally = count(
            "cargo test",
            Counts::CargoTest,
            Some(101),
            &lines(
                "test a ... FAILED\ntest b ... FAILED\ntest result: FAILED. 5 passed; 2 failed;",
            ),
        );
        let output =
            lines("test a ... ok\ntest b ... FAILED\ntest result: FAILED. 1 passed; 1 failed;");
        let again = count("cargo test", Counts::CargoTest, Some(101), &output);
        settle(&mut tally, &again, &output);
        assert_eq!((tally.passed, tally.failed), (6, 1));
        assert_eq!(tally.failures, ["b"]);
        assert_eq!(tally.flaky, ["a"]);
    }

    #[test]
    fn a_program_that_breaks_settles_nothing() {
        let failed = lines("test a ... FAILED\ntest result: FAILED. 5 passed; 1 failed;");
        let mut tally = count("cargo test", Counts::CargoTest, Some(101), &failed);
        let again = count(
            "cargo test",
            Counts::CargoTest,
            Some(101),
            &lines("error: x"),
        );
        settle(&mut tally, &again, &lines("error: x"));
        assert_eq!((tally.failed, tally.flaky.len()), (1, 0));
    }
}
