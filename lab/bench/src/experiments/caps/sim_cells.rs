//! What is simulated: whose caps, on what, and on which machine.

use tidegate_sim::{CapScope, ExtConfig, MachineConfig, Scheduler};

use crate::beds::sim::plain;

/// Soft caps beside competition.
pub const SOFT: [u32; 3] = [0, 100, 300];
/// The cap of a fork storm.
pub const STORM_PPT: u32 = 100;

/// Who keeps the caps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// On sched_ext, by task.
    Ext,
    /// A quota on a group of its own.
    Knobs,
}

impl Engine {
    /// In tables.
    pub fn label(self) -> &'static str {
        match self {
            Engine::Ext => "ext",
            Engine::Knobs => "knobs",
        }
    }
}

/// What a build runs under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// No cap anywhere.
    Uncapped,
    /// Caps of as many CPUs as there are on every job: they are charged and do not bind. In scope task one
    /// of a CPU or more would be off, which is no cap.
    Unused,
    /// Soft caps of 0 on every job.
    SoftZero,
}

impl Build {
    /// In reports.
    pub fn name(self) -> &'static str {
        match self {
            Build::Uncapped => "none",
            Build::Unused => "unused",
            Build::SoftZero => "soft 0",
        }
    }
}

/// One simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Hogs that always run, each with another cap, on CPUs enough.
    Continuous(Engine),
    /// A hog with this cap that has slept for five seconds.
    AfterSleep(Engine, u32),
    /// A hog with this soft cap on a CPU of its own.
    SoftIdle(u32),
    /// ... beside a hog without.
    SoftBusy(u32),
    /// ... beside a task of 22 % in 4 ms, whose wakeups tell how soon the capped one yields; the hog
    /// has a cap, or a nice value of 0 and none (absent).
    SoftYields(Option<u32>),
    /// A storm of forks under a cap.
    Storm(Engine, CapScope),
    /// A build.
    Build(Build),
}

/// The machine of a cell.
pub fn config(engine: Engine, cpus: u32, seed: u64) -> MachineConfig {
    let plain = plain(cpus, seed);
    match engine {
        Engine::Knobs => plain,
        Engine::Ext => MachineConfig {
            scheduler: Scheduler::Ext(ExtConfig::for_cpus(cpus)),
            ..plain
        },
    }
}

/// In reports.
pub fn scope_name(scope: CapScope) -> &'static str {
    match scope {
        CapScope::Task => "task",
        CapScope::Process => "process",
        CapScope::Group => "group",
    }
}
