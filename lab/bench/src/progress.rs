//! Progress of anything that takes more than two seconds: a bar on a terminal, a line per stage
//! elsewhere, nothing when asked to be quiet.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How far an experiment has come.
pub struct Progress {
    bar: Option<ProgressBar>,
    lines: bool,
    title: &'static str,
    /// Several threads may move it on.
    done_ms: AtomicU64,
    all_s: f64,
    started: Instant,
    /// Whole seconds since the start at the last line of [`Progress::of_work`]; absent where times are known beforehand.
    told_s: Option<AtomicU64>,
}

/// Lines of work without a terminal come this far apart, s.
const APART_S: u64 = 5;

impl Progress {
    /// `seconds` is how long the whole will take, which experiments know that wait for windows of fixed length.
    pub fn new(title: &'static str, seconds: f64, quiet: bool) -> Self {
        let progress = Progress::start(title, seconds, quiet);
        if progress.lines {
            eprintln!("lab {title}: about {seconds:.0} s");
        }
        progress
    }

    /// Work whose speed shows as it is done: `seconds` is only its weight, and what is left is told from what is done.
    pub fn of_work(title: &'static str, seconds: f64, quiet: bool) -> Self {
        let mut progress = Progress::start(title, seconds, quiet);
        progress.told_s = Some(AtomicU64::new(0));
        progress
    }

    fn start(title: &'static str, seconds: f64, quiet: bool) -> Self {
        // A guest of the VM bed has a terminal that nobody looks at; its host reads lines.
        let terminal = std::io::stderr().is_terminal() && !crate::loads::spin::by_nops();
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
        Progress {
            bar,
            lines: !terminal && !quiet,
            title,
            done_ms: AtomicU64::new(0),
            all_s: seconds,
            started: Instant::now(),
            told_s: None,
        }
    }

    /// A new stage.
    pub fn stage(&self, name: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(name.to_string());
        }
        if self.lines {
            let (done_s, all_s) = (
                self.done_ms.load(Ordering::Relaxed) as f64 / 1000.0,
                self.all_s,
            );
            eprintln!("lab {}: {done_s:.0} of {all_s:.0} s: {name}", self.title);
        }
    }

    /// `seconds` of the whole are done.
    pub fn done(&self, seconds: f64) {
        let ms = (seconds.max(0.0) * 1000.0) as u64;
        let before_ms = self.done_ms.fetch_add(ms, Ordering::Relaxed);
        if let Some(bar) = &self.bar {
            bar.set_position((before_ms + ms) / 100);
        }
        self.tell_left((before_ms + ms) as f64 / 1000.0 / self.all_s);
    }

    fn tell_left(&self, part: f64) {
        let Some(told_s) = self.told_s.as_ref().filter(|_| self.lines) else {
            return;
        };
        let passed = self.started.elapsed();
        let (now_s, before_s) = (passed.as_secs(), told_s.load(Ordering::Relaxed));
        let due = now_s >= before_s + APART_S;
        let exchanged =
            || told_s.compare_exchange(before_s, now_s, Ordering::Relaxed, Ordering::Relaxed);
        // Of several threads one tells.
        if due && exchanged().is_ok() {
            let left_s = left_s(passed.as_secs_f64(), part);
            eprintln!(
                "lab {}: {:.0} %, about {left_s:.0} s left",
                self.title,
                100.0 * part
            );
        }
    }
}

/// What is left, at the speed so far, of work of which `part` (0 to 1) took `passed_s`.
fn left_s(passed_s: f64, part: f64) -> f64 {
    passed_s * (1.0 - part).max(0.0) / part.max(1e-3)
}

/// What a line of [`Progress::stage`] says: seconds done, of how many, and the stage.
pub fn position(line: &str) -> Option<(f64, f64, &str)> {
    let (seconds, stage) = line
        .strip_prefix("lab ")?
        .split_once(": ")?
        .1
        .split_once(" s: ")?;
    let (done_s, all_s) = seconds.split_once(" of ")?;
    Some((done_s.parse().ok()?, all_s.parse().ok()?, stage))
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_follows_the_speed_so_far() {
        assert_eq!(left_s(10.0, 0.25), 30.0);
        assert_eq!(left_s(10.0, 1.0), 0.0);
        assert!(left_s(10.0, 1.2) == 0.0 && left_s(1.0, 0.0).is_finite());
    }

    #[test]
    fn a_line_of_progress_is_read_back() {
        let line = "lab burst: 51 of 255 s: round 1 of 1, no limit: really";
        assert_eq!(
            position(line),
            Some((51.0, 255.0, "round 1 of 1, no limit: really"))
        );
        assert_eq!(position("tidegate: run: x"), None);
    }
}
