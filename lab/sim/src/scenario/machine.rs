//! `[machine]`.

use serde::Deserialize;

use super::ScenarioError;
use super::document::refused;
use crate::config::{Costs, MachineConfig};
use crate::contention::Contention;
use crate::topology::Topology;
use crate::values::{self, truth};

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

impl MachineKeys {
    pub(super) fn cpus(&self) -> u32 {
        self.cpus.unwrap_or(2)
    }

    pub(super) fn config(&self) -> Result<MachineConfig, ScenarioError> {
        let cpus = self.cpus();
        let mut config = MachineConfig::new(cpus);
        let threads = self.threads_per_core.unwrap_or(1);
        config.topology = Topology::new(cpus, threads, self.cpus_per_llc.unwrap_or(cpus));
        if let Err(error) = config.topology.validate() {
            return refused("machine.cpus", error.to_string());
        }
        config.tick_ns = self.tick.unwrap_or(config.tick_ns);
        config.check = self.check.unwrap_or(true);
        config.contention = match self.contention {
            ContentionName::Measured => Contention::MEASURED,
            ContentionName::None => Contention::NONE,
        };
        config.costs = match self.costs {
            CostsName::Default => Costs::default(),
            CostsName::Free => Costs::FREE,
        };
        Ok(config)
    }
}
