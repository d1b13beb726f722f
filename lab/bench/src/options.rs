//! What the command line asks of the lab.

use clap::ValueEnum;

/// Where an experiment runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum On {
    Host,
    /// A stock kernel in virtual time.
    Vm,
    /// A simulated machine.
    Sim,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[value(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// The kernel's own scheduler, moved by its files.
    #[default]
    Cgroup,
    /// Tidegate's own scheduler in the kernel, next to the kernel's own and the cgroup engine.
    SchedExt,
}

/// The sensor, as `tidegate agent run --sense` takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sense {
    /// BPF run-time accounting, windows of 5 ms.
    Bpf,
    /// Group usage files, windows of 50 ms.
    Usage,
}

/// The value as the command line has it.
pub fn name(value: impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}
