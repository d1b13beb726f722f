//! A bar for what takes more than two seconds; nothing where no terminal is.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How far something has come, in units of its own.
pub struct Progress(ProgressBar);

impl Progress {
    /// Of `total` units.
    pub fn new(title: &'static str, total: u64, quiet: bool) -> Progress {
        let shown = std::io::stderr().is_terminal() && !quiet;
        let target = if shown {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(total), target);
        // The template is a constant; should the crate ever refuse it, its default serves.
        if let Ok(style) =
            ProgressStyle::with_template("{prefix} {bar:30} {percent:>3} %  {eta} left")
        {
            bar.set_style(style);
        }
        bar.set_prefix(title);
        if shown {
            bar.enable_steady_tick(Duration::from_millis(500));
        }
        Progress(bar)
    }

    pub fn done(&self, units: u64) {
        self.0.inc(units);
    }

    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}
