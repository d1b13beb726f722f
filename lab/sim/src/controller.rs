//! Engines: what looks at the machine from outside now and then and changes
//! its files, as a process on a real machine would.

use crate::Ns;
use crate::error::Violation;
use crate::machine::Machine;

pub trait Controller: Send {
    /// One step, the first at time 0; returns the absolute time of the next (later than now).
    fn step(&mut self, machine: &mut Machine) -> Ns;
    fn name(&self) -> &str;
    /// What the machine refused it, the last of it.
    fn refusal(&self) -> Option<String> {
        None
    }
    /// How long side work has been at the tolerance, where it has one.
    fn at_tolerance_ns(&self, _now_ns: Ns) -> Option<u64> {
        None
    }
}

/// A machine and the engines that act on it. At one instant the machine's own
/// events come first, then the engines in their order.
pub struct Simulation {
    pub machine: Machine,
    pub controllers: Vec<Box<dyn Controller>>,
    next_ns: Vec<Ns>,
}

impl Simulation {
    /// Puts engines beside a machine.
    pub fn new(machine: Machine, controllers: Vec<Box<dyn Controller>>) -> Simulation {
        Simulation {
            machine,
            controllers,
            next_ns: Vec::new(),
        }
    }

    /// Runs to a time, that instant included.
    pub fn run_until(&mut self, t_ns: Ns) -> Result<(), Violation> {
        // Controllers may be added between two calls.
        self.next_ns.resize(self.controllers.len(), 0);
        while let Some((i, &at)) = self
            .next_ns
            .iter()
            .enumerate()
            .min_by_key(|&(i, &at)| (at, i))
            && at <= t_ns
        {
            self.machine.run_until(at)?;
            let next = self.controllers[i].step(&mut self.machine);
            // A step in the past would never end: the least step is 1 ns.
            self.next_ns[i] = next.max(at + 1);
        }
        self.machine.run_until(t_ns)
    }
}
