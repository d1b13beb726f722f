//! `tidegate lab headroom`: main's latency at several loads, with side work placed in seven ways.
//!
//! Load 1.0 is 25 % of the machine, so the cpu.headroom patches' 1.0…1.6 is 25…40 %. In each round every level is
//! visited, and at each level every arm, both in random order: an arm is compared with *no side
//! work* at the same level of the same round, minutes apart at most, because a shared machine
//! changes by the hour.

use super::bench::{Bench, OVERHEAD, Times};
use super::host_report;
use super::report::{Run, Slowdown};
use crate::beds::host::arms::Arm;
use crate::options::LabOptions;
use crate::progress::Progress;
use crate::report::Report;
use crate::rng::Rng;
use crate::{Engine, LabError};

const USUAL: Times = Times {
    warm: 1.5,
    window: 4.0,
};

/// Runs the experiment.
pub fn run(options: &LabOptions) -> Result<Report, LabError> {
    let arms = match options.engine {
        Engine::Knobs => Arm::HEADROOM.to_vec(),
        Engine::Ext => Arm::HEADROOM_EXT.to_vec(),
    };
    let loads = match &options.loads {
        Some(loads) => loads.clone(),
        None if options.quick => vec![1.0, 1.4],
        None => crate::experiments::published::LATENCY
            .iter()
            .map(|r| r.load)
            .collect(),
    };
    let mut bench = Bench::new(options, arms, loads, USUAL)?;
    let rounds = options
        .rounds
        .unwrap_or(if options.quick { 2 } else { 5 })
        .max(1);
    let tidegate = bench.start_tidegate()?;
    if options.quick {
        // A minute in all, whatever the number of cells.
        let cells = (rounds as usize * bench.loads.len() * bench.arms.len()) as f64;
        let each = 52.0 / cells - OVERHEAD;
        let warm = (each * 0.35).clamp(0.2, 1.0);
        let window = (each - warm).clamp(0.3, 5.0);
        bench.times = Times { warm, window };
    }
    let each = bench.times.cell();
    let total = f64::from(rounds) * (bench.loads.len() * bench.arms.len()) as f64 * each;
    let progress = Progress::new("headroom", total, options.quiet);
    let mut rng = Rng::new(options.seed);
    let mut samples = Vec::new();
    for round in 0..rounds {
        let mut loads = bench.loads.clone();
        rng.shuffle(&mut loads);
        for load in loads {
            let mut arms = bench.arms.clone();
            rng.shuffle(&mut arms);
            // The same arrivals for every arm of a comparison.
            let seed = rng.next_u64() >> 1;
            for arm in arms {
                progress.stage(&format!(
                    "round {}, load {load:.1}, {}",
                    round + 1,
                    arm.label()
                ));
                let run = Run {
                    cpus: 0,
                    load,
                    arm,
                    slowdown: Slowdown::Shipped,
                    round,
                };
                samples.push(bench.cell(tidegate.as_ref(), run, seed)?);
                progress.done(each);
            }
        }
    }
    drop(progress);
    drop(tidegate);
    bench.setup.machine.finish();
    host_report::report(bench, samples)
}
