//! Where an experiment runs: this machine ([`host`]), a simulated one ([`sim`]), or a stock kernel in virtual time ([`vm`],
//! which is the host's bed once more, in a guest); and what a report says of each.

pub mod host;
pub mod sim;
pub mod vm;

use serde::Serialize;

use self::host::machine::Machine;

/// What the experiments ask to keep idle, percent of the machine.
pub const HEADROOM_PCT: f64 = 30.0;
/// What side work may always have, percent of the machine.
pub const TOLERANCE_PCT: f64 = 1.0;

/// What a report was made on; in JSON each is written as itself.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Bed {
    /// A real machine.
    Host(Machine),
    /// A stock kernel in the VM bed.
    Vm(Guest),
    /// A simulated one.
    Sim(Simulated),
}

/// A guest of the VM bed.
#[derive(Clone, Debug, Serialize)]
pub struct Guest {
    /// What it looks like from inside.
    #[serde(flatten)]
    pub machine: Machine,
    /// Its kernel's package and version.
    pub package: String,
    /// The series that was asked for.
    pub series: String,
}

/// What decides the figures of a simulated run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Simulated {
    /// Sizes that were run, in CPUs.
    pub cpus: Vec<u32>,
    /// Threads of a core.
    pub threads_per_core: u32,
    /// CPUs that share a last-level cache.
    pub cpus_per_llc: u32,
    /// The fair class.
    pub scheduler: String,
    /// Timer interrupts come this often.
    pub tick_us: u64,
    /// What neighbours cost: the coefficients in words.
    pub contention: String,
    /// Everything random comes from it.
    pub seed: u64,
    /// The command that repeats it.
    pub command: String,
}

impl From<Machine> for Bed {
    fn from(machine: Machine) -> Self {
        Bed::Host(machine)
    }
}

impl From<Guest> for Bed {
    fn from(guest: Guest) -> Self {
        Bed::Vm(guest)
    }
}

impl From<Simulated> for Bed {
    fn from(simulated: Simulated) -> Self {
        Bed::Sim(simulated)
    }
}

impl Bed {
    /// As `--on` has it.
    pub fn on(&self) -> &'static str {
        match self {
            Bed::Host(_) => "host",
            Bed::Vm(_) => "vm",
            Bed::Sim(_) => "sim",
        }
    }

    /// One line for the head of a report.
    pub fn line(&self) -> String {
        match self {
            Bed::Host(machine) => machine.line(),
            Bed::Vm(guest) => {
                format!("virtual time, {}: {}", guest.package, guest.machine.line())
            }
            Bed::Sim(s) => format!(
                "simulated: {} CPUs ({}, {} CPUs a last-level cache), {}, tick {} us, contention {}, \
                 seed {}; again: {}",
                sizes(&s.cpus),
                match s.threads_per_core {
                    1 => "one thread a core".into(),
                    n => format!("{n} threads a core"),
                },
                s.cpus_per_llc,
                s.scheduler,
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
}
