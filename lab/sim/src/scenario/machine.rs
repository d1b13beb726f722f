//! `[machine]` and `[scheduler]`.

use serde::Deserialize;

use super::ScenarioError;
use super::document::refused;
use crate::config::{CfsConfig, Costs, EevdfConfig, MachineConfig, Scheduler};
use crate::contention::Contention;
use crate::topology::Topology;
use crate::values::{self, slice, truth};

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct MachineKeys {
    #[serde(deserialize_with = "values::cpus")]
    cpus: Option<u32>,
    #[serde(deserialize_with = "values::cpus")]
    threads_per_core: Option<u32>,
    #[serde(deserialize_with = "values::cpus")]
    cpus_per_llc: Option<u32>,
    #[serde(deserialize_with = "values::tick")]
    tick: Option<u64>,
    #[serde(deserialize_with = "values::period")]
    bandwidth_slice: Option<u64>,
    #[serde(deserialize_with = "truth")]
    slices_expire: bool,
    #[serde(deserialize_with = "truth")]
    check: Option<bool>,
    contention: ContentionName,
    costs: CostsName,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ContentionName {
    #[default]
    Measured,
    None,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CostsName {
    #[default]
    Default,
    Free,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Class {
    #[default]
    Eevdf,
    Cfs,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SchedulerKeys {
    class: Class,
    #[serde(deserialize_with = "slice")]
    base_slice: Option<u64>,
    #[serde(deserialize_with = "truth")]
    latency_nice: Option<bool>,
}

fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

impl MachineKeys {
    pub(super) fn cpus(&self) -> u32 {
        self.cpus.unwrap_or(2)
    }

    pub(super) fn config(&self, class: &SchedulerKeys) -> Result<MachineConfig, ScenarioError> {
        let cpus = self.cpus();
        let mut config = MachineConfig::new(cpus);
        let threads = self.threads_per_core.unwrap_or(1);
        config.topology = Topology::new(cpus, threads, self.cpus_per_llc.unwrap_or(cpus));
        if let Err(error) = config.topology.validate() {
            return refused("machine.cpus", error.to_string());
        }
        set(&mut config.tick_ns, self.tick);
        let slice_us = self.bandwidth_slice.map(|ns| ns / 1_000);
        set(&mut config.bandwidth_slice_us, slice_us);
        config.slices_expire = self.slices_expire;
        config.check = self.check.unwrap_or(true);
        config.contention = match self.contention {
            ContentionName::Measured => Contention::MEASURED,
            ContentionName::None => Contention::NONE,
        };
        config.costs = match self.costs {
            CostsName::Default => Costs::default(),
            CostsName::Free => Costs::FREE,
        };
        config.scheduler = class.scheduler(cpus)?;
        Ok(config)
    }
}

impl SchedulerKeys {
    fn scheduler(&self, cpus: u32) -> Result<Scheduler, ScenarioError> {
        let why = "belongs to the other class; leave it out, or change class";
        match self.class {
            Class::Eevdf if self.latency_nice.is_some() => refused("scheduler.latency_nice", why),
            Class::Cfs if self.base_slice.is_some() => refused("scheduler.base_slice", why),
            Class::Eevdf => {
                let mut config = EevdfConfig::for_cpus(cpus);
                set(&mut config.base_slice_ns, self.base_slice);
                Ok(Scheduler::Eevdf(config))
            }
            Class::Cfs => {
                let mut config = CfsConfig::for_cpus(cpus);
                set(&mut config.latency_nice, self.latency_nice);
                Ok(Scheduler::Cfs(config))
            }
        }
    }
}
