//! What the scheduler counts of a gate, as it is shown: each one begins at nothing, and the totals
//! go on.

use std::collections::BTreeMap;

use tidegate_api::{CapCounts, GateCounts, QuotaCounts};
use tidegate_cgroup::group::CpuStat;
use tidegate_sched_ext::{CapScope, CapStat, LimitStat, WorkStat};

use super::kernel::Scheduler;

pub(crate) fn cap_counts(cap: &CapStat) -> CapCounts {
    let terms = &cap.terms;
    let is_one = terms.scope == CapScope::Group;
    let seconds = |us: u64| us as f64 / 1e6;
    let cpus = |ppt: u32| f64::from(ppt) / 1e3;
    let level = |us: i64, asked: Option<u32>| asked.filter(|_| is_one).map(|_| us as f64);
    CapCounts {
        hard_cpus: terms.hard_ppt.map(cpus),
        soft_cpus: terms.soft_ppt.map(cpus),
        scope: terms.scope.to_string(),
        buckets: cap.buckets,
        level_us: level(cap.level_us, terms.hard_ppt),
        soft_level_us: level(cap.soft_level_us, terms.soft_ppt),
        used_seconds: seconds(cap.used_us),
        background_seconds: seconds(cap.background_us),
        background_cpus: 0.0,
        throttles: cap.throttles,
        throttled_seconds: seconds(cap.throttled_us),
        min_runs: cap.min_runs,
    }
}

pub(crate) fn gate_counts(work: &WorkStat) -> GateCounts {
    let us = |ns: u64| ns as f64 / 1e3;
    let delays = &work.run_delay;
    GateCounts {
        used_seconds: work.used_ns() as f64 / 1e9,
        background_seconds: work.background_ns as f64 / 1e9,
        wakeups: delays.count(),
        delay_mean_us: us(delays.mean_ns()),
        delay_p50_us: us(delays.quantile_ns(500)),
        delay_p99_us: us(delays.quantile_ns(990)),
        delay_longest_us: us(delays.longest_ns),
        cap: None,
    }
}

/// What schedulers that are no more have counted, by cgroup id.
#[derive(Default)]
pub(crate) struct Earlier {
    work: BTreeMap<u64, WorkStat>,
    limits: BTreeMap<u64, CpuStat>,
}

impl Earlier {
    /// A scheduler has ended: what it has counted is kept.
    pub fn take_in<'a>(&mut self, ended: &dyn Scheduler, gates: impl Iterator<Item = &'a u64>) {
        for id in gates {
            if let Some(work) = ended.work(*id) {
                self.work.entry(*id).or_default().add(&work);
            }
        }
        for limit in ended.limits() {
            let kept = self.limits.entry(limit.cgroup_id).or_default();
            *kept = kept.plus(quota_counts(&limit));
        }
    }

    /// Gates that are no more are forgotten: one that comes there later begins at nothing.
    pub fn keep_work_of<T>(&mut self, gates: &BTreeMap<u64, T>) {
        self.work.retain(|id, _| gates.contains_key(id));
    }

    /// The gate is gone; one that comes there later begins at nothing.
    pub fn forget(&mut self, id: u64) {
        self.work.remove(&id);
    }

    /// A gate's work, with what the scheduler that is there now has counted.
    pub fn work(&self, id: u64, now: Option<WorkStat>) -> Option<WorkStat> {
        let mut all = now?;
        if let Some(work) = self.work.get(&id) {
            all.add(work);
        }
        Some(all)
    }

    pub fn limit(&self, id: u64) -> CpuStat {
        self.limits.get(&id).copied().unwrap_or_default()
    }
}

pub(crate) fn quota_sum(limits: &[LimitStat]) -> QuotaCounts {
    let sum = |of: fn(&LimitStat) -> u64| limits.iter().map(of).sum::<u64>();
    QuotaCounts {
        groups: limits.len() as u64,
        periods: sum(|limit| limit.nr_periods),
        throttled: sum(|limit| limit.nr_throttled),
        throttled_seconds: sum(|limit| limit.throttled_us) as f64 / 1e6,
        bursts: sum(|limit| limit.nr_bursts),
    }
}

pub(crate) fn quota_counts(limit: &LimitStat) -> CpuStat {
    CpuStat {
        nr_periods: limit.nr_periods,
        nr_throttled: limit.nr_throttled,
        throttled_ns: limit.throttled_us * 1_000,
        nr_bursts: limit.nr_bursts,
        burst_ns: limit.burst_used_us * 1_000,
    }
}
