//! The constant levels of `tidegate lab law`, what is due at each, and what came of it.

use super::patterns::expected_idle;
use crate::beds::host::samplers::Shares;
use crate::beds::{HEADROOM_PCT, TOLERANCE_PCT};
use crate::experiments::published::{LAW, LawRow};

/// How many threads of side work want all the CPU that they can get.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Hogs {
    /// One, whatever the machine.
    One,
    /// One for each CPU.
    EachCpu,
}

impl Hogs {
    /// As a number.
    pub fn threads(self, cpus: usize) -> usize {
        match self {
            Hogs::One => 1,
            Hogs::EachCpu => cpus,
        }
    }
}

/// One constant level of main beside so much side work.
#[derive(Clone, Copy)]
pub struct Row {
    /// Main's part of the machine.
    pub main_pct: u32,
    /// Side work.
    pub hogs: Hogs,
    /// What the cpu.headroom patches (2019) say of it.
    pub published: Option<&'static LawRow>,
}

impl Row {
    /// All rows: the machine that is nearly idle first, then the published ones.
    pub fn all() -> impl Iterator<Item = Row> {
        let quiet = [(0, Hogs::One), (0, Hogs::EachCpu), (1, Hogs::EachCpu)];
        let quiet = quiet.map(|(main_pct, hogs)| Row {
            main_pct,
            hogs,
            published: None,
        });
        let published = LAW.iter().map(|row| Row {
            main_pct: row.main_pct,
            hogs: Hogs::EachCpu,
            published: Some(row),
        });
        quiet.into_iter().chain(published)
    }

    /// How many there are.
    pub fn count() -> f64 {
        Row::all().count() as f64
    }

    /// For tables and plots.
    pub fn label(&self) -> String {
        match self.hogs {
            Hogs::One => format!("{}, one hog", self.main_pct),
            Hogs::EachCpu => self.main_pct.to_string(),
        }
    }

    /// Main leaves less than the headroom and the tolerance.
    pub fn is_at_floor(&self) -> bool {
        self.published.is_some_and(|row| row.side_pct.is_none())
    }

    /// The cpu.headroom patches' figures for side and idle, for tables.
    pub fn published_cells(&self) -> [String; 2] {
        let Some(row) = self.published else {
            return ["-".into(), "-".into()];
        };
        let side = row.side_pct.map_or("minimal".into(), |p| p.to_string());
        [side, row.idle_pct.to_string()]
    }
}

/// What one constant level gave.
pub struct Constant {
    /// What was set up.
    pub row: Row,
    /// Who had the machine.
    pub shares: Shares,
    /// Idle that was due.
    pub expected_idle: f64,
    /// Side's CPU over what was due to it: what main left, or all that it can use, if that is less.
    pub reclaim_pct: f64,
    /// Writes of the moving quota a second.
    pub quota_writes: f64,
}

impl Constant {
    /// From what was read on a machine of `cpus`.
    pub fn new(row: Row, shares: Shares, cpus: usize, quota_writes: f64) -> Self {
        let busy_pct = shares.main_pct + shares.other_pct;
        let most_pct = 100.0 * row.hogs.threads(cpus) as f64 / cpus as f64;
        let due_pct = (100.0 - HEADROOM_PCT - busy_pct)
            .max(TOLERANCE_PCT)
            .min(most_pct);
        Constant {
            row,
            shares,
            expected_idle: expected_idle(busy_pct).max(100.0 - busy_pct - most_pct),
            reclaim_pct: 100.0 * shares.side_pct / due_pct,
            quota_writes,
        }
    }

    /// Idle less what was due, in points.
    pub fn off_points(&self) -> f64 {
        self.shares.idle_pct - self.expected_idle
    }
}

/// Of what is due to side work on a machine that is nearly idle, the least that it got.
pub fn least_when_quiet<'a>(all: impl Iterator<Item = &'a Constant>) -> f64 {
    let quiet = all.filter(|c| c.row.published.is_none());
    quiet.map(|c| c.reclaim_pct).fold(f64::NAN, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_hog_is_due_one_cpu_and_no_more() {
        let quiet = |side_pct| Shares {
            main_pct: 1.0,
            side_pct,
            idle_pct: 99.0 - side_pct,
            ..Shares::default()
        };
        let rows: Vec<Row> = Row::all().collect();
        let one = Constant::new(rows[0], quiet(50.0), 2, 0.0);
        assert_eq!((one.expected_idle, one.reclaim_pct), (49.0, 100.0));
        let each = Constant::new(rows[1], quiet(69.0), 2, 0.0);
        assert_eq!((each.expected_idle, each.off_points()), (30.0, 0.0));
        assert_eq!(least_when_quiet([one, each].iter()), 100.0);
    }
}
