//! The pure planner of idle kept by the cpuset: which CPUs side work is confined to, so that main's
//! wakeups find whole cores free.
//!
//! A share of the machine can be kept idle by a quota (side work everywhere, throttled for a part
//! of each period) or by a cpuset (side work on few CPUs, the others free). Two threads of a core
//! are slower than one, so idle that is one sibling of each core is no idle for main: the cpuset
//! takes whole cores, and the quota limits the remaining fraction of a core.
//!
//! - The set is whole cores: as few as hold the allowance. The quota on top is the allowance
//!   itself.
//! - Cores are given one cache after the other, so that as many caches as possible are main's alone
//!   (`core_order.rs`), and each set of `n` cores is part of that of `n + 1`, so that a change
//!   moves as few threads as it can.
//! - It grows as soon as the allowance has outgrown it, since side work could not use what it is
//!   given, and shrinks when less has been enough for [`SHRINK_AFTER_NS`]: a
//!   change moves threads and takes locks of the whole machine, and main's step is answered by the
//!   quota. A growth waits for [`GROW_GAP_NS`] after the last change.
//! - Only CPUs that are `allowed` (others' cpusets, hotplug) are taken, and never none of them:
//!   where nothing is allowed there is no plan.
//!
//! Nothing here reads a clock or a file.

use crate::core_order::CoreOrder;
use tidegate_cgroup::topology::{Core, Topology};

pub const POLL_NS: u64 = 100_000_000;

/// A smaller set must have been enough for this long.
const SHRINK_AFTER_NS: u64 = 1_000_000_000;
/// Least time from any change to a growth.
pub const GROW_GAP_NS: u64 = 100_000_000;

/// Whether side work may have every CPU: no idle was to be kept for a while. A level that comes and
/// goes with main would else move every process each time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Release {
    kept_ns: Option<u64>,
}

impl Release {
    const AFTER_NS: u64 = 30_000_000_000;

    pub fn is_due(&mut self, keeps_idle: bool, now_ns: u64) -> bool {
        if keeps_idle {
            self.kept_ns = Some(now_ns);
        }
        let since = |kept_ns: u64| now_ns.saturating_sub(kept_ns);
        !keeps_idle
            && self
                .kept_ns
                .is_none_or(|kept| since(kept) >= Self::AFTER_NS)
    }
}

#[derive(Clone, Debug, Default)]
pub struct CpusetPlanner {
    /// Cores in the order in which side work gets them.
    order: CoreOrder,
    cores: Vec<Core>,
    allowed: Vec<u32>,
    /// Cores that stand; 0 before the first plan.
    standing: usize,
    changed_ns: u64,
    /// Since when fewer would have been enough, and the most that was needed since.
    slack: Option<(u64, usize)>,
}

impl CpusetPlanner {
    /// The machine, and which of its CPUs side work may have (ascending): at the start, after a
    /// hotplug, when another program's cpuset changed. What stands is planned again where that
    /// makes a difference.
    pub fn set_cpus(&mut self, topology: &Topology, allowed: &[u32]) {
        self.order.set_topology(topology);
        self.allowed = allowed.to_vec();
        self.set_cores();
    }

    /// Main's time on each CPU since some beginning, by the number of the CPU: once a second. The
    /// cores of the caches where main runs are given last from then on.
    pub fn note_main(&mut self, main_ns: &[u64]) {
        if self.order.note_main(main_ns) {
            self.set_cores();
        }
    }

    fn set_cores(&mut self) {
        let cores = self.order.cores(&self.allowed);
        if cores != self.cores {
            self.cores = cores;
            self.forget();
        }
    }

    /// What stands is unknown (a failed write, another program's): the next step plans from the
    /// start.
    pub fn forget(&mut self) {
        self.standing = 0;
        self.slack = None;
    }

    /// The CPUs that stand, ascending; empty before the first plan.
    pub fn standing(&self) -> Vec<u32> {
        self.first(self.standing)
    }

    /// The CPUs that side work, which may use `allowance_ucpu`, is to be confined to from now on,
    /// where that changes.
    pub fn step(&mut self, now_ns: u64, allowance_ucpu: u64) -> Option<Vec<u32>> {
        let needed = self.needed(allowance_ucpu)?;
        if self.standing == 0 {
            return Some(self.change(now_ns, needed));
        }
        if needed >= self.standing {
            self.slack = None;
            let rested = now_ns.saturating_sub(self.changed_ns) >= GROW_GAP_NS;
            return (needed > self.standing && rested).then(|| self.change(now_ns, needed));
        }
        let (since_ns, most) = self.slack.unwrap_or((now_ns, needed));
        let most = most.max(needed);
        self.slack = Some((since_ns, most));
        let due = now_ns.saturating_sub(since_ns) >= SHRINK_AFTER_NS;
        due.then(|| self.change(now_ns, most))
    }

    fn change(&mut self, now_ns: u64, cores: usize) -> Vec<u32> {
        self.standing = cores;
        self.changed_ns = now_ns;
        self.slack = None;
        self.first(cores)
    }

    /// Cores that hold the allowance, at least one, or all; `None` where there is nothing to give.
    fn needed(&self, allowance_ucpu: u64) -> Option<usize> {
        let all = (!self.cores.is_empty()).then_some(self.cores.len())?;
        let mut room_ucpu = 0_u64;
        for (nth, core) in self.cores.iter().enumerate() {
            // A core has a few threads.
            room_ucpu += core.cpus.len() as u64 * 1_000_000;
            if room_ucpu >= allowance_ucpu {
                return Some(nth + 1);
            }
        }
        Some(all)
    }

    fn first(&self, cores: usize) -> Vec<u32> {
        let given = self.cores.iter().take(cores);
        let mut cpus: Vec<u32> = given.flat_map(|core| core.cpus.iter().copied()).collect();
        cpus.sort_unstable();
        cpus
    }
}
