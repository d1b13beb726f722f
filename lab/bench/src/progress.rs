//! Progress of anything that takes more than two seconds: a bar on a terminal, a line per stage
//! elsewhere, nothing when asked to be quiet.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

pub struct Progress {
    bar: ProgressBar,
    lines: bool,
    title: &'static str,
    all_s: f64,
}

impl Progress {
    /// `seconds` is how long the whole will take, or the weight of work whose speed shows as it is
    /// done.
    pub fn new(title: &'static str, seconds: f64, quiet: bool) -> Self {
        // A guest has a terminal that nobody looks at; its host shows lines.
        let terminal = std::io::stderr().is_terminal() && !crate::loads::spin::by_nops();
        let bar = match terminal && !quiet {
            true => ProgressBar::new((seconds * 1e3) as u64),
            false => ProgressBar::hidden(),
        };
        // The template is a constant; should the crate ever refuse it, its default serves.
        let template = "{prefix} {bar:30} {percent:>3} %  {eta} left  {wide_msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_prefix(format!("lab {title}"));
        bar.enable_steady_tick(Duration::from_millis(500));
        Progress {
            bar,
            lines: !terminal && !quiet,
            title,
            all_s: seconds,
        }
    }

    pub fn stage(&self, name: &str) {
        self.bar.set_message(name.to_string());
        if self.lines {
            let (done_s, all_s) = (self.bar.position() as f64 / 1e3, self.all_s);
            eprintln!("lab {}: {done_s:.0} of {all_s:.0} s: {name}", self.title);
        }
    }

    /// `seconds` of the whole are done; several threads may say so.
    pub fn done(&self, seconds: f64) {
        self.bar.inc((seconds.max(0.0) * 1e3) as u64);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
