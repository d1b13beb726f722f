//! The schedulers under which hints are compared, and how a hint is given to each.

use tidegate_law::latency;
use tidegate_sim::workloads::Common;
use tidegate_sim::{CfsConfig, EevdfConfig, Scheduler};

/// A scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The fair class of before 6.6, that of the latency-nice series.
    Cfs,
    /// ... with the latency-nice series.
    CfsPatched,
    /// The fair class from 6.6 on; a hint becomes a slice.
    Eevdf,
}

impl Class {
    /// All of them.
    pub const ALL: [Class; 3] = [Class::Cfs, Class::CfsPatched, Class::Eevdf];

    /// In tables.
    pub fn label(self) -> &'static str {
        match self {
            Class::Cfs => "CFS",
            Class::CfsPatched => "CFS with the latency-nice series",
            Class::Eevdf => "EEVDF, hint as slice",
        }
    }

    /// In JSON and CSV.
    pub fn key(self) -> &'static str {
        match self {
            Class::Cfs => "cfs",
            Class::CfsPatched => "cfs_patched",
            Class::Eevdf => "eevdf",
        }
    }

    /// Whether a hint means anything to it.
    pub fn takes_hints(self) -> bool {
        self != Class::Cfs
    }

    /// The machine's scheduler.
    pub fn scheduler(self, cpus: u32) -> Scheduler {
        match self {
            Class::Cfs | Class::CfsPatched => Scheduler::Cfs(CfsConfig {
                latency_nice: self == Class::CfsPatched,
                ..CfsConfig::for_cpus(cpus)
            }),
            Class::Eevdf => Scheduler::Eevdf(EevdfConfig::for_cpus(cpus)),
        }
    }

    /// Gives a workload a hint, in the way that this scheduler takes it.
    pub fn hint(self, common: &mut Common, hint: i8, cpus: u32) {
        match self {
            Class::Cfs => {}
            Class::CfsPatched => common.latency = hint,
            Class::Eevdf if hint != 0 => {
                let base_ns = EevdfConfig::for_cpus(cpus).base_slice_ns;
                common.slice_ns = Some(latency::slice_ns(i32::from(hint), base_ns));
            }
            Class::Eevdf => {}
        }
    }
}
