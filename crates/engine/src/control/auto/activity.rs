//! Do main and side work have anything to do? What is measured of a machine that rests does not hold for one that works.

use super::Seen;

/// Means are over about this long.
const SPAN_NS: u64 = 2_000_000_000;
/// Main groups have work from this many tasks that run or wait, in the mean: 1 % of one CPU. Millionths, as all here.
const MAIN_PPM: u64 = 10_000;
/// Where everything but side work is main, the machine's own upkeep is no work (Tidegate's loop alone takes up to 1 % of a CPU): a
/// tenth of a CPU, or a fiftieth of the machine where that is more.
const UNGATED_PPM: u64 = 100_000;
const UNGATED_OF_MACHINE: u64 = 50;
/// Side work has more to do than its tolerance from so much of the machine above it.
const SIDE_OF_MACHINE: u64 = 50;

/// Means of what main and side work do, and what follows.
#[derive(Clone, Debug, Default)]
pub(super) struct Activity {
    main_ppm: u64,
    side_ppm: u64,
    main: bool,
    side: bool,
}

impl Activity {
    /// Main has work.
    pub fn main(&self) -> bool {
        self.main
    }

    /// Side work has more than its tolerance.
    pub fn side(&self) -> bool {
        self.side
    }

    /// One control step. Side work that is held back to compare tells nothing about what it would use.
    pub fn step(&mut self, seen: &Seen, is_low: bool) {
        let wall_ns = seen.window.wall_ns;
        if !seen.has_side {
            (self.side_ppm, self.side) = (0, false);
        }
        if wall_ns == 0 {
            return;
        }
        let runnable_ns = seen.main_ns().saturating_add(seen.waits.wait_ns);
        mean(&mut self.main_ppm, runnable_ns, wall_ns);
        let machine_ppm = u64::from(seen.cpus) * 1_000_000;
        let main_from_ppm = match seen.has_main {
            true => MAIN_PPM,
            false => UNGATED_PPM.max(machine_ppm / UNGATED_OF_MACHINE),
        };
        self.main = is_active(self.main, self.main_ppm, main_from_ppm / 2);
        if seen.has_side && !is_low {
            mean(&mut self.side_ppm, seen.window.side_ns, wall_ns);
            let above_ppm = self.side_ppm.saturating_sub(seen.floor_ucpu);
            self.side = is_active(self.side, above_ppm, machine_ppm / SIDE_OF_MACHINE / 2);
        }
    }
}

/// It begins at the bound, and ends at half of it.
fn is_active(was: bool, ppm: u64, half_ppm: u64) -> bool {
    ppm >= if was { half_ppm } else { 2 * half_ppm }
}

/// CPU time in a window, as millionths of one CPU, into the mean.
fn mean(of_ppm: &mut u64, used_ns: u64, wall_ns: u64) {
    // A window is at most a second and a task set at most 2^17: below 2^47 ns, below 2^67 as millionths of it.
    let now_ppm = u128::from(used_ns) * 1_000_000 / u128::from(wall_ns);
    let now_ppm = u64::try_from(now_ppm.min(1 << 40)).unwrap_or(1 << 40);
    let wall_us = (wall_ns / 1_000).min(SPAN_NS / 1_000);
    let span_us = SPAN_NS / 1_000;
    // Below 2^40 * 2^21.
    *of_ppm = (*of_ppm * (span_us - wall_us) + now_ppm * wall_us) / span_us;
}
