//! Where tasks run: wake placement, balance, affinity and cpusets; and the invariants on random
//! machines.

use proptest::prelude::*;
use tidegate_sim::controller::{Controller, Simulation};
use tidegate_sim::engines::cgroup::{CgroupConfig, CgroupEngine, Sensing, compile};
use tidegate_sim::{
    Bandwidth, Contention, CpuId, CpuSet, Ctx, GroupId, GroupSpec, Machine, MachineConfig, Op,
    PipeId, Policy, Program, TaskId, TaskSpec, Topology,
};

use tidegate_terms::{Config, RawTerms, Source};

use super::support::{self, MS, SECOND, config, hog, napper};

fn machine(topology: Topology) -> Machine {
    Machine::new(config(topology)).unwrap()
}

fn spawn(
    m: &mut Machine,
    group: GroupId,
    cpus: Option<CpuSet>,
    program: Box<dyn Program>,
) -> TaskId {
    let mut spec = TaskSpec::new("task", group, program);
    spec.cpus = cpus;
    m.spawn(spec).unwrap()
}

/// How many cores run something on more than one thread.
fn doubled_cores(m: &Machine) -> u32 {
    let topology = m.config().topology.clone();
    let doubled = |core: &u32| {
        topology
            .core_cpus(*core)
            .filter(|&cpu| m.running(CpuId(cpu)).is_some())
            .count()
            > 1
    };
    (0..topology.cores()).filter(doubled).count() as u32
}

#[test]
fn as_many_hogs_as_cores_get_a_core_each() {
    let mut m = machine(Topology::new(16, 2, 8));
    for _ in 0..8 {
        spawn(&mut m, GroupId::ROOT, None, hog());
    }
    m.run_until(SECOND).unwrap();
    assert_eq!(doubled_cores(&m), 0);
}

#[test]
fn as_many_hogs_as_cpus_get_a_cpu_each_whatever_the_shape() {
    for topology in [
        Topology::new(16, 2, 8),
        Topology::new(6, 1, 3),
        Topology::new(64, 2, 16),
        Topology::new(5, 1, 5),
    ] {
        let cpus = topology.cpus();
        let mut m = machine(topology);
        let tasks: Vec<TaskId> = (0..cpus)
            .map(|_| spawn(&mut m, GroupId::ROOT, None, hog()))
            .collect();
        m.run_until(SECOND).unwrap();
        for task in tasks {
            assert!(
                m.task_usage_ns(task) > 900 * MS,
                "{task} of {cpus}: {} ns",
                m.task_usage_ns(task)
            );
        }
    }
}

#[test]
fn a_cpu_that_runs_dry_pulls_what_waits_elsewhere() {
    let mut m = machine(Topology::new(2, 1, 2));
    // Both start on CPU 0; the one there may go nowhere, the other may.
    spawn(&mut m, GroupId::ROOT, Some(CpuSet::single(CpuId(0))), hog());
    let mut ends = false;
    let shortlived = Box::new(move |_: &mut Ctx<'_>| {
        ends = !ends;
        if ends {
            Op::Run { work_ns: 50 * MS }
        } else {
            Op::Exit
        }
    });
    spawn(
        &mut m,
        GroupId::ROOT,
        Some(CpuSet::single(CpuId(1))),
        shortlived,
    );
    let free = spawn(&mut m, GroupId::ROOT, None, hog());
    m.run_until(50 * MS).unwrap();
    let shared = m.task_usage_ns(free);
    m.run_until(150 * MS).unwrap();
    // From the short one's end on the free one has a CPU to itself, at once.
    assert!(
        m.task_usage_ns(free) - shared > 98 * MS,
        "{}",
        m.task_usage_ns(free) - shared
    );
}

#[test]
fn two_hogs_on_one_core_part_once_another_core_is_theirs_too() {
    let mut m = machine(Topology::new(4, 2, 4));
    let mut group = GroupSpec::new("g", GroupId::ROOT);
    group.cpus = Some(CpuSet::parse("0-1").unwrap());
    let group = m.add_group(group).unwrap();
    for _ in 0..2 {
        spawn(&mut m, group, None, hog());
    }
    m.run_until(100 * MS).unwrap();
    assert_eq!(doubled_cores(&m), 1, "the cpuset holds");
    // No task waits, so nothing can be pulled: after some failures a running one is pushed.
    m.set_cpuset(group, CpuSet::first_n(4)).unwrap();
    m.run_until(200 * MS).unwrap();
    assert_eq!(doubled_cores(&m), 0);
}

#[test]
fn a_cpuset_moves_what_runs_and_what_sleeps() {
    let mut m = machine(Topology::new(4, 1, 4));
    let group = support::group(&mut m, GroupId::ROOT, 100);
    for _ in 0..3 {
        spawn(&mut m, group, None, hog());
        spawn(&mut m, group, None, napper(MS, MS));
    }
    m.run_until(100 * MS).unwrap();
    m.set_cpuset(group, CpuSet::parse("2-3").unwrap()).unwrap();
    let before = [0, 1].map(|cpu| m.cpu_busy_ns(CpuId(cpu)));
    m.run_until(300 * MS).unwrap();
    assert_eq!([0, 1].map(|cpu| m.cpu_busy_ns(CpuId(cpu))), before);
    m.set_cpuset(group, CpuSet::first_n(4)).unwrap();
    m.run_until(500 * MS).unwrap();
    assert!(
        m.cpu_busy_ns(CpuId(0)) > before[0] + 100 * MS,
        "balance spreads them again"
    );
}

/// What a random machine is made of.
#[derive(Debug, Clone)]
struct Plan {
    seed: u64,
    cores: u32,
    threads: u32,
    llcs: u32,
    contention: bool,
    /// Whether tasks and groups may be confined to some CPUs.
    confined: bool,
    /// The engine's terms of each group, by number, where it runs.
    terms: Option<[usize; 3]>,
    tasks: Vec<(u8, u8, u64)>,
    writes: Vec<(u8, u8, u64)>,
}

fn plan() -> impl Strategy<Value = Plan> {
    let task = (0u8..7, 0u8..8, any::<u64>());
    let write = (0u8..4, 0u8..3, any::<u64>());
    let terms = prop::option::of([0..TERMS.len(), 0..TERMS.len(), 0..TERMS.len()]);
    (
        any::<u64>(),
        1u32..5,
        1u32..3,
        1u32..4,
        (any::<(bool, bool)>(), terms),
        prop::collection::vec(task, 1..40),
        prop::collection::vec(write, 0..12),
    )
        .prop_map(
            |(seed, cores, threads, llcs, (chances, terms), tasks, writes)| Plan {
                seed,
                cores,
                threads,
                llcs,
                contention: chances.0,
                confined: chances.1,
                terms,
                tasks,
                writes,
            },
        )
}

fn any_set(cpus: u32, bits: u64) -> CpuSet {
    let set: CpuSet = (0..cpus)
        .filter(|cpu| bits >> (cpu % 64) & 1 == 1)
        .map(CpuId)
        .collect();
    if set.is_empty() {
        CpuSet::single(CpuId(bits as u32 % cpus))
    } else {
        set
    }
}

fn any_program(kind: u8, number: u64, pipes: &[PipeId]) -> Box<dyn Program> {
    let (a, b) = (
        pipes[number as usize % pipes.len()],
        pipes[(number as usize + 1) % pipes.len()],
    );
    let mut step = 0u64;
    Box::new(move |ctx: &mut Ctx<'_>| {
        step += 1;
        match (kind, step % 4) {
            (0, _) => Op::Run {
                work_ns: 1 + ctx.rng.below(20 * MS),
            },
            (1, 0 | 2) => Op::Sleep {
                for_ns: 1 + ctx.rng.exp_ns(2 * MS),
            },
            (2, 0) => Op::Send { pipe: a },
            (2, 1) => Op::Recv { pipe: b },
            (4, 0 | 1) => Op::SleepUntil { at_ns: ctx.now_ns },
            (5, 0) if step < 40 => Op::Fork {
                child: Box::new(TaskSpec::new(
                    "child",
                    GroupId::ROOT,
                    napper(100_000 + number % MS, MS),
                )),
            },
            (6, 3) if step > 20 => Op::Exit,
            _ => Op::Run {
                work_ns: 1 + ctx.rng.below(MS),
            },
        }
    })
}

/// What a group may have to be held by the engine.
const TERMS: [&[&str]; 10] = [
    &[],
    &["class=main", "headroom=20%"],
    &["class=main", "headroom=100%", "latency=-20"],
    &["class=side"],
    &["class=side", "quota=20ms", "burst=max"],
    &["class=side", "cap_hard=0.1cpu", "cap_scope=task"],
    &["quota=3ms", "period=10ms", "burst=1ms"],
    &["cap_hard=1cpu", "cap_soft=1m", "weight=10000"],
    &["cap_soft=0", "latency=19"],
    &["weight=idle", "quota=150ms"],
];

/// The groups as the engine lays them out, and the engine.
fn under_engine(specs: &mut [GroupSpec], plan: &Plan, picks: [usize; 3]) -> Box<dyn Controller> {
    let terms = picks.map(|pick| {
        let raw = RawTerms::from_assignments(TERMS[pick], &Source::Set).unwrap();
        Config::default().resolve(&[&raw]).unwrap()
    });
    let compiled = compile(specs, &terms, 4 * MS);
    let config = CgroupConfig {
        sensing: [Sensing::Bpf, Sensing::Usage][plan.seed as usize % 2],
        whole_cores: plan.threads > 1,
        seed: plan.seed,
    };
    Box::new(CgroupEngine::new(config, &compiled))
}

fn build(plan: &Plan) -> (Simulation, Vec<GroupId>) {
    let cpus = plan.cores * plan.threads * plan.llcs;
    let mut cfg = MachineConfig::new(cpus);
    cfg.topology = Topology::new(cpus, plan.threads, plan.cores * plan.threads);
    cfg.seed = plan.seed;
    cfg.check = true;
    if plan.contention {
        cfg.contention = Contention::MEASURED;
    }
    let mut m = Machine::new(cfg).unwrap();
    let mut specs = [0u32, 1, 2].map(|n| {
        let mut spec = GroupSpec::new("g", GroupId(n / 2));
        spec.weight = 1 + (plan.seed >> (8 * n)) as u32 % 1000;
        spec.idle = n == 2;
        spec
    });
    let engine = plan
        .terms
        .map(|picks| under_engine(&mut specs, plan, picks));
    let mut groups = vec![GroupId::ROOT];
    groups.extend(specs.map(|spec| m.add_group(spec).unwrap()));
    let pipes = [m.add_pipe(2), m.add_pipe(1), m.add_pipe(3)];
    for &(kind, group, number) in &plan.tasks {
        let program = any_program(kind, number, &pipes);
        let mut spec = TaskSpec::new("task", groups[group as usize % groups.len()], program);
        spec.nice = (number % 40) as i8 - 20;
        spec.start_ns = number >> 16 & 0x3f_ffff;
        spec.policy = match number >> 40 & 15 {
            0 => Policy::Idle,
            _ => Policy::Normal,
        };
        spec.cpus = (plan.confined && number >> 48 & 3 == 0).then(|| any_set(cpus, number >> 50));
        m.spawn(spec).unwrap();
    }
    (Simulation::new(m, engine.into_iter().collect()), groups)
}

/// What an engine might write, sensible or not.
fn write(m: &mut Machine, groups: &[GroupId], write: &(u8, u8, u64)) {
    let &(what, group, number) = write;
    let group = groups[1 + group as usize];
    let cpus = m.cpus();
    // A refusal is an answer too.
    let _ = match what {
        0 => m.set_weight(group, 1 + number as u32 % 10_000),
        1 => m.set_idle(group, number % 2 == 0),
        2 => m.set_cpuset(group, any_set(cpus, number)),
        _ => {
            let quota_us = (number % 4 != 0).then_some(1_000 + number % 60_000);
            let burst_us = quota_us.map_or(0, |quota_us| quota_us / 2 * (number >> 20 & 1));
            m.set_bandwidth(
                group,
                Bandwidth {
                    quota_us,
                    period_us: 5_000 + number % 100_000,
                    burst_us,
                },
            )
        }
    };
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(),
        failure_persistence: None, max_shrink_iters: 4000, ..ProptestConfig::default() })]

    /// On any machine, with any programs and any writes, under the engine and without: the
    /// invariants of check.rs.
    #[test]
    fn the_invariants_hold_on_random_machines(plan in plan()) {
        let (mut simulation, groups) = build(&plan);
        for step in 0..13usize {
            if let Err(violation) = simulation.run_until((step as u64 + 1) * 40 * MS) {
                return Err(TestCaseError::fail(violation.to_string()));
            }
            if let Some(next) = plan.writes.get(step).filter(|next| plan.confined || next.0 != 2) {
                write(&mut simulation.machine, &groups, next);
            }
        }
        let m = &simulation.machine;
        prop_assert_eq!(m.usage_ns(GroupId::ROOT), m.busy_ns());
    }

}

/// How many random machines; more with PROPTEST_CASES.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(96)
}
