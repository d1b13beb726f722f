//! The fair class: groups and tasks share each CPU by weight, at every level
//! of the tree of groups.
//!
//! As in the kernel, each group has a run queue on each CPU ([`Rq`]) and an
//! entity that stands for it in its parent's run queue; a task is an entity
//! too ([`Entity`]). What runs is found from the root down, what runs is charged from the
//! task up. Files, by idea:
//!
//! - `tree`: the order of those who wait;
//! - `cfs`: the same in kernels before 6.6, with the latency hints of 2022 as a switch;
//! - `eevdf`: whose turn it is among equals of one queue (kernel 6.12 to 6.18);
//! - `queue`: entering and leaving queues, up the hierarchy;
//! - `pick`: the walk down, and what changes at a switch;
//! - `group`: a group's weight on each CPU (`calc_group_shares`), changes of weight;
//! - `pelt`: the load means that those weights come from;
//! - `bandwidth`: cpu.max, by `law/bandwidth.h` in the kernel's mode;
//! - `stop`: how a group that is out of quota stops, task by task.
//!
//! Left out, and where it would matter: autogroup, NUMA, energy-aware
//! placement, util_est and frequency; real-time throttling and the fair server
//! (a FIFO task that never sleeps starves the others here).

mod bandwidth;
mod cfs;
mod eevdf;
mod group;
mod pelt;
mod pick;
mod queue;
mod stop;
mod tree;
mod verify;
mod weight;

use crate::Ns;
use crate::config::{CfsConfig, EevdfConfig};
use crate::ids::{CpuId, GroupId, TaskId};
use crate::kernel::{Kernel, NONE};
use crate::sched::balance::Balance;
use crate::sched::place::Placement;
use crate::spec::Policy;
use pelt::LoadAvg;
use std::collections::VecDeque;
use tidegate_law::bandwidth::{Pool, Silo};
use tree::Links;
pub(crate) use weight::task_weight;
use weight::{NICE_0, WEIGHT_SHIFT};

/// Who competes on a run queue: a task, or a group on one CPU.
pub(crate) struct Entity {
    pub(crate) links: Links,
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
    /// Where its load is counted.
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
    /// CFS: the queue that `vruntime` is relative to while it sleeps.
    home: u32,
    /// CFS: CPU time since it was picked.
    ran_ns: u64,
    /// CFS with latency hints: the hint, -20 to 19.
    latency: i8,
}

impl Entity {
    pub(crate) fn new(number: u32, task: u32, weight: u64) -> Entity {
        Entity {
            links: Links::new(number),
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
            home: NONE,
            ran_ns: 0,
            latency: 0,
        }
    }

    /// The weight as sums over a queue count it (scale_load_down).
    #[inline]
    fn load(&self) -> i64 {
        (self.weight >> WEIGHT_SHIFT).max(2) as i64
    }

    /// Virtual time that passes for it in `delta_ns`.
    ///
    /// delta < 2^43 ns and NICE_0 = 2^20: below 2^63.
    #[inline]
    fn virtual_ns(&self, delta_ns: u64) -> i64 {
        if self.weight == NICE_0 {
            delta_ns as i64
        } else {
            (delta_ns * NICE_0 / self.weight) as i64
        }
    }
}

/// One group's run queue on one CPU (the kernel's cfs_rq).
pub(crate) struct Rq {
    root: u32,
    /// The entity that runs (it is not in the tree), also while it leaves.
    pub(crate) curr: u32,
    /// Whom to prefer at the next pick if it is eligible: after a task of a group
    /// went to sleep within its slice, the group goes on.
    buddy: u32,
    /// Entities on the queue, the running one among them.
    pub(crate) nr: u32,
    seq: u64,
    /// Sum of their weights, times 2^10.
    load: u64,
    /// Σ (vruntime − zero) · load over the tree, and Σ load.
    sum_key: i64,
    sum_load: i64,
    zero: i64,
    /// CFS: the least vruntime so far.
    min_vruntime: i64,
    /// CFS: who was preempted last, and who yielded.
    last: u32,
    skip: u32,
    /// Tasks here and below: queued, of these able to run, of these idle-class.
    pub(crate) h_queued: u32,
    pub(crate) h_runnable: u32,
    pub(crate) h_idle: u32,
    avg: LoadAvg,
    /// What of `avg` is in the group's sum over CPUs, and since when.
    contributed: u64,
    contributed_at: Ns,
    pub(crate) group: u32,
    pub(crate) cpu: u32,
    /// The group's entity in its parent's queue; [`NONE`] for the root.
    pub(crate) ent: u32,
    idle: bool,
    limited: bool,
    pub(crate) throttled: bool,
    /// Its tasks that stopped, by entity, in that order.
    stopped: Vec<u32>,
    pub(crate) silo: Silo,
}

/// A group over all CPUs (the kernel's task_group).
pub(crate) struct Tg {
    /// Times 2^10.
    shares: u64,
    load_avg: u64,
    swept_at: Ns,
    pub(crate) pool: Pool,
    /// The groups right below.
    children: Vec<u32>,
    /// CPUs on which it is throttled, longest first.
    throttled: VecDeque<u32>,
    period_armed: bool,
    slack_armed: bool,
}

/// Which rule decides whose turn it is.
pub(crate) enum Flavour {
    /// Earliest eligible virtual deadline first.
    Eevdf(EevdfConfig),
    /// Least virtual runtime first.
    Cfs(CfsConfig),
}

/// Why a task enters a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Enqueue {
    /// It is new.
    New,
    /// It woke up.
    Wakeup,
    /// It was moved while runnable: to another CPU or group.
    Move,
}

/// Why a task leaves a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dequeue {
    /// It sleeps.
    Sleep,
    /// It ended.
    Exit,
    /// It is moved while runnable.
    Move,
}

/// The fair class of one machine.
pub(crate) struct Fair {
    pub(crate) flavour: Flavour,
    pub(crate) ents: Vec<Entity>,
    /// By group, then CPU.
    pub(crate) rqs: Vec<Rq>,
    pub(crate) tgs: Vec<Tg>,
    ncpu: u32,
    tick_ns: u64,
    slice_ns: u64,
    expire: bool,
    /// Whether a throttled group stops task by task.
    throttle_tasks: bool,
    pub(crate) placement: Placement,
    pub(crate) balance: Balance,
}

impl Fair {
    pub(crate) fn new(flavour: Flavour, k: &Kernel) -> Fair {
        let throttle_tasks = matches!(&flavour, Flavour::Eevdf(config) if config.throttle_tasks);
        Fair {
            flavour,
            ents: Vec::new(),
            rqs: Vec::new(),
            tgs: Vec::new(),
            ncpu: k.cpus.len() as u32,
            tick_ns: k.cfg.tick_ns,
            slice_ns: k.cfg.bandwidth_slice_us * 1000,
            expire: k.cfg.slices_expire,
            throttle_tasks,
            placement: Placement::new(k),
            balance: Balance::new(k),
        }
    }

    /// The queue of a group on a CPU.
    #[inline]
    pub(crate) fn rq_of(&self, group: GroupId, cpu: CpuId) -> u32 {
        group.0 * self.ncpu + cpu.0
    }

    /// The queue of all on a CPU.
    #[inline]
    pub(crate) fn root_of(&self, cpu: CpuId) -> &Rq {
        &self.rqs[cpu.index()]
    }

    #[inline]
    fn rq(&self, rq: u32) -> &Rq {
        &self.rqs[rq as usize]
    }

    #[inline]
    fn rq_mut(&mut self, rq: u32) -> &mut Rq {
        &mut self.rqs[rq as usize]
    }

    #[inline]
    fn ent(&self, ent: u32) -> &Entity {
        &self.ents[ent as usize]
    }

    #[inline]
    fn ent_mut(&mut self, ent: u32) -> &mut Entity {
        &mut self.ents[ent as usize]
    }

    /// The entity of the group whose queue this entity is on.
    #[inline]
    fn parent(&self, ent: u32) -> u32 {
        self.rq(self.ent(ent).rq).ent
    }

    pub(crate) fn add_group(&mut self, k: &Kernel, group: GroupId) {
        let g = &k.groups[group.index()];
        let root = group == GroupId::ROOT;
        for cpu in 0..self.ncpu {
            let rq = self.rqs.len() as u32;
            let mut ent = NONE;
            if !root {
                ent = self.ents.len() as u32;
                let mut e = Entity::new(ent, NONE, NICE_0);
                e.rq = self.rq_of(g.parent, CpuId(cpu));
                e.my_rq = rq;
                e.latency = g.spec.latency;
                self.ents.push(e);
            }
            self.rqs.push(Rq::new(group.0, cpu, ent));
        }
        if !root {
            self.tgs[g.parent.index()].children.push(group.0);
        }
        // The kernel starts each group's timer at a random point of its period.
        let phase = crate::prng::Prng::stream(k.cfg.seed, (1 << 48) + u64::from(group.0))
            .below(g.bandwidth.period_us * 1000);
        self.tgs.push(Tg {
            shares: NICE_0,
            load_avg: 0,
            swept_at: 0,
            pool: Pool::kernel(phase, self.expire),
            children: Vec::new(),
            throttled: VecDeque::new(),
            period_armed: false,
            slack_armed: false,
        });
    }

    pub(crate) fn add_task(&mut self, k: &mut Kernel, task: TaskId) {
        let ent = self.ents.len() as u32;
        let mut e = Entity::new(ent, task.0, NICE_0);
        let t = k.task_mut(task);
        t.ent = ent;
        e.idle = t.policy == Policy::Idle;
        e.weight = task_weight(t.policy, t.nice);
        e.latency = t.latency;
        if t.slice_ns > 0 {
            e.slice_ns = t.slice_ns;
            e.custom_slice = true;
        }
        // A new task counts as one that always ran.
        e.avg.attach(e.load() as u64);
        self.ents.push(e);
    }

    /// Tells the machine what is on a CPU.
    fn publish(&self, k: &mut Kernel, cpu: CpuId) {
        let root = self.root_of(cpu);
        let c = &mut k.cpus[cpu.index()];
        c.nr_queued = root.h_queued;
        c.nr_runnable = root.h_runnable;
        c.nr_idle = root.h_idle;
        crate::sched::balance::note_tasks(k, cpu);
    }
}

impl Rq {
    fn new(group: u32, cpu: u32, ent: u32) -> Rq {
        Rq {
            root: NONE,
            curr: NONE,
            buddy: NONE,
            nr: 0,
            seq: 0,
            load: 0,
            sum_key: 0,
            sum_load: 0,
            zero: 0,
            min_vruntime: 0,
            last: NONE,
            skip: NONE,
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
    fn load_down(&self) -> u64 {
        self.load >> WEIGHT_SHIFT
    }

    /// Mean load of the last while, blocked tasks decaying.
    pub(crate) fn load_avg(&self) -> u64 {
        self.avg.load()
    }
}
