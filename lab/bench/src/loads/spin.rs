//! Burning CPU, and nothing else, in runs of no-operations: they touch no cache, and under the VM's
//! virtual time each counts as one instruction, while the emulator passes over them almost for
//! nothing.
//!
//! A *block* is 1000 of them. How many blocks make a millisecond of CPU is measured at the start
//! (one instruction a nanosecond in the VM, four to six on a machine), so that work can be given as
//! an amount: a thread that shares its core with another takes longer for the same amount, as real
//! work would.

use crate::clock::thread_cpu_ns;

/// Set in the guest: figures are exact there, and no bar is drawn.
pub const NOPS_VARIABLE: &str = "TIDEGATE_LAB_NOPS";

pub fn by_nops() -> bool {
    std::env::var_os(NOPS_VARIABLE).is_some()
}

/// About what a player does between two looks at the clock.
const LOOK_NS: u64 = 10_000;

#[derive(Clone, Copy, Debug)]
pub struct Spin {
    blocks_per_ms: u64,
}

#[inline(never)]
fn block() {
    // SAFETY: no-operations change nothing; every architecture that Linux runs on has one of this
    // name.
    unsafe {
        std::arch::asm!(
            ".rept 1000",
            "nop",
            ".endr",
            options(nomem, nostack, preserves_flags)
        )
    }
}

fn blocks(n: u64) {
    (0..n).for_each(|_| block());
}

impl Spin {
    /// Measures, by the thread's own clock: the fastest of a few stretches of about a millisecond.
    pub fn calibrated() -> Self {
        let timed = |n| {
            let from = thread_cpu_ns();
            blocks(n);
            (thread_cpu_ns() - from).max(1)
        };
        let mut n = 100;
        while timed(n) < 1_000_000 {
            n *= 2;
        }
        let best_ns = (0..5).map(|_| timed(n)).min().unwrap_or(1_000_000);
        Spin {
            blocks_per_ms: (n * 1_000_000 / best_ns).max(1),
        }
    }

    pub fn blocks_for(self, ns: u64) -> u64 {
        // A request is below a second and a block above a nanosecond: the product is below 2^60.
        (self.blocks_per_ms * ns / 1_000_000).max(1)
    }

    pub fn work(self, amount: u64) {
        blocks(amount);
    }

    /// About ten microseconds of it: what fits between two looks at a clock.
    pub fn a_little(self) {
        blocks(self.blocks_for(LOOK_NS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_of_work_is_about_its_time() {
        let spin = Spin::calibrated();
        let from = thread_cpu_ns();
        spin.work(spin.blocks_for(2_000_000));
        let took_ns = thread_cpu_ns() - from;
        // The fastest stretch calibrates, and a neighbour on the core halves the speed.
        assert!((1_200_000..40_000_000).contains(&took_ns), "{took_ns} ns");
    }
}
