//! `tidegate lab slices --on sim`: a small quota on many CPUs, of which each needs little now and then.
//!
//! A CPU takes its part of the pool in slices. Until de53fd7aedb1 (2019) what it had not used by the end
//! of the period expired, so CPUs that run a moment and sleep ate the quota of the one that works. Since
//! then slices do not expire, and all but 1 ms goes back when the CPU has nothing left to run. Both are in
//! the simulator, the former for this comparison only.

use tidegate_sim::workloads::{Common, Fibtest, Kind};
use tidegate_sim::{Bandwidth, GroupId, GroupSpec, Machine, MachineConfig, Simulation};

use super::slices_report;
use super::stage::{MS, S, Stage, advance, built, derive, plain};
use crate::LabError;
use crate::options::LabOptions;
use crate::report::Report;

/// CPU time in a period.
pub const QUOTA_US: u64 = 10_000;
/// The period.
pub const PERIOD_US: u64 = 100_000;
/// The machine of the commit's test.
pub const CPUS: u32 = 80;
/// The kernel's slice.
pub const DEFAULT_SLICE_US: u64 = 5_000;
/// What a sleeping thread does between two sleeps: some hundred additions.
const SLOW_NS: u64 = 200;
const SLEEP_NS: u64 = 10 * MS;

/// Timer ticks: HZ 1000 and HZ 250. Enforcement waits for a tick, so what a busy thread gets from a pool
/// that is always empty is the time until one.
pub const TICKS_NS: [u64; 2] = [MS, 4 * MS];

/// One kernel on one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Size of the machine.
    pub cpus: u32,
    /// Time between two ticks.
    pub tick_ns: u64,
    /// Whether slices expire.
    pub expire: bool,
    /// Their size.
    pub slice_us: u64,
}

/// One simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The kernel.
    pub kernel: Kernel,
    /// From 0; each has periods of another phase to the ticks.
    pub round: u32,
}

/// What became of the quota.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Of what.
    pub cell: Cell,
    /// CPU of the busy thread, ms a second.
    pub busy_ms_per_s: f64,
    /// All of the group's CPU over its quota.
    pub used_pct: f64,
    /// Periods in which the group was throttled.
    pub throttled_pct: f64,
    /// Most CPU time above the quota over any number of whole periods, per CPU.
    pub excess_us_per_cpu: f64,
    /// Length of the window.
    pub seconds: f64,
}

/// Runs the experiment.
pub fn run(options: &LabOptions) -> Result<Report, LabError> {
    let stage = Stage::new(options);
    let seconds = stage.quick_or(3, 10);
    let cells = cells(&stage);
    let outcomes = stage.cells(
        &cells,
        |c| seconds * u64::from(c.kernel.cpus) / 10,
        |c| format!("{}, round {}", label(&c.kernel), c.round + 1),
        |c| simulate(*c, seconds, options.seed),
    )?;
    slices_report::report(&stage, &outcomes)
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

/// Its machine.
pub fn config(k: Kernel, seed: u64) -> MachineConfig {
    MachineConfig {
        tick_ns: k.tick_ns,
        bandwidth_slice_us: k.slice_us,
        slices_expire: k.expire,
        ..plain(k.cpus, seed)
    }
}

/// One machine for so many seconds.
pub fn simulate(c: Cell, seconds: u64, seed: u64) -> Result<Outcome, LabError> {
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
    Ok(Outcome {
        cell: c,
        busy_ms_per_s: (sim.machine.task_usage_ns(busy) - busy_from) as f64
            / MS as f64
            / seconds as f64,
        used_pct: 100.0 * used_ns as f64 / (periods * QUOTA_US * 1000) as f64,
        throttled_pct: 100.0 * (stat.nr_throttled - stat_from.nr_throttled) as f64 / counted as f64,
        excess_us_per_cpu: excess.most_ns.max(0) as f64 / 1000.0 / f64::from(cpus),
        seconds: seconds as f64,
    })
}

/// The most that use exceeded the quota over any run of whole periods: the greatest rise of
/// `used − quota · n` from its lowest point so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Excess {
    lowest_ns: i64,
    /// Yet.
    pub most_ns: i64,
}

impl Excess {
    /// At the end of a period, of which there were so many: what was used since the start.
    pub fn period(&mut self, used_ns: u64, periods: u64) {
        // Both are below 2^62 for a century of one CPU.
        let over = used_ns as i64 - (periods * QUOTA_US * 1000) as i64;
        self.most_ns = self.most_ns.max(over - self.lowest_ns);
        self.lowest_ns = self.lowest_ns.min(over);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excess_is_over_any_run_of_periods() {
        let mut e = Excess::default();
        let quota = QUOTA_US * 1000;
        // One period unused, then two of the quota and a half each.
        for (n, used) in [(1, 0), (2, quota * 3 / 2), (3, quota * 3)] {
            e.period(used, n);
        }
        assert_eq!(e.most_ns as u64, quota);
    }
}
