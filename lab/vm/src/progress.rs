//! What the person watching sees: one line a finished test, and on a terminal a moving line for the
//! running one.

use crate::protocol::{Finished, Outcome};
use std::io::{IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The display of a run; the modes share it, as they run side by side.
pub struct Progress {
    terminal: bool,
    /// Another program shows what goes on.
    is_silent: bool,
    started: Instant,
    state: Mutex<State>,
}

struct State {
    /// What each suite is doing, by its label.
    doing: Vec<(String, String)>,
    done: usize,
    total: usize,
}

impl Progress {
    /// Shows everything of a run of that many tests.
    pub fn new(total: usize) -> Progress {
        let state = State {
            doing: Vec::new(),
            done: 0,
            total,
        };
        let terminal = std::io::stderr().is_terminal();
        Progress {
            terminal,
            is_silent: false,
            started: Instant::now(),
            state: Mutex::new(state),
        }
    }

    /// Shows nothing: the caller does.
    pub fn silent() -> Progress {
        Progress {
            is_silent: true,
            terminal: false,
            ..Progress::new(0)
        }
    }

    /// That suite has begun with something.
    pub(crate) fn doing(&self, label: &str, what: &str) {
        let mut state = self.state();
        state.doing.retain(|(of, _)| of != label);
        state.doing.push((label.into(), what.into()));
        self.show(&state);
    }

    /// So many tests run once more.
    pub(crate) fn more(&self, tests: usize) {
        self.state().total += tests;
    }

    pub(crate) fn tick(&self) {
        self.show(&self.state());
    }

    /// A test has ended.
    pub(crate) fn end(&self, label: &str, finished: &Finished) {
        let mut state = self.state();
        state.done += 1;
        self.print(&line(label, finished), &state);
    }

    /// A line between the tests.
    pub(crate) fn say(&self, text: &str) {
        self.print(text, &self.state());
    }

    fn print(&self, text: &str, state: &State) {
        self.clear();
        if !self.is_silent {
            println!("{text}");
        }
        self.show(state);
    }

    /// The suite has nothing left to run.
    pub(crate) fn leave(&self, label: &str) {
        let mut state = self.state();
        state.doing.retain(|(of, _)| of != label);
        self.clear();
        self.show(&state);
    }

    /// A thread that panicked while it printed has at worst left half a line.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self, state: &State) {
        if !self.terminal || state.doing.is_empty() {
            return;
        }
        let doing: Vec<String> = state
            .doing
            .iter()
            .map(|(label, what)| format!("{label}: {what}"))
            .collect();
        let seconds = self.started.elapsed().as_secs();
        eprint!(
            "\r\x1b[K  {}/{}  {}  {seconds} s",
            state.done,
            state.total,
            doing.join("   ")
        );
        // A terminal that went away shows nothing; the run goes on.
        let _ = std::io::stderr().flush();
    }

    fn clear(&self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
    }
}

/// One finished test on one line (more for a failure: its log's tail follows).
fn line(label: &str, finished: &Finished) -> String {
    let (word, why) = match &finished.outcome {
        Outcome::Passed => ("ok  ", String::new()),
        Outcome::Failed(why) => ("FAIL", format!(": {why}")),
        Outcome::Skipped(why) => ("skip", format!(": {why}")),
    };
    let mut text = format!(
        "  {word} {label:8} {}{why}  ({:.1} s in the guest, {:.1} s, {:.1} s of CPU time)",
        finished.test,
        finished.guest_s,
        finished.wall.as_secs_f64(),
        finished.cpu.as_secs_f64()
    );
    for (name, value, unit) in &finished.measures {
        text.push_str(&format!("\n         {name} {value} {unit}"));
    }
    for line in &finished.tail {
        text.push_str(&format!("\n       | {line}"));
    }
    text
}
