//! What all gates ask for now: main gates without tasks ask for no headroom.
//!
//! Looked at with every change of the gates and once a second, since tasks come and go without a
//! word to us. Where main gates have none, a poll gives them their headroom again within 20 ms of
//! the first task.

use std::time::Duration;

use tidegate_cgroup::group::GroupPath;
use tidegate_engine::control::Demand;
use tidegate_engine::sync::lock;
use tidegate_terms::Class;
use tracing::debug;

use crate::gates::{Gate, Gates, demand};
use crate::kernel::Kernel;
use crate::runtime::Runtime;
use crate::runtime::supervise::tell_machine;

/// A main gate without tasks for so long asks for no headroom; a restart takes less.
const VACANT_NS: u64 = 1_000_000_000;

/// Whether there is no task in the group, or the group is gone (a unit that is stopped). What
/// cannot be read has tasks.
pub(crate) fn is_empty(kernel: &Kernel, group: &GroupPath) -> bool {
    match kernel.groups.populated(group) {
        Ok(populated) => !populated,
        Err(error) => error.is_gone(),
    }
}

fn empty_mains<'a>(
    runtime: &Runtime,
    gates: impl Iterator<Item = &'a Gate>,
) -> Vec<(GroupPath, u64)> {
    let now_ns = runtime.kernel.clock.now_ns();
    let mut known = lock(&runtime.empty_mains);
    let groups = gates.map(|gate| gate.record.attachment.group());
    let empty = groups.filter(|group| is_empty(&runtime.kernel, group));
    let since = |group: &GroupPath| {
        let before = known.iter().find(|(known, _)| known == group);
        before.map_or(now_ns, |(_, since_ns)| *since_ns)
    };
    let empty: Vec<_> = empty.map(|group| (group.clone(), since(group))).collect();
    known.clone_from(&empty);
    empty
}

pub(crate) fn demand_of(runtime: &Runtime, gates: &[Gate]) -> Demand {
    let mains = gates
        .iter()
        .filter(|gate| gate.class() == Class::Main && gate.terms.headroom.value.ppm().is_some());
    let empty = empty_mains(runtime, mains);
    let now_ns = runtime.kernel.clock.now_ns();
    let has_tasks = |gate: &Gate| {
        let group = gate.record.attachment.group();
        let since = empty.iter().find(|(empty, _)| empty == group);
        since.is_none_or(|(_, since_ns)| now_ns.saturating_sub(*since_ns) < VACANT_NS)
    };
    let with_tasks = gates.iter().filter(|gate| has_tasks(gate));
    Demand {
        // A promise to side work, whichever main is there.
        tolerance_ppm: demand(gates.iter(), &runtime.settings).tolerance_ppm,
        ..demand(with_tasks, &runtime.settings)
    }
}

/// Main gates may have got or lost their tasks since the gates changed.
pub(crate) fn poll_demand(registry: &Gates, runtime: &Runtime) {
    let gates = registry.lock();
    let demand = demand_of(runtime, &gates);
    // Under the gates' lock: a change of them that comes meanwhile is not overwritten.
    if runtime.control().set_demand(demand) {
        runtime.control_loop.wake.now();
    }
}

const POLL_NS: u64 = 20_000_000;
/// With hundreds of them a poll takes so long that it comes less often, at most this part of the
/// time.
const POLL_PART: u64 = 500;
/// At least so often, also after a poll that was held up (an agent that leaves waits for it), and
/// while every main gate has tasks: one that is found empty asks for its headroom for as long.
const POLL_MAX_NS: u64 = 1_000_000_000;

/// Until the next poll, when the last one took so long.
pub(crate) fn period(runtime: &Runtime, took_ns: u64) -> Duration {
    let pause_ns = match lock(&runtime.empty_mains).is_empty() {
        true => POLL_MAX_NS,
        false => (took_ns * POLL_PART).clamp(POLL_NS, POLL_MAX_NS),
    };
    Duration::from_nanos(pause_ns)
}

pub(crate) fn poll_vacant(registry: &Gates, runtime: &Runtime) -> u64 {
    let clock = &runtime.kernel.clock;
    let empty = lock(&runtime.empty_mains).clone();
    let began_ns = clock.now_ns();
    let back = empty
        .iter()
        .find(|(group, _)| !is_empty(&runtime.kernel, group));
    let took_ns = clock.now_ns().saturating_sub(began_ns);
    if let Some((group, _)) = back {
        debug!("{group} has tasks again");
        poll_demand(registry, runtime);
        tell_machine(runtime);
    }
    took_ns
}
