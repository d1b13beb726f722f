//! The tests of one mode, in as many boots as it takes: a guest that breaks fails the test it was in, and what
//! remains runs in another.

use crate::boot::{Boot, Finished};
use crate::catalog::{Case, Mode};
use crate::frames::Outcome;
use crate::progress::Progress;
use crate::userland::Userland;
use crate::{Bed, Trouble};
use std::fs;
use std::time::{Duration, Instant};

/// How a whole run came out.
#[derive(Default)]
pub struct Tally {
    /// Tests that passed.
    pub passed: usize,
    /// Tests that failed.
    pub failed: usize,
    /// Tests that this machine cannot run.
    pub skipped: usize,
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
    /// How the machine is emulated.
    pub mode: Mode,
    /// What runs besides the tests; the bare guest without.
    pub userland: Option<&'a Userland>,
    /// The bed, which all modes share.
    pub bed: &'a Bed,
    /// What has not ended by then fails.
    pub deadline: Instant,
    /// Keep the guest's images beside the logs.
    pub keep: bool,
}

impl Suite<'_> {
    /// Runs them all, however many boots that takes.
    pub fn run(&self, mut todo: Vec<&Case>, progress: &Progress) -> Result<Tally, Trouble> {
        let mut tally = Tally::default();
        let mut boots = 0;
        while !todo.is_empty() {
            boots += 1;
            progress.doing(&self.label, "booting");
            let logs = self.bed.work.join(format!("{}-{boots}", self.name()));
            fs::create_dir_all(&logs).map_err(|e| Trouble::io("make the log folder", &logs, &e))?;
            let image = logs.join("image.cpio");
            self.bed
                .parts
                .write(&todo, self.mode.name(), self.userland, &image)?;
            let boot = Boot {
                label: &self.label,
                mode: self.mode,
                kernel: &self.bed.kernel,
                image: &image,
                logs: &logs,
                cases: &todo,
                deadline: self.deadline,
            };
            let report = boot.run(progress, &mut |_| {})?;
            if !self.keep {
                fs::remove_file(&image)
                    .map_err(|e| Trouble::io("remove the guest's image", &image, &e))?;
            }
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
            for one in finished {
                tally.count(&one.outcome);
                tally.measures.extend(one.measures);
            }
        }
        progress.leave(&self.label);
        Ok(tally)
    }

    /// What its logs are called.
    fn name(&self) -> String {
        let with = self.userland.map_or("", |_| "-systemd");
        format!("{}{with}", self.mode.name())
    }

    /// A boot that got nowhere fails the test it should have begun with, so that a broken bed comes to an end.
    fn lost(&self, todo: &mut Vec<&Case>, why: &str) -> Option<Finished> {
        let case = (!todo.is_empty()).then(|| todo.remove(0))?;
        let outcome = Outcome::Failed(why.into());
        let finished = Finished {
            test: case.name.clone(),
            outcome,
            guest_s: 0.0,
            wall: Duration::ZERO,
            measures: Vec::new(),
            tail: Vec::new(),
        };
        Some(finished)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_tell_nothing_ran_from_all_passed() {
        let tally = |passed, failed, skipped| {
            Tally {
                passed,
                failed,
                skipped,
                measures: Vec::new(),
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
