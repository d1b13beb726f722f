//! A published law at work on a simulated machine.

use super::{Counters, Order, Policy};
use crate::controller::Controller;
use crate::cpuset::CpuSet;
use crate::machine::Machine;
use crate::{Bandwidth, CpuId, GroupId, Ns, SimError};

/// The groups that a law limits, and those that it protects.
#[derive(Clone, Debug, Default)]
pub struct Sides {
    /// The groups that hold all side work.
    pub side: Vec<GroupId>,
    pub main: Vec<GroupId>,
}

/// A law, its groups and its timer.
pub struct PolicyController {
    law: Box<dyn Policy>,
    sides: Sides,
    started: bool,
    primed_ppm: Option<u64>,
    refusal: Option<SimError>,
    /// The CPUs that main has, once a pool has said so.
    main_cpus: Option<CpuSet>,
}

impl PolicyController {
    /// The law from time 0 on, without history, as its agent starts.
    pub fn new(law: Box<dyn Policy>, sides: Sides) -> Self {
        Self {
            law,
            sides,
            started: false,
            primed_ppm: None,
            refusal: None,
            main_cpus: None,
        }
    }

    /// Starts it in the state that it would be in after long enough at this part of the machine for
    /// main.
    pub fn primed(self, busy_ppm: u64) -> Self {
        Self {
            primed_ppm: Some(busy_ppm),
            ..self
        }
    }

    fn counters(&self, machine: &Machine) -> Counters {
        let side = self.sides.side.iter();
        let main = self.sides.main.iter();
        Counters {
            idle_ns: machine.idle_ns(),
            total_ns: machine.now_ns() * u64::from(machine.cpus()),
            side_ns: side.map(|group| machine.usage_ns(*group)).sum(),
            main_wait_ns: main.map(|group| machine.run_delay_ns(*group)).sum(),
        }
    }

    fn obey(&mut self, machine: &mut Machine, order: Order) -> Result<(), SimError> {
        match order {
            Order::Quota(quota_us) => {
                for group in &self.sides.side {
                    let bandwidth = Bandwidth {
                        quota_us: Some(quota_us),
                        period_us: self.law.period_us(),
                        burst_us: 0,
                    };
                    machine.set_bandwidth(*group, bandwidth)?;
                }
            }
            Order::Pool(cpus) => {
                // The last CPUs, so that pools are whole cores and caches.
                let all = machine.cpus();
                let pool = CpuSet::range(all.saturating_sub(cpus.max(1))..all);
                for group in &self.sides.side {
                    machine.set_cpuset(*group, pool)?;
                }
                // A pool of every CPU leaves none to keep from side work.
                let rest = CpuSet::first_n(if cpus < all { all - cpus } else { all });
                debug_assert!(rest.contains(CpuId(0)), "main has CPU 0 in any pool");
                if self.main_cpus.replace(rest) != Some(rest) {
                    for group in &self.sides.main {
                        machine.set_cpuset(*group, rest)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn start(&mut self, machine: &mut Machine) -> Result<(), SimError> {
        for group in &self.sides.side {
            machine.set_idle(*group, true)?;
        }
        Ok(())
    }
}

impl Controller for PolicyController {
    fn step(&mut self, machine: &mut Machine) -> Ns {
        let mut done = Ok(());
        if !self.started {
            self.started = true;
            done = self.start(machine);
        }
        let counters = self.counters(machine);
        let order = match self.primed_ppm.take() {
            Some(busy_ppm) => Some(self.law.prime(busy_ppm, counters)),
            None => self.law.tick(counters),
        };
        if let Some(order) = order {
            done = done.and(self.obey(machine, order));
        }
        self.refusal = done.err().or(self.refusal.take());
        machine.now_ns() + self.law.interval_ns()
    }

    fn refusal(&self) -> Option<String> {
        self.refusal.as_ref().map(ToString::to_string)
    }

    fn name(&self) -> &str {
        self.law.name()
    }
}
