//! The machine's state outside the scheduling class: CPUs, tasks, groups, what
//! runs where, and what has been accounted to whom.
//!
//! Three clocks run for a task on a CPU. *Work* is what its program wanted
//! done, and advances at the CPU's speed ([`Kernel::advance_work`]). *Charged*
//! CPU time is what the kernel has accounted: it is brought up to date at
//! switches, ticks and wakeups on that CPU ([`Kernel::charge`]), as on a real
//! kernel, so files read between two such moments are behind. *Exact* CPU time
//! is the charged time and what has run since.

use crate::Ns;
use crate::config::MachineConfig;
use crate::contention::{Neighbours, SPEED_PPM_FULL, speed_ppm};
use crate::cpuset::CpuSet;
use crate::error::Violation;
use crate::event::{EventQueue, NEVER};
use crate::hist::Histogram;
use crate::ids::{CpuId, GroupId, TaskId};
pub(crate) use crate::state::*;

/// No entity, no run queue: the end of a chain.
pub(crate) const NONE: u32 = u32::MAX;

const PPM: u64 = SPEED_PPM_FULL as u64;

pub(crate) struct Kernel {
    pub(crate) cfg: MachineConfig,
    pub(crate) now: Ns,
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) cold: Vec<TaskCold>,
    pub(crate) groups: Vec<Group>,
    pub(crate) events: EventQueue,
    /// CPUs that must choose again at this instant.
    pub(crate) resched: CpuSet,
    pub(crate) any_resched: bool,
    pub(crate) idle: CpuSet,
    /// CPUs with more than one task that could run.
    pub(crate) crowded: CpuSet,
    /// CPUs that run only tasks that yield to everybody.
    pub(crate) idle_policy: CpuSet,
    pub(crate) busy_llc: Vec<u32>,
    pub(crate) busy: u32,
    /// What programs record into.
    pub(crate) series: Vec<Histogram>,
    pub(crate) pipes: Vec<Pipe>,
    /// Wakeups from then on are counted.
    pub(crate) wakeups_from_ns: Ns,
    pub(crate) violation: Option<Violation>,
    pub(crate) handled: u64,
    /// Runs are counted, those that did not wait as well.
    pub(crate) count_runs: bool,
}

impl Kernel {
    pub(crate) fn violate(
        &mut self,
        rule: &'static str,
        cpu: Option<CpuId>,
        task: Option<TaskId>,
        detail: String,
    ) {
        // The first is the cause; what follows from it would hide it.
        if self.violation.is_none() {
            let (at_ns, seed) = (self.now, self.cfg.seed);
            self.violation = Some(Violation {
                rule,
                at_ns,
                cpu,
                task,
                seed,
                detail,
            });
        }
    }

    #[inline]
    pub(crate) fn resched(&mut self, cpu: CpuId) {
        self.resched.insert(cpu);
        self.any_resched = true;
    }

    #[inline]
    pub(crate) fn needs_resched(&self, cpu: CpuId) -> bool {
        self.any_resched && self.resched.contains(cpu)
    }

    #[inline]
    pub(crate) fn task(&self, task: TaskId) -> &Task {
        &self.tasks[task.index()]
    }

    #[inline]
    pub(crate) fn task_mut(&mut self, task: TaskId) -> &mut Task {
        &mut self.tasks[task.index()]
    }

    /// Whether a task may run on a CPU.
    #[inline]
    pub(crate) fn allowed(&self, task: TaskId, cpu: CpuId) -> bool {
        self.task(task).anywhere || self.cold[task.index()].allowed.contains(cpu)
    }

    /// Accounts what the CPU's task ran since the last time: the task, its
    /// groups up to the root, the CPU. Returns the task and how long, for the
    /// class to charge.
    #[inline]
    pub(crate) fn charge(&mut self, cpu: CpuId) -> Option<(TaskId, u64)> {
        let c = &mut self.cpus[cpu.index()];
        let task = c.curr?;
        let delta = self.now - c.charged_to;
        if delta == 0 {
            return None;
        }
        c.charged_to = self.now;
        c.busy_ns += delta;
        let t = &mut self.tasks[task.index()];
        t.usage_ns += delta;
        let mut group = t.group;
        loop {
            let g = &mut self.groups[group.index()];
            g.usage_ns += delta;
            if let Some(here_ns) = g.usage_by_cpu_ns.get_mut(cpu.index()) {
                *here_ns += delta;
            }
            if group == GroupId::ROOT {
                return Some((task, delta));
            }
            group = g.parent;
        }
    }

    /// What the CPU's task has got since its work was last brought up to date: overhead
    /// that is done, work that is done, and the next carry.
    #[inline]
    pub(crate) fn progress(&self, cpu: CpuId) -> (u64, u64, u64) {
        let c = &self.cpus[cpu.index()];
        let Some(task) = c.curr else {
            return (0, 0, c.carry_ppm);
        };
        let t = &self.tasks[task.index()];
        let delta = self.now - c.worked_to;
        let overhead = t.overhead_ns.min(delta);
        let ran = delta - overhead;
        if c.speed_ppm == SPEED_PPM_FULL {
            return (overhead, ran.min(t.work_ns), c.carry_ppm);
        }
        // ran < 2^43 (two hours) and the speed below 2^20: below 2^63.
        let exact = ran * u64::from(c.speed_ppm) + c.carry_ppm;
        (overhead, (exact / PPM).min(t.work_ns), exact % PPM)
    }

    /// Brings the work of the CPU's task up to now, at the speed it had.
    pub(crate) fn advance_work(&mut self, cpu: CpuId) {
        let (overhead, done, carry_ppm) = self.progress(cpu);
        let c = &mut self.cpus[cpu.index()];
        c.worked_to = self.now;
        c.carry_ppm = carry_ppm;
        let Some(task) = c.curr else { return };
        let t = &mut self.tasks[task.index()];
        t.overhead_ns -= overhead;
        if done == 0 {
            return;
        }
        t.work_ns -= done;
        t.work_done_ns += done;
        let mut group = t.group;
        loop {
            let g = &mut self.groups[group.index()];
            g.work_done_ns += done;
            if group == GroupId::ROOT {
                return;
            }
            group = g.parent;
        }
    }

    /// Sets when the CPU's task is done with its overhead and work.
    pub(crate) fn arm_end(&mut self, cpu: CpuId) {
        let c = &self.cpus[cpu.index()];
        let at = match c.curr {
            None => NEVER,
            Some(task) => {
                let t = &self.tasks[task.index()];
                let run = if c.speed_ppm == SPEED_PPM_FULL {
                    t.work_ns
                } else {
                    // work < 2^43 as above; rounded up, so that at the end the work is done.
                    (t.work_ns * PPM)
                        .saturating_sub(c.carry_ppm)
                        .div_ceil(u64::from(c.speed_ppm))
                };
                c.worked_to + t.overhead_ns + run
            }
        };
        self.events.set_end(cpu, at);
    }

    /// Kernel time that the CPU's task loses.
    pub(crate) fn interrupt(&mut self, cpu: CpuId, ns: u64) {
        if ns > 0 && self.cpus[cpu.index()].curr.is_some() {
            self.advance_work(cpu);
            self.add_overhead(cpu, ns);
            self.arm_end(cpu);
        }
    }

    /// Adds kernel time to the CPU's task.
    pub(crate) fn add_overhead(&mut self, cpu: CpuId, ns: u64) {
        if ns > 0
            && let Some(task) = self.cpus[cpu.index()].curr
        {
            self.task_mut(task).overhead_ns += ns;
        }
    }

    /// Looks up the CPU's speed again and moves the end of its run.
    pub(crate) fn refresh_speed(&mut self, cpu: CpuId) {
        let speed = self.speed(cpu);
        if speed != self.cpus[cpu.index()].speed_ppm {
            self.advance_work(cpu);
            self.cpus[cpu.index()].speed_ppm = speed;
            self.arm_end(cpu);
        }
    }

    fn speed(&self, cpu: CpuId) -> u32 {
        let contention = &self.cfg.contention;
        if contention.is_none() {
            return SPEED_PPM_FULL;
        }
        let topology = &self.cfg.topology;
        let own = u32::from(self.cpus[cpu.index()].curr.is_some());
        let threads = topology.threads_per_core();
        let mut siblings = 0;
        for sibling in topology.siblings(cpu) {
            siblings += u32::from(self.cpus[sibling as usize].curr.is_some());
        }
        let llc = self.busy_llc[topology.llc_of(cpu) as usize];
        let neighbours = Neighbours {
            siblings: (siblings - own, threads - 1),
            llc: (llc - own, topology.cpus_per_llc() - 1),
            machine: (self.busy - own, topology.cpus() - 1),
        };
        speed_ppm(contention, &neighbours)
    }

    /// Counts a CPU as busy or idle, and lets its siblings feel it.
    pub(crate) fn set_busy(&mut self, cpu: CpuId, busy: bool) {
        self.idle.set(cpu, !busy);
        let llc = self.cfg.topology.llc_of(cpu) as usize;
        if busy {
            self.busy += 1;
            self.busy_llc[llc] += 1;
        } else {
            self.busy -= 1;
            self.busy_llc[llc] -= 1;
            self.cpus[cpu.index()].idle_since = self.now;
        }
        if self.cfg.contention.sibling_ppm > 0 {
            for sibling in self.cfg.topology.siblings(cpu) {
                if sibling != cpu.0 && self.cpus[sibling as usize].curr.is_some() {
                    self.refresh_speed(CpuId(sibling));
                }
            }
        }
    }

    /// Puts a task on its CPU's list of queued tasks.
    pub(crate) fn list_add(&mut self, cpu: CpuId, task: TaskId) {
        let list = &mut self.cpus[cpu.index()].queued;
        self.tasks[task.index()].queued_at = list.len() as u32;
        list.push(task);
    }

    /// Takes it off again.
    pub(crate) fn list_del(&mut self, cpu: CpuId, task: TaskId) {
        let list = &mut self.cpus[cpu.index()].queued;
        let at = std::mem::replace(&mut self.tasks[task.index()].queued_at, NONE) as usize;
        list.swap_remove(at);
        if let Some(moved) = list.get(at) {
            self.tasks[moved.index()].queued_at = at as u32;
        }
    }

    /// Whether `group` is `above` or below it.
    pub(crate) fn is_within(&self, mut group: GroupId, above: GroupId) -> bool {
        while group != above {
            if group == GroupId::ROOT {
                return false;
            }
            group = self.groups[group.index()].parent;
        }
        true
    }

    /// Counts how long a task has waited that was woken and has not run since.
    pub(crate) fn end_wakeup(&mut self, task: TaskId) {
        let t = &mut self.tasks[task.index()];
        if std::mem::take(&mut t.is_woken) && t.woken_ns >= self.wakeups_from_ns {
            let wakeups = &mut self.groups[t.group.index()].wakeups;
            wakeups.record(self.now - t.woken_ns);
        }
    }

    /// Ends a task's wait for a CPU in the books.
    pub(crate) fn end_delay(&mut self, task: TaskId) {
        let t = &self.tasks[task.index()];
        let waited = self.now - t.queued_ns;
        if waited == 0 && !self.count_runs {
            return;
        }
        let mut group = t.group;
        loop {
            let g = &mut self.groups[group.index()];
            g.run_delay_ns += waited;
            g.runs += 1;
            g.late_runs += u64::from(waited > g.late_after_ns);
            if group == GroupId::ROOT {
                return;
            }
            group = g.parent;
        }
    }
}
