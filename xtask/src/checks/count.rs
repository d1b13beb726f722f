//! What a step's output says of its tests.

use std::collections::BTreeMap;

const SKIPPED: &str = "skipped: ";
const FLAKY: &str = "flaky: ";

/// What came of it so far.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub passed: usize,
    pub failed: usize,
    pub skipped: usize,
    /// Why something was skipped, in the order met.
    pub reasons: Vec<String>,
    /// What failed.
    pub failures: Vec<String>,
    /// What failed and passed when it ran once more: counted as passed, and printed at the end.
    pub flaky: Vec<String>,
    /// Faults that tests injected, by where and what: `faults: WHERE: KIND: N`.
    pub faults: BTreeMap<String, u64>,
}

impl Tally {
    /// Adds a step's.
    pub fn add(&mut self, part: Tally) {
        self.passed += part.passed;
        self.failed += part.failed;
        self.skipped += part.skipped;
        self.reasons.extend(part.reasons);
        self.failures.extend(part.failures);
        self.flaky.extend(part.flaky);
        for (kind, count) in part.faults {
            *self.faults.entry(kind).or_default() += count;
        }
    }
}

/// How a step's output is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Counts {
    /// The step is one check.
    One,
    /// `test result:` lines of cargo test.
    CargoTest,
    /// A closing `N passed, N failed, N skipped`.
    Suite,
}

pub fn count(name: &str, counts: Counts, status: Option<i32>, lines: &[String]) -> Tally {
    let mut tally = Tally::default();
    if counts != Counts::One {
        for line in lines {
            let reason = line
                .strip_prefix(SKIPPED)
                .or_else(|| line.split_once(": skipped: ").map(|(_, why)| why));
            tally.reasons.extend(reason.map(str::to_owned));
            let flaky = line.strip_prefix(FLAKY);
            tally.flaky.extend(flaky.map(str::to_owned));
        }
    }
    match counts {
        Counts::One => {}
        Counts::CargoTest => count_cargo(lines, &mut tally),
        Counts::Suite => {
            match lines.iter().rev().find_map(|line| suite_line(line)) {
                Some(numbers) => [tally.passed, tally.failed, tally.skipped] = numbers,
                // It ended before its own end.
                None => {
                    tally.failed = 1;
                    tally.failures.push(format!("{name}: no closing line"));
                    return tally;
                }
            }
        }
    }
    // A step that failed without a failed test in it (it did not build, it crashed) is one failure.
    let good = status == Some(0) || (counts == Counts::Suite && status == Some(77));
    if !good && tally.failed == 0 {
        tally.failed = 1;
        tally.failures.push(name.to_owned());
    } else if counts == Counts::One {
        tally.passed = 1;
    } else if counts == Counts::Suite && tally.failed > 0 {
        tally
            .failures
            .push(format!("{name}: {} tests", tally.failed));
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

/// What was injected, in one line.
pub fn faults(counts: &BTreeMap<String, u64>) -> Option<String> {
    let total: u64 = counts.values().sum();
    let kinds: Vec<String> = counts
        .iter()
        .map(|(kind, count)| format!("{kind} {count}"))
        .collect();
    (total > 0).then(|| format!("faults injected: {total} ({})", kinds.join(", ")))
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
        let tally = count("cargo test", Counts::CargoTest, Some(101), &output);
        assert_eq!((tally.passed, tally.failed, tally.skipped), (7, 1, 3));
        assert_eq!(tally.reasons[0], "not root");
        assert_eq!(tally.failures, ["b"]);
        let told = lines("faults: memory: agent: death: 5\nfaults: memory: agent: death: 2\n");
        let tally = count("cargo test", Counts::CargoTest, Some(0), &told);
        assert_eq!(
            faults(&tally.faults).unwrap(),
            "faults injected: 7 (memory: agent: death 7)"
        );
        assert!(faults(&BTreeMap::new()).is_none());
    }

    #[test]
    fn a_step_that_breaks_is_a_failure() {
        assert_eq!(
            count(
                "cargo test",
                Counts::CargoTest,
                Some(101),
                &lines("error: could not compile")
            )
            .failed,
            1
        );
        assert_eq!(count("cargo test", Counts::CargoTest, None, &[]).failed, 1);
        assert_eq!(count("tidy", Counts::One, Some(0), &[]).passed, 1);
        assert_eq!(count("tidy", Counts::One, Some(1), &[]).failures, ["tidy"]);
    }

    #[test]
    fn a_suite_is_counted_by_its_last_line() {
        let output = lines("skipped: no qemu\n0 passed, 0 failed, 14 skipped");
        let cut = count("vm", Counts::Suite, Some(0), &output[..1]);
        assert_eq!(cut.failures, ["vm: no closing line"]);
        let tally = count("vm", Counts::Suite, Some(77), &output);
        assert_eq!((tally.passed, tally.failed, tally.skipped), (0, 0, 14));
        assert_eq!(tally.reasons, ["no qemu"]);
        assert_eq!(suite_line("1 passed, 2 failed"), None);
        let output = lines("flaky: smp x: late\n1 passed, 0 failed, 0 skipped");
        let tally = count("vm", Counts::Suite, Some(0), &output);
        assert_eq!(tally.flaky, ["smp x: late"]);
    }
}
