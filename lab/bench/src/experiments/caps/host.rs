//! `tidegate lab caps`: rate caps on a hog, on a group that forks and on a task that sleeps in between: how exactly they
//! are kept, how smoothly the task runs, and what keeping them costs. Beside Tidegate: a quota on the group by hand, and
//! cpulimit's law. Then soft caps: how soon a capped hog yields to a newcomer ([`crate::experiments::caps::soft`]).
//!
//! Use is read from perf's clock of the load's group, or from the loads' own where that is not available ([`Clock`]), and
//! the longest stop is what the hog itself saw.

use super::host_cells::{Keeper, Lengths, Load, Run, SLEEPER_US};
use super::soft::Soft;
use super::{host_report, soft as caps_soft};
use crate::beds::host::arms::plain;
use crate::beds::host::cgroup::{Group, Hierarchy};
use crate::beds::host::group_clock::Clock;
use crate::beds::host::proc::{Worker, WorkerPlan};
use crate::beds::host::scheduler::{Scheduler, Shared};
use crate::beds::host::tidegate::{Lazy, Tidegate};
use crate::beds::host::{Setup, kept};
use crate::options::LabOptions;
use crate::policies::cpulimit::Cpulimit;
use crate::progress::Progress;
use crate::report::{Report, Sample};
use crate::rng::Rng;
use crate::{Engine, LabError, clock, stop};

/// Hard caps that are tried, ‰ of one CPU.
const CAPS: [u32; 5] = [10, 50, 200, 500, 900];
const CAPS_QUICK: [u32; 2] = [50, 500];
const PARENTS: usize = 2;

/// Runs the experiment.
pub fn run(options: &LabOptions) -> Result<Report, LabError> {
    let mut setup = Setup::new(options)?;
    setup.need_hierarchy()?;
    let lengths = Lengths::of(options);
    let caps = if options.quick {
        &CAPS_QUICK[..]
    } else {
        &CAPS[..]
    };
    let mut cells = cells(caps, options.engine);
    Rng::new(options.seed).shuffle(&mut cells);
    // Tidegate's together, so that one agent does for all of them.
    cells.sort_by_key(|(keeper, _, _)| (*keeper == Keeper::Tidegate, *keeper == Keeper::Ext));
    let mut agent = Lazy::default();
    let mut gates: Vec<String> = caps.iter().map(|ppt| hard_terms(*ppt)).collect();
    gates.extend(caps_soft::gates());
    gates.retain(|_| options.engine == Engine::Ext);
    let mut shared = Shared::new(&setup.exe, setup.need_hierarchy()?, gates)?;
    let each = lengths.settle_s + lengths.window_s * f64::from(lengths.windows) + 0.3;
    let soft = caps_soft::cells(options.engine);
    let soft_s = caps_soft::seconds(options.quick);
    let total = cells.len() as f64 * each + soft.len() as f64 * soft_s;
    let progress = Progress::new("caps", total, options.quiet);
    let (mut samples, mut soft_caps, mut missing) = (Vec::new(), Vec::new(), Vec::<String>::new());
    for (keeper, load, cap_ppt) in cells {
        let name = format!("{}: {} at {cap_ppt} ‰", keeper.label(), load.label());
        progress.stage(&name);
        let cell = (keeper, load, cap_ppt);
        let made = shared.get(keeper == Keeper::Ext).and_then(|ext| {
            let agent = agent.get(&setup.exe, keeper == Keeper::Tidegate)?;
            measure(&setup, cell, agent, ext, &lengths)
        });
        samples.extend(kept(made, &name, &mut missing)?);
        progress.done(each);
    }
    for cell in soft {
        let name = format!("soft caps: {}", cell.label());
        progress.stage(&name);
        let by_ext = matches!(cell, caps_soft::Cell::Ext(_));
        let made: Result<Soft, LabError> = shared.get(by_ext).and_then(|ext| {
            let by_agent = matches!(cell, caps_soft::Cell::Tidegate(_));
            let agent = agent.get(&setup.exe, by_agent)?;
            caps_soft::measure(&setup, cell, agent, ext, options.quick)
        });
        soft_caps.extend(kept(made, &name, &mut missing)?);
        progress.done(soft_s);
    }
    drop((progress, shared));
    setup.machine.finish();
    host_report::report(setup, &lengths, samples, &soft_caps, missing)
}

fn cells(caps: &[u32], engine: Engine) -> Vec<(Keeper, Load, u32)> {
    let with_loads = |keeper| Load::ALL.into_iter().map(move |load| (keeper, load));
    let pairs = Keeper::of(engine).flat_map(with_loads);
    pairs
        .flat_map(|(keeper, load)| caps.iter().map(move |cap| (keeper, load, *cap)))
        .collect()
}

/// A cap as a quota: the kernel's least quota is 1 ms.
fn quota(ppt: u32) -> (u64, u64) {
    let period_us = (1_000_000 / u64::from(ppt)).clamp(100_000, 1_000_000);
    (period_us * u64::from(ppt) / 1000, period_us)
}

fn measure(
    setup: &Setup,
    (keeper, load, cap_ppt): (Keeper, Load, u32),
    agent: Option<&Tidegate>,
    ext: Option<&Shared>,
    lengths: &Lengths,
) -> Result<Sample<Run>, LabError> {
    let h = setup.need_hierarchy()?;
    let group = group_for(h, keeper, cap_ppt)?;
    let join = match (&group, ext) {
        (_, Some(ext)) => ext.group(&hard_terms(cap_ppt))?.membership(),
        (group, None) => group.as_ref().map(Group::membership).unwrap_or_default(),
    };
    let (mut worker, limiter) = if let Some(tidegate) = agent {
        let cap = format!("{cap_ppt}‰");
        let worker = start(load, setup, &join, &|words| {
            tidegate.run(&["--cap-hard", &cap], words)
        })?;
        (worker, None)
    } else {
        let worker = start(load, setup, &join, &plain)?;
        let limiter = match keeper {
            Keeper::Cpulimit => Some(Cpulimit::start(worker.pid(), cap_ppt)?),
            _ => None,
        };
        (worker, limiter)
    };
    stop::sleep_ns((lengths.settle_s * 1e9) as u64)?;
    worker.ask("measure")?;
    let scheduler = ext.and_then(Shared::scheduler);
    let keeper_pid = agent
        .map(Tidegate::agent_pid)
        .or(scheduler.map(Scheduler::pid));
    let agent_ns = || keeper_pid.and_then(clock::process_cpu_ns).unwrap_or(0);
    let (from_ns, agent_from_ns) = (clock::monotonic_ns(), agent_ns());
    let used = Clock::of(h, &worker);
    let windows_ppt = windows(&used, &worker, lengths)?;
    let length_ns = (clock::monotonic_ns() - from_ns) as f64;
    let agent_used_ns = agent_ns() - agent_from_ns;
    let stop_us = worker.ask("report")?["longest_stop_us"].as_f64();
    let cost_ppt = match limiter {
        Some(limiter) => {
            let told = limiter.end();
            let all_s = lengths.settle_s + length_ns / 1e9;
            told.own_cpu_ns as f64 / 1e6 / all_s
        }
        None => 1000.0 * agent_used_ns as f64 / length_ns,
    };
    ext.map_or(Ok(()), Shared::still_in_force)?;
    let run = Run {
        keeper,
        load,
        cap_ppt,
    };
    Ok(run
        .sample(&windows_ppt, matches!(used, Clock::Group(_)))
        .with(
            "longest_stop_ms",
            stop_us.map_or(f64::NAN, |us| us / 1000.0),
        )
        .with("cost_ppt", cost_ppt))
}

fn start(
    load: Load,
    setup: &Setup,
    join: &[std::path::PathBuf],
    wrap: &dyn Fn(&[String]) -> std::process::Command,
) -> Result<Worker, LabError> {
    let sleeper = [
        "--work-us".into(),
        SLEEPER_US.0.to_string(),
        "--sleep-us".into(),
        SLEEPER_US.1.to_string(),
    ];
    let (kind, args, threads) = match load {
        Load::Hog => ("hog", Vec::new(), 1),
        Load::Sleeper => ("hog", sleeper.to_vec(), 1),
        Load::Forks => ("forks", Vec::new(), PARENTS),
    };
    let plan = WorkerPlan {
        exe: &setup.exe,
        kind,
        args,
        threads,
    };
    Worker::start(&plan, join, wrap)
}

/// The terms of the gate that keeps a hard cap under ext.
fn hard_terms(cap_ppt: u32) -> String {
    format!("cap_hard={cap_ppt}‰ cap_scope=group")
}

/// The group of the two arms that are not Tidegate's; the quota is written before anything runs in it.
fn group_for(h: &Hierarchy, keeper: Keeper, cap_ppt: u32) -> Result<Option<Group>, LabError> {
    if matches!(keeper, Keeper::Tidegate | Keeper::Ext) {
        return Ok(None);
    }
    let group = Group::create(h, "capped")?;
    if keeper == Keeper::Quota {
        let (quota_us, period_us) = quota(cap_ppt);
        group.set_quota(Some(quota_us), period_us)?;
    }
    Ok(Some(group))
}

fn windows(used: &Clock, worker: &Worker, lengths: &Lengths) -> Result<Vec<f64>, LabError> {
    let look = || Ok::<_, LabError>((clock::monotonic_ns(), used.ns(worker)?));
    let mut all = Vec::new();
    let mut last = look()?;
    for _ in 0..lengths.windows {
        stop::sleep_until(last.0 + (lengths.window_s * 1e9) as u64)?;
        let now = look()?;
        all.push(1000.0 * (now.1.saturating_sub(last.1)) as f64 / (now.0 - last.0) as f64);
        last = now;
    }
    Ok(all)
}
