//! Which CPUs share a core and which share a last-level cache, as `/sys/devices/system/cpu` tells
//! it.
//!
//! A machine that does not say (some virtual machines, some architectures) counts as one thread a
//! core and one cache over all: then nothing is kept whole that is not known to belong together.

use std::path::PathBuf;

use crate::KernelFs;
use crate::cpus::{self, CpusError, parse_list};

/// Cache indices looked at per CPU; x86 has 4, arm64 up to 5.
const CACHES_MAX: u32 = 10;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    cores: Vec<Core>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Core {
    /// The first CPU of its last-level cache: which cache it is in.
    pub llc: u32,
    /// Its threads that are online, ascending.
    pub cpus: Vec<u32>,
}

impl Topology {
    /// From lists of siblings and the cache of each; for tests and for machines that are not files.
    pub fn new(mut cores: Vec<Core>) -> Self {
        cores.retain(|core| !core.cpus.is_empty());
        for core in &mut cores {
            core.cpus.sort_unstable();
        }
        cores.sort();
        Self { cores }
    }

    /// Reads it; only CPUs that are online count.
    pub fn read(fs: &dyn KernelFs) -> Result<Self, CpusError> {
        let online = cpus::online(fs)?;
        let mut cores: Vec<Core> = Vec::new();
        for &cpu in &online {
            if cores.iter().any(|core| core.cpus.contains(&cpu)) {
                continue;
            }
            let is_new = |other: &u32| {
                online.binary_search(other).is_ok()
                    && !cores.iter().any(|core| core.cpus.contains(other))
            };
            let mut siblings = siblings(fs, cpu);
            siblings.retain(is_new);
            if !siblings.contains(&cpu) {
                siblings = vec![cpu];
            }
            let llc = last_cache(fs, cpu).unwrap_or_else(|| online[0]);
            cores.push(Core {
                llc,
                cpus: siblings,
            });
        }
        Ok(Self::new(cores))
    }

    pub fn cores(&self) -> &[Core] {
        &self.cores
    }

    pub fn cpus(&self) -> Vec<u32> {
        let mut cpus: Vec<u32> = self.cores.iter().flat_map(|c| c.cpus.clone()).collect();
        cpus.sort_unstable();
        cpus
    }

    pub fn shares_cores(&self) -> bool {
        self.cores.iter().any(|core| core.cpus.len() > 1)
    }
}

fn file(cpu: u32, name: &str) -> PathBuf {
    PathBuf::from(format!("/sys/devices/system/cpu/cpu{cpu}/{name}"))
}

fn siblings(fs: &dyn KernelFs, cpu: u32) -> Vec<u32> {
    // `core_cpus_list` is the name since 5.3 (cores of a module may otherwise pass for siblings on
    // some x86).
    ["topology/core_cpus_list", "topology/thread_siblings_list"]
        .iter()
        .filter_map(|name| fs.read(&file(cpu, name)).ok())
        .find_map(|text| parse_list(&text).ok().filter(|list| !list.is_empty()))
        .unwrap_or_default()
}

/// The first CPU of the cache of the highest level that is not an instruction cache.
fn last_cache(fs: &dyn KernelFs, cpu: u32) -> Option<u32> {
    let mut last: Option<(u32, u32)> = None;
    for index in 0..CACHES_MAX {
        let read = |name: &str| {
            fs.read(&file(cpu, &format!("cache/index{index}/{name}")))
                .ok()
        };
        let Some(level) = read("level").and_then(|text| text.trim().parse::<u32>().ok()) else {
            break;
        };
        if read("type").is_some_and(|kind| kind.trim() == "Instruction") {
            continue;
        }
        let shared = read("shared_cpu_list").and_then(|text| parse_list(&text).ok());
        let Some(&first) = shared.as_deref().and_then(|list| list.first()) else {
            continue;
        };
        if last.is_none_or(|(highest, _)| level > highest) {
            last = Some((level, first));
        }
    }
    last.map(|(_, first)| first)
}
