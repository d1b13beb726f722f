//! A group on a few CPUs under the bandwidth law.

use tidegate_law::bandwidth::{Pool, Silo, Terms, Verdict};

pub const MS: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Law,
    Kernel,
}

#[derive(Clone, Debug)]
pub enum Op {
    Wait {
        ns: u64,
    },
    /// A task of the group runs on this CPU for up to this long, as it may.
    Run {
        cpu: usize,
        ns: u64,
    },
    /// Its use is looked up, also while it is throttled: nothing may be taken then.
    Account {
        cpu: usize,
    },
    /// The group has nothing to run on this CPU.
    Idle {
        cpu: usize,
    },
    /// Its timer fires: turnover, then distribution from this CPU on.
    Timer {
        first: usize,
    },
    /// Slack is handed out in between.
    Slack {
        cpu: usize,
    },
    Set(Terms),
}

#[derive(Clone)]
pub struct Machine {
    pub kind: Kind,
    pub now: u64,
    pub pool: Pool,
    pub silos: Vec<Silo>,
    pub used: u64,
}

impl Machine {
    pub fn new(kind: Kind, cpus: usize, now: u64, phase: u64) -> Self {
        let pool = match kind {
            Kind::Law => Pool::new(),
            Kind::Kernel => Pool::kernel(phase, false),
        };
        Self {
            kind,
            now,
            pool,
            silos: vec![Silo::default(); cpus],
            used: 0,
        }
    }

    /// Charges and throttles where nothing is left; returns whether the task may run.
    fn charge_or_throttle(&mut self, cpu: usize, ns: u64) -> bool {
        let silo = &mut self.silos[cpu];
        let runs = self.pool.run(silo, ns, self.now) == Verdict::Run;
        if !runs {
            self.pool.throttle(silo, self.now);
        }
        runs
    }

    fn run(&mut self, cpu: usize, ns: u64) {
        // It needs some runtime when the task is picked.
        if !self.silos[cpu].is_throttled() && self.charge_or_throttle(cpu, 0) {
            self.used += ns;
            self.charge_or_throttle(cpu, ns);
        }
    }

    fn distribute(&mut self, cpu: usize) {
        if self.silos[cpu].is_throttled() {
            self.pool.distribute(&mut self.silos[cpu], self.now);
        }
    }

    pub fn step(&mut self, op: &Op) {
        match *op {
            Op::Wait { ns } => self.now += ns,
            Op::Run { cpu, ns } => self.run(cpu, ns),
            Op::Account { cpu } => {
                self.pool.run(&mut self.silos[cpu], 0, self.now);
            }
            Op::Idle { cpu } => {
                self.pool.give_back(&mut self.silos[cpu]);
            }
            Op::Timer { first } => {
                self.pool.turnover(self.now);
                for cpu in 0..self.silos.len() {
                    self.distribute((first + cpu) % self.silos.len());
                }
            }
            Op::Slack { cpu } => self.distribute(cpu),
            Op::Set(ref terms) if self.kind == Kind::Kernel => {
                self.pool.set_kernel(terms, self.now);
                for silo in &mut self.silos {
                    self.pool.forgive(silo, self.now);
                }
            }
            Op::Set(ref terms) => self.pool.set(terms, self.now),
        }
    }

    /// What pool and silos hold, debts left out, once the turnovers due by now are handled.
    pub fn held(&self) -> u64 {
        let mut pool = self.pool;
        pool.turnover(self.now);
        let silos = self.silos.iter().map(|silo| silo.remaining_ns().max(0));
        pool.runtime_ns() + silos.map(i64::unsigned_abs).sum::<u64>()
    }
}
