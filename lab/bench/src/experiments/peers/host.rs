//! On this machine's kernel, or in a guest: rounds of all schedulers, each with all loads.

use super::loads::{LOADS, Work};
use super::process::{self, Running};
use super::{Contender, report};
use crate::LabError;
use crate::beds::host::{Setup, kept, scheduler};
use crate::options::LabOptions;
use crate::progress::Progress;
use crate::report::{Report, Sample, Samples};
use tidegate_vm::tool;

/// What a load, and what loading a scheduler takes, s; only weights of the display of progress.
const LOAD_S: f64 = 2.0;
const START_S: f64 = 10.0;

/// Runs the experiment.
pub fn run(options: &LabOptions) -> Result<Report, LabError> {
    scheduler::supported()?;
    let mut setup = Setup::new(options)?;
    let rounds = options.rounds.unwrap_or(if options.quick { 1 } else { 3 });
    let is_here = |name: &str| tool(name).is_ok();
    let loads: Vec<&Work> = LOADS.iter().filter(|l| is_here(l.program)).collect();
    let arms: Vec<Contender> = Contender::all()
        .filter(|arm| !matches!(arm, Contender::Peer(peer) if !is_here(peer.name)))
        .collect();
    let arm_s = START_S + LOAD_S * loads.len() as f64;
    let all_s = f64::from(rounds) * arms.len() as f64 * arm_s;
    let progress = Progress::new("peers", all_s, options.quiet);
    let dir = options.out_dir();
    let (mut samples, mut missing) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        for arm in &arms {
            progress.stage(&format!("{}, loading", arm.name()));
            let running = Running::start(*arm, &setup, &dir);
            let Some(running) = kept(running, arm.name(), &mut missing)? else {
                progress.done(arm_s);
                continue;
            };
            progress.done(START_S);
            for load in &loads {
                let name = format!("{}, {}", arm.name(), load.name);
                progress.stage(&name);
                let made = process::run(load, &setup, &dir)
                    .and_then(|figures| running.still_in_force().map(|()| figures));
                let figures = kept(made, &name, &mut missing)?;
                samples.extend(figures.map(|figures| sample(*arm, load, round, &figures)));
                progress.done(LOAD_S);
            }
        }
    }
    drop(progress);
    setup.machine.finish();
    report::report(setup, &arms, &Samples(samples), missing)
}

fn sample(
    arm: Contender,
    load: &Work,
    round: u32,
    figures: &[f64],
) -> Sample<(Contender, &'static str)> {
    let sample = Sample::new((arm, load.name))
        .with("round", round + 1)
        .with("scheduler", arm.name())
        .with("work", load.name);
    let named = load.figures.iter().zip(figures);
    named.fold(sample, |sample, (name, value)| sample.with(name, *value))
}
