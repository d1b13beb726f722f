//! The tests of one mode, in as many boots as it takes: a guest that breaks fails the test it was in, and what
//! remains runs in another.

use super::Trouble;
use super::boot::{Boot, Finished};
use super::catalog::{Case, Mode};
use super::fetch::Kernel;
use super::frames::Outcome;
use super::image::Parts;
use super::progress::{Progress, line};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// How a whole run came out.
#[derive(Default)]
pub struct Tally {
    pub passed: usize,
    pub failed: usize,
    pub skipped: usize,
}

impl Tally {
    fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::Failed(_) => self.failed += 1,
            Outcome::Skipped(_) => self.skipped += 1,
        }
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
    pub mode: Mode,
    pub kernel: &'a Kernel,
    pub parts: &'a Parts,
    pub work: &'a Path,
    pub deadline: Instant,
    pub keep: bool,
}

impl Suite<'_> {
    pub fn run(&self, mut todo: Vec<&Case>, tally: &mut Tally) -> Result<(), Trouble> {
        let mut progress = Progress::new(self.mode.name(), todo.len());
        let mut boots = 0;
        while !todo.is_empty() {
            boots += 1;
            let logs = self.work.join(format!("{}-{boots}", self.mode.name()));
            fs::create_dir_all(&logs).map_err(|e| Trouble::io("make the log folder", &logs, &e))?;
            let image = logs.join("image.cpio");
            self.parts.write(&todo, self.mode.name(), &image)?;
            let boot = Boot {
                mode: self.mode,
                kernel: self.kernel,
                image: &image,
                logs: &logs,
                cases: &todo,
                deadline: self.deadline,
            };
            let report = boot.run(&mut progress)?;
            progress.clear();
            if !self.keep {
                fs::remove_file(&image)
                    .map_err(|e| Trouble::io("remove the guest's image", &image, &e))?;
            }
            for note in &report.notes {
                println!("       kernel: {note}");
            }
            let mut finished = report.finished;
            let before = todo.len();
            todo.retain(|case| !finished.iter().any(|f| f.test == case.name));
            if todo.len() == before {
                let why = report
                    .broken
                    .as_deref()
                    .unwrap_or("the guest ended without running it");
                finished.extend(self.lost(&mut todo, why));
            }
            finished.iter().for_each(|f| tally.count(&f.outcome));
        }
        Ok(())
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
        println!("{}", line(self.mode.name(), &finished));
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
