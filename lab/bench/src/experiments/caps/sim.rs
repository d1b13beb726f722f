//! `tidegate lab caps --on sim`: rate caps on tasks. How exact a hard cap is from 1 to 1000 ‰, what a
//! task may do after a sleep, what a soft cap gives on idle and on busy machines, what it costs, and
//! what a fork storm makes of a cap under both scopes.
//!
//! ext keeps caps on tasks; on kernel files a cap is a quota on the task's group, which is measured
//! beside it.

use tidegate_sim::workloads::{Common, ForkStorm, Hog, Kind, Work};
use tidegate_sim::{
    Bandwidth, CapScope, CapTerms, Ctx, GroupId, GroupSpec, Machine, Op, Simulation, TaskId,
};

use super::sim_cells::{Build, Cell, Engine, SOFT, STORM_PPT, config, scope_name};
use super::sim_report;
use super::tables::Rate;
use crate::LabError;
use crate::beds::sim::{MS, S, Stage, advance, built, derive, latency};
use crate::dist::Latency;
use crate::options::LabOptions;
use crate::report::{Report, Sample, Samples};

/// Caps that are tried, in parts per thousand of one CPU.
pub const RATES: [u32; 13] = [1, 2, 5, 10, 20, 50, 100, 200, 350, 500, 700, 900, 1000];
const STORM_CPUS: u32 = 8;
const STORM_PARENTS: u32 = 4;
/// kernbench -j 8 on two CPUs.
const BUILD_JOBS: u32 = 8;
const BUILD_CPUS: u32 = 2;

struct Lengths {
    windows: u64,
    storm_s: u64,
    children: u32,
}

/// Runs the experiment.
pub fn run(options: &LabOptions) -> Result<Report, LabError> {
    let stage = Stage::new(options);
    let lengths = Lengths {
        windows: stage.quick_or(3, 10),
        storm_s: stage.quick_or(2, 10),
        children: stage.quick_or(10, 100),
    };
    let mut cells = vec![
        Cell::Continuous(Engine::Ext),
        Cell::Continuous(Engine::Knobs),
    ];
    for engine in [Engine::Ext, Engine::Knobs] {
        cells.extend([1, 100, 500].map(|ppt| Cell::AfterSleep(engine, ppt)));
        cells.push(Cell::Storm(engine, CapScope::Group));
    }
    cells.push(Cell::Storm(Engine::Ext, CapScope::Task));
    cells.extend(SOFT.map(Cell::SoftIdle));
    cells.extend(SOFT.map(Cell::SoftBusy));
    cells.extend(SOFT.map(|ppt| Cell::SoftYields(Some(ppt))));
    cells.push(Cell::SoftYields(None));
    cells.extend([Build::Uncapped, Build::Unused, Build::SoftZero].map(Cell::Build));
    let samples = stage.cells(
        &cells,
        |c| match c {
            Cell::Continuous(_) => 40 * lengths.windows,
            Cell::Storm(..) => 200 * lengths.storm_s,
            _ => 50,
        },
        |c| format!("{c:?}"),
        |c| simulate(*c, &lengths, options.seed),
    )?;
    sim_report::report(&stage, Samples(samples.concat()))
}

fn hard(ppt: u32, scope: CapScope) -> CapTerms {
    CapTerms {
        hard_ppt: ppt,
        soft_ppt: ppt,
        scope,
    }
}

fn soft(ppt: u32) -> CapTerms {
    CapTerms {
        hard_ppt: 1000,
        soft_ppt: ppt,
        scope: CapScope::Task,
    }
}

/// A cap as a quota: the kernel's least quota is 1 ms and its longest period 1 s, which 1 ‰ just
/// reaches.
fn quota(ppt: u32) -> Bandwidth {
    let period_us = (1_000_000 / u64::from(ppt)).clamp(100_000, 1_000_000);
    Bandwidth {
        quota_us: Some(period_us * u64::from(ppt) / 1000),
        period_us,
        burst_us: 0,
    }
}

fn simulate(c: Cell, lengths: &Lengths, seed: u64) -> Result<Vec<Sample<Cell>>, LabError> {
    let of = |kind: &str, engine: Engine| {
        let sample = Sample::new(c).with("kind", kind);
        sample.with("engine", engine.label())
    };
    let soft = |kind, ppt: Option<u32>, used: f64| {
        let sample = of(kind, Engine::Ext).with("soft_ppt", ppt);
        sample.with("used_ppt", used)
    };
    let mut wakeup = Latency::default();
    Ok(vec![match c {
        Cell::Continuous(engine) => {
            let rates = continuous(engine, lengths, seed)?.into_iter();
            return Ok(rates.map(|r| r.figures(of("continuous", engine))).collect());
        }
        Cell::AfterSleep(engine, ppt) => of("after_sleep", engine)
            .with("cap_ppt", ppt)
            .with("above_ms", after_sleep(engine, ppt, seed)?),
        Cell::SoftIdle(ppt) => {
            let used = beside(Some(ppt), None, &mut wakeup, seed)?;
            soft("soft_idle", Some(ppt), used)
        }
        Cell::SoftBusy(ppt) => {
            let used = beside(Some(ppt), Some(None), &mut wakeup, seed)?;
            soft("soft_busy", Some(ppt), used)
        }
        Cell::SoftYields(ppt) => {
            let timer = Some(Some((880_000, 4 * MS)));
            let used = beside(ppt, timer, &mut wakeup, seed)?;
            soft("soft_yields", ppt, used)
                .latency("wakeup", &wakeup, &["p50", "p99", "max"])
                .aside("wakeups", wakeup.completed as f64)
        }
        Cell::Storm(engine, scope) => {
            let (used, forked) = storm(engine, scope, lengths, seed)?;
            of("storm", engine)
                .with("scope", scope_name(scope))
                .with("cap_ppt", STORM_PPT)
                .with("used_ppt", used)
                .with("children_done", forked)
        }
        Cell::Build(build) => of("build", Engine::Ext)
            .with("caps", build.name())
            .with("elapsed_s", compile(build, lengths.children, seed)?),
    }])
}

fn common(name: &str, group: GroupId, seed: u64) -> Common {
    Common {
        seed,
        ..Common::new(name, group)
    }
}

fn hogs(tasks: u32) -> Kind {
    Kind::Hog(Hog { tasks, busy: None })
}

/// A hog in a group of its own, capped by the engine's means.
fn capped_group(m: &mut Machine, engine: Engine, ppt: u32) -> Result<GroupId, LabError> {
    built(m.add_group(GroupSpec {
        bandwidth: (engine == Engine::Knobs).then(|| quota(ppt)),
        ..GroupSpec::new(&format!("capped{ppt}"), GroupId::ROOT)
    }))
}

/// Windows of 1 s (ext) or 10 s (knobs: the longest period is 1 s, and the target's window 10).
fn continuous(engine: Engine, lengths: &Lengths, seed: u64) -> Result<Vec<Rate>, LabError> {
    let seed = derive(seed, &[1]);
    let cpus = RATES.len() as u32 + 3;
    let mut m = built(Machine::new(config(engine, cpus, seed)))?;
    let mut tasks: Vec<TaskId> = Vec::new();
    for ppt in RATES {
        let group = capped_group(&mut m, engine, ppt)?;
        let mut common = common(&format!("hog{ppt}"), group, seed);
        common.cap = (engine == Engine::Ext).then(|| hard(ppt, CapScope::Task));
        tasks.extend(built(hogs(1).build(&common, &mut m))?.tasks);
    }
    let window_s = if engine == Engine::Ext { 1 } else { 10 };
    let mut sim = Simulation::new(m, Vec::new());
    let mut last: Vec<u64> = Vec::new();
    let mut uses: Vec<Vec<f64>> = vec![Vec::new(); tasks.len()];
    // The first second is left out: a bucket begins at zero, a pool full.
    for window in 0..=lengths.windows {
        advance(&mut sim, (1 + window * window_s) * S)?;
        let now: Vec<u64> = tasks
            .iter()
            .map(|t| sim.machine.task_usage_ns(*t))
            .collect();
        for (i, before) in last.iter().enumerate() {
            uses[i].push(1000.0 * (now[i] - before) as f64 / (window_s * S) as f64);
        }
        last = now;
    }
    let of = |(cap_ppt, uses): (u32, &Vec<f64>)| Rate::of(cap_ppt, f64::from(cap_ppt), uses);
    Ok(RATES.into_iter().zip(&uses).map(of).collect())
}

/// The most that a hog used above its rate, over any time since it began after five idle seconds.
fn after_sleep(engine: Engine, ppt: u32, seed: u64) -> Result<f64, LabError> {
    let seed = derive(seed, &[2]);
    let mut m = built(Machine::new(config(engine, 2, seed)))?;
    let group = capped_group(&mut m, engine, ppt)?;
    let begins_ns = 5 * S;
    let mut common = common("sleeper", group, seed);
    common.cap = (engine == Engine::Ext).then(|| hard(ppt, CapScope::Task));
    let program = move |ctx: &mut Ctx<'_>| {
        if ctx.now_ns < begins_ns {
            Op::SleepUntil { at_ns: begins_ns }
        } else {
            Op::Run { work_ns: S }
        }
    };
    let task = built(m.spawn(common.task("0", program)))?;
    let mut sim = Simulation::new(m, Vec::new());
    advance(&mut sim, begins_ns)?;
    let before = sim.machine.task_usage_ns(task);
    let mut most = 0.0f64;
    for step in 1..=3_000 {
        let t_ns = step * MS;
        advance(&mut sim, begins_ns + t_ns)?;
        let used = sim.machine.task_usage_ns(task) - before;
        let due = t_ns as f64 * f64::from(ppt) / 1000.0;
        most = most.max((used as f64 - due) / MS as f64);
    }
    Ok(most)
}

/// One CPU under ext: a hog with a soft cap (or none), and nobody, another hog, or a task that runs for a
/// part of each period beside it. The hog's use in ‰.
fn beside(
    ppt: Option<u32>,
    neighbour: Option<Option<(u64, u64)>>,
    wakeup: &mut Latency,
    seed: u64,
) -> Result<f64, LabError> {
    let seed = derive(seed, &[3]);
    let mut m = built(Machine::new(config(Engine::Ext, 1, seed)))?;
    let mut hog = common("capped", GroupId::ROOT, seed);
    hog.cap = ppt.map(soft);
    let task = built(hogs(1).build(&hog, &mut m))?.tasks[0];
    let mut series = None;
    match neighbour {
        None => {}
        Some(None) => {
            built(hogs(1).build(&common("other", GroupId::ROOT, seed), &mut m))?;
        }
        Some(Some((work_ns, period_ns))) => {
            let id = m.add_series("wakeup");
            series = Some(id);
            let common = common("other", GroupId::ROOT, seed);
            let mut due_ns = S;
            let mut slept = false;
            let program = move |ctx: &mut Ctx<'_>| {
                slept = !slept;
                if slept {
                    return Op::SleepUntil { at_ns: due_ns };
                }
                ctx.record(id, ctx.now_ns - due_ns);
                // What it missed is left out.
                due_ns += period_ns * (1 + (ctx.now_ns - due_ns) / period_ns);
                Op::Run { work_ns }
            };
            built(m.spawn(common.task("0", program)))?;
        }
    }
    let mut sim = Simulation::new(m, Vec::new());
    advance(&mut sim, S)?;
    let before = sim.machine.task_usage_ns(task);
    advance(&mut sim, 6 * S)?;
    if let Some(id) = series {
        *wakeup = latency(sim.machine.series(id));
    }
    Ok(1000.0 * (sim.machine.task_usage_ns(task) - before) as f64 / (5 * S) as f64)
}

/// Parents that fork children of 5 ms without end; all of it in one group.
fn storm(
    engine: Engine,
    scope: CapScope,
    lengths: &Lengths,
    seed: u64,
) -> Result<(f64, u64), LabError> {
    let seed = derive(seed, &[4]);
    let mut m = built(Machine::new(config(engine, STORM_CPUS, seed)))?;
    let mut spec = GroupSpec::new("storm", GroupId::ROOT);
    let cap = hard(STORM_PPT, scope);
    match engine {
        Engine::Knobs => spec.bandwidth = Some(quota(STORM_PPT)),
        Engine::Ext if scope == CapScope::Group => spec.cap = Some(cap),
        Engine::Ext => {}
    }
    let group = built(m.add_group(spec))?;
    let mut common = common("storm", group, seed);
    if engine == Engine::Ext && scope != CapScope::Group {
        common.cap = Some(cap);
    }
    let forks = ForkStorm {
        parents: STORM_PARENTS,
        interval_ns: Some(2 * MS),
        children: u32::MAX,
        work: Work::fixed(5 * MS),
        depth: 1,
    };
    let made = built(Kind::ForkStorm(forks).build(&common, &mut m))?;
    let mut sim = Simulation::new(m, Vec::new());
    advance(&mut sim, S)?;
    let before = sim.machine.usage_ns(group);
    advance(&mut sim, (1 + lengths.storm_s) * S)?;
    let used = sim.machine.usage_ns(group) - before;
    let used_ppt = 1000.0 * used as f64 / (lengths.storm_s * S) as f64;
    let life = made.series.iter().find(|s| s.0 == "life").map(|s| s.1);
    let forked = life.map_or(0, |id| sim.machine.series(id).count());
    Ok((used_ppt, forked))
}

/// kernbench in small: jobs that fork compilers of 20 ms one after the other, on two CPUs and nothing
/// beside. Seconds until all are done. Compilers of one length would all read at the same time, and the
/// CPUs idle meanwhile or not by how ticks fall.
fn compile(build: Build, children: u32, seed: u64) -> Result<f64, LabError> {
    let seed = derive(seed, &[5]);
    let mut m = built(Machine::new(config(Engine::Ext, BUILD_CPUS, seed)))?;
    let id = m.add_series("done");
    for job in 0..BUILD_JOBS {
        let mut common = common(&format!("job{job}"), GroupId::ROOT, seed);
        common.cap = match build {
            Build::Uncapped => None,
            Build::Unused => Some(hard(1000 * BUILD_CPUS, CapScope::Process)),
            Build::SoftZero => Some(soft(0)),
        };
        let mut left = children;
        let mut works = false;
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
        built(m.spawn(common.task("0", program)))?;
    }
    let mut sim = Simulation::new(m, Vec::new());
    let mut to_ns = 0;
    while sim.machine.series(id).count() < u64::from(BUILD_JOBS) {
        to_ns += 100 * MS;
        if to_ns > 600 * S {
            let why = "is not done after 600 simulated seconds";
            return Err(LabError::simulation("build", why));
        }
        advance(&mut sim, to_ns)?;
    }
    Ok(sim.machine.series(id).max_ns() as f64 / S as f64)
}
