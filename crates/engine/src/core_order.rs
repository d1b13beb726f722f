//! The order in which side work gets cores: one last-level cache after the other, those where main
//! runs last.
//!
//! Main's data is in a cache or two; side work there takes its lines away, whatever core it is on.
//! So the caches are ordered by main's time on their CPUs, a mean over about ten seconds. An order
//! that changed with every window would move side work for nothing: two neighbours change places
//! where main's time on them differs by [`MARGIN_PPM`] of a cache's CPUs, and one pair a poll. Main
//! itself goes to the cores that side work leaves free, which keeps the order that there is.
//!
//! Among equals, and without main's time by CPU, the last cache and the last core come first: CPU 0
//! and its neighbours, where the kernel's own work and most interrupts are, stay main's for
//! longest.

use tidegate_cgroup::topology::{Core, Topology};

/// Main's time on two caches differs by no less than this, of the time of a cache's CPUs.
const MARGIN_PPM: u64 = 100_000;

/// A poll's weight in the mean is one in so many.
const MEAN_POLLS: u64 = 10;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Cache {
    llc: u32,
    cores: Vec<Core>,
    main_ns: u64,
}

impl Cache {
    fn cpus(&self) -> u64 {
        self.cores.iter().map(|core| core.cpus.len() as u64).sum()
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct CoreOrder {
    topology: Topology,
    caches: Vec<Cache>,
    last_ns: Vec<u64>,
    polls: u64,
}

impl CoreOrder {
    pub(crate) fn set_topology(&mut self, topology: &Topology) {
        if *topology == self.topology {
            return;
        }
        let mut caches: Vec<Cache> = Vec::new();
        for core in topology.cores().iter().rev() {
            match caches.last_mut().filter(|cache| cache.llc == core.llc) {
                Some(cache) => cache.cores.push(core.clone()),
                None => caches.push(Cache {
                    llc: core.llc,
                    cores: vec![core.clone()],
                    main_ns: 0,
                }),
            }
        }
        *self = Self {
            topology: topology.clone(),
            caches,
            ..Self::default()
        };
    }

    /// The allowed part of the cores, in order; `allowed` is ascending.
    pub(crate) fn cores(&self, allowed: &[u32]) -> Vec<Core> {
        let mut cores: Vec<Core> = self
            .caches
            .iter()
            .flat_map(|cache| cache.cores.clone())
            .collect();
        for core in &mut cores {
            core.cpus.retain(|cpu| allowed.binary_search(cpu).is_ok());
        }
        cores.retain(|core| !core.cpus.is_empty());
        cores
    }

    pub(crate) fn note_main(&mut self, main_ns: &[u64]) -> bool {
        if main_ns.len() != self.last_ns.len() {
            self.last_ns = main_ns.to_vec();
            return false;
        }
        let since = |cpu: &u32| {
            let at = *cpu as usize;
            let of = |times: &[u64]| times.get(at).copied().unwrap_or(0);
            of(main_ns).saturating_sub(of(&self.last_ns))
        };
        let weight = MEAN_POLLS.min(self.polls + 1);
        for cache in &mut self.caches {
            let now_ns: u64 = cache
                .cores
                .iter()
                .flat_map(|core| &core.cpus)
                .map(since)
                .sum();
            cache.main_ns = (cache.main_ns * (weight - 1) + now_ns) / weight;
        }
        self.last_ns.copy_from_slice(main_ns);
        self.polls += 1;
        // The first poll has a second of main to go by: that is one poll's worth, and all there is.
        let swaps = if self.polls == 1 {
            self.caches.len().pow(2)
        } else {
            1
        };
        (0..swaps)
            .map(|_| self.swap_one())
            .fold(false, |any, one| any | one)
    }

    /// Exchanges the first pair of neighbours of which main runs clearly more on the one that side
    /// work gets first.
    fn swap_one(&mut self) -> bool {
        let wrong = |pair: &[Cache]| {
            let least = pair[0].cpus().min(pair[1].cpus());
            // A poll is about a second.
            let margin_ns = least * 1_000 * MARGIN_PPM;
            pair[0].main_ns > pair[1].main_ns.saturating_add(margin_ns)
        };
        let found = self.caches.windows(2).position(wrong);
        if let Some(at) = found {
            self.caches.swap(at, at + 1);
        }
        found.is_some()
    }
}
