//! The machine: what is built, and what anybody outside may ask or change.
//!
//! - here: building it;
//! - `run`: the loop over events, and the switch from task to task;
//! - `ops`: what programs do;
//! - `wake`: tasks that start, wake, sleep, end;
//! - `write`: what an engine may write;
//! - `read`: what it may read.

mod ops;
mod read;
mod run;
#[cfg(test)]
mod tests;
mod wake;
mod write;

use crate::Ns;
use crate::check::Checker;
use crate::config::MachineConfig;
use crate::cpuset::CpuSet;
use crate::error::SimError;
use crate::event::{EventQueue, Timer};
use crate::hist::Histogram;
use crate::ids::{CpuId, GroupId, PipeId, SeriesId, TaskId};
use crate::kernel::{Cpu, Group, Kernel, NONE, Pending, Pipe, Task, TaskCold, TaskState};
use crate::prng::Prng;
use crate::program::TaskSpec;
use crate::sched::Fair;
use crate::spec::{Bandwidth, GroupSpec};

/// EEVDF's bounds for a slice of one's own.
const SLICE_LEAST_NS: u64 = 100_000;
const SLICE_MOST_NS: u64 = 100_000_000;

pub struct Machine {
    pub(crate) k: Kernel,
    pub(crate) sched: Fair,
    checker: Option<Box<Checker>>,
}

impl Machine {
    /// A machine without groups (but the root) and tasks.
    pub fn new(cfg: MachineConfig) -> Result<Machine, SimError> {
        cfg.topology.validate()?;
        range("tick_ns", cfg.tick_ns, 100_000, 100_000_000)?;
        range("bandwidth_slice_us", cfg.bandwidth_slice_us, 1, 1_000_000)?;
        let cpus = cfg.topology.cpus();
        let all = cfg.topology.all();
        let llcs = cfg.topology.llcs() as usize;
        let mut k = Kernel {
            now: 0,
            cpus: (0..cpus).map(|_| Cpu::default()).collect(),
            tasks: Vec::new(),
            cold: Vec::new(),
            groups: Vec::new(),
            events: EventQueue::new(cpus as usize),
            resched: CpuSet::EMPTY,
            any_resched: false,
            idle: all,
            crowded: CpuSet::EMPTY,
            idle_policy: CpuSet::EMPTY,
            busy_llc: vec![0; llcs],
            busy: 0,
            series: Vec::new(),
            pipes: Vec::new(),
            wakeups_from_ns: Ns::MAX,
            violation: None,
            handled: 0,
            count_runs: false,
            cfg,
        };
        let mut sched = Fair::new(&k);
        k.groups
            .push(Group::new(GroupSpec::new("", GroupId::ROOT), 0, all));
        sched.add_group(&mut k, GroupId::ROOT);
        let checker = k.cfg.check.then(|| Box::new(Checker::new(&k)));
        Ok(Machine { k, sched, checker })
    }

    /// Adds a group below another.
    pub fn add_group(&mut self, spec: GroupSpec) -> Result<GroupId, SimError> {
        let above = self.group(spec.parent)?;
        range("weight", u64::from(spec.weight), 1, 10_000)?;
        if let Some(bandwidth) = &spec.bandwidth {
            check_bandwidth(bandwidth)?;
        }
        let cpus = spec.cpus.map_or(above.cpus, |own| own.and(&above.cpus));
        if cpus.is_empty() {
            return Err(self.no_cpu(&spec.name));
        }
        let depth = above.depth + 1;
        let id = GroupId(self.k.groups.len() as u32);
        self.k.groups.push(Group::new(spec, depth, cpus));
        self.sched.add_group(&mut self.k, id);
        if let Some(checker) = &mut self.checker {
            checker.limit_changed(&self.k, id);
        }
        Ok(id)
    }

    /// Adds a pipe that holds `capacity` messages.
    pub fn add_pipe(&mut self, capacity: u32) -> PipeId {
        self.k.pipes.push(Pipe {
            capacity: capacity.max(1),
            ..Pipe::default()
        });
        PipeId(self.k.pipes.len() as u32 - 1)
    }

    /// Adds a series for programs to record into.
    pub fn add_series(&mut self) -> SeriesId {
        self.k.series.push(Histogram::new());
        SeriesId(self.k.series.len() as u32 - 1)
    }

    /// Creates a task; it starts at `start_ns`, or now.
    pub fn spawn(&mut self, mut spec: TaskSpec) -> Result<TaskId, SimError> {
        if let Some(limit) = self.group(spec.group)?.spec.task_limit {
            let above = spec.group;
            spec.group = self.add_group(GroupSpec {
                bandwidth: Some(limit),
                ..GroupSpec::new(&spec.name, above)
            })?;
            self.k.groups[spec.group.index()].of_task = Some(above);
        }
        let start = spec.start_ns.max(self.k.now);
        let task = self.create(spec, None)?;
        self.k.events.set_timer(start, Timer::Wake(task));
        Ok(task)
    }
}

impl Machine {
    /// Puts a task into the tables; it does not run yet.
    fn create(&mut self, spec: TaskSpec, parent: Option<TaskId>) -> Result<TaskId, SimError> {
        let group = self.group(spec.group)?;
        range("nice + 20", (i64::from(spec.nice) + 20) as u64, 0, 39)?;
        let mut allowed = spec.cpus.map_or(group.cpus, |own| own.and(&group.cpus));
        if allowed.is_empty() && parent.is_some() {
            // What a parent asked for once, and its cpuset no longer has: the cpuset counts, as in
            // the kernel.
            allowed = group.cpus;
        }
        let Some(first) = allowed.first() else {
            return Err(self.no_cpu(&spec.name));
        };
        let id = TaskId(self.k.tasks.len() as u32);
        // Tasks start spread out; where one really goes is chosen when it starts.
        let spread = CpuId(id.0 % self.k.cpus.len() as u32);
        let cpu = allowed.next_from(spread).unwrap_or(first);
        self.k.tasks.push(Task {
            state: TaskState::New,
            policy: spec.policy,
            nice: spec.nice,
            anywhere: allowed == self.k.cfg.topology.all(),
            cpu,
            group: spec.group,
            queued_at: NONE,
            ent: NONE,
            pending: Pending::Next,
            overhead_ns: 0,
            work_ns: 0,
            slice_ns: spec
                .slice_ns
                .map_or(0, |ns| ns.clamp(SLICE_LEAST_NS, SLICE_MOST_NS)),
            woken_ns: 0,
            is_woken: false,
            queued_ns: 0,
            last_ran_ns: 0,
            usage_ns: 0,
            work_done_ns: 0,
        });
        self.k.cold.push(TaskCold {
            program: Some(spec.program),
            fork: None,
            rng: Prng::stream(self.k.cfg.seed, u64::from(id.0)),
            asked: spec.cpus,
            allowed,
        });
        self.sched.add_task(&mut self.k, id);
        Ok(id)
    }

    fn group(&self, group: GroupId) -> Result<&Group, SimError> {
        self.k
            .groups
            .get(group.index())
            .ok_or(SimError::NoGroup(group))
    }

    fn no_cpu(&self, what: &str) -> SimError {
        SimError::NoCpu {
            what: what.to_owned(),
            cpus: self.k.cpus.len() as u32,
        }
    }
}

impl Group {
    fn new(spec: GroupSpec, depth: u32, cpus: CpuSet) -> Group {
        Group {
            name: spec.name.clone(),
            parent: spec.parent,
            depth,
            bandwidth: spec.bandwidth.unwrap_or_default(),
            spec,
            cpus,
            usage_ns: 0,
            usage_by_cpu_ns: Vec::new(),
            work_done_ns: 0,
            run_delay_ns: 0,
            runs: 0,
            late_runs: 0,
            late_after_ns: u64::MAX,
            writes: 0,
            wakeups: Histogram::new(),
            of_task: None,
        }
    }
}

fn range(what: &'static str, got: u64, low: u64, high: u64) -> Result<(), SimError> {
    if (low..=high).contains(&got) {
        return Ok(());
    }
    Err(SimError::Range {
        what,
        got,
        low,
        high,
    })
}

/// What the kernel takes for cpu.max and cpu.max.burst.
fn check_bandwidth(bandwidth: &Bandwidth) -> Result<(), SimError> {
    range("period_us", bandwidth.period_us, 1_000, 1_000_000)?;
    if let Some(quota_us) = bandwidth.quota_us {
        range("quota_us", quota_us, 1_000, 1 << 40)?;
        range("burst_us", bandwidth.burst_us, 0, quota_us)?;
    }
    Ok(())
}
