//! Scenarios as lines for the C program (`tests/check/scenario.c`), which has no defaults of its own: every value is there.
//! Words are separated by one space; times are in ns, a quota's in µs; an index counts the lines of its kind in the scenario
//! from 0, and −1 is none.
//!
//! ```text
//! scenario NAME CPUS WARM SPAN SILO_SLICE_US REWRITE          REWRITE 0: never
//! group NAME PARENT WEIGHT IDLE QUOTA_US PERIOD_US BURST_US   QUOTA_US 0: no limit
//! gate TERM=VALUE...                                          of the group above, as `scheduler --gate` takes it
//! task NAME GROUP POLICY NICE SLICE CPU_FIRST CPU_END         POLICY as sched_setattr(2) has it; SLICE 0: none
//! hog COUNT                                                   what the task above does
//! sleeper PERIOD RUN THEN AT                                  from AT after the start on it runs THEN
//! messages TEAMS PAIRS LOOPS
//! read WHAT NAME GROUP TASK                                   of the one or of the other
//! ```

use crate::scenario::{Scenario, Whom};
use std::fmt::Write;
use tidegate_law::cap::NONE as NO_CAP;
use tidegate_sim::scenario::{Group, Workload};
use tidegate_sim::workloads::Kind;
use tidegate_sim::{Bandwidth, CapScope, Class, CpuSet, Policy};

/// A scenario's lines.
pub fn lines(scenario: &Scenario) -> Result<String, String> {
    let of = &scenario.of;
    let mut text = format!(
        "scenario {} {} {} {} {} {}\n",
        of.name,
        scenario.cpus(),
        of.warmup_ns,
        scenario.span_ns(),
        of.machine.bandwidth_slice_us,
        scenario.rewrite_ns.unwrap_or(0),
    );
    for group in &of.groups {
        text += &group_lines(group)?;
    }
    for workload in &of.workloads {
        text += &workload_lines(workload, scenario.cpus())?;
    }
    for read in &scenario.reads {
        let (group, task) = match read.whom {
            Whom::Group(at) => (index(Some(at)), -1),
            Whom::Workload(at) => (-1, index(Some(at))),
        };
        text += &format!("read {} {} {group} {task}\n", read.word, read.name);
    }
    Ok(text)
}

/// Far below 2^63: what a file has room for.
fn index(at: Option<usize>) -> i64 {
    at.map_or(-1, |at| at as i64)
}

fn group_lines(group: &Group) -> Result<String, String> {
    let spec = &group.spec;
    if spec.cpus.is_some() || group.burst_auto {
        return Err(format!("group.{}: no CPUs, no burst of its own", spec.name));
    }
    let bandwidth = spec.bandwidth.unwrap_or(Bandwidth::UNLIMITED);
    let mut text = format!(
        "group {} {} {} {} {} {} {}\n",
        spec.name,
        index(group.parent),
        spec.weight,
        u32::from(spec.idle),
        bandwidth.quota_us.unwrap_or(0),
        bandwidth.period_us,
        bandwidth.burst_us,
    );
    let gate = gate(group);
    if !gate.is_empty() {
        text += &format!("gate{gate}\n");
    }
    Ok(text)
}

/// What the group asks of the ext engine: a space before each term.
fn gate(group: &Group) -> String {
    let spec = &group.spec;
    let mut text = String::new();
    let mut term = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            // Writing to a String cannot fail.
            let _ = write!(text, " {name}={value}");
        }
    };
    let percent = |ppm: u32| format!("{}%", f64::from(ppm) / 1e4);
    term(
        "class",
        match spec.class {
            Class::Main => Some("main".into()),
            Class::Side => Some("side".into()),
            Class::Neutral => None,
        },
    );
    term(
        "latency",
        (spec.latency != 0).then(|| spec.latency.to_string()),
    );
    term(
        "headroom",
        group.headroom_said.then(|| percent(spec.headroom_ppm)),
    );
    term("tolerance", spec.tolerance_ppm.map(percent));
    if let Some(cap) = spec.cap {
        let thousandths = |ppt: u32| (ppt != NO_CAP).then(|| format!("{ppt}m"));
        term("cap_hard", thousandths(cap.hard_ppt));
        term("cap_soft", thousandths(cap.soft_ppt));
        let scope = match cap.scope {
            CapScope::Task => "task",
            CapScope::Process => "process",
            CapScope::Group => "group",
        };
        term("cap_scope", Some(scope.into()));
    }
    text
}

fn workload_lines(workload: &Workload, cpus: u32) -> Result<String, String> {
    let common = &workload.common;
    let refused = |why: &str| Err(format!("workload.{}: {why}", common.name));
    if workload.group.is_none() {
        return refused("it is in no group");
    }
    if common.cap.is_some() || common.latency != 0 || common.start_ns != 0 {
        return refused("caps and hints are a group's, and all start together");
    }
    let policy = match common.policy {
        Policy::Normal => 0,
        Policy::Batch => 3,
        Policy::Idle => 5,
        Policy::Fifo { .. } => return refused("no policy of real time"),
    };
    let allowed = common.cpus.unwrap_or(CpuSet::first_n(cpus));
    let first = allowed.first().map_or(0, |cpu| cpu.0);
    let end = first + allowed.count();
    if allowed != CpuSet::range(first..end) {
        return refused("its CPUs are no range");
    }
    let does = match &workload.kind {
        Kind::Hog(hog) if hog.busy.is_none() => format!("hog {}", hog.tasks),
        Kind::Cyclictest(timer) if timer.threads == 1 && !timer.pinned => {
            let (then_ns, at_ns) = timer.step.unwrap_or((timer.work_ns, 0));
            let (period_ns, run_ns) = (timer.interval_ns, timer.work_ns);
            format!("sleeper {period_ns} {run_ns} {then_ns} {at_ns}")
        }
        Kind::Hackbench(teams) => {
            format!("messages {} {} {}", teams.groups, teams.pairs, teams.loops)
        }
        _ => return refused("no endless hog, single timer or hackbench"),
    };
    Ok(format!(
        "task {} {} {policy} {} {} {first} {end}\n{does}\n",
        common.name,
        index(workload.group),
        common.nice,
        common.slice_ns.unwrap_or(0),
    ))
}
