//! What the scheduler is told of the machine: its CPUs' cores and caches, and the groups of the idle class.

use std::path::Path;

use tidegate_ext::{CpuPlace, Machine, Options};
use tidegate_knobs::kfs::KernelFs;
use tidegate_knobs::topology::Topology;
use tidegate_knobs::{discover, sched};

/// Deeper groups are not looked at; the scheduler's tree is no deeper.
pub(crate) const LEVELS_MAX: u32 = 32;

/// The engine's options on this machine; with `caches`, on one whose CPUs are dealt out to so many last-level caches.
///
/// # Errors
/// What could not be read or understood, in words.
pub fn options(fs: &dyn KernelFs, caches: Option<u32>) -> Result<Options, String> {
    let topology = Topology::read(fs).map_err(|error| error.to_string())?;
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
    let machine = Machine::new(possible_cpus(fs)?, &places).map_err(|error| error.to_string())?;
    let mut options = Options::new(machine);
    // Where that cannot be learnt, tasks' own slices say nothing.
    let slices = sched::probe(fs).ok().filter(|support| support.slices);
    options.fair_slice_ns = slices.map_or(0, |support| support.base_ns);
    if let Ok(found) = discover::discover(fs, None) {
        idle_below(fs, &found.cpu.mount, LEVELS_MAX, &mut options.idle_groups);
    }
    Ok(options)
}

fn possible_cpus(fs: &dyn KernelFs) -> Result<u32, String> {
    let path = Path::new("/sys/devices/system/cpu/possible");
    let text = fs.read(path).map_err(|error| error.to_string())?;
    // "0-3", or "0": the kernel's numbers have no holes.
    let last = text
        .trim()
        .rsplit(['-', ','])
        .next()
        .and_then(|n| n.parse::<u32>().ok());
    last.map(|last| last + 1)
        .ok_or_else(|| format!("{}: \"{text}\" is no list of CPUs", path.display()))
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
