//! Whose turn it is: of many, a bounded number at each poll, one after the other.

/// Goes round `0..len`.
#[derive(Default)]
pub struct RoundRobin(usize);

impl RoundRobin {
    /// This turn's numbers below `len`, each once and at most `each` of them, beginning after the
    /// last turn's.
    pub fn turn(&mut self, len: usize, each: usize) -> impl Iterator<Item = usize> + use<> {
        let first = if self.0 < len { self.0 } else { 0 };
        let count = each.min(len);
        // A length is at most isize::MAX, so the sum of two fits.
        self.0 = if len == 0 { 0 } else { (first + count) % len };
        (first..first + count).map(move |number| number % len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_turn_and_none_two_in_one() {
        for (each, len) in [(3, 10), (10, 3), (1, 1), (4, 4), (64, 500)] {
            let mut round_robin = RoundRobin::default();
            let mut seen = vec![0; len];
            for _ in 0..len.div_ceil(each) {
                let turn: Vec<usize> = round_robin.turn(len, each).collect();
                assert_eq!(turn.len(), each.min(len));
                for one in &turn {
                    seen[*one] += 1;
                }
            }
            assert!(seen.iter().all(|times| (1..=2).contains(times)), "{seen:?}");
        }
    }

    #[test]
    fn some_may_leave_between_turns() {
        let mut round_robin = RoundRobin::default();
        assert_eq!(round_robin.turn(5, 3).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(round_robin.turn(2, 3).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(round_robin.turn(0, 3).count(), 0);
        assert_eq!(round_robin.turn(5, 3).collect::<Vec<_>>(), [0, 1, 2]);
    }
}
