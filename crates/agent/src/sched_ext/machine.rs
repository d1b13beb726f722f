//! The scheduler's options for this machine: the CPUs' cores and caches, and the groups of the idle
//! class.

use std::path::Path;

use tidegate_cgroup::KernelFs;
use tidegate_cgroup::cpus::{self, CpusError};
use tidegate_cgroup::nodes::Nodes;
use tidegate_cgroup::topology::Topology;
use tidegate_cgroup::{discover, sched};
use tidegate_sched_ext::{CpuPlace, Machine, Options, SchedExtError};

/// Deeper groups are not looked at; the scheduler's tree is no deeper.
pub(crate) const LEVELS_MAX: u32 = 32;

#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    #[error(transparent)]
    Cpus(#[from] CpusError),
    #[error(transparent)]
    Refused(#[from] SchedExtError),
}

/// The engine's options on this machine; with `caches`, on one whose CPUs are dealt out to so many
/// last-level caches.
pub fn options(fs: &dyn KernelFs, caches: Option<u32>) -> Result<Options, MachineError> {
    let topology = Topology::read(fs)?;
    let mut places = Vec::new();
    for (core, known) in (0_u32..).zip(topology.cores()) {
        let place = |&cpu: &u32| CpuPlace {
            cpu,
            core,
            llc: known.llc,
        };
        places.extend(known.cpus.iter().map(place));
    }
    for place in places.iter_mut() {
        place.llc = caches.map_or(place.llc, |caches| place.cpu % caches.max(1));
    }
    // The kernel's numbers have no holes.
    let possible = cpus::possible(fs)?.last().map_or(0, |last| last + 1);
    let nodes = Nodes::read(fs);
    let machine =
        Machine::new(possible, &places)?.with_distances(|from, to| nodes.distance(from, to));
    let mut options = Options::new(machine);
    // Where that cannot be learnt, tasks' own slices say nothing.
    let slices = sched::probe(fs).ok().filter(|support| support.slices);
    options.fair_slice_ns = slices.map_or(0, |support| support.base_ns);
    if let Ok(found) = discover::discover(fs, None) {
        idle_below(fs, &found.cpu.mount, LEVELS_MAX, &mut options.idle_groups);
    }
    Ok(options)
}

/// Adds the ids of groups whose cpu.idle is 1. A group that goes away meanwhile is none.
fn idle_below(fs: &dyn KernelFs, dir: &Path, levels: u32, found: &mut Vec<u64>) {
    let Ok(entries) = fs.list(dir) else {
        return;
    };
    for entry in entries.into_iter().filter(|entry| entry.is_dir) {
        let child = dir.join(&entry.name);
        let idle = fs.read(&child.join("cpu.idle"));
        if idle.is_ok_and(|text| text.trim() == "1")
            && let Ok(stat) = fs.stat(&child)
        {
            found.push(stat.ino);
        }
        if levels > 1 {
            idle_below(fs, &child, levels - 1, found);
        }
    }
}
