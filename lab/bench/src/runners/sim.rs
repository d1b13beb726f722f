//! Scenes on a simulated machine. What Tidegate does there is the product's own control step; what
//! others do is their published laws.

use tidegate_law::latency as hints;
use tidegate_sim::engines::cgroup::{CgroupConfig, CgroupEngine, compile, tops};
use tidegate_sim::policies::{Katalyst, Koordlet, Policy, PolicyController, Sideloader, Sides};
use tidegate_sim::workloads::{
    Common, Cyclictest, Fibtest, ForkStorm, Hackbench, Hog, Kind as Workload, OpenLoop, Pattern,
    Request, TaskSet, Work,
};
use tidegate_sim::{
    Class, Contention, Controller, CpuId, CpuSet, CpuStat, Ctx, GroupId, GroupSpec, Histogram,
    Machine, MachineConfig, Op, Program, SeriesId, SimError, Simulation, TaskId, Topology,
    base_slice_ns,
};
use tidegate_terms::{Config, RawTerms, Source, Terms as GateTerms};

use crate::loads::level::{Level, Orders};
use crate::loads::server::batches;
use crate::scene::{
    Group, Hint, Keeper, Kind, Latency, Law, Load, LoadOutcome, Look, MS, Outcome, S, Scene,
};
use crate::{LabError, stop};

/// Most CPUs that share a last-level cache: 8 cores of two threads, as on a server of the 2020s.
const CPUS_PER_LLC: u32 = 16;
const HEADROOM_PPM: u64 = 300_000;

pub fn run(scene: &Scene) -> Result<Outcome, LabError> {
    let config = scene.model.clone();
    let mut specs: Vec<GroupSpec> = scene.groups.iter().map(spec).collect();
    let terms = scene.groups.iter().map(|group| terms(group, scene.keeper));
    let terms = terms.collect::<Result<Vec<GateTerms>, LabError>>()?;
    let controllers = controllers(&config, scene, &mut specs, &terms);
    let mut machine = built(Machine::new(config))?;
    let mut groups = Vec::new();
    for spec in specs {
        groups.push(built(machine.add_group(spec))?);
    }
    let mut made = Vec::new();
    for load in &scene.loads {
        made.push(start(load, scene, &groups, &mut machine)?);
    }
    let run = Run {
        scene,
        groups: &groups,
        made: &made,
    };
    run.measure(Simulation::new(machine, controllers))
}

struct Run<'a> {
    scene: &'a Scene,
    groups: &'a [GroupId],
    made: &'a [TaskSet],
}

impl Run<'_> {
    fn measure(&self, mut sim: Simulation) -> Result<Outcome, LabError> {
        let scene = self.scene;
        advance(&mut sim, scene.warm_ns)?;
        let limits = |sim: &Simulation| -> Vec<CpuStat> {
            let stat = self.groups.iter().map(|g| sim.machine.cpu_stat(*g));
            stat.collect()
        };
        let writes = |sim: &Simulation| -> u64 {
            let each = self.groups.iter().map(|g| sim.machine.writes(*g));
            each.sum()
        };
        let work = |sim: &Simulation| -> Vec<u64> {
            self.made
                .iter()
                .map(|made| work_done_ns(sim, made))
                .collect()
        };
        let (limits_from, work_from, writes_from) = (limits(&sim), work(&sim), writes(&sim));
        let busy_from = sim.machine.busy_ns();
        let mut looks = vec![self.look(&sim)];
        let end_ns = scene.end_ns();
        let mut at_ns = scene.warm_ns;
        while at_ns < end_ns {
            at_ns = (at_ns + scene.look_ns.unwrap_or(scene.window_ns)).min(end_ns);
            advance(&mut sim, at_ns)?;
            looks.push(self.look(&sim));
            if scene
                .until_done
                .is_some_and(|load| self.is_done(&sim, load))
            {
                break;
            }
        }
        if let Some(load) = scene.until_done.filter(|load| !self.is_done(&sim, *load)) {
            let why = format!("is not done after {} simulated seconds", end_ns / S);
            return Err(LabError::simulation(scene.loads[load].name, why));
        }
        let wall_ns = (sim.machine.now_ns() - scene.warm_ns).max(1) as f64;
        let work_to = work(&sim);
        let loads = self.made.iter().zip(work_to.iter().zip(&work_from));
        let loads = loads.map(|(made, (to, from))| LoadOutcome {
            latencies: latencies(&sim, made),
            work_per_second: (to - from) as f64 / wall_ns,
            run_delay_us: None,
        });
        let busy_ns = (sim.machine.busy_ns() - busy_from) as f64;
        let writes = (writes(&sim) - writes_from) as f64;
        let mut extra = vec![
            ("busy_cpus", busy_ns / wall_ns),
            ("writes_per_second", writes / (wall_ns / S as f64)),
        ];
        let done = scene.until_done.map(|load| self.finished(&sim, load));
        extra.extend(done.map(|h| ("elapsed_seconds", h.max_ns() as f64 / S as f64)));
        Ok(Outcome {
            cpus: f64::from(sim.machine.cpus()),
            looks,
            loads: loads.collect(),
            limits: limits(&sim)
                .into_iter()
                .zip(limits_from)
                .map(|(to, from)| to.since(from))
                .collect(),
            extra,
        })
    }

    fn look(&self, sim: &Simulation) -> Look {
        let m = &sim.machine;
        let used = |(made, load): (&TaskSet, &Load)| {
            let first = made.tasks.first().map_or(0, |t| m.task_usage_ns(*t));
            let alone = |group: &usize| {
                let others = self.scene.loads.iter().filter(|l| l.group == Some(*group));
                others.count() == 1
            };
            // The group's account has what its tasks forked, too.
            let all = match load.group.filter(alone) {
                Some(group) => m.usage_ns(self.groups[group]),
                None => made.tasks.iter().map(|t| m.task_usage_ns(*t)).sum(),
            };
            (all, first)
        };
        Look {
            at_ns: m.now_ns(),
            used_ns: self.made.iter().zip(&self.scene.loads).map(used).collect(),
            ..Look::default()
        }
    }

    fn finished<'a>(&self, sim: &'a Simulation, load: usize) -> &'a Histogram {
        sim.machine.series(self.made[load].series[0].1)
    }

    fn is_done(&self, sim: &Simulation, load: usize) -> bool {
        self.finished(sim, load).count() >= self.made[load].tasks.len() as u64
    }
}

fn work_done_ns(sim: &Simulation, made: &TaskSet) -> u64 {
    let each = made.tasks.iter().map(|t| sim.machine.task_work_done_ns(*t));
    each.sum()
}

fn latencies(sim: &Simulation, made: &TaskSet) -> Vec<(String, Latency)> {
    let series = made.series.iter();
    let latency = |id: &SeriesId| Latency::of(sim.machine.series(*id));
    series
        .map(|(name, id)| ((*name).to_string(), latency(id)))
        .collect()
}

/// Runs to a time, in pieces, so that Ctrl-C is seen.
fn advance(sim: &mut Simulation, to_ns: u64) -> Result<(), LabError> {
    loop {
        stop::check()?;
        let now = sim.machine.now_ns();
        let piece = (now + 20 * MS).min(to_ns);
        sim.run_until(piece)
            .map_err(|v| LabError::simulation("simulator", v.to_string()))?;
        if piece == to_ns {
            return Ok(());
        }
    }
}

/// A machine that cannot be built is a mistake of the experiment's.
fn built<T>(result: Result<T, SimError>) -> Result<T, LabError> {
    result.map_err(|e| LabError::simulation("building the machine", e.to_string()))
}

/// CPUs that do not slow each other: for what is arithmetic.
pub fn plain(cpus: u32) -> MachineConfig {
    MachineConfig {
        check: true,
        ..MachineConfig::new(cpus)
    }
}

/// A server: two threads a core, caches of up to 16 CPUs.
pub fn server(cpus: u32, contention: Contention) -> MachineConfig {
    MachineConfig {
        topology: topology(cpus),
        contention,
        ..MachineConfig::new(cpus)
    }
}

/// Two threads a core if the number is even, and the largest caches that divide the machine.
fn topology(cpus: u32) -> Topology {
    let threads = if cpus.is_multiple_of(2) { 2 } else { 1 };
    let cache = (1..=CPUS_PER_LLC.min(cpus))
        .rev()
        .find(|n| cpus.is_multiple_of(*n) && n.is_multiple_of(threads));
    Topology::new(cpus, threads, cache.unwrap_or(cpus))
}

fn terms(group: &Group, keeper: Keeper) -> Result<GateTerms, LabError> {
    let is_tidegate = matches!(keeper, Keeper::Tidegate { .. });
    let is_held = |term: &&String| is_tidegate || term.starts_with("class=");
    let terms: Vec<&String> = group.terms.iter().filter(is_held).collect();
    let raw = RawTerms::from_assignments(&terms, &Source::Set);
    let resolved = raw.and_then(|raw| Config::default().resolve(&[&raw]));
    resolved.map_err(|error| LabError::simulation(group.name, error.to_string()))
}

fn spec(group: &Group) -> GroupSpec {
    GroupSpec {
        idle: group.idle,
        weight: if group.weight == 0 { 100 } else { group.weight },
        bandwidth: group.max,
        ..GroupSpec::new(group.name, GroupId::ROOT)
    }
}

/// The engines. The cgroup engine writes what is said once into the groups, which are not added
/// yet.
fn controllers(
    config: &MachineConfig,
    scene: &Scene,
    specs: &mut [GroupSpec],
    terms: &[GateTerms],
) -> Vec<Box<dyn Controller>> {
    let cpus = config.topology.cpus();
    match scene.keeper {
        Keeper::Tidegate { sense, whole_cores } => {
            let compiled = compile(specs, terms, config.tick_ns);
            let cgroup = CgroupConfig {
                sensing: sense.unwrap_or_default(),
                whole_cores,
                seed: config.seed,
            };
            vec![Box::new(CgroupEngine::new(cgroup, &compiled))]
        }
        Keeper::Law(law, busy_ppm) => {
            let threads = config.topology.threads_per_core();
            let sides = Sides {
                side: tops(specs, terms, Class::Side),
                main: tops(specs, terms, Class::Main),
            };
            let published =
                PolicyController::new(policy(law, cpus, threads), sides).primed(busy_ppm);
            vec![Box::new(published)]
        }
        _ => Vec::new(),
    }
}

pub(super) fn policy(law: Law, cpus: u32, threads: u32) -> Box<dyn Policy> {
    match law {
        Law::Sideloader => Box::new(Sideloader::new(cpus, HEADROOM_PPM)),
        Law::Koordlet => Box::new(Koordlet::new(cpus)),
        Law::Katalyst => Box::new(Katalyst::new(cpus, threads)),
    }
}

/// What side work should get by a law while main takes this part of the machine.
pub fn allowance(law: Law, cpus: u32, busy: f64) -> f64 {
    policy(law, cpus, 1).allowance_ppm((busy * 1e6) as u64) as f64 / 1e6
}

fn start(
    load: &Load,
    scene: &Scene,
    groups: &[GroupId],
    machine: &mut Machine,
) -> Result<TaskSet, LabError> {
    let seed = scene.model.seed;
    let mut common = Common {
        record_from_ns: scene.warm_ns,
        seed,
        ..Common::new(load.name, load.group.map_or(GroupId::ROOT, |at| groups[at]))
    };
    let cpus = scene.model.topology.cpus();
    match load.hint {
        Hint::Latency(hint) => {
            let slice_ns = hints::slice_ns(i32::from(hint), base_slice_ns(cpus));
            common.slice_ns = Some(slice_ns);
        }
        Hint::SliceUs(us) => common.slice_ns = Some(us * 1_000),
        Hint::None | Hint::Nice(_) => {}
    }
    let workload = match &load.kind {
        Kind::Server { share, request_us } => {
            let work_ns = request_us * 1_000;
            Workload::OpenLoop(OpenLoop {
                workers: 2 * cpus,
                work: Work::uniform(work_ns),
                pattern: Pattern::Poisson {
                    gap_ns: (work_ns as f64 / (share * f64::from(cpus))) as u64,
                },
            })
        }
        Kind::Level(orders) => return level(machine, &common, orders),
        Kind::Hogs { tasks, .. } => Workload::Hog(Hog {
            tasks: *tasks,
            busy: None,
        }),
        Kind::Periodic { work_ns, period_ns } => Workload::Hog(Hog {
            tasks: 1,
            busy: Some((*work_ns, *period_ns)),
        }),
        Kind::Sleeper { work_ns, sleep_ns } => {
            return one(machine, &common, sleeper(*work_ns, *sleep_ns));
        }
        Kind::Cyclictest => Workload::Cyclictest(Cyclictest {
            interval_ns: MS,
            work_ns: 0,
        }),
        Kind::Hackbench { groups, loops } => Workload::Hackbench(Hackbench {
            groups: *groups,
            pairs: 20,
            // A message takes at least a microsecond: so many never end within a run.
            loops: if *loops == 0 { u32::MAX } else { *loops },
            // 100 bytes copied and looked at; a pipe holds 64 KiB.
            message_ns: 500,
            capacity: 655,
        }),
        Kind::Bursty { request_us } => Workload::OpenLoop(OpenLoop {
            workers: 30,
            work: Work::fixed(request_us * 1_000),
            pattern: Pattern::Listed {
                requests: requests(seed, scene.end_ns(), request_us * 1_000).into(),
            },
        }),
        Kind::Fibtest { busy, work_ns } => Workload::Fibtest(Fibtest {
            cpus,
            fast: *busy,
            slow_ns: *work_ns,
        }),
        Kind::Forks { parents } => Workload::ForkStorm(ForkStorm {
            parents: *parents,
            interval_ns: 2 * MS,
            children: u32::MAX,
            work: Work::fixed(5 * MS),
        }),
        Kind::Build { jobs, each } => return build(machine, &common, *jobs, *each),
    };
    built(workload.build(&common, machine))
}

fn requests(seed: u64, length_ns: u64, work_ns: u64) -> Vec<Request> {
    let due = batches(seed, length_ns).into_iter();
    due.map(|due_ns| Request { due_ns, work_ns }).collect()
}

fn one(
    machine: &mut Machine,
    common: &Common,
    program: impl Program + 'static,
) -> Result<TaskSet, LabError> {
    let task = built(machine.spawn(common.task("0", program)))?;
    Ok(made(vec![task]))
}

fn made(tasks: Vec<TaskId>) -> TaskSet {
    TaskSet {
        tasks,
        ..TaskSet::default()
    }
}

fn sleeper(work_ns: u64, for_ns: u64) -> impl Program {
    let mut works = false;
    move |_: &mut Ctx<'_>| {
        works = !works;
        match works {
            true => Op::Run { work_ns },
            false => Op::Sleep { for_ns },
        }
    }
}

/// kernbench in small. Compilers of one length would all read at the same time, and the CPUs idle
/// meanwhile or not by how ticks fall.
fn build(
    machine: &mut Machine,
    common: &Common,
    jobs: u32,
    each: u32,
) -> Result<TaskSet, LabError> {
    let id = machine.add_series();
    let mut tasks = Vec::new();
    for job in 0..jobs {
        let mut common = common.clone();
        common.name = format!("job{job}");
        let (mut left, mut works) = (each, false);
        let program = move |ctx: &mut Ctx<'_>| {
            works = !works;
            match (left, works) {
                (0, _) => {
                    ctx.record(id, ctx.now_ns);
                    Op::Exit
                }
                // Reading the next source: a wait of a millisecond.
                (_, true) => Op::Sleep { for_ns: MS },
                (_, false) => {
                    left -= 1;
                    let work_ns = ctx.rng.between(10 * MS, 30 * MS);
                    Op::Run { work_ns }
                }
            }
        };
        tasks.push(built(machine.spawn(common.task("0", program)))?);
    }
    Ok(TaskSet {
        series: vec![("done", id)],
        ..made(tasks)
    })
}

/// A thread on each CPU that holds its level, as [`crate::loads::level`] does.
fn level(
    machine: &mut Machine,
    common: &Common,
    orders: &[(u64, u32)],
) -> Result<TaskSet, LabError> {
    let cpus = machine.config().topology.cpus();
    let orders: Orders = orders.into();
    let mut tasks = Vec::new();
    for cpu in 0..cpus {
        let mut common = common.clone();
        common.cpus = Some(CpuSet::single(CpuId(cpu)));
        let mut level = Level::new(&orders, u64::from(cpu), u64::from(cpus));
        let mut running_ns = 0;
        let program = move |ctx: &mut Ctx<'_>| {
            level.done(running_ns);
            let (work_ns, at_ns) = level.next(ctx.now_ns);
            running_ns = work_ns;
            match work_ns {
                0 => Op::SleepUntil { at_ns },
                _ => Op::Run { work_ns },
            }
        };
        let task = common.task(&cpu.to_string(), program);
        tasks.push(built(machine.spawn(task))?);
    }
    Ok(made(tasks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_of_every_size_can_be() {
        for cpus in 1..=300 {
            assert_eq!(topology(cpus).validate(), Ok(()), "{cpus} CPUs");
        }
        assert_eq!(topology(64).llcs(), 4);
    }
}
