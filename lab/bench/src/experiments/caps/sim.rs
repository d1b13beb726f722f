//! `tidegate lab caps --on sim`: caps as quotas on a task's group. How exact a hard cap is from 1 to 1000 ‰, what a task may do
//! after a sleep, and what a fork storm makes of a cap.

use tidegate_sim::workloads::{Common, ForkStorm, Hog, Kind, Work};
use tidegate_sim::{Bandwidth, Ctx, GroupId, GroupSpec, Machine, Op, Simulation, TaskId};

use super::sim_cells::{Cell, STORM_PPT};
use super::sim_report;
use super::tables::Rate;
use crate::LabError;
use crate::beds::sim::{MS, S, Stage, advance, built, derive, plain};
use crate::options::LabOptions;
use crate::report::{Report, Sample, Samples};

/// Caps that are tried, in parts per thousand of one CPU.
pub const RATES: [u32; 13] = [1, 2, 5, 10, 20, 50, 100, 200, 350, 500, 700, 900, 1000];
const STORM_CPUS: u32 = 8;
const STORM_PARENTS: u32 = 4;

struct Lengths {
    windows: u64,
    storm_s: u64,
}

/// Runs the experiment.
pub fn run(options: &LabOptions) -> Result<Report, LabError> {
    let stage = Stage::new(options);
    let lengths = Lengths {
        windows: stage.quick_or(3, 10),
        storm_s: stage.quick_or(2, 10),
    };
    let mut cells = vec![Cell::Continuous, Cell::Storm];
    cells.extend([1, 100, 500].map(Cell::AfterSleep));
    let samples = stage.cells(
        &cells,
        |c| match c {
            Cell::Continuous => 40 * lengths.windows,
            Cell::Storm => 200 * lengths.storm_s,
            _ => 50,
        },
        |c| format!("{c:?}"),
        |c| simulate(*c, &lengths, options.seed),
    )?;
    sim_report::report(&stage, Samples(samples.concat()))
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
    let of = |kind: &str| Sample::new(c).with("kind", kind).with("engine", "knobs");
    Ok(vec![match c {
        Cell::Continuous => {
            let rates = continuous(lengths, seed)?.into_iter();
            return Ok(rates.map(|r| r.figures(of("continuous"))).collect());
        }
        Cell::AfterSleep(ppt) => of("after_sleep")
            .with("cap_ppt", ppt)
            .with("above_ms", after_sleep(ppt, seed)?),
        Cell::Storm => {
            let (used, forked) = storm(lengths, seed)?;
            of("storm")
                .with("cap_ppt", STORM_PPT)
                .with("used_ppt", used)
                .with("children_done", forked)
        }
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

/// A group of its own for a hog.
fn capped_group(m: &mut Machine, ppt: u32) -> Result<GroupId, LabError> {
    built(m.add_group(GroupSpec {
        bandwidth: Some(quota(ppt)),
        ..GroupSpec::new(&format!("capped{ppt}"), GroupId::ROOT)
    }))
}

/// Windows of 10 s: the longest period is 1 s.
fn continuous(lengths: &Lengths, seed: u64) -> Result<Vec<Rate>, LabError> {
    let seed = derive(seed, &[1]);
    let cpus = RATES.len() as u32 + 3;
    let mut m = built(Machine::new(plain(cpus, seed)))?;
    let mut tasks: Vec<TaskId> = Vec::new();
    for ppt in RATES {
        let group = capped_group(&mut m, ppt)?;
        let common = common(&format!("hog{ppt}"), group, seed);
        tasks.extend(built(hogs(1).build(&common, &mut m))?.tasks);
    }
    let window_s = 10;
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
fn after_sleep(ppt: u32, seed: u64) -> Result<f64, LabError> {
    let seed = derive(seed, &[2]);
    let mut m = built(Machine::new(plain(2, seed)))?;
    let group = capped_group(&mut m, ppt)?;
    let begins_ns = 5 * S;
    let common = common("sleeper", group, seed);
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

/// Parents that fork children of 5 ms without end; all of it in one group.
fn storm(lengths: &Lengths, seed: u64) -> Result<(f64, u64), LabError> {
    let seed = derive(seed, &[4]);
    let mut m = built(Machine::new(plain(STORM_CPUS, seed)))?;
    let group = built(m.add_group(GroupSpec {
        bandwidth: Some(quota(STORM_PPT)),
        ..GroupSpec::new("storm", GroupId::ROOT)
    }))?;
    let common = common("storm", group, seed);
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
