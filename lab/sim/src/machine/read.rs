//! What may be read. Exact values are what BPF sees; accounted ones what files
//! show: a running task counts as of its CPU's last tick, switch or wakeup.

use super::Machine;
use crate::Ns;
use crate::config::MachineConfig;
use crate::hist::Histogram;
use crate::ids::{CpuId, GroupId, SeriesId, TaskId};
use crate::spec::CpuStat;

impl Machine {
    pub fn now_ns(&self) -> Ns {
        self.k.now
    }

    /// Events handled so far.
    pub fn events(&self) -> u64 {
        self.k.handled
    }

    /// What the machine was made of.
    pub fn config(&self) -> &MachineConfig {
        &self.k.cfg
    }

    pub fn cpus(&self) -> u32 {
        self.k.cpus.len() as u32
    }

    /// Groups, the root among them.
    pub fn groups(&self) -> u32 {
        self.k.groups.len() as u32
    }

    /// What a CPU's task has run since it was last charged.
    fn uncharged_ns(&self, cpu: usize) -> u64 {
        let c = &self.k.cpus[cpu];
        if c.curr.is_some() {
            self.k.now - c.charged_to
        } else {
            0
        }
    }

    /// CPU time of a group and all below it, exact.
    pub fn usage_ns(&self, group: GroupId) -> u64 {
        let uncharged = self
            .running_in(group)
            .map(|cpu| self.uncharged_ns(cpu.index()));
        self.usage_accounted_ns(group) + uncharged.sum::<u64>()
    }

    /// CPUs that run a task of a group or below.
    fn running_in(&self, group: GroupId) -> impl Iterator<Item = CpuId> {
        let runs = move |cpu: &CpuId| {
            let curr = self.k.cpus[cpu.index()].curr;
            curr.is_some_and(|task| self.k.is_within(self.k.task(task).group, group))
        };
        (0..self.cpus()).map(CpuId).filter(runs)
    }

    /// CPU time of a group and all below it, as its files show it.
    pub fn usage_accounted_ns(&self, group: GroupId) -> u64 {
        self.k.groups[group.index()].usage_ns
    }

    /// CPU time of a group and all below it on one CPU, exact, since that has been counted
    /// ([`Machine::count_by_cpu`]).
    pub fn usage_on_ns(&self, group: GroupId, cpu: CpuId) -> u64 {
        let runs = |task| self.k.is_within(self.k.task(task).group, group);
        let running = self.k.cpus[cpu.index()].curr.is_some_and(runs);
        let now_ns = if running {
            self.uncharged_ns(cpu.index())
        } else {
            0
        };
        self.usage_on_accounted_ns(group, cpu) + now_ns
    }

    /// The same as its files show it.
    pub fn usage_on_accounted_ns(&self, group: GroupId, cpu: CpuId) -> u64 {
        let by_cpu = &self.k.groups[group.index()].usage_by_cpu_ns;
        by_cpu.get(cpu.index()).copied().unwrap_or(0)
    }

    /// How long a CPU has run anything, exact.
    pub fn cpu_busy_ns(&self, cpu: CpuId) -> u64 {
        self.k.cpus[cpu.index()].busy_ns + self.uncharged_ns(cpu.index())
    }

    /// How long all CPUs together have run anything, exact.
    pub fn busy_ns(&self) -> u64 {
        (0..self.cpus())
            .map(|cpu| self.cpu_busy_ns(CpuId(cpu)))
            .sum()
    }

    /// How long all CPUs together have been idle, exact.
    pub fn idle_ns(&self) -> u64 {
        self.k.now * u64::from(self.cpus()) - self.busy_ns()
    }

    /// Work done for a group and all below it, exact: CPU time at full speed, without the
    /// kernel's own.
    pub fn work_done_ns(&self, group: GroupId) -> u64 {
        let running = self.running_in(group).map(|cpu| self.k.progress(cpu).1);
        self.k.groups[group.index()].work_done_ns + running.sum::<u64>()
    }

    /// How long tasks of a group and below have waited for a CPU while they could
    /// run (throttled or not), waits that are over.
    pub fn run_delay_ns(&self, group: GroupId) -> u64 {
        self.k.groups[group.index()].run_delay_ns
    }

    /// How often a task of a group or below began to run, and how often after a longer wait than
    /// [`Machine::count_runs`] was told.
    pub fn runs(&self, group: GroupId) -> (u64, u64) {
        let g = &self.k.groups[group.index()];
        (g.runs, g.late_runs)
    }

    /// A group's cpu.stat, with the kernel's meaning: throttled time adds up over CPUs and counts a
    /// CPU's when it is let go.
    pub fn cpu_stat(&self, group: GroupId) -> CpuStat {
        self.sched.cpu_stat(group)
    }

    /// Writes of a group's files from outside.
    pub fn writes(&self, group: GroupId) -> u64 {
        self.k.groups[group.index()].writes
    }

    /// From waking to running, of a group's own tasks, since it has been counted
    /// ([`Machine::count_wakeups`]).
    pub fn wakeups(&self, group: GroupId) -> Histogram {
        let own = &self.k.groups[group.index()];
        let mut wakeups = own.wakeups.clone();
        // Tasks under a limit of their own are in groups of their own.
        if own.spec.task_limit.is_some() {
            let tasks = self
                .k
                .groups
                .iter()
                .filter(|one| one.of_task == Some(group));
            tasks.for_each(|one| wakeups.merge(&one.wakeups));
        }
        wakeups
    }

    /// A task's CPU time, exact.
    pub fn task_usage_ns(&self, task: TaskId) -> u64 {
        let t = self.k.task(task);
        let running = self.k.cpus[t.cpu.index()].curr == Some(task);
        t.usage_ns
            + if running {
                self.uncharged_ns(t.cpu.index())
            } else {
                0
            }
    }

    /// A task's work done, exact.
    pub fn task_work_done_ns(&self, task: TaskId) -> u64 {
        let t = self.k.task(task);
        let running = self.k.cpus[t.cpu.index()].curr == Some(task);
        t.work_done_ns + if running { self.k.progress(t.cpu).1 } else { 0 }
    }

    pub fn running(&self, cpu: CpuId) -> Option<TaskId> {
        self.k.cpus[cpu.index()].curr
    }

    /// What programs recorded into a series.
    pub fn series(&self, series: SeriesId) -> &Histogram {
        &self.k.series[series.index()]
    }
}
