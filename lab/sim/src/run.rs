//! From a scenario to a machine with everything on it, and to what came of it.

use std::sync::{Arc, Mutex, PoisonError};

use tidegate_cgroup::subgroups::SUBGROUPS_MAX;

use crate::Ns;
use crate::controller::{Controller, Simulation};
use crate::engines::cgroup::{CgroupConfig, CgroupEngine};
use crate::error::{SimError, Violation};
use crate::ids::GroupId;
use crate::machine::Machine;
use crate::outcome::{GroupOutcome, Outcome, Sample, SeriesOutcome};
use crate::plan::Plan;
use crate::scenario::Scenario;
use crate::spec::{Class, CpuStat};
use crate::workloads::TaskSet;

/// Why a run has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The machine refuses the scenario.
    #[error("{what}: {source}")]
    Build { what: String, source: SimError },
    /// An invariant does not hold: a bug.
    #[error(transparent)]
    Violation(#[from] Violation),
}

/// A scenario on its machine, before its first event.
pub struct Stage {
    pub simulation: Simulation,
    /// The tasks and series of each workload, in the order of the scenario.
    pub sets: Vec<TaskSet>,
    /// Every group's name, the root's first.
    names: Vec<String>,
    classes: Vec<Class>,
    engine: &'static str,
    samples: Arc<Mutex<Vec<Sample>>>,
}

impl Stage {
    /// Builds everything.
    ///
    /// # Errors
    /// What the machine refuses.
    pub fn new(scenario: &Scenario) -> Result<Stage, RunError> {
        let refused = |what: String| move |source| RunError::Build { what, source };
        let plan = Plan::new(scenario);
        let mut machine =
            Machine::new(scenario.machine.clone()).map_err(refused("machine".into()))?;
        for spec in &plan.specs {
            let what = format!("group.{}", spec.name);
            machine.add_group(spec.clone()).map_err(refused(what))?;
        }
        let mut sets = Vec::new();
        for (workload, slice_ns) in scenario.workloads.iter().zip(&plan.slices) {
            let mut common = workload.common.clone();
            common.group = plan.id(workload.group);
            common.record_from_ns = scenario.warmup_ns;
            common.seed = scenario.machine.seed;
            common.slice_ns = *slice_ns;
            let what = format!("workload.{}", common.name);
            let one = workload
                .kind
                .build(&common, &mut machine)
                .map_err(refused(what))?;
            sets.push(one);
        }
        for (at, spec) in plan.specs.iter().enumerate() {
            let group = GroupId(at as u32 + 1);
            let all = sets.iter().flat_map(|set: &TaskSet| &set.groups);
            let tasks = all.filter(|one| **one == group).count();
            if spec.task_limit.is_some() && tasks > SUBGROUPS_MAX {
                let what = format!("group.{}.cap_scope", spec.name);
                return Err(refused(what)(SimError::Range {
                    what: "tasks with a cap for each",
                    got: tasks as u64,
                    low: 0,
                    high: SUBGROUPS_MAX as u64,
                }));
            }
        }
        let samples = Arc::default();
        let mut controllers = controllers(&plan, scenario);
        controllers.push(Box::new(Sampler {
            window_ns: scenario.window_ns,
            first_ns: scenario.warmup_ns,
            last_ns: Vec::new(),
            samples: Arc::clone(&samples),
        }));
        Ok(Stage {
            simulation: Simulation::new(machine, controllers),
            sets,
            names: plan.names(),
            classes: plan.classes(),
            engine: scenario.engine.kind.name(),
            samples,
        })
    }

    /// Runs to the scenario's end.
    ///
    /// `progress` hears a hundred times how much simulated time has passed since the last.
    ///
    /// # Errors
    /// A broken invariant.
    pub fn run(
        mut self,
        scenario: &Scenario,
        progress: &mut dyn FnMut(Ns),
    ) -> Result<Outcome, RunError> {
        self.simulation.machine.count_wakeups(scenario.warmup_ns);
        let (mut before, mut last_ns) = (None, 0);
        let steps = PROGRESS_STEPS;
        for step in 0..=steps {
            // A day · 100 < 2^54.
            let at_ns = scenario.duration_ns * step / steps;
            if before.is_none() && at_ns >= scenario.warmup_ns {
                self.simulation.run_until(scenario.warmup_ns)?;
                before = Some(self.usage());
            }
            self.simulation.run_until(at_ns)?;
            progress(at_ns - last_ns);
            last_ns = at_ns;
        }
        Ok(self.outcome(scenario, &before.unwrap_or_default()))
    }

    /// Usage, work, run delay, cpu.stat and writes of each group, and the machine's busy time.
    fn usage(&self) -> Usage {
        let machine = &self.simulation.machine;
        let each = (0..self.names.len()).map(|at| {
            let group = GroupId(at as u32);
            (
                machine.usage_ns(group),
                machine.work_done_ns(group),
                machine.run_delay_ns(group),
                machine.cpu_stat(group),
                machine.writes(group),
            )
        });
        Usage {
            groups: each.collect(),
            busy_ns: machine.busy_ns(),
            at_tolerance_ns: self
                .simulation
                .controllers
                .iter()
                .find_map(|one| one.at_tolerance_ns(machine.now_ns())),
        }
    }

    fn outcome(&self, scenario: &Scenario, before: &Usage) -> Outcome {
        let machine = &self.simulation.machine;
        let after = self.usage();
        let samples =
            std::mem::take(&mut *self.samples.lock().unwrap_or_else(PoisonError::into_inner));
        let mut groups = Vec::new();
        for (at, now) in after.groups.iter().enumerate() {
            let (usage, work, delay, stat, writes) = *now;
            let then = before.groups.get(at).copied().unwrap_or_default();
            let (usage0, work0, delay0, stat0, writes0) = then;
            groups.push(GroupOutcome {
                name: self.names[at].clone(),
                class: self.classes.get(at).copied().unwrap_or(Class::Neutral),
                usage_ns: usage.saturating_sub(usage0),
                work_ns: work.saturating_sub(work0),
                run_delay_ns: delay.saturating_sub(delay0),
                wakeup: machine.wakeups(GroupId(at as u32)),
                writes: writes - writes0,
                stat: stat.since(stat0),
            });
        }
        let mut outcome = Outcome {
            seed: scenario.machine.seed,
            cpus: scenario.machine.topology.cpus(),
            engine: self.engine,
            measured_ns: scenario.duration_ns - scenario.warmup_ns,
            events: machine.events(),
            idle_ns: 0,
            at_tolerance_ns: after
                .at_tolerance_ns
                .map(|ns| ns.saturating_sub(before.at_tolerance_ns.unwrap_or(0))),
            groups,
            series: self.series(scenario),
            samples,
            window_ns: scenario.window_ns,
            refusals: self.refusals(),
        };
        let busy_ns = after.busy_ns.saturating_sub(before.busy_ns);
        outcome.idle_ns = outcome.capacity_ns().saturating_sub(busy_ns);
        outcome
    }

    /// What the machine refused its engines.
    fn refusals(&self) -> Vec<String> {
        let controllers = self.simulation.controllers.iter();
        let refusals =
            controllers.filter_map(|one| Some(format!("{}: {}", one.name(), one.refusal()?)));
        refusals.collect()
    }

    fn series(&self, scenario: &Scenario) -> Vec<SeriesOutcome> {
        let mut all = Vec::new();
        for (workload, set) in scenario.workloads.iter().zip(&self.sets) {
            let group = workload
                .group
                .and_then(|at| scenario.groups.get(at))
                .map_or("root", |group| group.spec.name.as_str());
            for (what, series) in &set.series {
                all.push(SeriesOutcome {
                    workload: workload.common.name.clone(),
                    group: group.to_owned(),
                    what,
                    values: self.simulation.machine.series(*series).clone(),
                });
            }
        }
        all
    }
}

/// The engine that a scenario asks for. Without side work there is nothing to limit, but it also
/// holds caps and finds bursts.
fn controllers(plan: &Plan, scenario: &Scenario) -> Vec<Box<dyn Controller>> {
    if !scenario.engine.kind.is_tidegate() {
        return Vec::new();
    }
    let config = CgroupConfig {
        sensing: scenario.engine.sense,
        whole_cores: false,
        seed: scenario.machine.seed,
    };
    vec![Box::new(CgroupEngine::new(config, &plan.compiled))]
}

/// How often a run reports how far it is.
const PROGRESS_STEPS: u64 = 100;

#[derive(Default)]
struct Usage {
    groups: Vec<(u64, u64, u64, CpuStat, u64)>,
    busy_ns: u64,
    at_tolerance_ns: Option<u64>,
}

/// Looks at the groups' usage once a window; it changes nothing.
struct Sampler {
    window_ns: u64,
    first_ns: Ns,
    last_ns: Vec<u64>,
    samples: Arc<Mutex<Vec<Sample>>>,
}

impl Controller for Sampler {
    fn step(&mut self, machine: &mut Machine) -> Ns {
        if machine.now_ns() < self.first_ns {
            return self.first_ns;
        }
        let groups = machine.groups();
        let now: Vec<u64> = (0..groups)
            .map(|at| machine.usage_ns(GroupId(at)))
            .collect();
        // The first look is the beginning of the first window.
        if !self.last_ns.is_empty() {
            let usage_ns = now.iter().zip(&self.last_ns);
            let sample = Sample {
                at_ns: machine.now_ns(),
                usage_ns: usage_ns
                    .map(|(now, last)| now.saturating_sub(*last))
                    .collect(),
            };
            let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
            samples.push(sample);
        }
        self.last_ns = now;
        machine.now_ns() + self.window_ns
    }

    fn name(&self) -> &str {
        "sampler"
    }
}
