//! Tidegate's own scheduler, on sched_ext: the decisions that its BPF programs make, by the same law
//! headers, for all ordinary tasks of the machine.
//!
//! One queue per last-level cache and kind of work ([`Kind`]), in virtual time ([`line`]), with the tree of groups flattened
//! into weights ([`weight`]). A task that wakes is put on an idle CPU, on a wholly idle core first ([`place`]); else it
//! displaces what yields to it, else whom its deadline displaces, else it waits. Quotas ([`limit`]) and caps ([`caps`]) are
//! asked when a task is about to start and again at the very moment at which its silo or bucket is used up. Side work runs
//! only where the headroom law lets it ([`tide`], [`side`]): main always comes first, but for the tolerance.
//!
//! What a real BPF scheduler pays is paid here by the machine's costs (switches, wakeups); its timers are exact.

mod call;
mod caps;
mod door;
mod limit;
mod line;
mod members;
mod place;
mod preempt;
mod run;
mod side;
mod spread;
mod tide;
mod verify;
mod weight;

use tidegate_law::HeadroomDecision;

use crate::config::ExtConfig;
use crate::cpuset::CpuSet;
use crate::event::Timer;
use crate::kernel::Kernel;
use crate::topology::Topology;
use crate::{CpuId, GroupId, Ns, TaskId};

use call::Call;
use caps::Caps;
use limit::Limits;
use line::{Line, Standing};
use tide::Tide;
use weight::Tree;

/// Kinds of work, in the order in which a CPU looks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Main and neutral work.
    Main,
    /// Below a group of class side: behind main, and only where the tide is low.
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
    /// In its cache's line.
    Waiting((u64, u64)),
    /// In the line too, but meant for one CPU that was made free for it.
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
    weight: u64,
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
    /// The line that it left, while it is no member of one.
    left: (u32, Kind),
    left_ns: u64,
    origins: Vec<Origin>,
    slots: Vec<u32>,
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
    call: Call,
    /// Where the search for any idle core of the machine goes on.
    any_from: u32,
    /// Until then side work runs here at main's cost.
    forced_ns: Ns,
    /// Whose silos this CPU holds runtime of.
    last_group: Option<GroupId>,
}

struct Run {
    task: TaskId,
    kind: Kind,
    since_ns: Ns,
    /// When to look again: a silo or a bucket ends. A slice ends at a tick, or by a call.
    until_ns: Ns,
    deadline: u64,
}

struct Cache {
    lines: [Line; KINDS],
    balance_ns: Ns,
}

/// The scheduler's state.
pub(crate) struct Ext {
    cfg: ExtConfig,
    topology: Topology,
    tree: Tree,
    limits: Limits,
    caps: Caps,
    groups: Vec<ExtGroup>,
    tasks: Vec<ExtTask>,
    cpus: Vec<ExtCpu>,
    caches: Vec<Cache>,
    /// CPUs that a task is on its way to, or that were called to look.
    claimed: CpuSet,
    tide: Option<Tide>,
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
enum Alarm {
    Tide,
    Cpu(CpuId),
    Limit(GroupId),
    Cap(u32),
    Call(CpuId),
}

impl Alarm {
    fn pack(self) -> Timer {
        let (kind, number) = match self {
            Alarm::Tide => (0, 0),
            Alarm::Cpu(cpu) => (1, cpu.0),
            Alarm::Limit(group) => (2, group.0),
            Alarm::Cap(slot) => (3, slot),
            Alarm::Call(cpu) => (4, cpu.0),
        };
        Timer::Class(kind << 32 | u64::from(number))
    }

    fn unpack(number: u64) -> Alarm {
        let low = number as u32;
        match number >> 32 {
            0 => Alarm::Tide,
            1 => Alarm::Cpu(CpuId(low)),
            2 => Alarm::Limit(GroupId(low)),
            3 => Alarm::Cap(low),
            _ => Alarm::Call(CpuId(low)),
        }
    }
}

impl Ext {
    pub(crate) fn new(cfg: ExtConfig, k: &Kernel) -> Ext {
        let topology = k.cfg.topology.clone();
        let cpus = topology.cpus();
        let cache = |_| Cache {
            lines: std::array::from_fn(|_| Line::default()),
            balance_ns: 0,
        };
        Ext {
            cfg,
            tree: Tree::new(),
            limits: Limits::new(cpus, k.cfg.bandwidth_slice_us * 1_000),
            caps: Caps::default(),
            groups: Vec::new(),
            tasks: Vec::new(),
            cpus: (0..cpus).map(|_| ExtCpu::default()).collect(),
            caches: (0..topology.llcs()).map(cache).collect(),
            claimed: CpuSet::EMPTY,
            tide: None,
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
        self.tide.as_ref().map(Tide::decision)
    }

    fn task(&self, task: TaskId) -> &ExtTask {
        &self.tasks[task.index()]
    }

    fn task_mut(&mut self, task: TaskId) -> &mut ExtTask {
        &mut self.tasks[task.index()]
    }

    fn line(&mut self, task: TaskId) -> &mut Line {
        let task = &self.tasks[task.index()];
        &mut self.caches[task.cache as usize].lines[task.kind as usize]
    }

    /// Sets the timers that quotas and caps have asked for.
    fn set_timers(&mut self, k: &mut Kernel) {
        for (at_ns, group) in self.limits.timers.drain(..) {
            k.events
                .set_timer(at_ns.max(k.now), Alarm::Limit(group).pack());
        }
        for (at_ns, slot) in self.caps.timers.drain(..) {
            k.events
                .set_timer(at_ns.max(k.now), Alarm::Cap(slot).pack());
        }
    }

    /// Has a CPU looked at no later than `at_ns`. A timer that is due earlier looks and sets itself again.
    fn arm(&mut self, k: &mut Kernel, cpu: CpuId, at_ns: Ns) {
        let armed = &mut self.cpus[cpu.index()].armed_ns;
        if armed.is_none_or(|armed_ns| at_ns < armed_ns) {
            *armed = Some(at_ns);
            k.events.set_timer(at_ns, Alarm::Cpu(cpu).pack());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_survives_its_number() {
        for alarm in [
            Alarm::Tide,
            Alarm::Cpu(CpuId(1023)),
            Alarm::Limit(GroupId(u32::MAX)),
            Alarm::Cap(7),
            Alarm::Call(CpuId(3)),
        ] {
            let Timer::Class(number) = alarm.pack() else {
                panic!("a timer of the class")
            };
            assert_eq!(Alarm::unpack(number), alarm);
        }
    }
}
