//! An arm that is tried here and not in the product yet: the engine on kernel files with its idle kept
//! in space. The quota is the engine's own; beside it side work is confined to whole cores, as many as
//! hold its allowance, so that the cores that main wakes up on have no busy sibling.

use std::sync::{Arc, Mutex, PoisonError};

use tidegate_sim::engines::knobs::KnobsLog;
use tidegate_sim::{Controller, CpuSet, GroupId, Machine, Ns};

use super::stage::MS;

/// How often it looks.
const LOOK_NS: Ns = 20 * MS;
/// A smaller pool must have been enough for this long: each change moves threads.
const SHRINK_NS: Ns = 200 * MS;

/// The controller.
pub struct Cores {
    log: Arc<Mutex<KnobsLog>>,
    side: GroupId,
    /// CPUs in the pool now; 0 before the first look.
    pool: u32,
    /// Since when less would have been enough, and the most that was needed since.
    slack: Option<(Ns, u32)>,
}

impl Cores {
    /// Beside the engine whose log this is.
    pub fn new(log: Arc<Mutex<KnobsLog>>, side: GroupId) -> Self {
        Cores {
            log,
            side,
            pool: 0,
            slack: None,
        }
    }

    /// CPUs of whole cores that hold the allowance.
    fn needed(&self, machine: &Machine) -> u32 {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let threads = machine.config().topology.threads_per_core();
        // At most the machine's CPUs, 2^13 · 10^6 before the division.
        let cpus = log.decision.allowance_ucpu.div_ceil(1_000_000) as u32;
        cpus.next_multiple_of(threads)
            .clamp(threads, machine.cpus())
    }

    fn decide(&mut self, now_ns: Ns, needed: u32) -> u32 {
        if needed >= self.pool {
            self.slack = None;
            return needed;
        }
        let (since_ns, most) = self.slack.unwrap_or((now_ns, needed));
        let most = most.max(needed);
        if now_ns >= since_ns + SHRINK_NS {
            self.slack = None;
            return most;
        }
        self.slack = Some((since_ns, most));
        self.pool
    }
}

impl Controller for Cores {
    fn first_ns(&self) -> Ns {
        LOOK_NS
    }

    fn step(&mut self, machine: &mut Machine) -> Ns {
        let needed = self.needed(machine);
        let pool = self.decide(machine.now_ns(), needed);
        let all = machine.cpus();
        // The last CPUs, so that the pool is whole caches as far as it goes.
        let set = CpuSet::range(all - pool..all);
        if pool != self.pool && machine.set_cpuset(self.side, set).is_ok() {
            self.pool = pool;
        }
        machine.now_ns() + LOOK_NS
    }

    fn name(&self) -> &str {
        "whole cores"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_grows_at_once_and_shrinks_to_what_was_needed_meanwhile() {
        let mut cores = Cores::new(Arc::default(), GroupId(2));
        cores.pool = cores.decide(0, 8);
        assert_eq!(cores.pool, 8);
        assert_eq!(cores.decide(MS, 4), 8, "not yet");
        assert_eq!(cores.decide(100 * MS, 6), 8);
        assert_eq!(cores.decide(201 * MS, 4), 6);
        assert_eq!(cores.decide(202 * MS, 10), 10);
    }
}
