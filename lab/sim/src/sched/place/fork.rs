//! Where a new task goes: the idlest cache, in it the idlest core, in it the idlest CPU (the slow
//! path, sched_balance_find_dst_cpu).

use super::{IMBALANCE_PERCENT, Room, fallback, is_idle, only_idle_policy};
use crate::Ns;
use crate::ids::{CpuId, TaskId};
use crate::kernel::Kernel;
use crate::sched::Fair;

/// The CPU for a new task: the idlest cache, in it the idlest core, in it the idlest CPU.
pub(crate) fn idlest_cpu(k: &Kernel, loads: &Fair, task: TaskId, parent: CpuId) -> CpuId {
    let topology = &k.cfg.topology;
    let llc = idlest(
        k,
        loads,
        task,
        topology.llc_of(parent),
        topology.llcs(),
        |llc| topology.llc_cpus(llc),
    );
    let cores = topology.cpus_per_llc() / topology.threads_per_core();
    let local = if llc == topology.llc_of(parent) {
        topology.core_of(parent)
    } else {
        llc * cores
    };
    let core = idlest(k, loads, task, local % cores, cores, |core| {
        topology.core_cpus(llc * cores + core % cores)
    });
    let mut best: Option<(bool, Ns, std::cmp::Reverse<u64>, CpuId)> = None;
    for cpu in topology.core_cpus(llc * cores + core).map(CpuId) {
        if !k.allowed(task, cpu) {
            continue;
        }
        if only_idle_policy(k, cpu) {
            return cpu;
        }
        let idle = is_idle(k, cpu);
        let since = if idle {
            k.cpus[cpu.index()].idle_since
        } else {
            0
        };
        let rank = (idle, since, std::cmp::Reverse(loads.cpu_load(cpu)));
        // On a tie the lower number stays.
        if best.is_none_or(|(idle, since, load, _)| rank > (idle, since, load)) {
            best = Some((rank.0, rank.1, rank.2, cpu));
        }
    }
    best.map_or_else(|| fallback(k, task, parent), |best| best.3)
}

/// The idlest of `groups` (sched_balance_find_dst_group): the local one unless another is clearly
/// idler.
fn idlest<R: Iterator<Item = u32>>(
    k: &Kernel,
    loads: &Fair,
    task: TaskId,
    local: u32,
    groups: u32,
    cpus_of: impl Fn(u32) -> R,
) -> u32 {
    let stand = |group: u32| {
        let (mut cpus, mut idle, mut running, mut load) = (0u32, 0u32, 0u32, 0u64);
        for cpu in cpus_of(group)
            .map(CpuId)
            .filter(|&cpu| k.allowed(task, cpu))
        {
            cpus += 1;
            running += k.cpus[cpu.index()].nr_runnable;
            idle += u32::from(is_idle(k, cpu));
            load += if is_idle(k, cpu) {
                0
            } else {
                loads.cpu_load(cpu)
            };
        }
        (cpus > 0).then(|| (Room::of(running, cpus), idle, load / u64::from(cpus)))
    };
    let here = stand(local);
    let mut best: Option<(u32, (Room, u32, u64))> = None;
    for group in (local + 1..groups).chain(0..local) {
        let Some(there) = stand(group) else { continue };
        let better = best.is_none_or(|(_, best)| match there.0.cmp(&best.0) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Greater => false,
            std::cmp::Ordering::Equal if there.0 == Room::Spare => there.1 > best.1,
            std::cmp::Ordering::Equal => there.2 < best.2,
        });
        if better {
            best = Some((group, there));
        }
    }
    let (Some((group, there)), Some(here)) = (best, here) else {
        return if here.is_some() {
            local
        } else {
            best.map_or(local, |best| best.0)
        };
    };
    let stay = match here.0.cmp(&there.0) {
        std::cmp::Ordering::Less => true,
        std::cmp::Ordering::Greater => false,
        std::cmp::Ordering::Equal if here.0 == Room::Spare => here.1 >= there.1,
        // The kernel's other test (more than 17 % of a default task) follows from this one.
        std::cmp::Ordering::Equal => here.2 * 100 <= there.2 * IMBALANCE_PERCENT,
    };
    if stay { local } else { group }
}
