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
