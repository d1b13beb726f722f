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

/// The sensor, as `tidegate agent run --sense` takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sense {
    /// BPF run-time accounting, windows of 5 ms.
    Bpf,
    /// Group usage files, windows of 50 ms.
    Usage,
}

impl On {
    /// As the command line has it.
    pub fn name(self) -> &'static str {
        match self {
            On::Host => "host",
            On::Vm => "vm",
            On::Sim => "sim",
        }
    }
}

impl Sense {
    /// As the command line has it.
    pub fn name(self) -> &'static str {
        match self {
            Sense::Bpf => "bpf",
            Sense::Usage => "usage",
        }
    }
}
