//! The CPU to pull from, and how much (sched_balance_find_src_group, calculate_imbalance).

use super::{Idle, Level, Search, group_of, span};
use crate::cpuset::CpuSet;
use crate::ids::CpuId;
use crate::kernel::Kernel;
use crate::sched::Fair;
use crate::sched::place::{Room, is_idle};

/// imbalance_pct of a level above the core's.
const IMBALANCE_PERCENT: u64 = 117;

/// How a group of CPUs stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stats {
    cpus: u32,
    idle: u32,
    running: u32,
    load: u64,
}

impl Stats {
    fn room(&self) -> Room {
        Room::of(self.running, self.cpus)
    }

    fn avg_load(&self) -> u64 {
        self.load / u64::from(self.cpus)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Amount {
    Tasks(u32),
    Load(u64),
}

/// Of a group the first idle CPU of an idle core, else the first idle CPU, else the first
/// (should_we_balance).
pub(super) fn balances_for_its_group(k: &Kernel, cpu: CpuId, level: Level) -> bool {
    let group = group_of(k, cpu.0, level);
    let mut idle_thread = None;
    for candidate in group.clone().map(CpuId) {
        if !is_idle(k, candidate) {
            continue;
        }
        let whole = k
            .cfg
            .topology
            .siblings(candidate)
            .all(|sibling| is_idle(k, CpuId(sibling)));
        if level == Level::Core || whole {
            return candidate == cpu;
        }
        idle_thread = idle_thread.or(Some(candidate));
    }
    idle_thread.map_or(group.start == cpu.0, |idle| idle == cpu)
}

fn stats(k: &Kernel, sched: &Fair, group: std::ops::Range<u32>, without: &CpuSet) -> Stats {
    let mut stats = Stats {
        cpus: 0,
        idle: 0,
        running: 0,
        load: 0,
    };
    for cpu in group.map(CpuId).filter(|&cpu| !without.contains(cpu)) {
        stats.cpus += 1;
        stats.running += k.cpus[cpu.index()].nr_runnable;
        if is_idle(k, cpu) {
            stats.idle += 1;
        } else {
            stats.load += sched.cpu_load(cpu);
        }
    }
    stats
}

/// The CPU to pull from and how much.
pub(super) fn find_busiest(k: &Kernel, sched: &Fair, search: &Search) -> Option<(CpuId, Amount)> {
    let &Search {
        dst, level, idle, ..
    } = search;
    let span = span(k, dst, level);
    let local = group_of(k, dst.0, level);
    // A CPU that is about to idle takes what waits; a running task it could not have.
    let mut busiest: Option<(std::ops::Range<u32>, Stats)> = None;
    let mut total = (0u32, 0u64);
    let mut cpu = span.start;
    while cpu < span.end {
        let group = group_of(k, cpu, level);
        cpu = group.end;
        if group == local || (idle == Idle::New && !any_in(&k.crowded, &group)) {
            continue;
        }
        let there = stats(k, sched, group.clone(), &search.without);
        total = (total.0 + there.cpus, total.1 + there.load);
        if there.running == 0 {
            continue;
        }
        let busier =
            busiest
                .as_ref()
                .is_none_or(|(_, best)| match there.room().cmp(&best.room()) {
                    std::cmp::Ordering::Greater => true,
                    std::cmp::Ordering::Less => false,
                    std::cmp::Ordering::Equal if there.room() == Room::Overloaded => {
                        there.avg_load() > best.avg_load()
                    }
                    std::cmp::Ordering::Equal if there.idle == best.idle => {
                        there.running > best.running
                    }
                    std::cmp::Ordering::Equal => there.idle < best.idle,
                });
        if busier {
            busiest = Some((group, there));
        }
    }
    let (group, there) = busiest?;
    let here = stats(k, sched, local, &CpuSet::EMPTY);
    let mean = (total.1 + here.load) / u64::from(total.0 + here.cpus);
    let prefer_sibling = level == Level::Machine || k.cfg.topology.threads_per_core() > 1;
    let amount = amount(&here, &there, mean, level, idle != Idle::No, prefer_sibling)?;
    let rank = |cpu: &CpuId| match amount {
        Amount::Tasks(_) => u64::from(k.cpus[cpu.index()].nr_runnable),
        // A CPU with one task has none to give, whatever its load.
        Amount::Load(_) if k.cpus[cpu.index()].nr_runnable > 1 => sched.cpu_load(*cpu),
        Amount::Load(_) => 0,
    };
    // Of equals the first.
    let candidates = group
        .map(CpuId)
        .filter(|&cpu| !search.without.contains(cpu));
    let src = candidates.rev().max_by_key(rank)?;
    (rank(&src) > 0).then_some((src, amount))
}

fn any_in(set: &CpuSet, range: &std::ops::Range<u32>) -> bool {
    set.next_from(CpuId(range.start))
        .is_some_and(|cpu| cpu.0 < range.end)
}

/// How much the local group should take (sched_balance_find_src_group, calculate_imbalance).
fn amount(
    here: &Stats,
    there: &Stats,
    mean_load: u64,
    level: Level,
    idle: bool,
    prefer_sibling: bool,
) -> Option<Amount> {
    if here.room() > there.room() {
        return None;
    }
    let more_tasks = if idle {
        there.running.saturating_sub(here.running)
    } else {
        0
    };
    let by_siblings = prefer_sibling && level != Level::Core;
    if here.room() == Room::Overloaded
        && 100 * there.avg_load() <= IMBALANCE_PERCENT * here.avg_load()
    {
        return None;
    }
    let forced = by_siblings && here.room() == Room::Spare && more_tasks > 1;
    if !forced && there.room() != Room::Overloaded {
        let spread = there.cpus > 1 && here.idle <= there.idle + 1;
        if !idle || spread || there.running == 1 {
            return None;
        }
    }
    if here.room() == Room::Spare {
        if there.room() == Room::Overloaded && level == Level::Machine {
            return Some(Amount::Tasks(
                (there.running - there.cpus).min(here.cpus - here.running),
            ));
        }
        let difference = if there.cpus == 1 || by_siblings {
            more_tasks
        } else {
            here.idle.saturating_sub(there.idle)
        };
        return (difference > 1).then_some(Amount::Tasks(difference / 2));
    }
    if here.avg_load() >= there.avg_load() || here.avg_load() >= mean_load {
        return None;
    }
    let above = there.avg_load().saturating_sub(mean_load) * u64::from(there.cpus);
    let below = (mean_load - here.avg_load()) * u64::from(here.cpus);
    let load = above.min(below);
    (load > 0).then_some(Amount::Load(load))
}
