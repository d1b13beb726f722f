//! Where an experiment runs: this machine ([`host`]), a simulated one ([`sim`]), or a stock kernel
//! in virtual time ([`vm`], where a guest runs the host's lab); and what a report says of each.

pub mod host;
pub mod jobs;
pub mod sim;
pub mod vm;

use std::fmt::Write as _;

use rand::seq::SliceRandom as _;
use serde::{Deserialize, Serialize};

use self::host::Host;
use crate::experiment::LabOptions;
use crate::experiment::{Ask, Cell, Part, Sample};
use crate::machine::{Guest, HostMachine, Machine, Simulated};
use crate::options::On;
use crate::progress::Progress;
use crate::report::{Report, build};
use crate::scene::{FairClass, Keeper, MS, Outcome, S, Scene};
use crate::{LabError, seeded};

pub fn run(options: &LabOptions) -> Result<Report, LabError> {
    let (machine, parts, samples, missing) = match options.on {
        On::Sim => simulated(options)?,
        On::Host => {
            let measured = measured(options)?;
            let parts = parts(options, &measured.machine)?;
            if options.serialise {
                measured.write(options)?;
            }
            let machine = Machine::Host(measured.machine);
            (machine, parts, measured.samples, measured.missing)
        }
        On::Vm => {
            let done = vm::run(options)?;
            let parts = parts(options, &done.measured.machine)?;
            let mut missing = done.measured.missing;
            missing.push(done.note);
            let guest = Guest {
                machine: done.measured.machine,
                package: done.package,
                series: done.series,
            };
            (Machine::Guest(guest), parts, done.measured.samples, missing)
        }
    };
    if samples.is_empty() {
        return Err(LabError::process(
            options.experiment.name,
            missing.join(" "),
        ));
    }
    let mut report = build::report(options.experiment, options.on, machine, &parts, &samples);
    report.engine = options.engine;
    report.notes.extend(missing);
    Ok(report)
}

type Found = (Machine, Vec<Part>, Vec<Sample>, Vec<String>);

fn simulated(options: &LabOptions) -> Result<Found, LabError> {
    if options.main_cmd.is_some() || options.side_cmd.is_some() {
        return Err(LabError::asked(
            "--main-cmd and --side-cmd",
            "a simulated machine cannot run a command",
            "leave them out, or run it with --on host",
        ));
    }
    let parts = (options.experiment.parts)(&Ask {
        options,
        cpus: 0,
        hz: 250,
    })?;
    let cells: Vec<(&Part, &Cell)> = parts
        .iter()
        .flat_map(|part| part.cells.iter().map(move |cell| (part, cell)))
        .collect();
    // About a million events for each 16 CPUs and second.
    let cost = |(_, cell): &(&Part, &Cell)| {
        (cell.scene.expected_ns() / MS) * u64::from(cell.scene.model.cpus.max(4)) / 160
    };
    let jobs = options
        .jobs
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let seconds = |ms: u64| ms as f64 / 1e3 / jobs as f64;
    let total: u64 = cells.iter().map(cost).sum();
    let progress = Progress::new(options.experiment.name, seconds(total), options.quiet);
    let samples = jobs::map(Some(jobs), &cells, cost, |(part, cell)| {
        let outcome = sim::run(&cell.scene).map_err(|e| match e {
            // The whole experiment repeats the cell.
            LabError::Simulation { what, why, .. } => LabError::Simulation {
                what: format!("{}: {what}", cell.label()),
                why,
                again: again(options),
            },
            other => other,
        })?;
        progress.done(seconds(cost(&(part, cell))));
        Ok(samples(part, cell, &outcome))
    })?;
    let scenes: Vec<&Scene> = cells.iter().map(|c| &c.1.scene).collect();
    let machine = Simulated::of(options, &scenes)?;
    let samples = samples.concat();
    Ok((Machine::Simulated(machine), parts, samples, Vec::new()))
}

fn samples(part: &Part, cell: &Cell, outcome: &Outcome) -> Vec<Sample> {
    let figures = (part.figures)(cell, outcome);
    let sample = |figures| Sample {
        part: part.key.into(),
        case: cell.case.clone(),
        arm: cell.arm.clone(),
        round: cell.round,
        figures,
    };
    figures.into_iter().map(sample).collect()
}

fn parts(options: &LabOptions, machine: &HostMachine) -> Result<Vec<Part>, LabError> {
    (options.experiment.parts)(&Ask {
        options,
        cpus: machine.cpus as u32,
        hz: machine.hz,
    })
}

/// What was measured on a real machine; it travels from a guest to its host as text.
#[derive(Serialize, Deserialize)]
pub struct Measured {
    pub machine: HostMachine,
    pub samples: Vec<Sample>,
    /// What was left out and why, a sentence each.
    pub missing: Vec<String>,
}

impl Measured {
    fn write(&self, options: &LabOptions) -> Result<(), LabError> {
        let path = options
            .out_dir()
            .join(format!("{}.samples", options.experiment.name));
        let text = serde_json::to_string(self).unwrap_or_default();
        std::fs::write(&path, text).map_err(|source| LabError::Report { path, source })
    }
}

/// Cells of a round in random order, so that a machine that changes by the hour does not favour an
/// arm; those of one keeper one after another, so that one start does for all of them.
fn order(parts: &[Part], seed: u64) -> Vec<(&Part, &Cell)> {
    let mut rng = seeded(seed);
    let mut cells: Vec<(&Part, &Cell)> = parts
        .iter()
        .flat_map(|part| part.cells.iter().map(move |cell| (part, cell)))
        .collect();
    cells.shuffle(&mut rng);
    let keeper = |keeper: Keeper| match keeper {
        Keeper::Tidegate { sense, .. } => (1, sense.map_or(0, |s| s as usize + 1)),
        Keeper::SchedExt => (2, 0),
        Keeper::Peer(at) => (3, at),
        _ => (0, 0),
    };
    cells.sort_by_key(|(_, cell)| (cell.round, keeper(cell.scene.keeper)));
    cells
}

fn measured(options: &LabOptions) -> Result<Measured, LabError> {
    host::cleanup::sweep();
    let mut host = Host::new(options)?;
    let parts = parts(options, &host.machine)?;
    let cells = order(&parts, options.seed);
    // A worker starts and ends in half a second.
    let seconds = |cell: &Cell| cell.scene.expected_ns() as f64 / S as f64 + 0.5;
    let total: f64 = cells.iter().map(|(_, cell)| seconds(cell)).sum();
    let progress = Progress::new(options.experiment.name, total, options.quiet);
    let (mut all, mut missing) = (Vec::new(), Vec::new());
    for (part, cell) in cells {
        progress.stage(&cell.label());
        match host.run(&cell.scene) {
            Ok(outcome) => all.extend(samples(part, cell, &outcome)),
            Err(e @ LabError::Interrupted) => return Err(e),
            Err(e @ LabError::Needs { .. }) if all.is_empty() && !is_bare(cell) => return Err(e),
            Err(e) => missing.push(format!("{} was left out: {e}.", cell.label())),
        }
        progress.done(seconds(cell));
    }
    drop(progress);
    Ok(Measured {
        machine: host.finish(),
        samples: all,
        missing,
    })
}

/// Returns true if it needs no group.
fn is_bare(cell: &Cell) -> bool {
    cell.scene.keeper == Keeper::Nobody
}

/// The command line that repeats a simulated run to the byte.
pub fn again(options: &LabOptions) -> String {
    let name = options.experiment.name;
    // The demonstration runs in both places.
    let on = if name == "demo" { "" } else { " --on sim" };
    let mut line = format!("tidegate-lab {name}{on} --seed {}", options.seed);
    let mut list = |name: &str, items: Vec<String>| {
        // Writing to a string cannot fail.
        let _ = write!(line, " --{name} {}", items.join(","));
    };
    if let Some(cpus) = &options.cpus {
        list("cpus", cpus.iter().map(u32::to_string).collect());
    }
    if let Some(loads) = &options.loads {
        list("loads", loads.iter().map(f64::to_string).collect());
    }
    if let Some(rounds) = options.rounds {
        list("rounds", vec![rounds.to_string()]);
    }
    if let Some(sense) = options.sense {
        list("sense", vec![sense.name().into()]);
    }
    line + if options.quick { " --quick" } else { "" }
}

impl Simulated {
    /// Of all simulated scenes.
    pub fn of(options: &LabOptions, scenes: &[&Scene]) -> Result<Self, LabError> {
        let mut cpus: Vec<u32> = scenes.iter().map(|s| s.model.cpus).collect();
        cpus.sort_unstable();
        cpus.dedup();
        let mut classes: Vec<&str> = Vec::new();
        for scene in scenes {
            let class = match scene.model.class {
                FairClass::Eevdf => "EEVDF",
                _ => "CFS",
            };
            if !classes.contains(&class) {
                classes.push(class);
            }
        }
        let Some(first) = scenes.first() else {
            return Err(LabError::process(options.experiment.name, "has no cell"));
        };
        let config = sim::config(&first.model, options.seed)?;
        Ok(Simulated {
            cpus,
            threads_per_core: config.topology.threads_per_core(),
            cpus_per_llc: config.topology.cpus_per_llc(),
            scheduler: classes.join(" and "),
            tick_us: config.tick_ns / 1_000,
            contention: sim::contention_words(&config.contention),
            seed: options.seed,
            command: again(options),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_names_what_was_chosen() {
        let mut options = LabOptions::new(&crate::experiments::HEADROOM);
        options.cpus = Some(vec![16, 64]);
        options.loads = Some(vec![1.0, 1.3]);
        options.quick = true;
        assert_eq!(
            again(&options),
            "tidegate-lab headroom --on sim --seed 1 --cpus 16,64 --loads 1,1.3 --quick"
        );
    }
}
