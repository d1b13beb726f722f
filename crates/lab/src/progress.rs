//! Progress of anything that takes more than two seconds: a bar on a terminal, a line per stage
//! elsewhere, nothing when asked to be quiet.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// How far an experiment has come.
pub struct Progress {
    bar: Option<ProgressBar>,
    lines: bool,
    title: &'static str,
}

impl Progress {
    /// `seconds` is how long the whole will take, which the experiments know.
    pub fn new(title: &'static str, seconds: f64, quiet: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = (terminal && !quiet).then(|| {
            let bar = ProgressBar::new((seconds * 10.0) as u64);
            // The template is a constant; should the crate ever refuse it, its default serves.
            if let Ok(style) = ProgressStyle::with_template(
                "{prefix} {bar:30} {percent:>3} %  {eta} left  {wide_msg}",
            ) {
                bar.set_style(style);
            }
            bar.set_prefix(format!("lab {title}"));
            bar.enable_steady_tick(Duration::from_millis(500));
            bar
        });
        if !terminal && !quiet {
            eprintln!("lab {title}: about {seconds:.0} s");
        }
        Progress {
            bar,
            lines: !terminal && !quiet,
            title,
        }
    }

    /// A new stage.
    pub fn stage(&self, name: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(name.to_string());
        }
        if self.lines {
            eprintln!("lab {}: {name}", self.title);
        }
    }

    /// `seconds` of the whole are done.
    pub fn done(&self, seconds: f64) {
        if let Some(bar) = &self.bar {
            bar.inc((seconds * 10.0) as u64);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
