//! How exactly caps are kept.

use crate::LabError;
use crate::report::{Sample, Table, cell, plots};
use crate::stats::most;

/// How one cap was kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// The cap.
    pub cap_ppt: u32,
    /// What was due: the cap, or all that the load wanted where that is less.
    pub due_ppt: f64,
    /// Mean use.
    pub used_ppt: f64,
    /// The window's use that is farthest from what was due.
    pub worst_ppt: f64,
}

impl Rate {
    /// From the use in each window.
    pub fn of(cap_ppt: u32, due_ppt: f64, windows: &[f64]) -> Self {
        let off = |u: &f64| (u - due_ppt).abs();
        let worst = windows
            .iter()
            .copied()
            .max_by(|a, b| off(a).total_cmp(&off(b)));
        Rate {
            cap_ppt,
            due_ppt,
            used_ppt: crate::stats::mean(windows).unwrap_or(f64::NAN),
            worst_ppt: worst.unwrap_or(f64::NAN),
        }
    }

    /// Its figures.
    pub fn figures<K>(&self, sample: Sample<K>) -> Sample<K> {
        sample
            .with("cap_ppt", self.cap_ppt)
            .with("used_ppt", self.used_ppt)
            .with("worst_window_ppt", self.worst_ppt)
            .aside("due_ppt", self.due_ppt)
    }

    /// From its figures.
    pub fn from<K>(sample: &Sample<K>) -> Self {
        Rate {
            cap_ppt: sample.get("cap_ppt") as u32,
            due_ppt: sample.get("due_ppt"),
            used_ppt: sample.get("used_ppt"),
            worst_ppt: sample.get("worst_window_ppt"),
        }
    }

    /// How far the worst window is from what was due.
    pub fn off(&self) -> f64 {
        (self.worst_ppt - self.due_ppt).abs()
    }
}

/// One way of keeping caps: its name, the length of its windows, and how it kept each cap.
pub struct Series {
    /// Who keeps them.
    pub label: &'static str,
    /// Such as `10 s`.
    pub window: String,
    /// By cap.
    pub rates: Vec<Rate>,
}

/// The farthest of all; NaN where nothing was measured.
pub fn worst(rates: &[Rate]) -> f64 {
    most(rates.iter().map(Rate::off))
}

/// Mean and worst window of each series at each cap.
pub fn accuracy(title: &str, series: &[Series]) -> Table {
    let mut heads = vec!["cap".to_string()];
    for s in series {
        heads.push(format!("{}: mean", s.label));
        heads.push(format!("{}: worst {}", s.label, s.window));
    }
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let mut t = Table::new(title, &heads);
    let mut caps: Vec<u32> = series
        .iter()
        .flat_map(|s| &s.rates)
        .map(|r| r.cap_ppt)
        .collect();
    caps.sort_unstable();
    caps.dedup();
    for cap in caps {
        let mut cells = vec![cap.to_string()];
        for s in series {
            let rate = s.rates.iter().find(|r| r.cap_ppt == cap);
            cells.push(cell(rate.map(|r| r.used_ppt), 3, ""));
            cells.push(cell(rate.map(|r| r.worst_ppt), 3, ""));
        }
        t.push(cells);
    }
    t
}

/// How far each is off over the caps.
pub fn plot(title: &str, series: &[Series]) -> Result<plots::Plot, LabError> {
    let mut plot = plots::Lines::new(title, "cap (logarithm of ‰)", "off by, ‰ of a CPU")
        .see("Below the line is within one part per thousand of a CPU.")
        .level("target", 1.0)
        .dots();
    let mut most = 1.2f64;
    for (i, s) in series.iter().enumerate() {
        most = s.rates.iter().map(|r| 1.1 * r.off()).fold(most, f64::max);
        let line = s
            .rates
            .iter()
            .map(|r| (f64::from(r.cap_ppt).log10(), r.off()));
        plot = plot.series(s.label, i, line.collect());
    }
    plot.range(0.0..3.0, 0.0..most).draw()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_window_is_the_farthest_from_what_was_due() {
        let r = Rate::of(200, 200.0, &[199.0, 203.0, 200.0]);
        assert!((r.off() - 3.0).abs() < 1e-9 && (r.used_ppt - 200.667).abs() < 1e-3);
        assert!(worst(&[]).is_nan());
        assert!(Rate::of(200, 200.0, &[]).off().is_nan());
    }
}
