//! Random machines with everything in them, checked at every step.

use super::Machine;
use crate::prng::Prng;
use crate::{
    Bandwidth, CapScope, CapTerms, CfsConfig, Class, Contention, CpuId, CpuSet, Ctx, ExtConfig,
    GroupId, GroupSpec, LockId, MachineConfig, Op, PipeId, Policy, Scheduler, TaskId, TaskSpec,
    Topology,
};

const MS: u64 = 1_000_000;

/// Does anything at random; what it does to locks and pipes pairs up.
struct Anything {
    pipes: Vec<PipeId>,
    locks: Vec<LockId>,
    held: Option<LockId>,
    forks: u32,
    tasks: u32,
}

impl crate::Program for Anything {
    fn next(&mut self, ctx: &mut Ctx<'_>) -> Op {
        if let Some(lock) = self.held {
            if ctx.rng.chance_ppm(500_000) {
                self.held = None;
                return Op::Unlock { lock };
            }
            return Op::Run {
                work_ns: ctx.rng.below(MS),
            };
        }
        match ctx.rng.below(12) {
            0 => Op::Sleep {
                for_ns: ctx.rng.exp_ns(3 * MS),
            },
            1 => Op::SleepUntil {
                at_ns: ctx.now_ns + ctx.rng.below(MS),
            },
            2 => Op::Yield,
            3 => Op::Send {
                pipe: self.pipes[ctx.rng.below(self.pipes.len() as u64) as usize],
            },
            4 => Op::Recv {
                pipe: self.pipes[ctx.rng.below(self.pipes.len() as u64) as usize],
            },
            5 => {
                let lock = self.locks[ctx.rng.below(self.locks.len() as u64) as usize];
                self.held = Some(lock);
                Op::Lock { lock }
            }
            6 => Op::Wake {
                task: TaskId(ctx.rng.below(u64::from(self.tasks)) as u32),
            },
            7 if ctx.rng.chance_ppm(200_000) => Op::Park,
            8 if self.forks > 0 => {
                self.forks -= 1;
                let child = Anything {
                    pipes: self.pipes.clone(),
                    locks: self.locks.clone(),
                    held: None,
                    forks: 0,
                    tasks: self.tasks,
                };
                let child = TaskSpec::new("child", GroupId::ROOT, Box::new(child));
                Op::Fork {
                    child: Box::new(child),
                }
            }
            9 if ctx.rng.chance_ppm(3_000) => Op::Exit,
            _ => Op::Run {
                work_ns: ctx.rng.exp_ns(MS),
            },
        }
    }
}

fn random_bandwidth(rng: &mut Prng) -> Bandwidth {
    let period_us = rng.between(1_000, 100_000);
    let quota_us = rng
        .chance_ppm(800_000)
        .then(|| rng.between(1_000, 2 * period_us));
    Bandwidth {
        quota_us,
        period_us,
        burst_us: quota_us.map_or(0, |most| rng.below(most + 1)),
    }
}

fn random_cap(rng: &mut Prng) -> CapTerms {
    CapTerms {
        hard_ppt: rng.between(1, 1000) as u32,
        soft_ppt: rng.between(0, 1000) as u32,
        scope: [CapScope::Task, CapScope::Process, CapScope::Group][rng.below(3) as usize],
    }
}

fn random_set(rng: &mut Prng, cpus: u32) -> CpuSet {
    let mut set = CpuSet::single(CpuId(rng.below(u64::from(cpus)) as u32));
    for cpu in 0..cpus {
        if rng.chance_ppm(500_000) {
            set.insert(CpuId(cpu));
        }
    }
    set
}

fn build(rng: &mut Prng, seed: u64) -> Machine {
    let (cpus, threads) = [(1, 1), (2, 2), (4, 2), (8, 2), (12, 1)][rng.below(5) as usize];
    let mut cfg = MachineConfig::new(cpus);
    cfg.topology = Topology::new(cpus, threads, cpus);
    cfg.contention = Contention {
        sibling_ppm: 400_000,
        llc_ppm: 100_000,
        ..Contention::NONE
    };
    if rng.chance_ppm(300_000) {
        let mut cfs = CfsConfig::for_cpus(cpus);
        cfs.latency_nice = rng.chance_ppm(500_000);
        cfg.scheduler = Scheduler::Cfs(cfs);
    } else if rng.chance_ppm(300_000) {
        cfg.scheduler = Scheduler::Ext(ExtConfig::for_cpus(cpus));
    }
    cfg.slices_expire = rng.chance_ppm(200_000);
    cfg.seed = seed;
    cfg.check = true;
    let mut m = Machine::new(cfg).unwrap();
    let pipes: Vec<PipeId> = (0..3).map(|n| m.add_pipe(n + 1)).collect();
    let locks: Vec<LockId> = (0..2).map(|_| m.add_lock()).collect();
    for id in 0..rng.between(1, 6) {
        let mut spec = GroupSpec::new("group", GroupId(rng.below(id + 1) as u32));
        spec.weight = rng.between(1, 10_000) as u32;
        spec.idle = rng.chance_ppm(200_000);
        spec.bandwidth = Some(random_bandwidth(rng));
        spec.class = [Class::Main, Class::Side, Class::Neutral][rng.below(3) as usize];
        spec.headroom_ppm = if spec.class == Class::Main {
            rng.below(800_000) as u32
        } else {
            0
        };
        spec.cap = rng.chance_ppm(200_000).then(|| random_cap(rng));
        m.add_group(spec).unwrap();
    }
    let tasks = rng.between(1, 30) as u32;
    for _ in 0..tasks {
        let program = Anything {
            pipes: pipes.clone(),
            locks: locks.clone(),
            held: None,
            forks: 5,
            tasks,
        };
        let group = GroupId(rng.below(u64::from(m.groups())) as u32);
        let mut spec = TaskSpec::new("any", group, Box::new(program));
        spec.nice = rng.between(0, 39) as i8 - 20;
        spec.policy = match rng.below(10) {
            0 => Policy::Idle,
            1 => Policy::Batch,
            2 => Policy::Fifo {
                prio: rng.between(1, 99) as u8,
            },
            _ => Policy::Normal,
        };
        spec.slice_ns = rng
            .chance_ppm(300_000)
            .then(|| rng.between(100_000, 20 * MS));
        spec.cap = rng.chance_ppm(200_000).then(|| random_cap(rng));
        spec.latency = rng.between(0, 39) as i8 - 20;
        spec.start_ns = rng.below(10 * MS);
        m.spawn(spec).unwrap();
    }
    m
}

fn meddle(m: &mut Machine, rng: &mut Prng) {
    let group = GroupId(rng.below(u64::from(m.groups())) as u32);
    let task = TaskId(rng.below(u64::from(m.tasks())) as u32);
    // A refusal (the root, an idle group) is an answer too.
    let _ = match rng.below(7) {
        0 => m.set_bandwidth(group, random_bandwidth(rng)),
        1 => m.set_weight(group, rng.between(1, 10_000) as u32),
        2 => m.set_idle(group, rng.chance_ppm(500_000)),
        3 => {
            let cpus = m.cpus();
            m.set_cpuset(group, random_set(rng, cpus))
        }
        4 => m.move_task(task, group),
        5 => m.set_task_slice(task, Some(rng.between(100_000, 5 * MS))),
        _ => Ok(()),
    };
}

fn verify(m: &Machine, seed: u64) {
    let (charged, busy): (u64, u64) = (
        m.system.k.tasks.iter().map(|t| t.usage_ns).sum(),
        m.system.k.cpus.iter().map(|c| c.busy_ns).sum(),
    );
    assert_eq!(charged, busy, "seed {seed}: charged is run");
    assert_eq!(
        m.system.k.groups[0].usage_ns, busy,
        "seed {seed}: the root has all"
    );
    if let Err(why) = m.system.sched.verify(&m.system.k) {
        panic!("seed {seed} at {} ns: {why}", m.now_ns());
    }
}

#[test]
fn random_machines_keep_their_books() {
    // TIDEGATE_SEEDS=n looks further.
    let seeds = std::env::var("TIDEGATE_SEEDS")
        .ok()
        .and_then(|n| n.parse().ok());
    for seed in 0..seeds.unwrap_or(150) {
        let mut rng = Prng::stream(seed, 1 << 50);
        let mut m = build(&mut rng, seed);
        let mut at = 0;
        while at < 400 * MS {
            at += rng.exp_ns(MS);
            if let Err(violation) = m.run_until(at) {
                panic!("seed {seed}: {violation}");
            }
            verify(&m, seed);
            meddle(&mut m, &mut rng);
            m.system.settle();
            verify(&m, seed);
        }
    }
}

#[test]
fn one_seed_gives_one_history_and_another_another() {
    let run = |seed: u64| {
        let mut rng = Prng::stream(seed, 1 << 50);
        let mut m = build(&mut rng, seed);
        m.run_until(300 * MS).unwrap();
        let usage: Vec<u64> = (0..m.tasks()).map(|t| m.task_usage_ns(TaskId(t))).collect();
        (m.events(), m.switches(), usage)
    };
    for seed in 0..20 {
        assert_eq!(run(seed), run(seed));
        assert_ne!(run(seed), run(seed + 1000));
    }
}

/// The checker is told of less quota than the class was: what the class then gives must be called too much.
#[test]
fn too_much_quota_is_seen_with_every_scheduler() {
    for scheduler in [
        Scheduler::Eevdf(crate::EevdfConfig::for_cpus(2)),
        Scheduler::Cfs(CfsConfig::for_cpus(2)),
        Scheduler::Ext(ExtConfig::for_cpus(2)),
    ] {
        for told_us in [50_000, 49_000] {
            let mut config = MachineConfig::new(2);
            config.scheduler = scheduler.clone();
            config.check = true;
            let mut machine = Machine::new(config).unwrap();
            let limited = GroupSpec {
                bandwidth: Some(Bandwidth {
                    quota_us: Some(50_000),
                    period_us: 100_000,
                    burst_us: 0,
                }),
                ..GroupSpec::new("limited", GroupId::ROOT)
            };
            let group = machine.add_group(limited).unwrap();
            for _ in 0..2 {
                let hog = Box::new(|_: &mut Ctx<'_>| Op::Run { work_ns: 10 * MS });
                machine.spawn(TaskSpec::new("hog", group, hog)).unwrap();
            }
            machine.system.k.groups[group.index()].bandwidth.quota_us = Some(told_us);
            let first_ns = machine.system.sched.lazy_turnover_ns(group);
            let checker = machine.system.checker.as_mut().unwrap();
            checker.limit_changed(&machine.system.k, group, first_ns);
            // 1 ms a period too much passes 49 ms + 2 · (5 + 4) ms in some 70 periods.
            let ran = machine.run_until(20_000 * MS);
            let name = ran.map_err(|violation| violation.rule);
            let expected = if told_us == 50_000 {
                Ok(())
            } else {
                Err("bandwidth")
            };
            assert_eq!(name, expected, "{scheduler:?}");
        }
    }
}

/// Headroom keeps CPUs idle for main: with side work about, main that waits beside an idle CPU is still forgotten.
#[test]
fn main_that_is_forgotten_beside_side_work_is_seen() {
    for pretend in [false, true] {
        let mut config = MachineConfig::new(2);
        config.scheduler = Scheduler::Ext(ExtConfig::for_cpus(2));
        config.check = true;
        let mut machine = Machine::new(config).unwrap();
        let side = GroupSpec {
            class: Class::Side,
            ..GroupSpec::new("side", GroupId::ROOT)
        };
        let side = machine.add_group(side).unwrap();
        // The last of main's hogs waits for seconds.
        for (group, nice) in [
            (GroupId::ROOT, -20),
            (GroupId::ROOT, -20),
            (GroupId::ROOT, 19),
            (side, 0),
        ] {
            let hog = Box::new(|_: &mut Ctx<'_>| Op::Run { work_ns: 10 * MS });
            let spec = TaskSpec {
                nice,
                ..TaskSpec::new("hog", group, hog)
            };
            machine.spawn(spec).unwrap();
        }
        machine.run_until(50 * MS).unwrap();
        if pretend {
            machine.system.k.idle.insert(CpuId(1));
            machine.system.k.cpus[1].idle_since = 0;
        }
        let ran = machine.run_until(2_000 * MS);
        let rule = ran.map_err(|violation| violation.rule);
        let expected = if pretend {
            Err("work conservation")
        } else {
            Ok(())
        };
        assert_eq!(rule, expected);
    }
}
