//! The machine that a report was made on: what decides how its figures are to be read.

use std::fs;

use serde::{Deserialize, Serialize};
use tidegate_cgroup::{KernelFs as _, RealFs, cpus};

use tidegate_sim::{Contention, MachineConfig};

use crate::clock;
use crate::options::On;
use crate::stats::distinct;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HostMachine {
    pub kernel: String,
    /// Timer interrupts a second: group usage and throttling move in steps of one.
    pub hz: u32,
    /// Preemption mode in force, `unknown` if debugfs cannot be read.
    pub preemption: String,
    pub base_slice_ms: Option<f64>,
    /// Whether sibling threads of a core are both in use, as the kernel sees it.
    pub smt: Option<bool>,
    /// Frequency governor of the first CPU.
    pub governor: String,
    /// Steal over the experiment, percent.
    pub steal_pct: f64,
    pub cpus: usize,
    pub model: String,
    /// Version of cgroups that the cpu controller is on; absent when none is writable.
    pub cgroup: Option<u8>,
    #[serde(skip)]
    /// Monotonic time and steal at the first look, ns.
    pub start: (u64, u64),
}

fn read(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_string())
}

/// Steal of all CPUs since boot: the eighth number of the first line, in hundredths of a second
/// (USER_HZ is 100).
pub fn steal_ns() -> u64 {
    let stat = read("/proc/stat").unwrap_or_default();
    let ticks = stat.split_whitespace().nth(8).and_then(|t| t.parse().ok());
    ticks.unwrap_or(0) * 10_000_000
}

impl HostMachine {
    /// Looks at the machine; steal is counted from now.
    pub fn look() -> Self {
        let in_sched = |file: &str| read(&format!("/sys/kernel/debug/sched/{file}"));
        let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo
            .lines()
            .find_map(|l| l.strip_prefix("model name")?.split_once(": "));
        HostMachine {
            kernel: read("/proc/sys/kernel/osrelease").unwrap_or_default(),
            hz: clock::hz(),
            preemption: in_sched("preempt")
                .and_then(|text| chosen(&text))
                .unwrap_or_else(|| "unknown".into()),
            base_slice_ms: in_sched("base_slice_ns")
                .and_then(|ns| ns.parse::<f64>().ok())
                .or_else(own_slice_ns)
                .map(|ns| ns / 1e6),
            smt: read("/sys/devices/system/cpu/smt/active").map(|a| a == "1"),
            governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
                .unwrap_or_else(|| "none".into()),
            steal_pct: 0.0,
            cpus: cpus::online(&RealFs::new()).map_or(1, |cpus| cpus.len()),
            model: model.map_or("unknown", |m| m.1).to_string(),
            cgroup: None,
            start: (clock::monotonic_ns(), steal_ns()),
        }
    }

    /// Steal since [`HostMachine::look`], at the end of the experiment.
    pub fn finish(&mut self) {
        let wall = clock::monotonic_ns().saturating_sub(self.start.0).max(1) as f64;
        let steal = steal_ns().saturating_sub(self.start.1) as f64;
        self.steal_pct = 100.0 * steal / (wall * self.cpus as f64);
    }

    pub fn line(&self) -> String {
        let slice = self
            .base_slice_ms
            .map_or("unknown".into(), |ms| format!("{ms:.1} ms"));
        let smt = self
            .smt
            .map_or("unknown", |on| if on { "on" } else { "off" });
        format!(
            "{} CPUs ({}), Linux {}, HZ {}, preemption {}, base slice {slice}, SMT {smt}, governor {}, \
             cgroup v{}, steal {:.1} %",
            self.cpus,
            self.model,
            self.kernel,
            self.hz,
            self.preemption,
            self.governor,
            self.cgroup.map_or("-".into(), |v| v.to_string()),
            self.steal_pct
        )
    }
}

/// The word in parentheses: `none (voluntary) full` is `voluntary`.
fn chosen(text: &str) -> Option<String> {
    Some(text.split_once('(')?.1.split_once(')')?.0.to_string())
}

/// A locked-down kernel keeps debugfs to itself, but tells a thread its own slice (from 6.12 on),
/// and ours has the default one.
fn own_slice_ns() -> Option<f64> {
    let slice_ns = RealFs::new().sched(0).ok()?.slice_ns;
    (slice_ns > 0).then_some(slice_ns as f64)
}

/// What a report was made on; in JSON each is written as itself.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Machine {
    Host(HostMachine),
    Guest(Guest),
    Simulated(Simulated),
}

#[derive(Clone, Debug, Serialize)]
pub struct Guest {
    #[serde(flatten)]
    pub machine: HostMachine,
    pub package: String,
    pub series: String,
}

/// What decides the figures of a simulated run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Simulated {
    pub cpus: Vec<u32>,
    pub threads_per_core: u32,
    pub cpus_per_llc: u32,
    /// Timer interrupts come this often.
    pub tick_us: u64,
    /// What neighbours cost: the coefficients in words.
    pub contention: String,
    pub seed: u64,
    /// The command that repeats it.
    pub command: String,
}

impl Simulated {
    /// Of machines that differ in their sizes alone.
    pub fn of(models: &[&MachineConfig], seed: u64, command: String) -> Self {
        let mut cpus = distinct(models.iter().map(|model| model.topology.cpus()));
        cpus.sort_unstable();
        let one_cpu = MachineConfig::new(1);
        let first = models.first().copied().unwrap_or(&one_cpu);
        Simulated {
            cpus,
            threads_per_core: first.topology.threads_per_core(),
            cpus_per_llc: first.topology.cpus_per_llc(),
            tick_us: first.tick_ns / 1_000,
            contention: contention_words(&first.contention),
            seed,
            command,
        }
    }
}

fn contention_words(c: &Contention) -> String {
    if c.is_none() {
        return "none".into();
    }
    let pct = |ppm: u32| f64::from(ppm) / 10_000.0;
    format!(
        "sibling −{:.1} %, cache −{:.1} %, machine −{:.1} % above {:.0} % busy",
        pct(c.sibling_ppm),
        pct(c.llc_ppm),
        pct(c.machine_ppm),
        pct(c.machine_knee_ppm)
    )
}

impl Machine {
    pub fn on(&self) -> On {
        match self {
            Machine::Host(_) => On::Host,
            Machine::Guest(_) => On::Vm,
            Machine::Simulated(_) => On::Sim,
        }
    }

    pub fn line(&self) -> String {
        match self {
            Machine::Host(machine) => machine.line(),
            Machine::Guest(guest) => {
                format!("virtual time, {}: {}", guest.package, guest.machine.line())
            }
            Machine::Simulated(s) => format!(
                "simulated: {} CPUs ({}, {} CPUs a last-level cache), EEVDF, tick {} us, contention {}, \
                 seed {}; again: {}",
                sizes(&s.cpus),
                match s.threads_per_core {
                    1 => "one thread a core".into(),
                    n => format!("{n} threads a core"),
                },
                s.cpus_per_llc,
                s.tick_us,
                s.contention,
                s.seed,
                s.command
            ),
        }
    }
}

fn sizes(cpus: &[u32]) -> String {
    let text: Vec<String> = cpus.iter().map(u32::to_string).collect();
    match text.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => text.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_a_list() {
        assert_eq!(sizes(&[2]), "2");
        assert_eq!(sizes(&[16, 64, 256]), "16, 64 and 256");
    }

    #[test]
    fn the_chosen_mode_is_in_parentheses() {
        assert_eq!(
            chosen("none voluntary (full) lazy\n").as_deref(),
            Some("full")
        );
        assert_eq!(chosen("none"), None);
    }

    #[test]
    fn looking_tells_the_kernel_and_the_cpus() {
        let mut machine = HostMachine::look();
        machine.finish();
        assert!(!machine.kernel.is_empty() && machine.cpus >= 1);
        assert!((0.0..=100.0).contains(&machine.steal_pct));
        assert!(machine.line().contains("HZ"));
    }
}
