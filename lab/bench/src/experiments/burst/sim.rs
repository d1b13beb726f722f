//! `tidegate lab burst --on sim`: the proportions of the burst patches' schbench run, with arrivals
//! that really exceed the quota in some periods.
//!
//! The burst series' run hands out 20 requests of 10 ms each 40 ms: at most 600 ms in any period of 100, below
//! the quota of 700. What throttled it was quota lying in silos. Here a third of the batches is of 30
//! requests and the others of 15, with the same mean: about one period in eight asks for 750 or 900 ms.
//! Every arm meets the same batches.

use std::sync::Arc;

use tidegate_law::burst::NO_PARENT;
use tidegate_sim::engines::cgroup::{Compiled, Knobs, KnobsConfig, Sensing};
use tidegate_sim::workloads::{Common, Kind, OpenLoop, Pattern, Request, Work};
use tidegate_sim::{Bandwidth, Controller, GroupId, GroupSpec, Machine, Prng, Simulation};

use super::report::{BurstRuns, Service};
use super::{Limit, Run, SIM};
use crate::LabError;
use crate::beds::sim::{MS, S, Stage, advance, built, derive, latency, plain};
use crate::dist::Latency;
use crate::options::LabOptions;
use crate::report::{Report, Sample};

/// The burst series' quota.
pub const QUOTA_US: u64 = 700_000;
/// Its period.
pub const PERIOD_US: u64 = 100_000;
/// Its burst.
pub const BURST_US: u64 = 400_000;
/// Its workers.
pub const WORKERS: u32 = 30;
/// Work of a request.
pub const REQUEST_NS: u64 = 10 * MS;
const BATCH_GAP_NS: u64 = 40 * MS;
/// A batch is handed out over this long, so that requests are due while the group is throttled too.
const SPREAD_NS: u64 = 20 * MS;
/// Requests of most batches.
pub const SMALL: u64 = 15;
/// ... and of the others.
pub const LARGE: u64 = 30;
const SERVICE: Service = Service {
    quota_us: QUOTA_US,
    period_us: PERIOD_US,
    work_us: (REQUEST_NS / 1000) as f64,
};
const CPUS: u32 = 64;
/// The machine settles, and `auto` meets the first throttling.
const WARM_S: u64 = 20;

/// Runs the experiment.
pub fn run(options: &LabOptions) -> Result<Report, LabError> {
    let stage = Stage::new(options);
    let rounds = options.rounds.unwrap_or(stage.quick_or(1, 3)).max(1);
    let seconds = stage.quick_or(10, 60);
    let cpus = stage.sizes(&[CPUS])[0];
    if cpus < WORKERS {
        return Err(LabError::Asked {
            what: format!("--cpus {cpus}"),
            why: format!("{WORKERS} workers run at once"),
            mend: format!("give at least {WORKERS}"),
        });
    }
    let mut cells = Vec::new();
    for round in 0..rounds {
        cells.extend(SIM.map(|arm| Run { arm, round }));
    }
    let samples = stage.cells(
        &cells,
        |_| 25 * seconds,
        |c| format!("{}, round {}", c.arm.label, c.round + 1),
        |c| simulate(*c, cpus, seconds, options.seed),
    )?;
    report(&stage, cpus, samples)
}

fn report(stage: &Stage<'_>, cpus: u32, samples: Vec<Sample<Run>>) -> Result<Report, LabError> {
    let example = plain(cpus, stage.options.seed);
    let bed = stage.bed(&[cpus], &example, "EEVDF, cpu.max as the kernel does it");
    let found = BurstRuns::new(samples, &SIM, &SERVICE);
    let mut report = found.report(
        bed,
        "Quota 700 ms in 100 ms, mean use 500 ms",
        "What a request waits (its latency less its own 10 ms) beside the burst series' wakeup latency, us",
    )?;
    report.add_always_measured(found.sim_headline());
    let over = found.with(Limit::None, false)("periods_asking_over_pct");
    report.notes.push(format!(
        "{WORKERS} workers, requests of 10 ms, a batch each 40 ms over 20 ms: {SMALL} requests, or {LARGE} with odds of \
         one in three; {over:.1} % of the periods ask for more than the quota of 700 ms, the mean is 500. \
         Mechanism: pool, silos, slices, burst and throttling as in the kernel; `auto` is Tidegate's \
         engine on kernel files with the law of adaptive burst (a write refills, so it writes only a change that \
         is a tenth of the quota). The model's: the arrivals, the costs of a \
         switch and a wakeup, and no contention between CPUs. The burst series' figures are wakeup latencies on a machine \
         that it does not name; here a wakeup is not delayed, since the CPU that a worker wakes on still holds 1 ms \
         of quota: it is the request that waits, in its middle."
    ));
    Ok(report)
}

/// Batches of requests for this long, and the share of periods that ask for more than the quota.
fn batches(seed: u64, length_ns: u64) -> (Vec<Request>, f64) {
    let mut rng = Prng::new(seed);
    let period_ns = PERIOD_US * 1000;
    let mut asked = vec![0u64; (length_ns / period_ns) as usize];
    let mut requests = Vec::new();
    let mut due_ns = 0;
    while due_ns < length_ns {
        let size = if rng.below(3) == 0 { LARGE } else { SMALL };
        for _ in 0..size {
            requests.push(Request {
                due_ns: due_ns + rng.below(SPREAD_NS),
                work_ns: REQUEST_NS,
            });
        }
        if let Some(period) = asked.get_mut((due_ns / period_ns) as usize) {
            *period += size * REQUEST_NS;
        }
        due_ns += BATCH_GAP_NS;
    }
    requests.sort_by_key(|r| r.due_ns);
    let over = asked.iter().filter(|ns| **ns > QUOTA_US * 1000).count();
    (requests, 100.0 * over as f64 / asked.len().max(1) as f64)
}

fn bandwidth(limit: Limit) -> Option<Bandwidth> {
    (limit != Limit::None).then_some(Bandwidth {
        quota_us: Some(QUOTA_US),
        period_us: PERIOD_US,
        burst_us: if limit == Limit::Burst { BURST_US } else { 0 },
    })
}

/// Tidegate's engine on kernel files, asked for nothing but the burst of this group.
fn auto(group: GroupId, seed: u64) -> Knobs {
    let limit = Bandwidth {
        quota_us: Some(QUOTA_US),
        period_us: PERIOD_US,
        burst_us: 0,
    };
    let config = KnobsConfig {
        seed,
        ..KnobsConfig::new(Sensing::Bpf)
    };
    let compiled = Compiled::default().with_auto_burst(group, limit, NO_PARENT);
    Knobs::new(config, &compiled)
}

fn simulate(c: Run, cpus: u32, seconds: u64, seed: u64) -> Result<Sample<Run>, LabError> {
    let seed = derive(seed, &[u64::from(c.round)]);
    let mut m = built(Machine::new(plain(cpus, seed)))?;
    let limited = GroupSpec {
        bandwidth: bandwidth(c.arm.limit),
        ..GroupSpec::new("limited", GroupId::ROOT)
    };
    let group = built(m.add_group(limited))?;
    let (from_ns, to_ns) = (WARM_S * S, (WARM_S + seconds) * S);
    let (requests, asked_over_pct) = batches(seed, to_ns);
    let common = Common {
        record_from_ns: from_ns,
        seed,
        ..Common::new("bench", group)
    };
    let server = OpenLoop {
        workers: WORKERS,
        work: Work::fixed(REQUEST_NS),
        pattern: Pattern::Listed {
            requests: Arc::from(requests),
            repeat_ns: None,
        },
    };
    let made = built(Kind::OpenLoop(server).build(&common, &mut m))?;
    let controllers: Vec<Box<dyn Controller>> = match c.arm.limit {
        Limit::Auto => vec![Box::new(auto(group, seed))],
        _ => Vec::new(),
    };
    let mut sim = Simulation::new(m, controllers);
    advance(&mut sim, from_ns)?;
    let (used, stat) = (
        sim.machine.usage_ns(group),
        sim.machine.bandwidth_stat(group),
    );
    advance(&mut sim, to_ns)?;
    let m = &sim.machine;
    let series = |name: &str| {
        let id = made.series.iter().find(|s| s.0 == name).map(|s| s.1);
        id.map_or_else(Latency::default, |id| latency(m.series(id)))
    };
    let end = m.bandwidth_stat(group);
    let periods = (end.nr_periods - stat.nr_periods).max(1) as f64;
    let used_ns = (m.usage_ns(group) - used) as f64;
    Ok(SERVICE
        .sample(c, &series("wakeup"), &series("latency"))
        .with(
            "used_pct_of_quota",
            100.0 * used_ns / (seconds * 10 * QUOTA_US * 1000) as f64,
        )
        .with(
            "throttled_periods_pct",
            100.0 * (end.nr_throttled - stat.nr_throttled) as f64 / periods,
        )
        .with("periods_asking_over_pct", asked_over_pct)
        .with(
            "bursts_per_second",
            (end.nr_bursts - stat.nr_bursts) as f64 / seconds as f64,
        )
        .with(
            "burst_ms_at_end",
            m.bandwidth(group).burst_us as f64 / 1000.0,
        )
        .with("seconds", seconds as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_exceed_the_quota_now_and_then_and_not_on_average() {
        let length_ns = 600 * S;
        let (requests, over_pct) = batches(1, length_ns);
        let asked: u64 = requests.iter().map(|r| r.work_ns).sum();
        let mean_pct = 100.0 * asked as f64 / length_ns as f64;
        assert!((480.0..520.0).contains(&mean_pct), "{mean_pct} % of a CPU");
        assert!((10.0..16.0).contains(&over_pct), "{over_pct} % of periods");
        assert_eq!(batches(1, S).0, batches(1, S).0);
    }
}
