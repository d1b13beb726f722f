//! Tidegate's own scheduler, on sched_ext: the decisions that its BPF programs make, by the same law
//! headers, for all ordinary tasks of the machine.
//!
//! One queue per last-level cache and kind of work ([`Kind`]), in virtual time ([`runqueue`]), with the tree of groups flattened
//! into weights ([`hweight`]). A task that wakes is put on an idle CPU, on a wholly idle core first ([`place`]); else it
//! displaces what yields to it, else whom its deadline displaces, else it waits. Quotas ([`limit`]) and caps ([`caps`]) are
//! asked when a task is about to start and again at the very moment at which its silo or bucket is used up. Side work runs
//! only where the headroom law lets it ([`headroom_ctl`], [`side_cpus`]): main always comes first, but for the tolerance.
//!
//! What a real BPF scheduler pays is paid here by the machine's costs (switches, wakeups); its timers are exact.

mod caps;
mod enqueue;
mod headroom_ctl;
mod hweight;
mod limit;
mod members;
mod pick;
mod place;
mod preempt;
mod resched_timer;
mod runqueue;
mod side_cpus;
mod smt_spread;
mod verify;

use tidegate_law::HeadroomDecision;
use tidegate_law::cap::Loan;
use tidegate_law::runqueue::undisturbed_ns;

use crate::config::ExtConfig;
use crate::cpuset::CpuSet;
use crate::event::Timer;
use crate::kernel::Kernel;
use crate::topology::Topology;
use crate::{CpuId, GroupId, Ns, TaskId};

use headroom_ctl::HeadroomCtl;
use limit::Limits;
use members::Members;
use place::Search;
use resched_timer::ReschedTimer;
use runqueue::{RunQueue, Standing};
pub(crate) use verify::verify;

/// Kinds of work, in the order in which a CPU looks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Main and neutral work.
    Main,
    /// Below a group of class side: behind main, and only where the headroom controller lets it.
    Side,
    /// Out of its soft cap: where nothing else wants the CPU.
    Background,
}

const KINDS: usize = 3;

/// Where a task is. Away ↔ Waiting ↔ Running; Waiting → Parked or Held → Waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Asleep, or not started.
    Away,
    /// In its cache's run queue.
    Waiting((u64, u64)),
    /// A member of it too, but meant for one CPU that was made free for it.
    Sent(CpuId),
    /// On a CPU.
    Running(CpuId),
    /// Waits for a group's quota.
    Parked(GroupId),
    /// Waits for a hard cap's bucket.
    Held(u32),
}

/// Where a task's bucket came from, so that a fork finds its parent's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Own,
    Group(GroupId),
}

struct ExtTask {
    group: GroupId,
    /// Its own weight.
    weight: u32,
    slice_ns: u64,
    hint: i32,
    /// It may not run on every CPU of the machine.
    narrow: bool,
    /// It or a group above it is of the idle class.
    yields: bool,
    kind: Kind,
    place: Place,
    cache: u32,
    standing: Standing,
    lag: i64,
    /// The run queue that it left, while it is no member of one.
    left: (u32, Kind),
    left_ns: u64,
    /// It was woken by a task that is about to sleep.
    sync: bool,
    origins: Vec<Origin>,
    slots: Vec<u32>,
    /// What its run has borrowed of each.
    loans: Vec<Loan>,
    /// The slot whose soft cap put it into the background, and which will call it back.
    soft_slot: Option<u32>,
    /// The slot where it has booked what it will use, and how much.
    booked: Option<(u32, u64)>,
}

struct ExtGroup {
    parent: GroupId,
    /// Itself or the nearest group above that has a class is of class side.
    side: bool,
    /// cpu.idle, here or above.
    yields: bool,
    /// The bucket of its cap, also where each task has its own: they are of one family.
    slot: Option<u32>,
    headroom_ppm: u32,
    tolerance_ppm: Option<u32>,
}

/// What a CPU does for this class.
#[derive(Default)]
struct ExtCpu {
    run: Option<Run>,
    /// Who ran until the choice that is being made, and since when.
    before: Option<(TaskId, Ns)>,
    /// Tasks that were sent here.
    sent: Vec<TaskId>,
    /// The next timer that will look at it.
    armed_ns: Option<Ns>,
    resched_timer: ReschedTimer,
    /// Where the search for any idle core of the machine goes on.
    any_from: u32,
    /// When it looks next at the weights of those that come first.
    reweigh_ns: Ns,
    /// Until then side work runs here at main's cost.
    forced_ns: Ns,
    /// Whose silos this CPU holds runtime of.
    last_group: Option<GroupId>,
}

impl ExtCpu {
    fn runs_side(&self) -> bool {
        matches!(&self.run, Some(run) if run.kind == Kind::Side)
    }
}

struct Run {
    task: TaskId,
    kind: Kind,
    since_ns: Ns,
    slice_ns: Ns,
    /// When to look again: a silo or a bucket ends. A slice ends at a tick, or by a call.
    until_ns: Ns,
    deadline: u64,
}

impl Run {
    /// Until then no equal displaces it.
    fn undisturbed_until_ns(&self) -> Ns {
        self.since_ns + undisturbed_ns(self.slice_ns)
    }
}

struct Cache {
    runqueues: [RunQueue; KINDS],
    balance_ns: [Ns; KINDS],
}

/// The scheduler's state.
pub(crate) struct Ext {
    cfg: ExtConfig,
    topology: Topology,
    members: Members,
    limits: Limits,
    cpus: Vec<ExtCpu>,
    caches: Vec<Cache>,
    /// CPUs that a task is on its way to, or that were called to look.
    claimed: CpuSet,
    headroom: Option<HeadroomCtl>,
    side_running: u32,
    side_waiting: u32,
    /// Tasks of side work that run or want to.
    side_members: u32,
    side_ns: u64,
    /// Where the tolerance was last taken from main.
    forced_cpu: CpuId,
}

/// Timers of this class, packed into the number that the machine carries for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClassTimer {
    Headroom,
    Cpu(CpuId),
    Limit(GroupId),
    Cap(u32),
    Resched(CpuId),
}

impl ClassTimer {
    fn pack(self) -> Timer {
        let (kind, number) = match self {
            ClassTimer::Headroom => (0, 0),
            ClassTimer::Cpu(cpu) => (1, cpu.0),
            ClassTimer::Limit(group) => (2, group.0),
            ClassTimer::Cap(slot) => (3, slot),
            ClassTimer::Resched(cpu) => (4, cpu.0),
        };
        Timer::Class(kind << 32 | u64::from(number))
    }

    fn unpack(number: u64) -> ClassTimer {
        let low = number as u32;
        match number >> 32 {
            0 => ClassTimer::Headroom,
            1 => ClassTimer::Cpu(CpuId(low)),
            2 => ClassTimer::Limit(GroupId(low)),
            3 => ClassTimer::Cap(low),
            _ => ClassTimer::Resched(CpuId(low)),
        }
    }
}

impl Ext {
    pub(crate) fn new(cfg: ExtConfig, k: &Kernel) -> Ext {
        let topology = k.cfg.topology.clone();
        let cpus = topology.cpus();
        let cache = |_| Cache {
            runqueues: std::array::from_fn(|_| RunQueue::default()),
            balance_ns: [0; KINDS],
        };
        Ext {
            cfg,
            members: Members::new(),
            limits: Limits::new(cpus, k.cfg.bandwidth_slice_us * 1_000),
            cpus: (0..cpus).map(|_| ExtCpu::default()).collect(),
            caches: (0..topology.llcs()).map(cache).collect(),
            claimed: CpuSet::EMPTY,
            headroom: None,
            side_running: 0,
            side_waiting: 0,
            side_members: 0,
            side_ns: 0,
            forced_cpu: CpuId(0),
            topology,
        }
    }

    /// What the headroom law decided last; none while there is no side work.
    pub(crate) fn headroom(&self) -> Option<&HeadroomDecision> {
        self.headroom.as_ref().map(HeadroomCtl::decision)
    }

    pub(crate) fn add_group(&mut self, k: &mut Kernel, group: GroupId) {
        self.members.add_group(k, group);
        let g = &k.groups[group.index()];
        if group != GroupId::ROOT {
            self.limits.add_group(g.spec.parent);
        }
        if g.bandwidth.quota_us.is_some() {
            self.limits.set(group, &g.bandwidth, k.now);
        }
        let Some((headroom_ppm, tolerance_ppm)) = self.members.headroom_terms() else {
            return;
        };
        match &mut self.headroom {
            Some(ctl) => ctl.set_terms(headroom_ppm, tolerance_ppm),
            None => {
                let cpus = self.topology.cpus();
                self.headroom = Some(HeadroomCtl::new(cpus, headroom_ppm, tolerance_ppm));
            }
        }
    }

    pub(crate) fn add_task(&mut self, k: &mut Kernel, task: TaskId) {
        self.members.add_task(k, task, self.cfg.slice_ns);
    }

    /// A task was put into another group while it was not queued.
    pub(crate) fn change_group(&mut self, k: &mut Kernel, task: TaskId) {
        self.members.change_group(k, task);
    }

    /// cpu.weight or cpu.idle.
    pub(crate) fn set_shares(&mut self, k: &mut Kernel, group: GroupId) {
        self.members.set_shares(k, group);
    }

    pub(crate) fn set_task(&mut self, k: &mut Kernel, task: TaskId) {
        self.members.set_hint(k, task);
    }

    fn task(&self, task: TaskId) -> &ExtTask {
        self.members.task(task)
    }

    fn task_mut(&mut self, task: TaskId) -> &mut ExtTask {
        self.members.task_mut(task)
    }

    fn search<'a>(&'a self, k: &'a Kernel) -> Search<'a> {
        Search { ext: self, k }
    }

    fn runqueue(&mut self, task: TaskId) -> &mut RunQueue {
        let task = self.members.task(task);
        &mut self.caches[task.cache as usize].runqueues[task.kind as usize]
    }

    /// Sets the timers that quotas and caps have asked for.
    fn set_timers(&mut self, k: &mut Kernel) {
        for (at_ns, group) in self.limits.timers.drain(..) {
            k.events
                .set_timer(at_ns.max(k.now), ClassTimer::Limit(group).pack());
        }
        for (at_ns, slot) in self.members.caps.timers.drain(..) {
            k.events
                .set_timer(at_ns.max(k.now), ClassTimer::Cap(slot).pack());
        }
    }

    /// Has a CPU looked at no later than `at_ns`. A timer that is due earlier looks and sets itself again.
    fn arm(&mut self, k: &mut Kernel, cpu: CpuId, at_ns: Ns) {
        let armed = &mut self.cpus[cpu.index()].armed_ns;
        if armed.is_none_or(|armed_ns| at_ns < armed_ns) {
            *armed = Some(at_ns);
            k.events.set_timer(at_ns, ClassTimer::Cpu(cpu).pack());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_survives_its_number() {
        for timer in [
            ClassTimer::Headroom,
            ClassTimer::Cpu(CpuId(1023)),
            ClassTimer::Limit(GroupId(u32::MAX)),
            ClassTimer::Cap(7),
            ClassTimer::Resched(CpuId(3)),
        ] {
            let Timer::Class(number) = timer.pack() else {
                panic!("a timer of the class")
            };
            assert_eq!(ClassTimer::unpack(number), timer);
        }
    }
}
