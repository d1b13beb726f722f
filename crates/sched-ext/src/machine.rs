//! The machine as the scheduler is told of it: which CPUs share a core and a last-level cache.

use crate::error::SchedExtError;
use crate::intf::{CPUS_MAX, Cpu, LLCS_MAX, Near};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuPlace {
    pub cpu: u32,
    /// Any number that CPUs of one core have in common, and no others.
    pub core: u32,
    /// The same of a last-level cache.
    pub llc: u32,
}

/// All possible CPUs. Where a CPU is that is not named (it is offline), the kernel does not tell:
/// if it comes it is served by the first cache, though no task of that cache looks for it, until
/// the scheduler is loaded again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    places: Vec<CpuPlace>,
    known: Vec<bool>,
    /// Distance from a cache to another, row by row.
    distances: Vec<u32>,
}

impl Machine {
    /// A machine of `cpus` possible CPUs, of which some are known.
    pub fn new(cpus: u32, known: &[CpuPlace]) -> Result<Machine, SchedExtError> {
        if cpus == 0 || cpus > CPUS_MAX {
            return Err(SchedExtError::Machine(format!(
                "{cpus} CPUs, not 1 to {CPUS_MAX}"
            )));
        }
        let home = known.iter().map(|place| place.llc).min().unwrap_or(0);
        let mut places: Vec<CpuPlace> = (0..cpus)
            .map(|cpu| CpuPlace {
                cpu,
                core: u32::MAX - cpu,
                llc: home,
            })
            .collect();
        let mut is_known = vec![false; cpus as usize];
        for place in known.iter().filter(|place| place.cpu < cpus) {
            places[place.cpu as usize] = *place;
            is_known[place.cpu as usize] = true;
        }
        let mut caches: Vec<u32> = places.iter().map(|place| place.llc).collect();
        caches.sort_unstable();
        caches.dedup();
        if caches.len() > LLCS_MAX as usize {
            let found = caches.len();
            return Err(SchedExtError::Machine(format!(
                "{found} last-level caches, more than {LLCS_MAX}"
            )));
        }
        for place in &mut places {
            place.llc = caches.partition_point(|llc| *llc < place.llc) as u32;
        }
        Ok(Machine {
            places,
            known: is_known,
            distances: vec![0; caches.len() * caches.len()],
        })
    }

    /// With distances between CPUs, as between their NUMA nodes; without, all other caches are
    /// equally far.
    #[must_use]
    pub fn with_distances(mut self, distance: impl Fn(u32, u32) -> u32) -> Machine {
        let firsts: Vec<u32> = (0..self.llcs()).map(|llc| self.first_cpu(llc)).collect();
        let rows = firsts.iter().flat_map(|&from| {
            let distance = &distance;
            firsts.iter().map(move |&to| distance(from, to))
        });
        self.distances = rows.collect();
        self
    }

    /// Whether the place of a CPU was told.
    pub fn knows(&self, cpu: u32) -> bool {
        self.known.get(cpu as usize).copied().unwrap_or(false)
    }

    fn first_cpu(&self, llc: u32) -> u32 {
        let in_cache = |place: &&CpuPlace| place.llc == llc;
        let known = |place: &&CpuPlace| self.knows(place.cpu);
        let mut all = self.places.iter().filter(in_cache);
        all.clone()
            .find(known)
            .or(all.next())
            .map_or(0, |place| place.cpu)
    }

    /// For each cache all caches, the nearest first (itself is).
    pub(crate) fn nearest(&self) -> Vec<Near> {
        let llcs = self.llcs();
        let row = |home: u32| {
            let mut row: Vec<u32> = (0..llcs).map(|step| (home + step) % llcs).collect();
            row[1..].sort_by_key(|&llc| self.distances[(home * llcs + llc) as usize]);
            row
        };
        let near = |llc| Near {
            llc,
            first_cpu: self.first_cpu(llc),
        };
        (0..llcs).flat_map(row).map(near).collect()
    }

    /// Possible CPUs.
    pub fn cpus(&self) -> u32 {
        self.places.len() as u32
    }

    pub fn online(&self) -> u32 {
        self.known.iter().filter(|known| **known).count() as u32
    }

    pub fn llcs(&self) -> u32 {
        1 + self.places.iter().map(|place| place.llc).max().unwrap_or(0)
    }

    /// Threads of the largest core.
    pub fn smt(&self) -> u32 {
        let threads = |core: u32| {
            self.places
                .iter()
                .filter(|place| place.core == core)
                .count()
        };
        self.places
            .iter()
            .map(|place| threads(place.core))
            .max()
            .unwrap_or(1) as u32
    }

    /// What the programs know of each CPU at the start.
    pub(crate) fn table(&self) -> Vec<Cpu> {
        let next = |own: &CpuPlace, same: &dyn Fn(&CpuPlace) -> bool| {
            let at = own.cpu as usize;
            let ring = self.places[at + 1..].iter().chain(&self.places[..=at]);
            ring.into_iter()
                .find(|place| same(place))
                .map_or(own.cpu, |place| place.cpu)
        };
        self.places
            .iter()
            .map(|own| Cpu {
                llc: own.llc,
                next_in_llc: next(own, &|place| {
                    let known = self.knows(own.cpu) && self.knows(place.cpu);
                    place.cpu == own.cpu || (known && place.llc == own.llc)
                }),
                next_in_core: next(own, &|place| place.core == own.core),
                ..Cpu::default()
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(cpu: u32, core: u32, llc: u32) -> CpuPlace {
        CpuPlace { cpu, core, llc }
    }

    #[test]
    fn cpus_of_a_cache_and_of_a_core_form_rings() {
        let known = [
            place(0, 0, 0),
            place(1, 1, 4),
            place(2, 0, 0),
            place(3, 1, 4),
        ];
        let machine = Machine::new(4, &known).unwrap();
        assert_eq!((machine.cpus(), machine.llcs(), machine.smt()), (4, 2, 2));
        let table = machine.table();
        let rings: Vec<_> = table
            .iter()
            .map(|c| (c.llc, c.next_in_llc, c.next_in_core))
            .collect();
        assert_eq!(rings, [(0, 2, 2), (1, 3, 3), (0, 0, 0), (1, 1, 1)]);
    }

    #[test]
    fn a_cpu_that_is_not_known_is_served_by_the_first_cache_and_looked_for_by_none() {
        let known = [place(1, 0, 7), place(2, 1, 7), place(4, 2, 9)];
        let machine = Machine::new(5, &known).unwrap();
        assert_eq!((machine.llcs(), machine.smt()), (2, 1));
        let table = machine.table();
        let rings: Vec<_> = table.iter().map(|c| (c.llc, c.next_in_llc)).collect();
        assert_eq!(rings, [(0, 0), (0, 2), (0, 1), (0, 3), (1, 4)]);
        assert_eq!(table[3].next_in_core, 3);
        let firsts: Vec<_> = machine
            .nearest()
            .iter()
            .map(|near| near.first_cpu)
            .collect();
        assert_eq!(firsts, [1, 4, 4, 1]);
        assert!(machine.knows(4) && !machine.knows(0) && !machine.knows(5));
        assert_eq!((machine.cpus(), machine.online()), (5, 3));
    }

    #[test]
    fn the_nearest_caches_come_first() {
        // Four caches of one CPU; 0 and 3 are a node, and so are 1 and 2.
        let known: Vec<_> = (0..4).map(|cpu| place(cpu, cpu, cpu)).collect();
        let node = |cpu: u32| u32::from(cpu == 1 || cpu == 2);
        let machine = Machine::new(4, &known).unwrap();
        let order = |machine: &Machine| -> Vec<u32> {
            machine.nearest().iter().map(|near| near.llc).collect()
        };
        let even = [0, 1, 2, 3, 1, 2, 3, 0, 2, 3, 0, 1, 3, 0, 1, 2];
        assert_eq!(order(&machine), even);
        let far = machine.with_distances(|a, b| if node(a) == node(b) { 10 } else { 21 });
        let nodes = [0, 3, 1, 2, 1, 2, 3, 0, 2, 1, 3, 0, 3, 0, 1, 2];
        assert_eq!(order(&far), nodes);
    }

    #[test]
    fn what_the_programs_cannot_hold_is_refused() {
        assert!(Machine::new(0, &[]).is_err());
        assert!(Machine::new(CPUS_MAX + 1, &[]).is_err());
        let known: Vec<_> = (0..65).map(|cpu| place(cpu, cpu, cpu)).collect();
        assert!(Machine::new(65, &known).is_err());
    }
}
