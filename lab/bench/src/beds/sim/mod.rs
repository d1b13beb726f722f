//! What every simulated experiment starts from: its machine, its cells, and the command that repeats
//! it.

pub mod classes;
pub mod constant;
pub mod control;
pub mod jobs;
pub mod setup;

use std::fmt::Write as _;

use tidegate_sim::{Contention, Histogram, MachineConfig, SimError, Simulation, Topology};

use super::Simulated;
use crate::dist::Latency;
use crate::options::LabOptions;
use crate::progress::Progress;
use crate::{LabError, stop};

/// A millisecond.
pub const MS: u64 = 1_000_000;
/// A second.
pub const S: u64 = 1_000_000_000;
/// Most CPUs that share a last-level cache: 8 cores of two threads, as on a server of the 2020s.
const CPUS_PER_LLC: u32 = 16;

/// One run of one experiment.
pub struct Stage<'a> {
    /// What was asked for.
    pub options: &'a LabOptions,
    jobs: usize,
}

impl<'a> Stage<'a> {
    /// For these options.
    pub fn new(options: &'a LabOptions) -> Self {
        Stage {
            options,
            jobs: options.jobs.unwrap_or_else(jobs::default_jobs),
        }
    }

    /// Sizes of the machine: those asked for, or these.
    pub fn sizes(&self, default: &[u32]) -> Vec<u32> {
        self.options.cpus.clone().unwrap_or_else(|| default.into())
    }

    /// One of two, by whether the run is quick.
    pub fn quick_or<T>(&self, quick: T, full: T) -> T {
        if self.options.quick { quick } else { full }
    }

    /// The command line that repeats the run to the byte.
    pub fn again(&self) -> String {
        let o = self.options;
        let mut line = format!(
            "tidegate lab {} --on sim --seed {}",
            o.experiment.name(),
            o.seed
        );
        let mut list = |name: &str, items: Vec<String>| {
            // Writing to a string cannot fail.
            let _ = write!(line, " --{name} {}", items.join(","));
        };
        if let Some(cpus) = &o.cpus {
            list("cpus", cpus.iter().map(u32::to_string).collect());
        }
        if let Some(loads) = &o.loads {
            list("loads", loads.iter().map(f64::to_string).collect());
        }
        if let Some(rounds) = o.rounds {
            list("rounds", vec![rounds.to_string()]);
        }
        if let Some(sense) = o.sense {
            list("sense", vec![sense.name().into()]);
        }
        line + if o.quick { " --quick" } else { "" }
    }

    /// Simulates every cell, side by side; results are in the cells' order. `cost` is their
    /// weight, about milliseconds: it orders the cells and moves the bar.
    pub fn cells<T: Sync, R: Send>(
        &self,
        cells: &[T],
        cost: impl Fn(&T) -> u64 + Sync,
        label: impl Fn(&T) -> String + Sync,
        work: impl Fn(&T) -> Result<R, LabError> + Sync,
    ) -> Result<Vec<R>, LabError> {
        let seconds = |ms: u64| ms as f64 / 1000.0 / self.jobs as f64;
        let total: u64 = cells.iter().map(&cost).sum();
        let name = self.options.experiment.name();
        let progress = Progress::of_work(name, seconds(total), self.options.quiet);
        jobs::map(self.jobs, cells, &cost, |cell| {
            let result = work(cell).map_err(|e| match e {
                // Which cell it was; the whole experiment repeats it.
                LabError::Simulation { what, why, .. } => LabError::Simulation {
                    what: format!("{}: {what}", label(cell)),
                    why,
                    again: self.again(),
                },
                other => other,
            })?;
            progress.done(seconds(cost(cell)));
            Ok(result)
        })
    }

    /// What a report says of its machines.
    pub fn bed(&self, cpus: &[u32], config: &MachineConfig, scheduler: &str) -> Simulated {
        let t = &config.topology;
        Simulated {
            cpus: cpus.to_vec(),
            threads_per_core: t.threads_per_core(),
            cpus_per_llc: t.cpus_per_llc(),
            scheduler: scheduler.into(),
            tick_us: config.tick_ns / 1000,
            contention: contention_words(&config.contention),
            seed: self.options.seed,
            command: self.again(),
        }
    }
}

/// The coefficients in words.
pub fn contention_words(c: &Contention) -> String {
    if c.is_none() {
        return "none".into();
    }
    let pct = |ppm: u32| f64::from(ppm) / 10_000.0;
    format!(
        "sibling −{:.1} %, cache −{:.1} %, machine −{:.1} % above {:.0} % busy",
        pct(c.sibling_ppm),
        pct(c.llc_ppm),
        pct(c.machine_ppm),
        pct(c.machine_knee_ppm)
    )
}

/// A server: two threads a core where the number is even, caches of up to 16 CPUs, the shipped
/// contention.
pub fn server(cpus: u32, seed: u64) -> Result<MachineConfig, LabError> {
    let contention = Contention::shipped()
        .map_err(|e| LabError::simulation("the shipped coefficients", e.to_string()))?;
    Ok(MachineConfig {
        topology: topology(cpus),
        contention,
        ..plain(cpus, seed)
    })
}

/// A machine of one thread a core in which neighbours do not matter: for what is arithmetic.
pub fn plain(cpus: u32, seed: u64) -> MachineConfig {
    MachineConfig {
        seed,
        check: true,
        ..MachineConfig::new(cpus)
    }
}

/// Two threads a core where that is possible, and the largest caches that divide the machine.
pub fn topology(cpus: u32) -> Topology {
    let threads = if cpus.is_multiple_of(2) { 2 } else { 1 };
    let cache = (1..=CPUS_PER_LLC.min(cpus))
        .rev()
        .find(|n| cpus.is_multiple_of(*n) && n.is_multiple_of(threads));
    Topology::new(cpus, threads, cache.unwrap_or(cpus))
}

/// A seed for one part of an experiment, from the experiment's and what the part is.
pub fn derive(seed: u64, parts: &[u64]) -> u64 {
    let mut rng = tidegate_sim::Prng::new(seed);
    for &part in parts {
        rng = tidegate_sim::Prng::stream(rng.next_u64(), part);
    }
    rng.next_u64()
}

/// Runs to a time, in pieces, so that Ctrl-C is seen.
pub fn advance(sim: &mut Simulation, to_ns: u64) -> Result<(), LabError> {
    loop {
        stop::check()?;
        let now = sim.machine.now_ns();
        let piece = (now + 20 * MS).min(to_ns);
        sim.run_until(piece)
            .map_err(|v| LabError::simulation("simulator", v.to_string()))?;
        if piece == to_ns {
            return Ok(());
        }
    }
}

/// A machine that cannot be built is a mistake of the experiment's.
pub fn built<T>(result: Result<T, SimError>) -> Result<T, LabError> {
    result.map_err(|e| LabError::simulation("building the machine", e.to_string()))
}

/// A histogram as the reports print it.
pub fn latency(h: &Histogram) -> Latency {
    let at = |ppm: u32| h.percentile_ns(ppm) as f64 / 1000.0;
    Latency {
        offered: h.count(),
        completed: h.count(),
        avg_us: h.sum_ns() as f64 / 1000.0 / h.count().max(1) as f64,
        p50_us: at(500_000),
        p90_us: at(900_000),
        p99_us: at(990_000),
        p999_us: at(999_000),
        max_us: h.max_ns() as f64 / 1000.0,
        ..Latency::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Experiment;

    #[test]
    fn machines_of_every_size_can_be() {
        for cpus in 1..=300 {
            assert_eq!(topology(cpus).validate(), Ok(()), "{cpus} CPUs");
        }
        assert_eq!(topology(64).llcs(), 4);
    }

    #[test]
    fn the_command_names_what_was_chosen() {
        let mut options = LabOptions::new(Experiment::Headroom);
        options.cpus = Some(vec![16, 64]);
        options.loads = Some(vec![1.0, 1.3]);
        options.quick = true;
        assert_eq!(
            Stage::new(&options).again(),
            "tidegate lab headroom --on sim --seed 1 --cpus 16,64 --loads 1,1.3 --quick"
        );
    }

    #[test]
    fn parts_have_seeds_of_their_own() {
        let a = derive(1, &[16, 3]);
        assert_eq!(a, derive(1, &[16, 3]));
        assert!(a != derive(2, &[16, 3]) && a != derive(1, &[3, 16]) && a != derive(1, &[16]));
    }
}
