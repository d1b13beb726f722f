//! Simulated: both kinds of slices on machines of several sizes.
//!
//! A CPU takes its part of the pool in slices. Until de53fd7aedb1 (2019) what it had not used by the end
//! of the period expired, so CPUs that run a moment and sleep ate the quota of the one that works. Since
//! then slices do not expire, and all but 1 ms goes back when the CPU has nothing left to run. Both are in
//! the simulator, the former for this comparison only.

use tidegate_sim::workloads::{Common, Fibtest, Kind};
use tidegate_sim::{Bandwidth, GroupId, GroupSpec, Machine, Simulation};

use super::sim_cells::{CPUS, Cell, DEFAULT_SLICE_US, Kernel, TICKS_NS, config};
use super::{Excess, PERIOD_US, QUOTA_US, Used, sim_report};
use crate::LabError;
use crate::beds::sim::{MS, S, Stage, advance, built, derive};
use crate::options::LabOptions;
use crate::report::{Report, Samples};

/// What a sleeping thread does between two sleeps: some hundred additions.
const SLOW_NS: u64 = 200;
const SLEEP_NS: u64 = 10 * MS;

/// Runs the experiment.
pub fn run(options: &LabOptions) -> Result<Report, LabError> {
    let stage = Stage::new(options);
    let seconds = stage.quick_or(3, 10);
    let cells = cells(&stage);
    let samples = stage.cells(
        &cells,
        |c| seconds * u64::from(c.kernel.cpus) / 10,
        |c| format!("{}, round {}", label(&c.kernel), c.round + 1),
        |c| {
            let used = simulate(*c, seconds, options.seed)?;
            Ok(sim_report::sample(c.kernel, c.round, &used))
        },
    )?;
    sim_report::report(&stage, Samples(samples))
}

fn cells(stage: &Stage<'_>) -> Vec<Cell> {
    let slices = [1_000, 2_500, DEFAULT_SLICE_US, 10_000, 20_000];
    let sizes = stage.sizes(stage.quick_or(&[CPUS][..], &[16, CPUS, 256][..]));
    let rounds = stage.options.rounds.unwrap_or(stage.quick_or(3, 8)).max(1);
    let mut cells = Vec::new();
    for &cpus in &sizes {
        for (tick_ns, expire) in TICKS_NS.into_iter().flat_map(|t| [(t, true), (t, false)]) {
            for slice_us in slices {
                if slice_us == DEFAULT_SLICE_US || cpus == CPUS || sizes.len() == 1 {
                    let kernel = Kernel {
                        cpus,
                        tick_ns,
                        expire,
                        slice_us,
                    };
                    cells.extend((0..rounds).map(|round| Cell { kernel, round }));
                }
            }
        }
    }
    cells
}

/// In messages.
fn label(k: &Kernel) -> String {
    let expire = if k.expire { "expire" } else { "do not expire" };
    format!(
        "{} CPUs, tick {} ms, slices of {} ms that {expire}",
        k.cpus,
        k.tick_ns / MS,
        k.slice_us as f64 / 1000.0
    )
}

/// One machine for so many seconds.
pub fn simulate(c: Cell, seconds: u64, seed: u64) -> Result<Used, LabError> {
    let seed = derive(seed, &[u64::from(c.round)]);
    let cpus = c.kernel.cpus;
    let mut m = built(Machine::new(config(c.kernel, seed)))?;
    let limited = GroupSpec {
        bandwidth: Some(Bandwidth {
            quota_us: Some(QUOTA_US),
            period_us: PERIOD_US,
            burst_us: 0,
        }),
        ..GroupSpec::new("limited", GroupId::ROOT)
    };
    let group = built(m.add_group(limited))?;
    let fibtest = Fibtest {
        threads: cpus,
        fast: 1,
        cpus,
        chunk_ns: MS,
        slow_ns: SLOW_NS,
        sleep_ns: SLEEP_NS,
    };
    let common = Common {
        seed,
        ..Common::new("fib", group)
    };
    let made = built(Kind::Fibtest(fibtest).build(&common, &mut m))?;
    let mut sim = Simulation::new(m, Vec::new());
    // The first second fills silos that start empty.
    let from_ns = S;
    advance(&mut sim, from_ns)?;
    let busy = made.tasks[0];
    let (busy_from, used_from) = (sim.machine.task_usage_ns(busy), sim.machine.usage_ns(group));
    let stat_from = sim.machine.bandwidth_stat(group);
    let periods = seconds * 10;
    let mut excess = Excess::default();
    for period in 1..=periods {
        advance(&mut sim, from_ns + period * PERIOD_US * 1000)?;
        excess.period(sim.machine.usage_ns(group) - used_from, period);
    }
    let stat = sim.machine.bandwidth_stat(group);
    let used_ns = sim.machine.usage_ns(group) - used_from;
    let counted = (stat.nr_periods - stat_from.nr_periods).max(1);
    Ok(Used {
        busy_ms_per_s: (sim.machine.task_usage_ns(busy) - busy_from) as f64
            / MS as f64
            / seconds as f64,
        used_pct: 100.0 * used_ns as f64 / (periods * QUOTA_US * 1000) as f64,
        throttled_pct: 100.0 * (stat.nr_throttled - stat_from.nr_throttled) as f64 / counted as f64,
        excess_us_per_cpu: excess.most_ns.max(0) as f64 / 1000.0 / f64::from(cpus),
        seconds: seconds as f64,
    })
}
