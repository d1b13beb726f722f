//! A tree of groups on a few CPUs, each of them once as the law has it and once as the model does. Every operation is done to
//! both, and everything that can be seen of them is compared.

use super::model::{Kind, Model};
use tidegate_law::bandwidth::{Pool, Silo, Terms, may_run, run_up};

pub const MS: u64 = 1_000_000;

#[derive(Clone, Debug)]
pub enum Op {
    /// Let time pass.
    Wait { ns: u64 },
    /// A task of this group runs on this CPU for up to this long, as it may.
    Run { cpu: usize, group: usize, ns: u64 },
    /// Its use is looked up, also while it is throttled: nothing may be taken then.
    Account { cpu: usize, group: usize },
    /// The group has nothing to run on this CPU.
    Idle { cpu: usize, group: usize },
    /// Its timer fires: turnover, then distribution from this CPU on.
    Timer { group: usize, first: usize },
    /// Slack is handed out in between.
    Slack { cpu: usize, group: usize },
    /// Other terms.
    Set { group: usize, terms: Terms },
}

/// Laid out as [`run_up`] wants it: group 0 is the root.
#[derive(Clone)]
pub struct Machine {
    pub kind: Kind,
    pub now: u64,
    pub parents: Vec<u32>,
    pub pools: Vec<Pool>,
    /// By CPU, then by group.
    pub silos: Vec<Vec<Silo>>,
    pub models: Vec<Model>,
    /// What ran, by group with all below it.
    pub used: Vec<u64>,
}

impl Machine {
    pub fn new(kind: Kind, cpus: usize, parents: &[u32], now: u64, phase: u64) -> Self {
        let pool = match kind {
            Kind::Law => Pool::new(),
            Kind::Expiring => Pool::expiring(),
            Kind::Kernel => Pool::kernel(phase, false),
            Kind::OldKernel => Pool::kernel(phase, true),
        };
        let phase = if kind.is_kernel() { phase } else { 0 };
        Self {
            kind,
            now,
            parents: parents.to_vec(),
            pools: vec![pool; parents.len()],
            silos: vec![vec![Silo::default(); parents.len()]; cpus],
            models: vec![Model::new(kind, cpus, phase); parents.len()],
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

    /// Charges every level of both; the level that is out, if one is.
    fn charge(&mut self, cpu: usize, group: usize, ns: u64) -> Result<Option<u32>, String> {
        let number = u32::try_from(group).unwrap();
        let law = run_up(
            &mut self.pools,
            &mut self.silos[cpu],
            &self.parents,
            number,
            ns,
            self.now,
        );
        let mut model = None;
        for level in self.path(group) {
            if !self.models[level].run(cpu, ns, self.now) {
                model = Some(u32::try_from(level).unwrap());
            }
        }
        same("the level that is out", &law, &model).map(|()| law)
    }

    fn stop(&mut self, cpu: usize, out: u32) -> Result<(), String> {
        let level = out as usize;
        let law = self.pools[level].throttle(&mut self.silos[cpu][level], self.now);
        let model = self.models[level].throttle(cpu, self.now);
        same("throttled", &law, &model)
    }

    fn run(&mut self, cpu: usize, group: usize, ns: u64) -> Result<(), String> {
        let number = u32::try_from(group).unwrap();
        let free = |machine: &Self| {
            let model = machine
                .path(group)
                .iter()
                .all(|level| !machine.models[*level].silos[cpu].throttled);
            let law = may_run(&machine.silos[cpu], &machine.parents, number);
            same("may run", &law, &model).map(|()| law)
        };
        if !free(self)? {
            return Ok(());
        }
        // Picked: each level needs something now.
        if let Some(out) = self.charge(cpu, group, 0)? {
            return self.stop(cpu, out);
        }
        for level in self.path(group) {
            self.used[level] += ns;
        }
        match self.charge(cpu, group, ns)? {
            Some(out) => self.stop(cpu, out),
            None => Ok(()),
        }
    }

    fn distribute(&mut self, cpu: usize, group: usize) -> Result<(), String> {
        let law = self.pools[group].distribute(&mut self.silos[cpu][group], self.now);
        let model = self.models[group].distribute(cpu, self.now);
        same("distributed", &law, &model)
    }

    pub fn step(&mut self, op: &Op) -> Result<(), String> {
        match *op {
            Op::Wait { ns } => self.now += ns,
            Op::Run { cpu, group, ns } => self.run(cpu, group, ns)?,
            Op::Account { cpu, group } => {
                self.charge(cpu, group, 0)?;
            }
            Op::Idle { cpu, group } => {
                self.pools[group].give_back(&mut self.silos[cpu][group]);
                self.models[group].give_back(cpu);
            }
            Op::Timer { group, first } => {
                let law = self.pools[group].turnover(self.now);
                let model = self.models[group].turnover(self.now);
                same("periods", &law, &model)?;
                for cpu in 0..self.cpus() {
                    let cpu = (first + cpu) % self.cpus();
                    if self.silos[cpu][group].is_throttled() {
                        self.distribute(cpu, group)?;
                    }
                }
            }
            Op::Slack { cpu, group } => {
                if self.silos[cpu][group].is_throttled() {
                    self.distribute(cpu, group)?;
                }
            }
            Op::Set { group, ref terms } => {
                if self.kind.is_kernel() {
                    self.pools[group].set_kernel(terms, self.now);
                    for silos in &mut self.silos {
                        self.pools[group].forgive(&mut silos[group], self.now);
                    }
                } else {
                    self.pools[group].set(terms, self.now);
                }
                self.models[group].set(terms, self.now);
                if !self.pools[group].is_limited() {
                    for cpu in 0..self.cpus() {
                        self.distribute(cpu, group)?;
                    }
                }
            }
        }
        self.compare()
    }

    /// Everything that can be seen.
    fn compare(&self) -> Result<(), String> {
        for (group, (pool, model)) in self.pools.iter().zip(&self.models).enumerate().skip(1) {
            same("pool", &i128::from(pool.runtime_ns()), &model.pool)?;
            if pool.is_limited() {
                same("turnover", &i128::from(pool.turnover_ns()), &model.end)?;
            }
            let (law, slow) = (pool.stat(), &model.stat);
            same("nr_periods", &law.nr_periods, &slow.periods)?;
            same("nr_throttled", &law.nr_throttled, &slow.throttled)?;
            same("nr_bursts", &law.nr_bursts, &slow.bursts)?;
            same("burst", &i128::from(law.burst_ns), &slow.burst_ns)?;
            same("expired", &i128::from(law.expired_ns), &slow.expired_ns)?;
            let waited = i128::from(law.throttled_ns);
            same("throttled time", &waited, &slow.throttled_ns)?;
            let mut stopped = 0;
            for (cpu, slow) in model.silos.iter().enumerate() {
                let silo = self.silos[cpu][group];
                same("silo", &i128::from(silo.remaining_ns()), &slow.remaining)?;
                same("is throttled", &silo.is_throttled(), &slow.throttled)?;
                stopped += u32::from(slow.throttled);
            }
            same("CPUs throttled", &pool.throttled(), &stopped)?;
        }
        Ok(())
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

fn same<T: PartialEq + std::fmt::Debug>(what: &str, law: &T, model: &T) -> Result<(), String> {
    if law == model {
        return Ok(());
    }
    Err(format!("{what}: the law has {law:?}, the model {model:?}"))
}
