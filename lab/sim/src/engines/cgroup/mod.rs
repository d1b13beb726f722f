//! The engine on kernel files, in simulated time: the agent's own control step
//! ([`tidegate_engine::control`]) as a [`Controller`].
//!
//! The production code decides: sample to estimate to plan, which quota is written when, the
//! tolerance's relief. This module models how late the loop wakes, how stale and inexact a reading
//! is, and how long a write takes. The loop itself takes no CPU time.

mod cores;
mod ports;
mod terms;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;
use tidegate_cgroup::group::GroupPath;
use tidegate_engine::control::{Control, QuotaTarget, SHARED_CORES_PPM, SoftCapped};
use tidegate_engine::limit::tighter;
use tidegate_engine::measure::{Experiment, Findings, State, Switched};
use tidegate_engine::quota_planner::{PERIOD_US, bandwidth_for};

use crate::controller::Controller;
use crate::machine::Machine;
use crate::prng::Prng;
use crate::{GroupId, Ns, SimError};

use cores::Cores;
use ports::{Meters, Pending, Queue, Reader, Shared};
pub use terms::{EngineTerms, Side, SoftCap, compile, hinted_slice_ns, tops, write_limits};

/// The least that the kernel can hold: 1 ms in 100 ms.
const FLOOR_MIN_UCPU: u64 = 10_000;

/// Who tells the loop what was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sensing {
    /// Exact to the nanosecond, every 5 ms.
    #[default]
    Bpf,
    /// Usage files, which the kernel brings up to date at ticks, every 50 ms.
    Usage,
}

impl Sensing {
    /// As `--sense` has it.
    pub fn name(self) -> &'static str {
        match self {
            Sensing::Bpf => "bpf",
            Sensing::Usage => "usage",
        }
    }

    fn period_ns(self) -> u64 {
        match self {
            Sensing::Bpf => 5_000_000,
            Sensing::Usage => 50_000_000,
        }
    }
}

/// How side work competes with main.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Yields {
    /// In the idle class: it never runs while main wants the CPU, and main's wakeups take its CPUs
    /// for idle.
    Idle,
    /// With the least weight: main's wakeups look for a CPU that is free.
    LeastWeight,
}

// What the agent measured of itself on a shared two-CPU machine (`tidegate status`).

/// A reading is not taken at one instant: each CPU's part of it is up to this old.
const READ_ERROR_NS: u64 = 10_000;
/// The loop wakes up to this late, evenly distributed.
const LATE_NS: u64 = 100_000;
/// In this many of a million steps it wakes up to [`RARE_LATE_NS`] late instead.
const RARE_PPM: u32 = 1_000;
const RARE_LATE_NS: u64 = 3_000_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupConfig {
    /// The sensor, and with it the period of the loop.
    pub sensing: Sensing,
    /// Idle is kept by the cpuset, too, machine-wide: the agent's `cpuset = on`. Side work then
    /// gives way to main by the least weight, and by the idle class while no CPU is kept from it.
    pub whole_cores: bool,
    /// The seed of lateness and errors.
    pub seed: u64,
}

impl Yields {
    fn set(self, machine: &mut Machine, group: GroupId, yielding: bool) -> Result<(), SimError> {
        match self {
            Self::Idle => machine.set_idle(group, yielding),
            Self::LeastWeight => {
                machine.set_idle(group, false)?;
                machine.set_weight(group, if yielding { 1 } else { 100 })
            }
        }
    }
}

pub struct CgroupEngine {
    config: CgroupConfig,
    control: Control,
    side: Vec<Side>,
    main: Vec<GroupId>,
    soft: BTreeMap<GroupId, SoftCap>,
    cores: Option<Cores>,
    /// How side work gives way now: in the idle class where no CPU is kept from it.
    yields: Yields,
    shared: Shared,
    pending: VecDeque<Pending>,
    prng: Prng,
    started: bool,
    /// A measurement to come: what, for how long, and when it begins.
    measurement: Option<(Switched, Ns, Ns)>,
    findings: Arc<Mutex<Option<Findings>>>,
    due_ns: Ns,
    loop_ns: Ns,
    /// What the machine refused, the last of it.
    refusal: Option<String>,
}

impl CgroupEngine {
    /// The agent of what [`compile`] found.
    pub fn new(config: CgroupConfig, compiled: &EngineTerms) -> Self {
        let shared = Shared::default();
        let reader = Reader {
            shared: shared.clone(),
            sensing: config.sensing,
            tick_ns: compiled.tick_ns,
        };
        let mut control = Control::new(Box::new(reader), compiled.demand.clone());
        control.soft_caps.set(&capped(compiled), 0);
        Self {
            control,
            side: compiled.side.clone(),
            main: compiled.main.clone(),
            soft: compiled.soft.clone(),
            cores: None,
            yields: standing_yields(&config),
            shared,
            pending: VecDeque::new(),
            prng: Prng::stream(config.seed, 0x6b6e_6f62),
            started: false,
            measurement: None,
            due_ns: 0,
            loop_ns: 0,
            findings: Arc::default(),
            refusal: None,
            config,
        }
    }

    /// Measures from `from_ns` on, for so long, what side work costs main. Returns where it will
    /// leave what it finds.
    pub fn measure(
        &mut self,
        switched: Switched,
        length_ns: Ns,
        from_ns: Ns,
    ) -> Arc<Mutex<Option<Findings>>> {
        self.measurement = Some((switched, length_ns, from_ns));
        Arc::clone(&self.findings)
    }

    fn step_measurement(&mut self, now_ns: Ns) {
        if let Some((switched, length_ns, _)) = self
            .measurement
            .take_if(|(_, _, from_ns)| *from_ns <= now_ns)
        {
            let experiment = Experiment::new(switched, length_ns, self.config.seed, now_ns);
            self.control.begin_measuring(experiment, Vec::new());
        }
        let Some(experiment) = self.control.experiment_mut() else {
            return;
        };
        experiment.heard(now_ns);
        if *experiment.state() == State::Done {
            let mut findings = self.findings.lock().unwrap_or_else(PoisonError::into_inner);
            findings.get_or_insert_with(|| experiment.data().findings());
        }
    }

    /// What `run --side` does before the command starts: the idle class and the tolerance as a
    /// quota.
    fn start(&mut self, machine: &mut Machine) -> Result<(), SimError> {
        let cpus = machine.cpus();
        let demand = self.control.demand();
        let floor_ucpu = (u64::from(cpus) * u64::from(demand.tolerance_ppm)).max(FLOOR_MIN_UCPU);
        let floor = bandwidth_for(floor_ucpu, PERIOD_US);
        let mut limited = Vec::new();
        for side in &self.side {
            self.yields.set(machine, side.group, true)?;
            machine.set_bandwidth(side.group, tighter(floor, side.own))?;
            limited.push(QuotaTarget {
                own: side.own,
                group: path_of(side.group),
                weight: side.weight,
                first_weight: side.weight,
                unequal: side.unequal,
                cap_ucpu: side.cap_ucpu,
            });
        }
        self.control.quotas.set(limited, machine.config().tick_ns);
        let sensed =
            |groups: &mut dyn Iterator<Item = GroupId>| groups.map(ports::sensed).collect();
        self.control.set_groups(
            sensed(&mut self.side.iter().map(|side| side.group)),
            sensed(&mut self.main.iter().copied()),
        );
        if self.config.whole_cores {
            self.cores = Cores::new(&self.side, &machine.config().topology);
        }
        if self.cores.is_some() {
            for group in &self.main {
                machine.count_by_cpu(*group)?;
            }
        }
        if machine.config().topology.threads_per_core() > 1 {
            self.control.set_contention(SHARED_CORES_PPM);
        }
        Ok(())
    }

    fn step_cores(&mut self, machine: &mut Machine) {
        let Some(cores) = self
            .cores
            .as_mut()
            .filter(|cores| cores.due_ns <= machine.now_ns())
        else {
            return;
        };
        let stepped = cores.step(machine, &self.control);
        let yields = if cores.is_free {
            Yields::Idle
        } else {
            standing_yields(&self.config)
        };
        let turned = if std::mem::replace(&mut self.yields, yields) == yields {
            Ok(())
        } else {
            yields.set(machine, cores.side, true)
        };
        self.note(turned.and(stepped));
    }

    /// Keeps what the machine refused.
    fn note(&mut self, done: Result<(), SimError>) {
        if let Err(why) = done {
            self.refusal = Some(why.to_string());
        }
    }

    fn step_loop(&mut self, machine: &mut Machine) {
        let now_ns = machine.now_ns();
        let counted = self.shared.count_runs(machine, &self.side, &self.main);
        self.note(counted);
        self.shared.read(
            machine,
            self.config.sensing,
            &self.side,
            &self.main,
            &mut self.prng,
        );
        if self.cores.is_some() {
            self.shared
                .read_main_by_cpu(machine, self.config.sensing, &self.main);
        }
        self.step_measurement(now_ns);
        let mut queue = Queue {
            now_ns,
            yields: self.yields,
            soft: &self.soft,
            prng: &mut self.prng,
            pending: &mut self.pending,
        };
        self.control.step(now_ns, now_ns - self.due_ns, &mut queue);
        self.control
            .soft_caps
            .step(now_ns, &mut Meters(machine), &mut queue);
    }

    /// How long after a step the next one is due. Soft caps are looked at in the same loop.
    fn period_ns(&self) -> Ns {
        let least_ns = self.config.sensing.period_ns();
        if self.control.soft_caps.is_idle() {
            self.control.period_ns(least_ns)
        } else {
            least_ns
        }
    }

    /// The next step of the timer's grid that is still to come, and when the loop will really wake
    /// for it.
    fn schedule(&mut self, now_ns: Ns) {
        let period_ns = self.period_ns();
        self.due_ns += period_ns * ((now_ns - self.due_ns) / period_ns + 1);
        let most_ns = if self.prng.chance_ppm(RARE_PPM) {
            RARE_LATE_NS
        } else {
            LATE_NS
        };
        self.loop_ns = self.due_ns + self.prng.between(0, most_ns);
    }

    fn write_due(&mut self, machine: &mut Machine) {
        let now_ns = machine.now_ns();
        while self
            .pending
            .front()
            .is_some_and(|write| write.at_ns <= now_ns)
            && let Some(write) = self.pending.pop_front()
        {
            self.note(write.perform(machine));
        }
    }
}

impl Controller for CgroupEngine {
    fn step(&mut self, machine: &mut Machine) -> Ns {
        let now_ns = machine.now_ns();
        if !self.started {
            self.started = true;
            let started = self.start(machine);
            self.note(started);
        }
        self.write_due(machine);
        if now_ns >= self.loop_ns {
            self.step_loop(machine);
            self.schedule(now_ns);
        }
        self.step_cores(machine);
        let write_ns = self.pending.front().map_or(Ns::MAX, |write| write.at_ns);
        let poll_ns = self.cores.as_ref().map_or(Ns::MAX, |cores| cores.due_ns);
        self.loop_ns.min(write_ns).min(poll_ns)
    }

    fn refusal(&self) -> Option<String> {
        self.refusal.clone()
    }

    fn at_tolerance_ns(&self, now_ns: Ns) -> Option<u64> {
        let has_side = !self.side.is_empty();
        has_side.then(|| self.control.at_tolerance_ns(now_ns))
    }

    fn name(&self) -> &str {
        "cgroup"
    }
}

/// How side work gives way while CPUs are kept from it.
fn standing_yields(config: &CgroupConfig) -> Yields {
    if config.whole_cores {
        Yields::LeastWeight
    } else {
        Yields::Idle
    }
}

/// The groups whose soft cap the loop steers.
fn capped(compiled: &EngineTerms) -> Vec<SoftCapped> {
    let one = |(group, soft): (&GroupId, &SoftCap)| SoftCapped {
        group: path_of(*group),
        soft_ppt: soft.soft_ppt,
    };
    compiled.soft.iter().map(one).collect()
}

/// The production code names a group by its path; here the number stands for it.
fn path_of(group: GroupId) -> GroupPath {
    GroupPath::parse(&format!("/{group}")).unwrap_or_else(|_| GroupPath::root())
}

fn group_of(path: &GroupPath) -> Option<GroupId> {
    path.relative().parse().ok().map(GroupId)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_again_by_its_path() {
        for number in [0, 1, 77, u32::MAX] {
            assert_eq!(group_of(&path_of(GroupId(number))), Some(GroupId(number)));
        }
    }
}
