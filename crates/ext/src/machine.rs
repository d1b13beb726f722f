//! The machine as the scheduler is told of it: which CPUs share a core and a last-level cache.

use crate::error::ExtError;
use crate::intf::{CPUS_MAX, Cpu, LLCS_MAX};

/// One CPU's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuPlace {
    /// Its number.
    pub cpu: u32,
    /// Any number that CPUs of one core have in common, and no others.
    pub core: u32,
    /// The same of a last-level cache.
    pub llc: u32,
}

/// All possible CPUs; a CPU that is not named (it is offline) is taken for a core of its own in the first cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    places: Vec<CpuPlace>,
}

impl Machine {
    /// A machine of `cpus` possible CPUs, of which some are known.
    pub fn new(cpus: u32, known: &[CpuPlace]) -> Result<Machine, ExtError> {
        if cpus == 0 || cpus > CPUS_MAX {
            return Err(ExtError::Machine(format!(
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
        for place in known.iter().filter(|place| place.cpu < cpus) {
            places[place.cpu as usize] = *place;
        }
        let mut caches: Vec<u32> = places.iter().map(|place| place.llc).collect();
        caches.sort_unstable();
        caches.dedup();
        if caches.len() > LLCS_MAX as usize {
            let found = caches.len();
            return Err(ExtError::Machine(format!(
                "{found} last-level caches, more than {LLCS_MAX}"
            )));
        }
        for place in &mut places {
            place.llc = caches.partition_point(|llc| *llc < place.llc) as u32;
        }
        Ok(Machine { places })
    }

    /// Possible CPUs.
    pub fn cpus(&self) -> u32 {
        self.places.len() as u32
    }

    /// Last-level caches.
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
                next_in_llc: next(own, &|place| place.llc == own.llc),
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
    fn a_cpu_that_is_not_known_is_alone_in_the_first_cache() {
        let machine = Machine::new(3, &[place(0, 0, 7), place(1, 1, 7)]).unwrap();
        assert_eq!((machine.llcs(), machine.smt()), (1, 1));
        assert_eq!(machine.table()[2].next_in_llc, 0);
        assert_eq!(machine.table()[2].next_in_core, 2);
    }

    #[test]
    fn what_the_programs_cannot_hold_is_refused() {
        assert!(Machine::new(0, &[]).is_err());
        assert!(Machine::new(CPUS_MAX + 1, &[]).is_err());
        let known: Vec<_> = (0..65).map(|cpu| place(cpu, cpu, cpu)).collect();
        assert!(Machine::new(65, &known).is_err());
    }
}
