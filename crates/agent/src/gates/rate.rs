//! How often one user may change gates: each change can rewrite a quota, and a rewrite is a refill,
//! so a caller without a rate limit could evade any quota.

use std::collections::BTreeMap;

const BURST: u64 = 40;
const REFILL_NS: u64 = 100_000_000;
/// Users remembered; more than this many at once start afresh, which loosens nothing for any one of
/// them by more than BURST.
const USERS_MAX: usize = 1024;

#[derive(Default)]
pub struct RateLimit {
    users: BTreeMap<u32, (u64, u64)>,
}

impl RateLimit {
    /// Whether `uid` may make a change at `now_ns`. Root may always: it has other ways.
    pub fn admit(&mut self, uid: u32, now_ns: u64) -> bool {
        if uid == 0 {
            return true;
        }
        if self.users.len() >= USERS_MAX && !self.users.contains_key(&uid) {
            self.users.clear();
        }
        let (tokens, since_ns) = self.users.entry(uid).or_insert((BURST, now_ns));
        let come_back = now_ns.saturating_sub(*since_ns) / REFILL_NS;
        *tokens = (*tokens + come_back).min(BURST);
        *since_ns += come_back * REFILL_NS;
        if *tokens == 0 {
            return false;
        }
        *tokens -= 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_then_ten_a_second() {
        let mut rate = RateLimit::default();
        let passed = (0..1000).filter(|_| rate.admit(1000, 5)).count() as u64;
        assert_eq!(passed, BURST);
        assert!(
            rate.admit(1001, 5),
            "another user has a bucket of their own"
        );
        let mut later = 0;
        for ms in 0..1000 {
            later += u64::from(rate.admit(1000, 5 + ms * 1_000_000));
        }
        assert!((9..=10).contains(&later), "{later}");
        assert!((0..1000).all(|_| rate.admit(0, 5)), "root is not limited");
    }
}
