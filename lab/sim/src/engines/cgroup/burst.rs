//! What the engine steers beside headroom and soft caps: adaptive bursts.

use tidegate_engine::control::{BurstLoop, BurstSeen};

use super::ports::Queue;
use super::terms::AutoBurstOf;
use crate::machine::Machine;

/// The agent's own loop of adaptive burst over one group.
pub(super) struct Auto {
    of: AutoBurstOf,
    auto: BurstLoop,
}

impl Auto {
    pub(super) fn new(of: &AutoBurstOf) -> Self {
        Self {
            of: *of,
            auto: BurstLoop::new(of.bandwidth),
        }
    }

    pub(super) fn step(&mut self, machine: &Machine, queue: &mut Queue<'_>) {
        let now_ns = machine.now_ns();
        if !self.auto.is_due(now_ns) {
            return;
        }
        let now = BurstSeen {
            at_ns: now_ns,
            used_ns: machine.usage_ns(self.of.group),
            nr_throttled: machine.bandwidth_stat(self.of.group).nr_throttled,
            machine_at_ns: now_ns,
            capacity_ns: now_ns * u64::from(machine.cpus()),
            idle_ns: machine.idle_ns(),
        };
        if let Some(limit) = self.auto.step(&now, self.of.room_ns) {
            queue.set_bandwidth(self.of.group, limit);
        }
    }
}
