//! What the engine steers beside headroom and soft caps: adaptive bursts.

use tidegate_law::burst::{self, AutoBurst, Evidence};

use super::ports::Queue;
use super::terms::AutoBurstOf;
use crate::machine::Machine;
use crate::{Bandwidth, Ns};

/// Evidence is gathered over this long.
const WINDOW_NS: u64 = 100_000_000;
/// A write refills the pool, so a change of burst is written only when it is a tenth of the quota.
const WORTH_PPM: u64 = 100_000;

/// The law of adaptive burst over one group.
pub(super) struct Auto {
    of: AutoBurstOf,
    law: AutoBurst,
    since: Option<Seen>,
    written_us: u64,
}

#[derive(Clone, Copy)]
struct Seen {
    at_ns: Ns,
    used_ns: u64,
    idle_ns: u64,
    throttled: u64,
}

impl Auto {
    pub(super) fn new(of: &AutoBurstOf) -> Self {
        Self {
            of: *of,
            law: AutoBurst::new(burst::Config::default()),
            since: None,
            written_us: of.bandwidth.burst_us,
        }
    }

    pub(super) fn step(&mut self, machine: &Machine, queue: &mut Queue<'_>) {
        let now = Seen {
            at_ns: machine.now_ns(),
            used_ns: machine.usage_ns(self.of.group),
            idle_ns: machine.idle_ns(),
            throttled: machine.bandwidth_stat(self.of.group).nr_throttled,
        };
        let Some(since) = self.since else {
            self.since = Some(now);
            return;
        };
        let dt_ns = now.at_ns - since.at_ns;
        let Some(quota_us) = self.of.bandwidth.quota_us else {
            return;
        };
        if dt_ns < WINDOW_NS {
            return;
        }
        self.since = Some(now);
        let evidence = Evidence {
            dt_ns,
            quota_ns: quota_us * 1_000,
            period_ns: self.of.bandwidth.period_us * 1_000,
            used_ns: now.used_ns - since.used_ns,
            room_ns: self.of.room_ns,
            capacity_ns: dt_ns * u64::from(machine.cpus()),
            idle_ns: now.idle_ns - since.idle_ns,
            throttled: (now.throttled - since.throttled) as u32,
            ..Evidence::default()
        }
        .vouched(true);
        let burst_us = (self.law.step(&evidence) / 1_000).min(quota_us);
        let worth_us = quota_us * WORTH_PPM / 1_000_000;
        if burst_us.abs_diff(self.written_us) >= worth_us.max(1)
            || (burst_us == quota_us && self.written_us != quota_us)
        {
            self.written_us = burst_us;
            let bandwidth = Bandwidth {
                burst_us,
                ..self.of.bandwidth
            };
            queue.set_bandwidth(self.of.group, bandwidth);
        }
    }
}
