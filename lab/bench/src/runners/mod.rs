//! Where an experiment runs: this machine ([`host`]), a simulated one ([`sim`]), or a stock kernel
//! in virtual time ([`vm`], where a guest runs the host's lab).

pub mod host;
pub mod sim;
pub mod vm;

use std::cmp::Reverse;
use std::io::IsTerminal;

use rand::seq::SliceRandom as _;
use serde::{Deserialize, Serialize};
use tidegate_api::cli::Progress;
use tidegate_sim::{MachineConfig, parallel};

use self::host::Host;
use crate::experiment::{Ask, Cell, LabOptions, Part, Sample};
use crate::machine::{HostMachine, Machine, Simulated};
use crate::options::On;
use crate::report::{Report, build};
use crate::scene::{Keeper, MS, Outcome};
use crate::{LabError, seeded};

pub fn run(options: &LabOptions) -> Result<Report, LabError> {
    let (machine, measured) = match options.on {
        On::Sim => return simulated(options),
        On::Host => {
            let measured = measured(options)?;
            if options.serialise {
                measured.write(options)?;
            }
            (Machine::Host(measured.machine.clone()), measured)
        }
        On::Vm => {
            let (guest, measured) = vm::run(options)?;
            (Machine::Guest(guest), measured)
        }
    };
    let parts = parts(options, measured.machine.cpus as u32)?;
    let (samples, missing) = (measured.samples, measured.missing);
    if samples.is_empty() {
        return Err(LabError::process(
            options.experiment().name,
            missing.join(" "),
        ));
    }
    let mut report = build::report(options.experiment(), machine, &parts, &samples);
    report.notes.extend(missing);
    Ok(report)
}

fn parts(options: &LabOptions, cpus: u32) -> Result<Vec<Part>, LabError> {
    (options.experiment().parts)(&Ask { options, cpus })
}

fn cells(parts: &[Part]) -> Vec<(&Part, &Cell)> {
    let of = parts.iter();
    of.flat_map(|part| part.cells.iter().map(move |cell| (part, cell)))
        .collect()
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

fn simulated(options: &LabOptions) -> Result<Report, LabError> {
    let parts = parts(options, 0)?;
    let cells = cells(&parts);
    // About a million events for each 16 CPUs and second.
    let cost = |cell: &Cell| {
        (cell.scene.expected_ns() / MS) * u64::from(cell.scene.model.topology.cpus().max(4)) / 160
    };
    // The greatest first, so that no thread is left with a long one at the end.
    let mut order: Vec<usize> = (0..cells.len()).collect();
    order.sort_by_key(|&at| (Reverse(cost(cells[at].1)), at));
    let jobs = options
        .jobs
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let total: u64 = cells.iter().map(|(_, cell)| cost(cell)).sum();
    let progress = Progress::new(options.experiment().name, total, options.quiet);
    let outcomes = parallel::parallel(jobs, cells.len(), |nth| {
        let (part, cell) = cells[order[nth]];
        let outcome = sim::run(&cell.scene).map_err(|e| match e {
            // The whole experiment repeats the cell.
            LabError::Simulation { what, why, .. } => LabError::Simulation {
                what: format!("{}: {what}", cell.label()),
                why,
                again: again(options),
            },
            other => other,
        })?;
        progress.done(cost(cell));
        Ok::<_, LabError>((order[nth], samples(part, cell, &outcome)))
    });
    let mut found = outcomes.into_iter().collect::<Result<Vec<_>, LabError>>()?;
    found.sort_by_key(|(at, _)| *at);
    let samples: Vec<Sample> = found.into_iter().flat_map(|(_, samples)| samples).collect();
    let models: Vec<&MachineConfig> = cells.iter().map(|c| &c.1.scene.model).collect();
    let machine = Simulated::of(&models, options.seed, again(options));
    let machine = Machine::Simulated(machine);
    Ok(build::report(
        options.experiment(),
        machine,
        &parts,
        &samples,
    ))
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
            .join(format!("{}.samples", options.experiment().name));
        let text = serde_json::to_string(self).unwrap_or_default();
        std::fs::write(&path, text).map_err(|source| LabError::Report { path, source })
    }
}

/// Cells of a round in random order, so that a machine that changes by the hour does not favour an
/// arm; those of one keeper one after another, so that one start does for all of them.
fn measured(options: &LabOptions) -> Result<Measured, LabError> {
    host::cleanup::sweep();
    let mut host = Host::new()?;
    let parts = parts(options, host.machine.cpus as u32)?;
    let name = options.experiment().name;
    let (samples, missing) = perform(&mut host, options, name, &parts, &mut |_, _| {})?;
    Ok(Measured {
        machine: host.finish(),
        samples,
        missing,
    })
}

/// Runs the cells of these parts, and shows each outcome to `seen`. Returns the samples, and what
/// was left out and why.
pub fn perform(
    host: &mut Host,
    options: &LabOptions,
    title: &'static str,
    parts: &[Part],
    seen: &mut dyn FnMut(&Cell, &Outcome),
) -> Result<(Vec<Sample>, Vec<String>), LabError> {
    let cells = cells(parts);
    let mut order: Vec<usize> = (0..cells.len()).collect();
    order.shuffle(&mut seeded(options.seed));
    let keeper = |keeper: Keeper| match keeper {
        Keeper::Tidegate { sense, .. } => (1, sense.map_or(0, |s| s as usize + 1)),
        _ => (0, 0),
    };
    order.sort_by_key(|&at| (cells[at].1.round, keeper(cells[at].1.scene.keeper)));
    // Every other round goes backwards: it begins with the keeper that the one before has ended
    // with, and none is always the first.
    for round in order.chunk_by_mut(|a, b| cells[*a].1.round == cells[*b].1.round) {
        if cells[round[0]].1.round % 2 == 1 {
            round.reverse();
        }
    }
    // A worker starts and ends in half a second.
    let lasts_ms = |cell: &Cell| cell.scene.expected_ns() / MS + 500;
    let all_ms: u64 = cells.iter().map(|(_, cell)| lasts_ms(cell)).sum();
    let mut done_ms = 0;
    // A guest has a terminal that nobody looks at; its host shows lines.
    let has_bar = std::io::stderr().is_terminal() && !crate::loads::spin::by_nops();
    let progress = Progress::new(title, all_ms, options.quiet || !has_bar);
    let mut found = vec![Vec::new(); cells.len()];
    let (mut is_first, mut missing) = (true, Vec::new());
    for at in order {
        let (part, cell) = cells[at];
        // Such a scene needs no group.
        let is_bare = cell.scene.keeper == Keeper::Nobody;
        if !has_bar && !options.quiet {
            let (done_s, all_s) = (done_ms / 1_000, all_ms / 1_000);
            eprintln!("lab {title}: {done_s} of {all_s} s: {}", cell.label());
        }
        match host.run(&cell.scene) {
            Ok(outcome) => {
                seen(cell, &outcome);
                found[at] = samples(part, cell, &outcome);
                is_first = false;
            }
            Err(e @ LabError::Interrupted) => return Err(e),
            Err(e @ LabError::Needs { .. }) if is_first && !is_bare => return Err(e),
            Err(e) => missing.push(format!("{} was left out: {e}.", cell.label())),
        }
        done_ms += lasts_ms(cell);
        progress.done(lasts_ms(cell));
    }
    Ok((found.concat(), missing))
}

/// The command line that repeats a simulated run to the byte.
pub fn again(options: &LabOptions) -> String {
    let name = options.experiment().name;
    format!("tidegate-lab {name} --on sim {}", options.words().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_names_what_was_chosen() {
        let mut options = LabOptions::new(&crate::experiments::HEADROOM);
        options.cpus = Some(vec![16, 64]);
        options.quick = true;
        assert_eq!(
            again(&options),
            "tidegate-lab headroom --on sim --seed 1 --cpus 16,64 --quick"
        );
    }
}
