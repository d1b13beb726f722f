//! What a recording holds: the fields that every reader of one shares.

use serde::{Deserialize, Serialize};
use tidegate_api::Limit;

/// One entry of a recording. Postcard encodes the kind by its place here and the fields by their
/// order, so both only ever grow at the end, with a new [`crate::VERSION`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Record {
    /// The machine: the first entry of every file.
    Machine(Machine),
    Works(Vec<Work>),
    Second(Second),
    /// Steps of the control loop, oldest first: of the last minutes before an alert alone.
    Steps(Vec<Step>),
    Event(Event),
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub version: String,
    pub kernel: String,
    pub cpus: u32,
    pub threads_per_core: u32,
    /// `cgroup` or `sched_ext`.
    pub engine: String,
    /// `bpf` or `usage`.
    pub sensing: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    pub id: u32,
    /// The gate's name; of a group without a gate its unit or its path.
    pub name: String,
    pub is_gate: bool,
    /// `main`, `side` or `neutral`.
    pub class: String,
    /// Its group, below the mount of the cpu controller.
    pub cgroup: String,
    /// The executable of a gate's process, without its arguments; empty where it is not known.
    pub exe: String,
    /// The user who made the gate, or 0.
    pub uid: u32,
    pub parent: Option<String>,
    /// The rule of the policy that gave it terms, if any.
    pub rule: Option<String>,
    pub terms: Vec<(String, String, String)>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Its end, milliseconds since 1970.
    pub unix_ms: u64,
    /// CPUs less what the hypervisor took.
    pub capacity_cpus: f32,
    /// Everything but side and idle.
    pub main_cpus: f32,
    pub side_cpus: f32,
    pub idle_cpus: f32,
    pub allowance_cpus: f32,
    /// Headroom in force, percent of the machine.
    pub headroom_pct: f32,
    /// Tolerance in force, percent of the machine.
    pub tolerance_pct: f32,
    pub is_at_tolerance: bool,
    /// Steps of the control loop that began more than a period late.
    pub late_steps: u32,
    /// Times that main's tasks began to run; 0 where nothing counts them.
    pub main_turns: u32,
    /// How long they had waited to run, added up.
    pub main_wait_us: u64,
    /// 99 of 100 waited no longer, to a factor of two.
    pub main_wait_p99_us: u32,
    /// Works that used CPU, or were throttled, in this second.
    pub works: Vec<WorkSecond>,
    pub alerts: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkSecond {
    pub id: u32,
    pub used_cpus: f32,
    pub allowance_cpus: Option<f32>,
    /// How long its quota throttled it, all CPUs added up.
    pub throttled_us: u32,
    /// Processes in it; 0 where they were not counted.
    pub processes: u32,
    pub limit: Limit,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// When, microseconds since 1970.
    pub unix_us: u64,
    /// What the law takes main and the rest to use, in millionths of a CPU.
    pub main_ucpu: u32,
    pub side_ucpu: u32,
    pub idle_ucpu: u32,
    pub allowance_ucpu: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When, milliseconds since 1970.
    pub unix_ms: u64,
    /// As `tidegate events` has it.
    pub kind: String,
    pub gate: Option<String>,
    pub message: String,
}
