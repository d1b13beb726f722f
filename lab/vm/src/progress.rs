//! What the person watching sees: one line a finished test, and on a terminal a moving line for the
//! running one.

use crate::protocol::{Finished, Outcome};
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The display of a run; the modes share it, as they run side by side.
pub struct Progress {
    /// The moving line; hidden where no terminal is.
    bar: ProgressBar,
    /// Another program shows what goes on.
    is_silent: bool,
    /// What each suite is doing, by its label.
    doing: Mutex<Vec<(String, String)>>,
}

impl Progress {
    /// Shows everything of a run of that many tests.
    pub fn new(total: usize) -> Progress {
        let bar = ProgressBar::new(total as u64).with_finish(ProgressFinish::AndClear);
        // The template is a constant; should the crate ever refuse it, its default serves.
        if let Ok(style) = ProgressStyle::with_template("  {pos}/{len}  {msg}  {elapsed}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_secs(1));
        Progress {
            bar,
            is_silent: false,
            doing: Mutex::default(),
        }
    }

    /// Shows nothing: the caller does.
    pub fn silent() -> Progress {
        Progress {
            bar: ProgressBar::hidden(),
            is_silent: true,
            doing: Mutex::default(),
        }
    }

    /// That suite has begun with something.
    pub(crate) fn doing(&self, label: &str, what: &str) {
        self.tell(label, Some(what));
    }

    /// The suite has nothing left to run.
    pub(crate) fn leave(&self, label: &str) {
        self.tell(label, None);
    }

    fn tell(&self, label: &str, what: Option<&str>) {
        let mut doing = self.doing.lock().unwrap_or_else(PoisonError::into_inner);
        doing.retain(|(of, _)| of != label);
        doing.extend(what.map(|what| (label.to_owned(), what.to_owned())));
        let each = doing.iter().map(|(label, what)| format!("{label}: {what}"));
        self.bar.set_message(each.collect::<Vec<_>>().join("   "));
    }

    /// So many tests run once more.
    pub(crate) fn more(&self, tests: usize) {
        self.bar.inc_length(tests as u64);
    }

    /// A test has ended.
    pub(crate) fn end(&self, label: &str, finished: &Finished) {
        self.bar.inc(1);
        self.say(&line(label, finished));
    }

    /// A line between the tests.
    pub(crate) fn say(&self, text: &str) {
        if !self.is_silent {
            self.bar.suspend(|| println!("{text}"));
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
