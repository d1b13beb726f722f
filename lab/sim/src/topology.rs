//! The machine's shape: CPUs, hardware threads that share a core, and CPUs that share a last-level
//! cache.
//!
//! CPUs are numbered so that a core's threads lie side by side and so do the CPUs of one cache: the
//! core of CPU `c` is `c / threads_per_core` and its cache is `c / cpus_per_llc`. Real machines
//! number siblings apart; nothing in the simulator depends on the numbers, only on who shares what.

use crate::cpuset::CpuSet;
use crate::ids::{CPUS_MAX, CpuId};

/// Who shares what: see the module's text for the numbering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    cpus: u32,
    threads_per_core: u32,
    cpus_per_llc: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// The machine has no CPU, or more than the simulator takes.
    #[error("topology: cpus: {0}: not between 1 and {CPUS_MAX}; choose a number in that range")]
    Cpus(u32),
    /// The threads of a core do not divide the CPUs of a cache.
    #[error(
        "topology: threads_per_core: {threads_per_core}: does not divide the {cpus_per_llc} CPUs of a cache; \
         a core's threads share one cache"
    )]
    Threads {
        threads_per_core: u32,
        cpus_per_llc: u32,
    },
    /// The CPUs of a cache do not divide the machine.
    #[error(
        "topology: cpus_per_llc: {cpus_per_llc}: does not divide the machine's {cpus} CPUs; choose a divisor"
    )]
    Llc { cpus_per_llc: u32, cpus: u32 },
}

impl Topology {
    /// A machine of `cpus`, each core with `threads_per_core` threads, each cache shared by
    /// `cpus_per_llc`. [`Topology::validate`] (which the machine calls) says whether it can be.
    pub fn new(cpus: u32, threads_per_core: u32, cpus_per_llc: u32) -> Self {
        Topology {
            cpus,
            threads_per_core,
            cpus_per_llc,
        }
    }

    pub fn validate(&self) -> Result<(), TopologyError> {
        if !(1..=CPUS_MAX).contains(&self.cpus) {
            return Err(TopologyError::Cpus(self.cpus));
        }
        let (threads_per_core, cpus_per_llc) = (self.threads_per_core, self.cpus_per_llc);
        if cpus_per_llc == 0 || !self.cpus.is_multiple_of(cpus_per_llc) {
            return Err(TopologyError::Llc {
                cpus_per_llc,
                cpus: self.cpus,
            });
        }
        if threads_per_core == 0 || !cpus_per_llc.is_multiple_of(threads_per_core) {
            return Err(TopologyError::Threads {
                threads_per_core,
                cpus_per_llc,
            });
        }
        Ok(())
    }

    pub fn cpus(&self) -> u32 {
        self.cpus
    }

    pub fn threads_per_core(&self) -> u32 {
        self.threads_per_core
    }

    /// CPUs that share one last-level cache.
    pub fn cpus_per_llc(&self) -> u32 {
        self.cpus_per_llc
    }

    pub fn cores(&self) -> u32 {
        self.cpus / self.threads_per_core
    }

    /// Last-level caches of the machine.
    pub fn llcs(&self) -> u32 {
        self.cpus / self.cpus_per_llc
    }

    pub fn core_of(&self, cpu: CpuId) -> u32 {
        cpu.0 / self.threads_per_core
    }

    /// The cache that a CPU uses.
    pub fn llc_of(&self, cpu: CpuId) -> u32 {
        cpu.0 / self.cpus_per_llc
    }

    pub fn core_cpus(&self, core: u32) -> std::ops::Range<u32> {
        core * self.threads_per_core..(core + 1) * self.threads_per_core
    }

    /// The threads of a CPU's core, itself among them.
    pub fn siblings(&self, cpu: CpuId) -> std::ops::Range<u32> {
        self.core_cpus(self.core_of(cpu))
    }

    pub fn llc_cpus(&self, llc: u32) -> std::ops::Range<u32> {
        llc * self.cpus_per_llc..(llc + 1) * self.cpus_per_llc
    }

    /// Whether two CPUs use one cache.
    pub fn share_cache(&self, a: CpuId, b: CpuId) -> bool {
        self.llc_of(a) == self.llc_of(b)
    }

    /// Every CPU of the machine.
    pub fn all(&self) -> CpuSet {
        CpuSet::range(0..self.cpus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siblings_and_caches_lie_side_by_side() {
        let topology = Topology::new(16, 2, 8);
        assert_eq!(topology.validate(), Ok(()));
        assert_eq!(topology.siblings(CpuId(5)), 4..6);
        assert_eq!(topology.llc_cpus(topology.llc_of(CpuId(9))), 8..16);
        assert!(topology.share_cache(CpuId(0), CpuId(7)));
        assert!(!topology.share_cache(CpuId(7), CpuId(8)));
        assert_eq!(
            (topology.cores(), topology.llcs(), topology.all().count()),
            (8, 2, 16)
        );
    }

    #[test]
    fn what_does_not_fit_is_refused_by_name() {
        for (topology, word) in [
            (Topology::new(0, 1, 1), "cpus:"),
            (Topology::new(1025, 1, 1), "cpus:"),
            (Topology::new(16, 3, 8), "threads_per_core:"),
            (Topology::new(16, 2, 5), "cpus_per_llc:"),
            (Topology::new(16, 0, 8), "threads_per_core:"),
        ] {
            let message = topology.validate().expect_err("refused").to_string();
            assert!(message.contains(word), "{message}");
        }
    }
}
