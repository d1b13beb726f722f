//! A tree of groups on a few CPUs under the bandwidth law.

use tidegate_law::bandwidth::{Pool, Silo, Terms, may_run, run_up};

pub const MS: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Law,
    Expiring,
    Kernel,
}

#[derive(Clone, Debug)]
pub enum Op {
    Wait {
        ns: u64,
    },
    /// A task of this group runs on this CPU for up to this long, as it may.
    Run {
        cpu: usize,
        group: usize,
        ns: u64,
    },
    /// Its use is looked up, also while it is throttled: nothing may be taken then.
    Account {
        cpu: usize,
        group: usize,
    },
    /// The group has nothing to run on this CPU.
    Idle {
        cpu: usize,
        group: usize,
    },
    /// Its timer fires: turnover, then distribution from this CPU on.
    Timer {
        group: usize,
        first: usize,
    },
    /// Slack is handed out in between.
    Slack {
        cpu: usize,
        group: usize,
    },
    Set {
        group: usize,
        terms: Terms,
    },
}

/// Laid out as [`run_up`] wants it: group 0 is the root.
#[derive(Clone)]
pub struct Machine {
    pub kind: Kind,
    pub now: u64,
    pub parents: Vec<u32>,
    pub pools: Vec<Pool>,
    pub silos: Vec<Vec<Silo>>,
    /// What ran, by group with all below it.
    pub used: Vec<u64>,
}

impl Machine {
    pub fn new(kind: Kind, cpus: usize, parents: &[u32], now: u64, phase: u64) -> Self {
        let pool = match kind {
            Kind::Law => Pool::new(),
            Kind::Expiring => Pool::expiring(),
            Kind::Kernel => Pool::kernel(phase, false),
        };
        Self {
            kind,
            now,
            parents: parents.to_vec(),
            pools: vec![pool; parents.len()],
            silos: vec![vec![Silo::default(); parents.len()]; cpus],
            used: vec![0; parents.len()],
        }
    }

    pub fn cpus(&self) -> usize {
        self.silos.len()
    }

    /// The groups from this one up to below the root.
    pub fn path(&self, mut group: usize) -> Vec<usize> {
        let mut path = Vec::new();
        while group != 0 {
            path.push(group);
            group = self.parents[group] as usize;
        }
        path
    }

    /// Charges every level; returns the level that has nothing left, if any.
    fn charge(&mut self, cpu: usize, group: usize, ns: u64) -> Option<u32> {
        let number = u32::try_from(group).unwrap();
        run_up(
            &mut self.pools,
            &mut self.silos[cpu],
            &self.parents,
            number,
            ns,
            self.now,
        )
    }

    /// Charges and throttles the level that has nothing left; returns whether the task may run.
    fn charge_or_throttle(&mut self, cpu: usize, group: usize, ns: u64) -> bool {
        let Some(out) = self.charge(cpu, group, ns) else {
            return true;
        };
        let level = out as usize;
        self.pools[level].throttle(&mut self.silos[cpu][level], self.now);
        false
    }

    fn run(&mut self, cpu: usize, group: usize, ns: u64) {
        let number = u32::try_from(group).unwrap();
        // Each level needs some runtime when the task is picked.
        if !may_run(&self.silos[cpu], &self.parents, number)
            || !self.charge_or_throttle(cpu, group, 0)
        {
            return;
        }
        for level in self.path(group) {
            self.used[level] += ns;
        }
        self.charge_or_throttle(cpu, group, ns);
    }

    fn distribute(&mut self, cpu: usize, group: usize) {
        self.pools[group].distribute(&mut self.silos[cpu][group], self.now);
    }

    pub fn step(&mut self, op: &Op) {
        match *op {
            Op::Wait { ns } => self.now += ns,
            Op::Run { cpu, group, ns } => self.run(cpu, group, ns),
            Op::Account { cpu, group } => {
                self.charge(cpu, group, 0);
            }
            Op::Idle { cpu, group } => {
                self.pools[group].give_back(&mut self.silos[cpu][group]);
            }
            Op::Timer { group, first } => {
                self.pools[group].turnover(self.now);
                for cpu in 0..self.cpus() {
                    let cpu = (first + cpu) % self.cpus();
                    if self.silos[cpu][group].is_throttled() {
                        self.distribute(cpu, group);
                    }
                }
            }
            Op::Slack { cpu, group } => {
                if self.silos[cpu][group].is_throttled() {
                    self.distribute(cpu, group);
                }
            }
            Op::Set { group, ref terms } => {
                if self.kind == Kind::Kernel {
                    self.pools[group].set_kernel(terms, self.now);
                    for silos in &mut self.silos {
                        self.pools[group].forgive(&mut silos[group], self.now);
                    }
                } else {
                    self.pools[group].set(terms, self.now);
                }
                if !self.pools[group].is_limited() {
                    for cpu in 0..self.cpus() {
                        self.distribute(cpu, group);
                    }
                }
            }
        }
    }

    /// What pool and silos hold, debts left out, once the turnovers due by now are handled.
    pub fn held(&self, group: usize) -> u64 {
        let mut pool = self.pools[group];
        pool.turnover(self.now);
        let silos = self
            .silos
            .iter()
            .map(|silos| silos[group].remaining_ns().max(0));
        pool.runtime_ns() + silos.map(i64::unsigned_abs).sum::<u64>()
    }
}
