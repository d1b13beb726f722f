//! What competes, and where: entities and run queues.

use std::collections::BTreeMap;

use super::pelt::LoadAvg;
use super::weight::{NICE_0, WEIGHT_SHIFT};
use crate::Ns;
use crate::kernel::NONE;
use tidegate_law::bandwidth::Silo;

/// Who competes on a run queue: a task, or a group on one CPU.
pub(crate) struct Entity {
    /// Its place among those who wait: deadline, then arrival.
    pub(super) place: (i64, u64),
    pub(crate) vruntime: i64,
    pub(crate) deadline: i64,
    /// What it was owed (> 0) or owed when it left the queue, in virtual time.
    pub(crate) vlag: i64,
    /// Up to this vruntime it runs on once it was picked (RUN_TO_PARITY).
    pub(crate) protected: i64,
    pub(crate) slice_ns: u64,
    /// Times 2^10.
    pub(crate) weight: u64,
    pub(crate) avg: LoadAvg,
    /// The run queue it is or was last on.
    pub(crate) rq: u32,
    /// A group's own run queue; [`NONE`] for a task.
    pub(crate) my_rq: u32,
    /// The task; [`NONE`] for a group.
    pub(crate) task: u32,
    pub(crate) avg_rq: u32,
    pub(crate) on_rq: bool,
    /// It sleeps, but stays in the competition until it has paid its lag.
    pub(crate) delayed: bool,
    /// Off its queue until its throttled group may run again.
    pub(crate) stopped: bool,
    pub(crate) custom_slice: bool,
    /// `deadline` is relative to `vruntime` (it was moved while it ran on).
    pub(crate) rel_deadline: bool,
    /// SCHED_IDLE, or a cpu.idle group.
    pub(crate) idle: bool,
}

impl Entity {
    pub(crate) fn new(task: u32, weight: u64) -> Entity {
        Entity {
            place: (0, 0),
            vruntime: 0,
            deadline: 0,
            vlag: 0,
            protected: i64::MIN,
            slice_ns: 0,
            weight,
            avg: LoadAvg::default(),
            rq: NONE,
            my_rq: NONE,
            task,
            avg_rq: NONE,
            on_rq: false,
            delayed: false,
            stopped: false,
            custom_slice: false,
            rel_deadline: false,
            idle: false,
        }
    }

    /// The weight as sums over a queue count it (scale_load_down).
    #[inline]
    pub(super) fn load(&self) -> i64 {
        (self.weight >> WEIGHT_SHIFT).max(2) as i64
    }

    /// Virtual time that passes for it in `delta_ns`.
    ///
    /// delta < 2^43 ns and NICE_0 = 2^20: below 2^63.
    #[inline]
    pub(super) fn virtual_ns(&self, delta_ns: u64) -> i64 {
        if self.weight == NICE_0 {
            delta_ns as i64
        } else {
            (delta_ns * NICE_0 / self.weight) as i64
        }
    }
}

/// One group's run queue on one CPU (the kernel's cfs_rq).
pub(crate) struct Rq {
    /// The entities that wait, by their places.
    pub(super) waiting: BTreeMap<(i64, u64), u32>,
    /// The entity that runs (it does not wait), also while it leaves.
    pub(crate) curr: u32,
    /// The entity that the next pick prefers if it is eligible: after a task of a group
    /// went to sleep within its slice, the group goes on.
    pub(super) buddy: u32,
    /// Entities on the queue, the running one among them.
    pub(crate) nr: u32,
    pub(super) seq: u64,
    /// Sum of their weights, times 2^10.
    pub(super) load: u64,
    /// Σ (vruntime − zero) · load over those who wait, and Σ load.
    pub(super) sum_key: i64,
    pub(super) sum_load: i64,
    pub(super) zero: i64,
    /// Tasks here and below: queued, of these able to run, of these idle-class.
    pub(crate) h_queued: u32,
    pub(crate) h_runnable: u32,
    pub(crate) h_idle: u32,
    pub(super) avg: LoadAvg,
    /// What of `avg` is in the group's sum over CPUs, and since when.
    pub(super) contributed: u64,
    pub(super) contributed_at: Ns,
    pub(crate) group: u32,
    pub(crate) cpu: u32,
    /// The group's entity in its parent's queue; [`NONE`] for the root.
    pub(crate) ent: u32,
    pub(super) idle: bool,
    pub(super) limited: bool,
    pub(crate) throttled: bool,
    /// Its tasks that stopped, by entity, in that order.
    pub(super) stopped: Vec<u32>,
    pub(crate) silo: Silo,
}

impl Rq {
    pub(super) fn new(group: u32, cpu: u32, ent: u32) -> Rq {
        Rq {
            waiting: BTreeMap::new(),
            curr: NONE,
            buddy: NONE,
            nr: 0,
            seq: 0,
            load: 0,
            sum_key: 0,
            sum_load: 0,
            zero: 0,
            h_queued: 0,
            h_runnable: 0,
            h_idle: 0,
            avg: LoadAvg::default(),
            contributed: 0,
            contributed_at: 0,
            group,
            cpu,
            ent,
            idle: false,
            limited: false,
            throttled: false,
            stopped: Vec::new(),
            silo: Silo::default(),
        }
    }

    /// The queue's load as sums count it.
    pub(super) fn load_down(&self) -> u64 {
        self.load >> WEIGHT_SHIFT
    }

    /// Mean load of the last while, blocked tasks decaying.
    pub(crate) fn load_avg(&self) -> u64 {
        self.avg.load()
    }
}
