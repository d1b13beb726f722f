//! `[machine]` and `[scheduler]`.

use tidegate_terms::TimeSpan;

use super::read::{Findings, Section};
use super::tree::Table;
use crate::config::{CfsConfig, Costs, EevdfConfig, MachineConfig, Scheduler};
use crate::contention::Contention;
use crate::ids::CPUS_MAX;
use crate::topology::Topology;

pub(super) const MACHINE: &[&str] = &[
    "cpus",
    "threads_per_core",
    "cpus_per_llc",
    "tick",
    "bandwidth_slice",
    "slices_expire",
    "check",
];
pub(super) const CONTENTION: &[&str] = &[
    "contention",
    "sibling_loss",
    "llc_loss",
    "machine_loss",
    "machine_knee",
];
pub(super) const COSTS: &[&str] = &[
    "costs",
    "switch_cost",
    "wakeup_cost",
    "op_cost",
    "idle_exit_cost",
    "migrate_cost",
    "tick_cost",
];
pub(super) const EEVDF: &[&str] = &[
    "class",
    "base_slice",
    "run_to_parity",
    "preempt_short",
    "delay_dequeue",
    "wakeup_preemption",
];
pub(super) const CFS: &[&str] = &[
    "latency",
    "min_granularity",
    "wakeup_granularity",
    "latency_nice",
];

pub(super) fn read(machine: &Table, scheduler: &Table, findings: &Findings) -> MachineConfig {
    let keys = &[MACHINE, CONTENTION, COSTS];
    let mut section = Section::new(machine, "machine", keys, findings, CPUS_MAX);
    // From 1 to CPUS_MAX by the reader.
    let cpus = section
        .number("cpus", 1, i64::from(CPUS_MAX))
        .map_or(2, |cpus| cpus as u32);
    let mut config = MachineConfig::new(cpus);
    section.cpus = cpus;
    config.topology = topology(&section, cpus);
    let ms = TimeSpan::from_millis;
    if let Some(tick_ns) = section.time("tick", ms(1), ms(10)) {
        config.tick_ns = tick_ns;
    }
    if let Some(slice_ns) = section.time("bandwidth_slice", TimeSpan::from_nanos(1_000), ms(1_000))
    {
        config.bandwidth_slice_us = slice_ns / 1_000;
    }
    config.slices_expire = section.truth("slices_expire").unwrap_or(false);
    config.check = section.truth("check").unwrap_or(true);
    config.contention = contention(&section);
    config.costs = costs(&section);
    config.scheduler = scheduler_of(scheduler, findings, cpus);
    config
}

fn topology(section: &Section<'_>, cpus: u32) -> Topology {
    let threads = section.count("threads_per_core", 1, 8).unwrap_or(1);
    let llc = section.count("cpus_per_llc", 1, CPUS_MAX).unwrap_or(cpus);
    let topology = Topology::new(cpus, threads, llc);
    if topology.validate().is_err() {
        let at = ["cpus_per_llc", "threads_per_core"]
            .into_iter()
            .find(|key| section.has(key));
        let why = format!(
            "{cpus} CPUs cannot be made of caches of {llc} CPUs and cores of {threads} threads"
        );
        let mend = "make the threads of a core divide the CPUs of a cache, and those the machine's";
        section.refuse_key(at.unwrap_or("cpus"), why, mend);
    }
    topology
}

#[derive(Clone, Copy)]
enum Coefficients {
    Measured,
    None,
}

fn contention(section: &Section<'_>) -> Contention {
    let choices = [
        ("measured", Coefficients::Measured),
        ("none", Coefficients::None),
    ];
    let mut contention = match section.choice("contention", &choices) {
        Some(Coefficients::None) => Contention::NONE,
        Some(Coefficients::Measured) | None => Contention::shipped().unwrap_or_else(|error| {
            section.refuse_key("contention", error.to_string(), "report this as a bug");
            Contention::NONE
        }),
    };
    for (key, coefficient) in [
        ("sibling_loss", &mut contention.sibling_ppm),
        ("llc_loss", &mut contention.llc_ppm),
        ("machine_loss", &mut contention.machine_ppm),
        ("machine_knee", &mut contention.machine_knee_ppm),
    ] {
        if let Some(ppm) = section.share(key) {
            *coefficient = ppm;
        }
    }
    contention
}

fn costs(section: &Section<'_>) -> Costs {
    let choices = [("default", Costs::default()), ("free", Costs::FREE)];
    let mut costs = section.choice("costs", &choices).unwrap_or_default();
    for (key, cost) in [
        ("switch_cost", &mut costs.switch_ns),
        ("wakeup_cost", &mut costs.wakeup_ns),
        ("op_cost", &mut costs.op_ns),
        ("idle_exit_cost", &mut costs.idle_exit_ns),
        ("migrate_cost", &mut costs.migrate_ns),
        ("tick_cost", &mut costs.tick_ns),
    ] {
        if let Some(ns) = section.time(key, TimeSpan::from_nanos(0), TimeSpan::from_millis(1)) {
            *cost = ns;
        }
    }
    costs
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fair {
    Eevdf,
    Cfs,
}

fn scheduler_of(table: &Table, findings: &Findings, cpus: u32) -> Scheduler {
    let section = Section::new(table, "scheduler", &[EEVDF, CFS], findings, cpus);
    let class = section.choice("class", &[("eevdf", Fair::Eevdf), ("cfs", Fair::Cfs)]);
    let class = class.unwrap_or(Fair::Eevdf);
    let (wrong, name) = match class {
        Fair::Eevdf => (CFS, "cfs"),
        Fair::Cfs => (&EEVDF[1..], "eevdf"),
    };
    for key in wrong.iter().filter(|key| section.has(key)) {
        let why = format!("belongs to the class {name}");
        section.refuse_key(key, why, "leave it out, or change class");
    }
    let slice = |key, ns: &mut u64| {
        if let Some(value_ns) = section.time(
            key,
            TimeSpan::from_nanos(100_000),
            TimeSpan::from_millis(100),
        ) {
            *ns = value_ns;
        }
    };
    let truth = |key, flag: &mut bool| {
        if let Some(value) = section.truth(key) {
            *flag = value;
        }
    };
    match class {
        Fair::Eevdf => {
            let mut config = EevdfConfig::for_cpus(cpus);
            slice("base_slice", &mut config.base_slice_ns);
            truth("run_to_parity", &mut config.run_to_parity);
            truth("preempt_short", &mut config.preempt_short);
            truth("delay_dequeue", &mut config.delay_dequeue);
            truth("wakeup_preemption", &mut config.wakeup_preemption);
            Scheduler::Eevdf(config)
        }
        Fair::Cfs => {
            let mut config = CfsConfig::for_cpus(cpus);
            slice("latency", &mut config.latency_ns);
            slice("min_granularity", &mut config.min_granularity_ns);
            slice("wakeup_granularity", &mut config.wakeup_granularity_ns);
            truth("latency_nice", &mut config.latency_nice);
            Scheduler::Cfs(config)
        }
    }
}
