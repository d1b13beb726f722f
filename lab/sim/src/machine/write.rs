//! What an engine may write, with the effects that the kernel's files have.

use super::{Machine, check_bandwidth, range};
use crate::Ns;
use crate::cpuset::CpuSet;
use crate::error::SimError;
use crate::ids::{GroupId, TaskId};
use crate::kernel::TaskState;
use crate::sched::migrate;
use crate::spec::Bandwidth;

impl Machine {
    /// cpu.max and cpu.max.burst. A write is a refill: the pool gets a quota,
    /// every CPU's debt is forgiven, what was throttled runs, and the first
    /// charge after it (a tick, a switch) is the first that counts.
    pub fn set_bandwidth(&mut self, group: GroupId, bandwidth: Bandwidth) -> Result<(), SimError> {
        self.changeable(group, "cpu.max")?;
        check_bandwidth(&bandwidth)?;
        self.k.groups[group.index()].bandwidth = bandwidth;
        self.sched.set_bandwidth(&mut self.k, group);
        if let Some(checker) = &mut self.checker {
            checker.limit_changed(&self.k, group);
        }
        self.k.groups[group.index()].writes += 1;
        Ok(())
    }

    /// From now on it is counted how often tasks of a group and below begin to run, and how often
    /// after a longer wait than this ([`Machine::runs`]). Not a file of the kernel: the sensor's
    /// program sees it.
    pub fn count_runs(&mut self, group: GroupId, late_after_ns: u64) -> Result<(), SimError> {
        self.group(group)?;
        self.k.count_runs = true;
        self.k.groups[group.index()].late_after_ns = late_after_ns;
        Ok(())
    }

    /// From then on it is counted how long tasks that are woken wait to run ([`Machine::wakeups`]).
    pub fn count_wakeups(&mut self, from_ns: Ns) {
        self.k.wakeups_from_ns = from_ns;
    }

    /// From now on a group's time is counted by CPU, too ([`Machine::usage_on_ns`]): v1's
    /// cpuacct.usage_percpu, or the sensor's program.
    pub fn count_by_cpu(&mut self, group: GroupId) -> Result<(), SimError> {
        self.group(group)?;
        let cpus = self.k.cpus.len();
        self.k.groups[group.index()].usage_by_cpu_ns.resize(cpus, 0);
        Ok(())
    }

    /// cpu.weight; refused while cpu.idle is 1, as the kernel does.
    pub fn set_weight(&mut self, group: GroupId, weight: u32) -> Result<(), SimError> {
        self.changeable(group, "cpu.weight")?;
        range("weight", u64::from(weight), 1, 10_000)?;
        let spec = &mut self.k.groups[group.index()].spec;
        if spec.idle {
            return Err(SimError::Refused {
                what: "cpu.weight",
                why: "the group is idle (cpu.idle = 1)",
                remedy: "write cpu.idle = 0 first",
            });
        }
        spec.weight = weight;
        self.sched.set_shares(&mut self.k, group);
        self.k.groups[group.index()].writes += 1;
        Ok(())
    }

    /// cpu.idle; back to 0 leaves the default weight, as the kernel does.
    pub fn set_idle(&mut self, group: GroupId, idle: bool) -> Result<(), SimError> {
        self.changeable(group, "cpu.idle")?;
        let spec = &mut self.k.groups[group.index()].spec;
        if spec.idle && !idle {
            spec.weight = 100;
        }
        spec.idle = idle;
        self.sched.set_shares(&mut self.k, group);
        self.k.groups[group.index()].writes += 1;
        Ok(())
    }

    /// cpuset.cpus, of the group and within it of all below; tasks that run
    /// outside move at once.
    pub fn set_cpuset(&mut self, group: GroupId, cpus: CpuSet) -> Result<(), SimError> {
        self.changeable(group, "cpuset.cpus")?;
        let above = self.k.groups[group.index()].parent;
        if cpus.and(&self.k.groups[above.index()].cpus).is_empty() {
            return Err(self.no_cpu(&self.k.groups[group.index()].name));
        }
        self.k.groups[group.index()].spec.cpus = Some(cpus);
        // Parents come before their children in the table.
        for id in group.0..self.k.groups.len() as u32 {
            if self.k.is_within(GroupId(id), group) {
                let g = &self.k.groups[id as usize];
                let above = self.k.groups[g.parent.index()].cpus;
                let own = g.spec.cpus.map_or(above, |own| own.and(&above));
                // As cpuset v2: an empty intersection means the parent's CPUs.
                self.k.groups[id as usize].cpus = if own.is_empty() { above } else { own };
            }
        }
        for id in 0..self.k.tasks.len() as u32 {
            if self.k.is_within(self.k.task(TaskId(id)).group, group) {
                self.reallow(TaskId(id));
            }
        }
        self.k.groups[group.index()].writes += 1;
        Ok(())
    }

    /// Works out again where a task may run, and moves it if it is elsewhere.
    fn reallow(&mut self, task: TaskId) {
        let group = self.k.groups[self.k.task(task).group.index()].cpus;
        let asked = self.k.cold[task.index()].asked;
        let own = asked.map_or(group, |own| own.and(&group));
        let allowed = if own.is_empty() { group } else { own };
        self.k.cold[task.index()].allowed = allowed;
        let anywhere = allowed == self.k.cfg.topology.all();
        let t = self.k.task_mut(task);
        t.anywhere = anywhere;
        let (cpu, state) = (t.cpu, t.state);
        if anywhere || allowed.contains(cpu) || state == TaskState::Exited {
            return;
        }
        let first = allowed.first().unwrap_or(cpu);
        if state != TaskState::Runnable {
            if state == TaskState::Waiting {
                self.sched.forget_sleeper(&mut self.k, task);
            }
            self.k.task_mut(task).cpu = first;
            return;
        }
        if self.k.cpus[cpu.index()].curr == Some(task) {
            self.vacate(cpu);
        }
        let to = self.sched.select_new(&self.k, task, first);
        migrate(&mut self.k, &mut self.sched, task, to);
    }

    fn changeable(&self, group: GroupId, what: &'static str) -> Result<(), SimError> {
        self.group(group)?;
        if group == GroupId::ROOT {
            return Err(SimError::Refused {
                what,
                why: "the root group has no such file",
                remedy: "name a group below it",
            });
        }
        Ok(())
    }
}
