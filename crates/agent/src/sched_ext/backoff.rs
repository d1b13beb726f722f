//! When a scheduler that has ended is loaded again: each end within the hour doubles the wait, and
//! too many are enough. An end for the sake of real-time tasks is not counted.

use std::collections::VecDeque;

const FIRST_NS: u64 = 1_000_000_000;
const MOST_NS: u64 = 300_000_000_000;
const WINDOW_NS: u64 = 3_600_000_000_000;
/// So many in that time, and it is not tried again.
pub(crate) const ENDS_MAX: usize = 12;
/// After an end on purpose (sysrq-S), at least this long remains for other settings; after one for
/// real-time tasks, for these to end.
const ASKED_NS: u64 = 30_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Failed,
    Asked,
    /// It has left CPUs that real-time tasks took whole to the kernel's own scheduler.
    LeftRealTime,
}

#[derive(Debug, Default)]
pub(crate) struct Backoff {
    ends_ns: VecDeque<u64>,
}

impl Backoff {
    /// It ended, or could not be loaded, at `now_ns`. When to try again; `None` for not at all.
    pub fn next_ns(&mut self, now_ns: u64, end: End) -> Option<u64> {
        if end == End::LeftRealTime {
            return Some(now_ns + ASKED_NS);
        }
        let old = |at_ns: &u64| now_ns.saturating_sub(*at_ns) >= WINDOW_NS;
        while self.ends_ns.front().is_some_and(old) {
            self.ends_ns.pop_front();
        }
        self.ends_ns.push_back(now_ns);
        let ends = self.ends_ns.len();
        if ends >= ENDS_MAX {
            return None;
        }
        let doubled_ns = FIRST_NS << (ends - 1).min(32);
        let wait_ns = doubled_ns.min(MOST_NS);
        Some(
            now_ns
                + match end {
                    End::Asked => wait_ns.max(ASKED_NS),
                    _ => wait_ns,
                },
        )
    }

    pub fn ends(&self) -> usize {
        self.ends_ns.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn each_end_doubles_the_wait_until_it_is_enough() {
        let mut backoff = Backoff::default();
        let mut now_ns = 5 * S;
        let mut waits = Vec::new();
        while let Some(next_ns) = backoff.next_ns(now_ns, End::Failed) {
            waits.push((next_ns - now_ns) / S);
            now_ns = next_ns;
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert_eq!(backoff.ends(), ENDS_MAX);
    }

    #[test]
    fn an_hour_later_they_are_forgotten() {
        let mut backoff = Backoff::default();
        for at_s in 0..5 {
            backoff.next_ns(at_s * S, End::Failed);
        }
        let now_ns = 3_603 * S;
        assert_eq!(backoff.next_ns(now_ns, End::Failed), Some(now_ns + 2 * S));
        let now_ns = 9_000 * S;
        assert_eq!(backoff.next_ns(now_ns, End::Failed), Some(now_ns + S));
    }

    #[test]
    fn ends_for_real_time_tasks_wait_half_a_minute_and_are_not_counted() {
        let mut backoff = Backoff::default();
        for at_s in 0..2 * ENDS_MAX as u64 {
            let now_ns = at_s * 35 * S;
            assert_eq!(
                backoff.next_ns(now_ns, End::LeftRealTime),
                Some(now_ns + 30 * S)
            );
        }
        assert_eq!(backoff.ends(), 0);
        assert_eq!(backoff.next_ns(900 * S, End::Failed), Some(901 * S));
    }

    #[test]
    fn an_intended_end_delays_the_reload_by_half_a_minute() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.next_ns(0, End::Asked), Some(30 * S));
        for _ in 0..6 {
            backoff.next_ns(0, End::Asked);
        }
        assert_eq!(backoff.next_ns(0, End::Asked), Some(128 * S));
    }
}
