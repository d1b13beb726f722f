//! The pure planner of idle kept in space: which CPUs side work is confined to, so that main's wakeups find whole cores free.
//!
//! A share of the machine can be kept idle in time (side work everywhere, stopped for a part of each period) or in space (side
//! work on few CPUs, the others free). Two threads of a core are slower than one, so idle that is one sibling of each core is no
//! idle for main: space goes first, and the quota does what is left of a core.
//!
//! - The set is whole cores: as few as hold the allowance. The quota on top is the allowance itself.
//! - Cores are given one cache after the other, so that as many caches as possible are main's alone, and each set of `n` cores is part of that
//!   of `n + 1`, so that a change moves as few threads as it can.
//! - It grows as soon as the allowance has outgrown it, since side work could not use what it is given, and shrinks when less has been
//!   enough for [`SpaceConfig::shrink_after_ns`]: a change moves threads and takes locks of the whole machine, and main's step is answered by
//!   the quota. A growth waits for [`SpaceConfig::grow_gap_ns`] after the last change.
//! - Only CPUs that are `allowed` (others' cpusets, hotplug) are taken, and never none of them: where nothing is allowed there is no plan.
//!
//! Nothing here reads a clock or a file.

use crate::topology::{Core, Topology};

/// How often whoever drives the planner looks.
pub const LOOK_NS: u64 = 100_000_000;

/// Tuning of the planner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceConfig {
    /// A smaller set must have been enough for this long.
    pub shrink_after_ns: u64,
    /// Least time from any change to a growth.
    pub grow_gap_ns: u64,
}

impl Default for SpaceConfig {
    fn default() -> Self {
        Self {
            shrink_after_ns: 1_000_000_000,
            grow_gap_ns: 100_000_000,
        }
    }
}

/// Which CPUs side work has.
#[derive(Clone, Debug)]
pub struct Space {
    config: SpaceConfig,
    /// Cores in the order in which side work gets them, allowed CPUs only.
    order: Vec<Core>,
    /// Cores of it that stand; 0 before the first plan.
    standing: usize,
    changed_ns: u64,
    /// Since when fewer would have been enough, and the most that was needed since.
    slack: Option<(u64, usize)>,
}

impl Space {
    /// A planner that knows no CPU yet.
    pub fn new(config: SpaceConfig) -> Self {
        Self {
            config,
            order: Vec::new(),
            standing: 0,
            changed_ns: 0,
            slack: None,
        }
    }

    /// The machine and which of its CPUs side work may have: at the start, after a hotplug, when somebody else's cpuset changed. What
    /// stands is planned anew where that makes a difference.
    pub fn set_cpus(&mut self, topology: &Topology, allowed: &[u32]) {
        let order = order(topology, allowed);
        if order != self.order {
            self.order = order;
            self.forget();
        }
    }

    /// What stands is unknown (a failed write, somebody else's): the next step plans anew.
    pub fn forget(&mut self) {
        self.standing = 0;
        self.slack = None;
    }

    /// The CPUs that stand, ascending; empty before the first plan.
    pub fn standing(&self) -> Vec<u32> {
        self.first(self.standing)
    }

    /// The CPUs that side work is to be confined to from now on, where that changes.
    pub fn step(&mut self, now_ns: u64, allowance_ucpu: u64) -> Option<Vec<u32>> {
        let needed = self.needed(allowance_ucpu)?;
        if self.standing == 0 {
            return Some(self.change(now_ns, needed));
        }
        if needed >= self.standing {
            self.slack = None;
            let rested = now_ns.saturating_sub(self.changed_ns) >= self.config.grow_gap_ns;
            return (needed > self.standing && rested).then(|| self.change(now_ns, needed));
        }
        let (since_ns, most) = self.slack.unwrap_or((now_ns, needed));
        let most = most.max(needed);
        self.slack = Some((since_ns, most));
        let due = now_ns.saturating_sub(since_ns) >= self.config.shrink_after_ns;
        due.then(|| self.change(now_ns, most))
    }

    fn change(&mut self, now_ns: u64, cores: usize) -> Vec<u32> {
        self.standing = cores;
        self.changed_ns = now_ns;
        self.slack = None;
        self.first(cores)
    }

    /// Cores that hold the allowance, at least one; `None` where no CPU is allowed.
    fn needed(&self, allowance_ucpu: u64) -> Option<usize> {
        let mut room_ucpu = 0_u64;
        for (nth, core) in self.order.iter().enumerate() {
            // A core has a few threads.
            room_ucpu += core.cpus.len() as u64 * 1_000_000;
            if room_ucpu >= allowance_ucpu {
                return Some(nth + 1);
            }
        }
        (!self.order.is_empty()).then_some(self.order.len())
    }

    fn first(&self, cores: usize) -> Vec<u32> {
        let mut cpus: Vec<u32> = self.order[..cores]
            .iter()
            .flat_map(|core| core.cpus.iter().copied())
            .collect();
        cpus.sort_unstable();
        cpus
    }
}

/// The allowed part of the cores, the last first: CPU 0 and its neighbours, where the kernel's own work and most interrupts are, stay
/// main's for longest.
fn order(topology: &Topology, allowed: &[u32]) -> Vec<Core> {
    let mut order: Vec<Core> = topology.cores().iter().rev().cloned().collect();
    for core in &mut order {
        core.cpus.retain(|cpu| allowed.binary_search(cpu).is_ok());
    }
    order.retain(|core| !core.cpus.is_empty());
    order
}
