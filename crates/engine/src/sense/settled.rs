//! One CPU's times by class, window by window, such that each window is possible.
//!
//! A switch that the kernel did not report comes to light at the next one that it did (`ran_class`
//! in the BPF program): then the true times go back for one class and forward by more than the
//! window for another. Told as they are, such a window shows side work with more time than all
//! tasks together. So what a class was shown too much of is withheld from it until its own time has
//! made up for it, and as much is withheld from what the CPU did in truth: from idle time first,
//! since a hidden switch is nearly always the end of a short visit to an idle CPU.
//!
//! In every window each class has 0 or more and all of them together have the window's length; over
//! time the sums are the true ones, but for what is still withheld.

use super::slots::{CLASSES, IDLE, MAIN, NEUTRAL, SIDE};

/// From what a CPU did in truth, in this order.
const WITHHELD_FROM: [usize; CLASSES] = [IDLE, NEUTRAL, MAIN, SIDE];

/// What was withheld from each class of one CPU, less what each was shown too much: zero in sum.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Withheld {
    owed_ns: [i64; CLASSES],
}

impl Withheld {
    /// The window's true times, some of which may be negative, to times that are possible.
    pub fn settle(&mut self, true_ns: [i64; CLASSES]) -> [u64; CLASSES] {
        let mut due_ns = [0; CLASSES];
        let mut short_ns = 0;
        for class in 0..CLASSES {
            due_ns[class] = true_ns[class] + self.owed_ns[class];
            short_ns += (-due_ns[class]).max(0);
        }
        let mut shown_ns = [0; CLASSES];
        for class in WITHHELD_FROM {
            let positive_ns = due_ns[class].max(0);
            let withheld_ns = positive_ns.min(short_ns);
            short_ns -= withheld_ns;
            // Not negative: at most what is positive is withheld.
            shown_ns[class] = (positive_ns - withheld_ns) as u64;
            self.owed_ns[class] = due_ns[class] - (positive_ns - withheld_ns);
        }
        shown_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // Neutral, side, main, idle.

    #[test]
    fn what_was_shown_too_much_is_withheld_from_idle_time() {
        let mut cpu = Withheld::default();
        assert_eq!(cpu.settle([4, 0, 0, 1]), [4, 0, 0, 1]);
        // Four of neutral's were idle in truth, and five of side's passed.
        assert_eq!(cpu.settle([-4, 5, 0, 4]), [0, 5, 0, 0]);
        assert_eq!(cpu.settle([0, 5, 0, 0]), [0, 5, 0, 0]);
        // Neutral's own time makes up for it, and idle time has its due.
        assert_eq!(cpu.settle([3, 1, 0, 1]), [0, 1, 0, 4]);
        assert_eq!(cpu.settle([3, 1, 0, 1]), [2, 1, 0, 2]);
        assert_eq!(cpu, Withheld::default());
    }

    #[test]
    fn idle_time_that_was_side_works_is_withheld_from_side_work() {
        let mut cpu = Withheld::default();
        assert_eq!(cpu.settle([0, 0, 0, 5]), [0, 0, 0, 5]);
        assert_eq!(cpu.settle([0, 10, 0, -5]), [0, 5, 0, 0]);
        assert_eq!(cpu.settle([0, 5, 0, 0]), [0, 5, 0, 0]);
        assert_eq!(cpu.settle([0, 0, 0, 5]), [0, 5, 0, 0]);
    }

    proptest! {
        #[test]
        fn each_window_is_possible_and_the_sums_are_the_true_ones(
            windows in prop::collection::vec((0..4usize, 0..4usize, 0..5_000i64, 0..5_000i64), 1..200),
        ) {
            let (mut cpu, mut truth, mut shown) = (Withheld::default(), [0i64; CLASSES], [0i64; CLASSES]);
            for (ran, hidden, window_ns, wrong_ns) in windows {
                let mut true_ns = [0; CLASSES];
                true_ns[ran] += window_ns;
                // Never more than the class was credited with before.
                let back_ns = wrong_ns.min(truth[hidden]);
                true_ns[hidden] -= back_ns;
                true_ns[ran] += back_ns;
                let told_ns = cpu.settle(true_ns);
                prop_assert_eq!(told_ns.iter().sum::<u64>() as i64, window_ns);
                for class in 0..CLASSES {
                    truth[class] += true_ns[class];
                    shown[class] += told_ns[class] as i64;
                    prop_assert_eq!(shown[class] + cpu.owed_ns[class], truth[class]);
                }
            }
        }
    }
}
