//! The tests of one mode, in as many boots as it takes: a guest that breaks fails the test it was
//! in, and what remains runs in another.

use crate::boot::{Boot, Report};
use crate::catalog::{Case, Mode};
use crate::progress::Progress;
use crate::protocol::{Finished, Outcome};
use crate::userland::Userland;
use crate::{Bed, VmError};
use std::fs;
use std::time::Instant;

/// How a whole run came out.
#[derive(Default)]
pub struct Tally {
    pub passed: usize,
    pub failed: usize,
    /// Tests that this machine cannot run.
    pub skipped: usize,
    /// Tests that failed and then passed in a guest of their own, each with why it failed: counted
    /// as passed, and told.
    pub flaky: Vec<String>,
    /// Name, value, unit of all that was measured.
    pub measures: Vec<(String, String, String)>,
}

impl Tally {
    fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::Failed(_) => self.failed += 1,
            Outcome::Skipped(_) => self.skipped += 1,
        }
    }

    /// Counts another run's tests with these.
    pub fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.flaky.extend(other.flaky);
        self.measures.extend(other.measures);
    }

    /// 0: all that ran passed; 1: one failed; 77: nothing ran.
    pub fn exit(&self) -> u8 {
        match (self.failed, self.passed) {
            (0, 0) => 77,
            (0, _) => 0,
            _ => 1,
        }
    }
}

/// All tests of one mode, in as many boots as it takes.
pub struct Suite<'a> {
    /// What its lines begin with: the mode, and the kernel where there are several.
    pub label: String,
    pub mode: Mode,
    /// Suites of one mode, kernel and userland may run side by side; each has folders of its own.
    pub part: usize,
    /// What runs besides the tests; the bare guest without.
    pub userland: Option<&'a Userland>,
    /// The bed, which all modes share.
    pub bed: &'a Bed,
    /// What has not ended by then fails.
    pub deadline: Instant,
    /// Keep the guest's images beside the logs.
    pub keep: bool,
    /// Where no more tests than this miss a bound on a figure, those run once more, unless the
    /// failure contract names them. A boot in some hundreds misses one, and a run has over a
    /// hundred bounds; what is broken fails twice.
    pub again_max: usize,
}

impl Suite<'_> {
    /// Runs them all, however many boots that takes.
    pub fn run(&self, todo: Vec<&Case>, progress: &Progress) -> Result<Tally, VmError> {
        let mut boots = 0;
        let mut finished = self.boots(todo.clone(), &mut boots, progress)?;
        let names: Vec<String> = finished
            .iter()
            .filter(|one| missed_a_bound(&one.outcome))
            .map(|one| one.test.clone())
            .filter(|name| !todo.iter().any(|case| case.promised && case.name == *name))
            .collect();
        let mut tally = Tally::default();
        if !names.is_empty() && names.len() <= self.again_max {
            let (label, list) = (&self.label, names.join(", "));
            progress.say(&format!("       {label} once more: {list}"));
            progress.more(names.len());
            let again = todo.into_iter().filter(|case| names.contains(&case.name));
            let again = self.boots(again.collect(), &mut boots, progress)?;
            tally.flaky = settle(label, &mut finished, again);
        }
        for one in finished {
            tally.count(&one.outcome);
            tally.measures.extend(one.measures);
        }
        progress.leave(&self.label);
        Ok(tally)
    }

    /// All of these tests, in as many boots as it takes; `boots` counts on.
    fn boots(
        &self,
        mut todo: Vec<&Case>,
        boots: &mut usize,
        progress: &Progress,
    ) -> Result<Vec<Finished>, VmError> {
        let mut all = Vec::new();
        while !todo.is_empty() {
            *boots += 1;
            progress.doing(&self.label, "booting");
            let report = self.boot(&todo, *boots, progress)?;
            for note in &report.notes {
                progress.say(&format!("       {} kernel: {note}", self.label));
            }
            let mut finished = report.finished;
            let before = todo.len();
            todo.retain(|case| !finished.iter().any(|f| f.test == case.name));
            if todo.len() == before {
                let why = report
                    .broken
                    .as_deref()
                    .unwrap_or("the guest ended without running it");
                let lost = self.lost(&mut todo, why);
                lost.iter().for_each(|lost| progress.end(&self.label, lost));
                finished.extend(lost);
            }
            all.extend(finished);
        }
        Ok(all)
    }

    fn boot(&self, todo: &[&Case], number: usize, progress: &Progress) -> Result<Report, VmError> {
        let logs = self.bed.work.join(format!("{}-{number}", self.name()));
        fs::create_dir_all(&logs).map_err(|e| VmError::io("make the log folder", &logs, &e))?;
        let image = logs.join("image.cpio");
        self.bed
            .parts
            .write(todo, self.mode.name(), self.userland, &image)?;
        let boot = Boot {
            label: &self.label,
            mode: self.mode,
            kernel: &self.bed.kernel,
            image: &image,
            logs: &logs,
            cases: todo,
            deadline: self.deadline,
        };
        let report = boot.run(progress, &mut |_| {})?;
        if !self.keep {
            fs::remove_file(&image)
                .map_err(|e| VmError::io("remove the guest's image", &image, &e))?;
        }
        Ok(report)
    }

    fn name(&self) -> String {
        let with = self.userland.map_or("", |_| "-systemd");
        let part = match self.part {
            0 => String::new(),
            later => format!(".{}", later + 1),
        };
        format!("{}{with}{part}", self.mode.name())
    }

    /// A boot that got nowhere fails the test it should have begun with, so that a broken bed comes
    /// to an end.
    fn lost(&self, todo: &mut Vec<&Case>, why: &str) -> Option<Finished> {
        let case = (!todo.is_empty()).then(|| todo.remove(0))?;
        let outcome = Outcome::Failed(why.into());
        Some(Finished::unseen(&case.name, outcome))
    }
}

/// Whether it failed by a measured figure: `within` of tests/vm/lib.sh says so.
fn missed_a_bound(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed(why) if why.contains(", not within "))
}

/// Puts what came of the second run in the first one's place; gives what passed now, with why it
/// had failed.
fn settle(label: &str, finished: &mut [Finished], again: Vec<Finished>) -> Vec<String> {
    let mut flaky = Vec::new();
    for second in again {
        let Some(first) = finished.iter_mut().find(|one| one.test == second.test) else {
            continue;
        };
        if let (Outcome::Failed(why), Outcome::Passed) = (&first.outcome, &second.outcome) {
            let label = label.split_whitespace().collect::<Vec<_>>().join(" ");
            flaky.push(format!("{label} {}: {why}", first.test));
        }
        // What cannot be shown the second time was shown to fail.
        if !matches!(second.outcome, Outcome::Skipped(_)) {
            *first = second;
        }
    }
    flaky
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_at_the_second_try_is_told_and_what_fails_twice_has_failed() {
        let failed = |why: &str| Outcome::Failed(why.into());
        let mut all = [
            Finished::unseen("a", Outcome::Passed),
            Finished::unseen("b", failed("949 not within 950..951")),
            Finished::unseen("c", failed("left behind")),
            Finished::unseen("d", failed("left behind")),
        ];
        let again = vec![
            Finished::unseen("b", Outcome::Passed),
            Finished::unseen("c", failed("left behind")),
            Finished::unseen("d", Outcome::Skipped("no memory".into())),
        ];
        let flaky = settle("precise  7.3", &mut all, again);
        assert_eq!(flaky, ["precise 7.3 b: 949 not within 950..951"]);
        let mut tally = Tally::default();
        all.iter().for_each(|one| tally.count(&one.outcome));
        assert_eq!((tally.passed, tally.failed), (2, 2));
    }

    #[test]
    fn only_a_figure_outside_its_bounds_is_tried_again() {
        let failed = |why: &str| missed_a_bound(&Outcome::Failed(why.into()));
        assert!(failed("idle is '29.1', not within 29.5..31"));
        assert!(!failed("the state is 'x', not 'y'") && !failed("hung"));
        assert!(!missed_a_bound(&Outcome::Passed));
    }

    #[test]
    fn exit_codes_tell_nothing_ran_from_all_passed() {
        let tally = |passed, failed, skipped| {
            Tally {
                passed,
                failed,
                skipped,
                ..Tally::default()
            }
            .exit()
        };
        assert_eq!(
            (
                tally(3, 0, 1),
                tally(3, 1, 0),
                tally(0, 0, 4),
                tally(0, 2, 0)
            ),
            (0, 1, 77, 1)
        );
    }
}
