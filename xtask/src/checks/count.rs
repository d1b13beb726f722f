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
    pub failures: Vec<String>,
    /// What failed and passed when it ran once more: counted as passed, and printed at the end.
    pub flaky: Vec<String>,
    /// Faults that tests injected, by where and what: `faults: WHERE: KIND: N`.
    pub faults: BTreeMap<String, u64>,
}

impl Tally {
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
    /// The summary of cargo-nextest.
    Nextest,
    /// A closing `N passed, N failed, N skipped`.
    Suite,
}

/// Begins the line that nextest sums up in, before its report of failures.
pub const SUMMARY: &str = "Summary [";
/// The exit code of a step that this machine cannot run.
const LACKING: i32 = 77;

pub fn count(name: &str, counts: Counts, status: Option<i32>, lines: &[String]) -> Tally {
    let mut tally = Tally::default();
    for line in lines.iter().map(|line| line.trim_start()) {
        let reason = line
            .strip_prefix(SKIPPED)
            .or_else(|| line.split_once(": skipped: ").map(|(_, why)| why));
        tally.reasons.extend(reason.map(str::to_owned));
        let flaky = line.strip_prefix(FLAKY);
        tally.flaky.extend(flaky.map(str::to_owned));
    }
    match counts {
        Counts::One if status == Some(LACKING) => tally.skipped = 1,
        Counts::One => {}
        Counts::Nextest => count_nextest(lines, &mut tally),
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
    let good = status == Some(0) || (counts != Counts::Nextest && status == Some(LACKING));
    if !good && tally.failed == 0 {
        tally.failed = 1;
        tally.failures.push(name.to_owned());
    } else if counts == Counts::One {
        tally.passed = 1 - tally.skipped;
    } else if counts == Counts::Suite && tally.failed > 0 {
        tally
            .failures
            .push(format!("{name}: {} tests", tally.failed));
    }
    tally
}

fn count_nextest(lines: &[String], tally: &mut Tally) {
    let lines = || lines.iter().map(|line| line.trim_start());
    for line in lines() {
        if let Some((kind, count)) = line
            .strip_prefix("faults: ")
            .and_then(|rest| rest.rsplit_once(": "))
        {
            *tally.faults.entry(kind.to_owned()).or_default() += count.parse().unwrap_or(0);
        }
    }
    let mut report = lines().skip_while(|line| !line.starts_with(SUMMARY));
    let summary = report.next().unwrap_or_default();
    let number = |word: &str| number_before(summary, word);
    // A test that returned early because of what this machine lacks passed for nextest.
    let lacking = lines().filter(|line| line.starts_with(SKIPPED)).count();
    let lacking = lacking.min(number("passed"));
    let ignored = number("skipped");
    tally.passed = number("passed") - lacking;
    tally.failed = number("failed");
    tally.skipped = ignored + lacking;
    if ignored > 0 {
        tally.reasons.push(format!(
            "{ignored} tests marked #[ignore] (see their reason there)"
        ));
    }
    // `FAIL [   0.119s] (3/3) binary test`.
    let failure = |line: &str| {
        let (_, place) = line.split_once("s] (")?;
        place.split_once(") ").map(|(_, test)| test.to_owned())
    };
    tally.failures.extend(report.filter_map(failure));
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
    fn the_summary_of_nextest_is_counted_and_skips_are_told_apart() {
        let output = lines(
            "    skipped: not root\n    faults: memory: agent: death: 5\n    faults: memory: agent: death: 2\n\
             \x20    Summary [   0.3s] 6 tests run: 4 passed (1 slow), 2 failed, 1 skipped\n\
             \x20    SIGABRT [   0.0s] (2/6) x::all abort\n  stdout ---\n  TRY 2 FAIL [   0.1s] (3/6) x::all a::bad\n",
        );
        let tally = count("tests", Counts::Nextest, Some(100), &output);
        assert_eq!((tally.passed, tally.failed, tally.skipped), (3, 2, 2));
        assert_eq!(tally.reasons[0], "not root");
        assert_eq!(tally.failures, ["x::all abort", "x::all a::bad"]);
        assert_eq!(
            faults(&tally.faults).unwrap(),
            "faults injected: 7 (memory: agent: death 7)"
        );
        assert!(faults(&BTreeMap::new()).is_none());
    }

    #[test]
    fn a_step_that_breaks_is_a_failure() {
        let broken = lines("error: could not compile");
        assert_eq!(
            count("tests", Counts::Nextest, Some(101), &broken).failed,
            1
        );
        assert_eq!(count("tests", Counts::Nextest, None, &[]).failed, 1);
        assert_eq!(count("tests", Counts::Nextest, Some(77), &[]).failed, 1);
        assert_eq!(count("tidy", Counts::One, Some(0), &[]).passed, 1);
        assert_eq!(count("tidy", Counts::One, Some(1), &[]).failures, ["tidy"]);
        let lacking = count("typos", Counts::One, Some(77), &lines("skipped: no typos"));
        assert_eq!((lacking.passed, lacking.skipped), (0, 1));
        assert_eq!(lacking.reasons, ["no typos"]);
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
