//! What was written to kernel files, for `explain` and `status`.

use std::collections::{BTreeMap, VecDeque};

use tidegate_cgroup::bandwidth::Bandwidth;

const WRITES_KEPT: usize = 64;

const COUNTED_NS: u64 = 10_000_000_000;

#[derive(Clone, Debug)]
pub struct Write {
    pub at_ns: u64,
    pub path: String,
    pub value: String,
    pub was: Option<String>,
    pub reason: String,
}

#[derive(Default)]
pub struct WriteLog {
    kept: VecDeque<Write>,
    total: u64,
    by_reason: BTreeMap<String, u64>,
    quotas_ns: VecDeque<u64>,
}

impl WriteLog {
    pub fn add(&mut self, write: Write) {
        if self.kept.len() == WRITES_KEPT {
            self.kept.pop_front();
        }
        match self.by_reason.get_mut(&write.reason) {
            Some(count) => *count += 1,
            None => drop(self.by_reason.insert(write.reason.clone(), 1)),
        }
        self.kept.push_back(write);
        self.total += 1;
    }

    pub fn add_quota(&mut self, write: Write) {
        let since_ns = write.at_ns.saturating_sub(COUNTED_NS);
        while self
            .quotas_ns
            .front()
            .is_some_and(|at_ns| *at_ns < since_ns)
        {
            self.quotas_ns.pop_front();
        }
        self.quotas_ns.push_back(write.at_ns);
        self.add(write);
    }

    pub fn newest(&self) -> impl Iterator<Item = &Write> {
        self.kept.iter().rev()
    }

    pub fn total(&self) -> u64 {
        self.total
    }

    pub fn by_reason(&self) -> &BTreeMap<String, u64> {
        &self.by_reason
    }

    pub fn quotas_per_second(&self, now_ns: u64) -> f64 {
        let since_ns = now_ns.saturating_sub(COUNTED_NS);
        let count = self
            .quotas_ns
            .iter()
            .filter(|at_ns| **at_ns >= since_ns)
            .count();
        count as f64 * 1e9 / COUNTED_NS as f64
    }
}

pub fn describe(bandwidth: &Bandwidth) -> String {
    match bandwidth.quota_us {
        Some(quota_us) => {
            let cpus = quota_us as f64 / bandwidth.period_us as f64;
            format!(
                "{quota_us} us per {} us ({cpus:.2} CPUs)",
                bandwidth.period_us
            )
        }
        None => "no quota".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_newest_and_counts_all() {
        let mut log = WriteLog::default();
        for at_ns in 0..100 {
            let write = Write {
                at_ns: at_ns * 1_000_000_000,
                path: "/side".into(),
                value: at_ns.to_string(),
                was: None,
                reason: "cut".into(),
            };
            log.add_quota(write);
        }
        assert_eq!(log.total(), 100);
        assert_eq!(log.by_reason().get("cut"), Some(&100));
        assert_eq!(log.newest().count(), WRITES_KEPT);
        assert_eq!(
            log.newest().next().map(|write| write.value.as_str()),
            Some("99")
        );
        assert_eq!(
            log.quotas_per_second(99_000_000_000),
            1.1,
            "the ends of ten seconds both count"
        );
    }
}
