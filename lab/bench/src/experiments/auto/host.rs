//! `tidegate lab auto`: nginx and an ffmpeg encode where they are installed, else the built-in server and the burner, at three
//! loads; side work as people start it, under `cpu.idle` alone, under fixed headrooms, and under one that is found.
//!
//! Each of Tidegate's runs has an agent of its own, so that none begins with what another has found.

use super::host_report;
use crate::LabError;
use crate::beds::host::arms::Arm;
use crate::beds::host::tidegate::Tidegate;
use crate::experiments::headroom::bench::{Bench, Times};
use crate::experiments::headroom::report::{Run, Slowdown};
use crate::options::LabOptions;
use crate::progress::Progress;
use crate::report::Report;
use crate::rng::Rng;

/// Load levels, where 1.0 is 25 % of the machine.
const LOADS: [f64; 3] = [0.4, 1.0, 1.6];
const LOADS_QUICK: [f64; 1] = [1.0];
const FIXED_PCT: [u32; 6] = [0, 10, 20, 30, 40, 60];
const FIXED_PCT_QUICK: [u32; 2] = [0, 20];
const USUAL: Times = Times {
    warm: 3.0,
    window: 20.0,
};
const QUICK: Times = Times {
    warm: 0.5,
    window: 3.0,
};
/// The longest search, s.
const SEARCH_S: f64 = 600.0;
const SEARCH_QUICK_S: f64 = 20.0;

fn arms(quick: bool) -> Vec<Arm> {
    let fixed = if quick {
        &FIXED_PCT_QUICK[..]
    } else {
        &FIXED_PCT[..]
    };
    let fixed = fixed
        .iter()
        .map(|&headroom_pct| Arm::Tidegate { headroom_pct });
    let first = [Arm::NoSide, Arm::Together, Arm::CpuIdle];
    first.into_iter().chain(fixed).chain([Arm::Auto]).collect()
}

/// Runs the experiment.
pub fn run(options: &LabOptions) -> Result<Report, LabError> {
    let quick = options.quick;
    let loads = if quick { &LOADS_QUICK[..] } else { &LOADS[..] };
    let loads = options.loads.clone().unwrap_or_else(|| loads.to_vec());
    let times = if quick { QUICK } else { USUAL };
    let mut bench = Bench::new(options, arms(quick), loads, times)?;
    bench.search_s = if quick { SEARCH_QUICK_S } else { SEARCH_S };
    bench.prefer_nginx()?;
    // Only to see which arms can run.
    drop(bench.start_tidegate()?);
    let rounds = options.rounds.unwrap_or(1).max(1);
    let cost_s = |arm: Arm| {
        let search_s = if arm == Arm::Auto {
            bench.search_s
        } else {
            0.0
        };
        bench.times.cell() + search_s
    };
    let all_s: f64 = bench.arms.iter().map(|arm| cost_s(*arm)).sum();
    let all_s = all_s * f64::from(rounds) * bench.loads.len() as f64;
    let progress = Progress::new("auto", all_s, options.quiet);
    let mut rng = Rng::new(options.seed);
    let mut samples = Vec::new();
    for round in 0..rounds {
        for &load in &bench.loads {
            let mut arms = bench.arms.clone();
            rng.shuffle(&mut arms);
            // The same arrivals for every arm of a comparison.
            let seed = rng.next_u64() >> 1;
            for arm in arms {
                let label = arm.label();
                progress.stage(&format!("round {}, load {load:.1}, {label}", round + 1));
                let run = Run {
                    cpus: 0,
                    load,
                    arm,
                    slowdown: Slowdown::Shipped,
                    round,
                };
                let agent = match arm.needs_agent() {
                    true => Some(Tidegate::start(&bench.setup.exe, options.sense)?),
                    false => None,
                };
                samples.push(bench.cell(agent.as_ref(), run, seed)?);
                progress.done(cost_s(arm));
            }
        }
    }
    drop(progress);
    bench.setup.machine.finish();
    host_report::report(&bench, samples)
}
