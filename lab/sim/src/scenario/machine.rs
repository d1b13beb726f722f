//! `[machine]` and `[scheduler]`.

use serde::Deserialize;

use super::document::Findings;
use crate::config::{CfsConfig, Costs, EevdfConfig, MachineConfig, Scheduler};
use crate::contention::Contention;
use crate::topology::Topology;
use crate::values::{self, cost, share, slice, truth};

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
    #[serde(deserialize_with = "share")]
    sibling_loss: Option<u32>,
    #[serde(deserialize_with = "share")]
    llc_loss: Option<u32>,
    #[serde(deserialize_with = "share")]
    machine_loss: Option<u32>,
    #[serde(deserialize_with = "share")]
    machine_knee: Option<u32>,
    costs: CostsName,
    #[serde(deserialize_with = "cost")]
    switch_cost: Option<u64>,
    #[serde(deserialize_with = "cost")]
    wakeup_cost: Option<u64>,
    #[serde(deserialize_with = "cost")]
    op_cost: Option<u64>,
    #[serde(deserialize_with = "cost")]
    idle_exit_cost: Option<u64>,
    #[serde(deserialize_with = "cost")]
    migrate_cost: Option<u64>,
    #[serde(deserialize_with = "cost")]
    tick_cost: Option<u64>,
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
    run_to_parity: Option<bool>,
    #[serde(deserialize_with = "truth")]
    preempt_short: Option<bool>,
    #[serde(deserialize_with = "truth")]
    delay_dequeue: Option<bool>,
    #[serde(deserialize_with = "truth")]
    wakeup_preemption: Option<bool>,
    #[serde(deserialize_with = "slice")]
    latency: Option<u64>,
    #[serde(deserialize_with = "slice")]
    min_granularity: Option<u64>,
    #[serde(deserialize_with = "slice")]
    wakeup_granularity: Option<u64>,
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

    pub(super) fn config(&self, class: &SchedulerKeys, findings: &Findings<'_>) -> MachineConfig {
        let cpus = self.cpus();
        let mut config = MachineConfig::new(cpus);
        config.topology = self.topology(findings);
        set(&mut config.tick_ns, self.tick);
        let slice_us = self.bandwidth_slice.map(|ns| ns / 1_000);
        set(&mut config.bandwidth_slice_us, slice_us);
        config.slices_expire = self.slices_expire;
        config.check = self.check.unwrap_or(true);
        config.contention = match self.contention {
            ContentionName::Measured => Contention::MEASURED,
            ContentionName::None => Contention::NONE,
        };
        set(&mut config.contention.sibling_ppm, self.sibling_loss);
        set(&mut config.contention.llc_ppm, self.llc_loss);
        set(&mut config.contention.machine_ppm, self.machine_loss);
        set(&mut config.contention.machine_knee_ppm, self.machine_knee);
        config.costs = match self.costs {
            CostsName::Default => Costs::default(),
            CostsName::Free => Costs::FREE,
        };
        set(&mut config.costs.switch_ns, self.switch_cost);
        set(&mut config.costs.wakeup_ns, self.wakeup_cost);
        set(&mut config.costs.op_ns, self.op_cost);
        set(&mut config.costs.idle_exit_ns, self.idle_exit_cost);
        set(&mut config.costs.migrate_ns, self.migrate_cost);
        set(&mut config.costs.tick_ns, self.tick_cost);
        config.scheduler = class.scheduler(cpus, findings);
        config
    }

    fn topology(&self, findings: &Findings<'_>) -> Topology {
        let threads = self.threads_per_core.unwrap_or(1);
        let llc = self.cpus_per_llc.unwrap_or(self.cpus());
        let topology = Topology::new(self.cpus(), threads, llc);
        if let Err(error) = topology.validate() {
            findings.refuse("machine.cpus", error.to_string());
        }
        topology
    }
}

impl SchedulerKeys {
    fn scheduler(&self, cpus: u32, findings: &Findings<'_>) -> Scheduler {
        for (key, is_named, class) in [
            ("base_slice", self.base_slice.is_some(), Class::Eevdf),
            ("run_to_parity", self.run_to_parity.is_some(), Class::Eevdf),
            ("preempt_short", self.preempt_short.is_some(), Class::Eevdf),
            ("delay_dequeue", self.delay_dequeue.is_some(), Class::Eevdf),
            (
                "wakeup_preemption",
                self.wakeup_preemption.is_some(),
                Class::Eevdf,
            ),
            ("latency", self.latency.is_some(), Class::Cfs),
            (
                "min_granularity",
                self.min_granularity.is_some(),
                Class::Cfs,
            ),
            (
                "wakeup_granularity",
                self.wakeup_granularity.is_some(),
                Class::Cfs,
            ),
            ("latency_nice", self.latency_nice.is_some(), Class::Cfs),
        ] {
            if is_named && class != self.class {
                let why = "belongs to the other class; leave it out, or change class";
                findings.refuse(&format!("scheduler.{key}"), why);
            }
        }
        match self.class {
            Class::Eevdf => {
                let mut config = EevdfConfig::for_cpus(cpus);
                set(&mut config.base_slice_ns, self.base_slice);
                set(&mut config.run_to_parity, self.run_to_parity);
                set(&mut config.preempt_short, self.preempt_short);
                set(&mut config.delay_dequeue, self.delay_dequeue);
                set(&mut config.wakeup_preemption, self.wakeup_preemption);
                Scheduler::Eevdf(config)
            }
            Class::Cfs => {
                let mut config = CfsConfig::for_cpus(cpus);
                set(&mut config.latency_ns, self.latency);
                set(&mut config.min_granularity_ns, self.min_granularity);
                set(&mut config.wakeup_granularity_ns, self.wakeup_granularity);
                set(&mut config.latency_nice, self.latency_nice);
                Scheduler::Cfs(config)
            }
        }
    }
}
