//! Latency hints: cyclictest alone and beside hackbench, hackbench itself, and what three hogs keep beside a task that hints,
//! as the latency-nice series measured them. On a real kernel the ways of hinting are compared, simulated the schedulers.

pub mod cells;
pub mod host;
mod host_cells;
mod host_report;
mod report;
pub mod sim;

use crate::stats::most;

/// The hint that asks for the least latency.
pub const SENSITIVE: i8 = -20;
/// hackbench's, where it has one: it yields most, and does not preempt.
pub const YIELDING: i8 = 19;
/// Groups of hackbench beside cyclictest (`-g 16`).
pub const BESIDE_GROUPS: u32 = 16;

/// What runs beside cyclictest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Nothing.
    Nothing,
    /// hackbench in the same group: cyclictest's fair share is one of hundreds.
    Together,
    /// hackbench in another group: cyclictest's is half of the machine.
    Apart,
}

impl Beside {
    /// All of them.
    pub const ALL: [Beside; 3] = [Beside::Nothing, Beside::Together, Beside::Apart];

    /// In tables.
    pub fn label(self) -> &'static str {
        match self {
            Beside::Nothing => "nothing",
            Beside::Together => "hackbench",
            Beside::Apart => "hackbench apart",
        }
    }

    /// In JSON and CSV.
    pub fn key(self) -> &'static str {
        match self {
            Beside::Nothing => "nothing",
            Beside::Together => "hackbench",
            Beside::Apart => "hackbench_apart",
        }
    }
}

/// What runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// cyclictest with this beside it.
    Cyclictest {
        /// What.
        beside: Beside,
    },
    /// hackbench alone.
    Hackbench {
        /// How many groups.
        groups: u32,
    },
    /// A schbench-like service beside hogs.
    Schbench,
    /// Three hogs and a hinting task on one CPU: a hog, or one that asks for 44 % of 4 ms.
    Fairness {
        /// Whether the hinting task is a hog too.
        hog: bool,
    },
}

impl Part {
    /// In progress and notes.
    pub fn label(self) -> String {
        match self {
            Part::Cyclictest { beside } => format!("cyclictest beside {}", beside.label()),
            Part::Hackbench { groups } => format!("hackbench, {groups} groups"),
            Part::Schbench => "schbench beside hogs".into(),
            Part::Fairness { hog: true } => "shares beside a hog that hints".into(),
            Part::Fairness { hog: false } => "shares beside a task that hints".into(),
        }
    }
}

/// How far these are from each other's mean, or below what each is due at least; percent of that.
///
/// A hinting hog is due as much as each of the others. A task that sleeps in between asks for more than its quarter too,
/// so that a hint could give it more: the hogs are due equal parts, and no less than a quarter of the CPU each.
pub fn worst_off_pct(used: &[f64], least: f64) -> f64 {
    let mean = used.iter().sum::<f64>() / used.len() as f64;
    let off = |u: &f64| 100.0 * (u / mean - 1.0).abs().max(1.0 - u / least);
    most(used.iter().map(off))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_from_all_alike_is_unfair_too() {
        let equal = [24.0; 3];
        assert!(worst_off_pct(&equal, 20.0) < 1e-9);
        let off = worst_off_pct(&equal, 25.0);
        assert!((off - 4.0).abs() < 1e-9, "{off}");
        let off = worst_off_pct(&[27.0, 30.0, 33.0], 25.0);
        assert!((off - 10.0).abs() < 1e-9, "{off}");
    }
}
