//! Sums that were told too high once in a while, shown without ever stepping back.

use super::slots::{CLASSES, IDLE, MAIN, SIDE};

/// Sums of times that may be corrected downwards, made to stand still until they are made up for.
#[derive(Debug, Default)]
pub struct Sums {
    true_ns: [i64; CLASSES],
    shown_ns: [i64; 4],
}

impl Sums {
    /// Adds to the classes; returns what all, all but idle, side and main grew by.
    pub fn add(&mut self, ran_ns: [i64; CLASSES]) -> [u64; 4] {
        for (sum_ns, ran_ns) in self.true_ns.iter_mut().zip(ran_ns) {
            *sum_ns += ran_ns;
        }
        let all_ns: i64 = self.true_ns.iter().sum();
        let true_ns = [
            all_ns,
            all_ns - self.true_ns[IDLE],
            self.true_ns[SIDE],
            self.true_ns[MAIN],
        ];
        let mut grew_ns = [0; 4];
        for (at, shown_ns) in self.shown_ns.iter_mut().enumerate() {
            let higher_ns = true_ns[at].max(*shown_ns);
            // Not negative: the higher of the two less one of them.
            grew_ns[at] = (higher_ns - *shown_ns) as u64;
            *shown_ns = higher_ns;
        }
        grew_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corrections_are_made_up_for_and_never_shown_as_steps_back() {
        let mut sums = Sums::default();
        // Neutral, side, main, idle.
        assert_eq!(sums.add([5, 5, 0, 10]), [20, 10, 5, 0]);
        // Three of side's were neutral's in truth, and ten passed.
        assert_eq!(sums.add([3, -3, 0, 10]), [10, 0, 0, 0]);
        assert_eq!(sums.add([0, 2, 0, 8]), [10, 2, 0, 0]);
        assert_eq!(sums.add([0, 2, 4, 4]), [10, 6, 1, 4]);
        // Idle was hidden for a while: busy stands still until it catches up.
        assert_eq!(sums.add([-5, 0, 0, 15]), [10, 0, 0, 0]);
        assert_eq!(sums.add([6, 0, 0, 4]), [10, 1, 0, 0]);
    }
}
