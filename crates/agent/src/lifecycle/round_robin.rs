//! Whose turn it is: of many, a bounded number at each poll, one after the other.

/// Goes round `0..len`, at most `each` numbers a turn.
pub struct RoundRobin {
    next: usize,
    each: usize,
}

impl RoundRobin {
    /// From the first on; at least one a turn.
    pub fn new(each: usize) -> Self {
        Self {
            next: 0,
            each: each.max(1),
        }
    }

    /// This turn's numbers below `len`, each once, beginning after the last turn's.
    pub fn turn(&mut self, len: usize) -> impl Iterator<Item = usize> + use<> {
        let first = if self.next < len { self.next } else { 0 };
        let count = self.each.min(len);
        // A length is at most isize::MAX, so the sum of two fits.
        self.next = if len == 0 { 0 } else { (first + count) % len };
        (first..first + count).map(move |number| number % len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_turn_and_none_two_in_one() {
        for (each, len) in [(3, 10), (10, 3), (1, 1), (4, 4), (64, 500)] {
            let mut round_robin = RoundRobin::new(each);
            let mut seen = vec![0; len];
            for _ in 0..len.div_ceil(each) {
                let turn: Vec<usize> = round_robin.turn(len).collect();
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
        let mut round_robin = RoundRobin::new(3);
        assert_eq!(round_robin.turn(5).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(round_robin.turn(2).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(round_robin.turn(0).count(), 0);
        assert_eq!(round_robin.turn(5).collect::<Vec<_>>(), [0, 1, 2]);
    }
}
