//! Quotas: law/bandwidth.h for shared queues.
//!
//! A pool per limited group, a silo per CPU. Before a task starts on a CPU every limited group above it must have runtime in
//! that CPU's silo; while it runs each is charged; when the CPU turns to work of another group, all but 1 ms goes back. Tasks
//! of a group that is out wait in the group's own queue until its turnover: debts are kept, and a turnover gives the quota of
//! every period that is over.

use std::collections::VecDeque;

use tidegate_law::bandwidth::{NONE, Pool, SLACK_WAIT_NS, Silo, Terms, Verdict};
use tidegate_law::tuning::LIMIT_SOON_NS;

use crate::{Bandwidth, CpuId, GroupId, Ns, TaskId};

/// One limited group.
pub(super) struct Limit {
    pool: Pool,
    silos: Vec<Silo>,
    /// CPUs on which it is throttled, oldest first.
    throttled: VecDeque<CpuId>,
    /// Its tasks that wait for runtime.
    pub(super) parked: VecDeque<TaskId>,
    /// When its timer is set for; later ones that are still in the queue are ignored.
    timer_ns: Ns,
}

/// All limits, and the tree they are in.
pub(super) struct Limits {
    parents: Vec<u32>,
    limits: Vec<Option<Box<Limit>>>,
    cpus: usize,
    slice_ns: u64,
    /// Limited groups; with none, nothing here costs anything.
    count: u32,
    /// Timers to set: when, for whom.
    pub(super) timers: Vec<(Ns, GroupId)>,
}

impl Limits {
    pub(super) fn new(cpus: u32, slice_ns: u64) -> Self {
        Self {
            parents: vec![u32::MAX],
            limits: vec![None],
            cpus: cpus as usize,
            slice_ns,
            count: 0,
            timers: Vec::new(),
        }
    }

    pub(super) fn add_group(&mut self, parent: GroupId) {
        self.parents.push(parent.0);
        self.limits.push(None);
    }

    pub(super) fn get(&self, group: GroupId) -> Option<&Pool> {
        self.limits[group.index()].as_ref().map(|limit| &limit.pool)
    }

    /// New terms; returns the tasks that may try again.
    pub(super) fn set(&mut self, group: GroupId, to: &Bandwidth, now_ns: Ns) -> Vec<TaskId> {
        let terms = Terms {
            quota_ns: to.quota_us.map_or(NONE, |quota_us| quota_us * 1_000),
            period_ns: to.period_us * 1_000,
            burst_ns: to.burst_us * 1_000,
            slice_ns: self.slice_ns,
        };
        let slot = &mut self.limits[group.index()];
        if slot.is_none() {
            if to.quota_us.is_none() {
                return Vec::new();
            }
            self.count += 1;
            *slot = Some(Box::new(Limit {
                pool: Pool::new(),
                silos: vec![Silo::default(); self.cpus],
                throttled: VecDeque::new(),
                parked: VecDeque::new(),
                timer_ns: Ns::MAX,
            }));
        }
        if let Some(limit) = slot {
            limit.pool.set(&terms, now_ns);
        }
        self.release(group, now_ns)
    }

    fn above(&self, group: GroupId) -> Above<'_> {
        Above {
            parents: &self.parents,
            at: group.0,
        }
    }

    /// Whether tasks of `group` are under a quota.
    pub(super) fn limits(&self, group: GroupId) -> bool {
        self.count > 0 && self.above(group).any(|at| self.limits[at].is_some())
    }

    /// May a task of `group` run on `cpu`? `Err`: the group that is out, to which it is to be parked.
    pub(super) fn admit(&mut self, group: GroupId, cpu: CpuId, now_ns: Ns) -> Result<(), GroupId> {
        self.strictest(group, now_ns, |limit| limit.admit(cpu, now_ns))
    }

    /// The same of a task that is about to wait for a CPU; nothing is taken for it yet.
    pub(super) fn closed(&mut self, group: GroupId, cpu: CpuId, now_ns: Ns) -> Result<(), GroupId> {
        self.strictest(group, now_ns, |limit| limit.is_open(cpu, now_ns))
    }

    /// The nearest limit that says no, whose timer is set.
    fn strictest(
        &mut self,
        group: GroupId,
        now_ns: Ns,
        mut lets: impl FnMut(&mut Limit) -> bool,
    ) -> Result<(), GroupId> {
        if self.count == 0 {
            return Ok(());
        }
        let mut at = group.0;
        while at != u32::MAX {
            if let Some(limit) = &mut self.limits[at as usize]
                && !lets(limit)
            {
                let due_ns = match limit.pool.runtime_ns() {
                    0 => limit.pool.turnover_ns(),
                    _ => now_ns + LIMIT_SOON_NS,
                };
                if due_ns < limit.timer_ns {
                    limit.timer_ns = due_ns;
                    self.timers.push((due_ns, GroupId(at)));
                }
                return Err(GroupId(at));
            }
            at = self.parents[at as usize];
        }
        Ok(())
    }

    /// How long a task of `group` may run on `cpu` before some silo is used up.
    pub(super) fn left_ns(&self, group: GroupId, cpu: CpuId) -> u64 {
        if self.count == 0 {
            return u64::MAX;
        }
        self.above(group)
            .filter_map(|at| self.limits[at].as_ref())
            .filter(|limit| limit.pool.is_limited())
            .map(|limit| limit.silos[cpu.index()].remaining_ns().max(0) as u64)
            .min()
            .unwrap_or(u64::MAX)
    }

    /// A task of `group` ran.
    pub(super) fn charge(&mut self, group: GroupId, cpu: CpuId, ran_ns: u64) {
        if self.count == 0 {
            return;
        }
        let mut at = group.0;
        while at != u32::MAX {
            if let Some(limit) = &mut self.limits[at as usize] {
                limit.pool.charge(&mut limit.silos[cpu.index()], ran_ns);
            }
            at = self.parents[at as usize];
        }
    }

    /// `cpu` turns from a task of `group` to one of `next`: what the groups that it leaves hold there goes back.
    pub(super) fn leave(&mut self, group: GroupId, next: Option<GroupId>, cpu: CpuId, now_ns: Ns) {
        if self.count == 0 || next == Some(group) {
            return;
        }
        let mut at = group.0;
        while at != u32::MAX {
            let stays = next.is_some_and(|next| self.above(next).any(|above| above == at as usize));
            if stays {
                return;
            }
            if let Some(limit) = &mut self.limits[at as usize] {
                let given = limit.pool.give_back(&mut limit.silos[cpu.index()]);
                let due_ns = now_ns + SLACK_WAIT_NS;
                if given > 0 && !limit.parked.is_empty() && due_ns < limit.timer_ns {
                    limit.timer_ns = due_ns;
                    self.timers.push((due_ns, GroupId(at)));
                }
            }
            at = self.parents[at as usize];
        }
    }

    pub(super) fn park(&mut self, group: GroupId, task: TaskId) {
        if let Some(limit) = &mut self.limits[group.index()] {
            limit.parked.push_back(task);
        }
    }

    /// A parked task is taken away (it exits or moves).
    pub(super) fn unpark(&mut self, group: GroupId, task: TaskId) {
        if let Some(limit) = &mut self.limits[group.index()] {
            limit.parked.retain(|parked| *parked != task);
        }
    }

    /// The group's timer: catches up with its periods; returns the tasks that may try again.
    pub(super) fn timer(&mut self, group: GroupId, now_ns: Ns) -> Vec<TaskId> {
        match &mut self.limits[group.index()] {
            // One that was set before an earlier one took its place.
            Some(limit) if limit.timer_ns == now_ns => {
                limit.timer_ns = Ns::MAX;
                self.release(group, now_ns)
            }
            _ => Vec::new(),
        }
    }

    fn release(&mut self, group: GroupId, now_ns: Ns) -> Vec<TaskId> {
        let Some(limit) = &mut self.limits[group.index()] else {
            return Vec::new();
        };
        limit.pool.turnover(now_ns);
        while let Some(&cpu) = limit.throttled.front() {
            if !limit.pool.distribute(&mut limit.silos[cpu.index()], now_ns) {
                break;
            }
            limit.throttled.pop_front();
        }
        let open = !limit.pool.is_limited() || limit.pool.runtime_ns() > 0;
        if open || limit.throttled.is_empty() {
            return std::mem::take(&mut limit.parked).into();
        }
        if !limit.parked.is_empty() {
            limit.timer_ns = limit.pool.turnover_ns();
            self.timers.push((limit.timer_ns, group));
        }
        Vec::new()
    }
}

impl Limit {
    fn is_open(&mut self, cpu: CpuId, now_ns: Ns) -> bool {
        let silo = &mut self.silos[cpu.index()];
        if silo.is_throttled() {
            if !self.pool.distribute(silo, now_ns) {
                return false;
            }
            self.throttled.retain(|throttled| *throttled != cpu);
            return true;
        }
        if silo.remaining_ns() > 0 || !self.pool.is_limited() {
            return true;
        }
        self.pool.turnover(now_ns);
        if self.pool.runtime_ns() as i64 + silo.remaining_ns() > 0 {
            return true;
        }
        if self.pool.throttle(silo, now_ns) {
            self.throttled.push_back(cpu);
            return false;
        }
        true
    }

    fn admit(&mut self, cpu: CpuId, now_ns: Ns) -> bool {
        let silo = &mut self.silos[cpu.index()];
        if silo.is_throttled() {
            // Debts are paid at a turnover that is handled; a lazy one counts too.
            if self.pool.turnover(now_ns) == 0 || !self.pool.distribute(silo, now_ns) {
                return false;
            }
            self.throttled.retain(|throttled| *throttled != cpu);
        }
        if self.pool.run(silo, 0, now_ns) == Verdict::Run {
            return true;
        }
        if self.pool.throttle(silo, now_ns) {
            self.throttled.push_back(cpu);
            return false;
        }
        true
    }
}

/// A group and everything above it.
struct Above<'a> {
    parents: &'a [u32],
    at: u32,
}

impl Iterator for Above<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        if self.at == u32::MAX {
            return None;
        }
        let at = self.at as usize;
        self.at = self.parents[at];
        Some(at)
    }
}
