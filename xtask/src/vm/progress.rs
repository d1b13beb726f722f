//! What the person watching sees: one line a finished test, and on a terminal a moving line for the running one.

use super::boot::Finished;
use super::frames::Outcome;
use std::io::{IsTerminal, Write};
use std::time::Instant;

/// The display of a run.
pub struct Progress {
    mode: &'static str,
    terminal: bool,
    started: Instant,
    doing: String,
    done: usize,
    total: usize,
}

impl Progress {
    pub fn new(mode: &'static str, total: usize) -> Progress {
        let terminal = std::io::stderr().is_terminal();
        Progress {
            mode,
            terminal,
            started: Instant::now(),
            doing: "booting".into(),
            done: 0,
            total,
        }
    }

    pub fn begin(&mut self, test: &str) {
        self.doing = test.into();
        self.tick();
    }

    pub fn tick(&mut self) {
        if self.terminal {
            let seconds = self.started.elapsed().as_secs();
            eprint!(
                "\r\x1b[K  {}  {}/{}  {} … {seconds} s",
                self.mode, self.done, self.total, self.doing
            );
            // A terminal that went away shows nothing; the run goes on.
            let _ = std::io::stderr().flush();
        }
    }

    pub fn end(&mut self, finished: &Finished) {
        self.done += 1;
        self.clear();
        println!("{}", line(self.mode, finished));
    }

    pub fn clear(&self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
    }
}

/// One finished test on one line (more for a failure: its log's tail follows).
pub fn line(mode: &str, finished: &Finished) -> String {
    let (word, why) = match &finished.outcome {
        Outcome::Passed => ("ok  ", String::new()),
        Outcome::Failed(why) => ("FAIL", format!(": {why}")),
        Outcome::Skipped(why) => ("skip", format!(": {why}")),
    };
    let mut text = format!(
        "  {word} {mode:8}{}{why}  ({:.1} s in the guest, {:.1} s)",
        finished.test,
        finished.guest_s,
        finished.wall.as_secs_f64()
    );
    for (name, value, unit) in &finished.measures {
        text.push_str(&format!("\n         {name} {value} {unit}"));
    }
    for line in &finished.tail {
        text.push_str(&format!("\n       | {line}"));
    }
    text
}
