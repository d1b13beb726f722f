//! `tidegate-lab sim`: a scenario on a simulated machine.

use std::path::{Path, PathBuf};

use tidegate_lab::simulated_report;
use tidegate_sim::outcome::Outcome;
use tidegate_sim::run::{RunError, Stage};
use tidegate_sim::scenario::{BUILTIN, EngineKind, Override, Scenario, Text};

use crate::cmd::sim_fleet;
use tidegate_api::Exit;
use tidegate_api::cli::Progress;
use tidegate_api::cli::{self, Failure};

const NOTES: &str = "\
A scenario is a TOML file: a machine, groups with their terms, and what runs in
them. docs/scenarios.md explains every key. It needs no privilege and touches
nothing on this machine; the same scenario and seed give the same bytes.

  tidegate-lab sim --list
  tidegate-lab sim web-server-and-encoder --engine cgroup
  tidegate-lab sim web-server-and-encoder --print > web.toml
  tidegate-lab sim web.toml --engine cgroup --set engine.headroom=30%";

/// Rehearse a scenario on a simulated machine
#[derive(clap::Args)]
#[command(after_help = NOTES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    #[command(subcommand)]
    instead: Option<Instead>,
    /// A file, or the name of a scenario that comes with tidegate
    #[arg(required_unless_present = "list")]
    scenario: Option<String>,
    /// List the scenarios that come with tidegate
    #[arg(long, conflicts_with_all = ["scenario", "json"])]
    list: bool,
    /// Print the scenario's file, as it is, instead of running it
    #[arg(long, conflicts_with_all = ["cpus", "seed", "engine", "set", "out", "json"])]
    print: bool,
    /// CPUs of the machine
    #[arg(long, value_name = "N")]
    cpus: Option<u32>,
    /// Seed of every random choice
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Who limits side work: none or cgroup
    #[arg(long, value_name = "NAME")]
    engine: Option<String>,
    /// Lay a value over the file, as in group.web.weight=200; repeat for more
    #[arg(long, value_name = "KEY=VALUE", value_parser = Override::from_assignment)]
    set: Vec<Override>,
    /// Write the page and JSON into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// No progress on standard error
    #[arg(short, long)]
    quiet: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// What is rehearsed instead of one machine.
#[derive(clap::Subcommand)]
enum Instead {
    Fleet(Box<sim_fleet::Args>),
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    if let Some(Instead::Fleet(args)) = &args.instead {
        return sim_fleet::main(args);
    }
    let Some(asked) = args.scenario.as_ref().filter(|_| !args.list) else {
        return list();
    };
    let usage = |why: String| Failure::new(Exit::Usage, format!("sim: {why}"));
    let text = Text::load(asked).map_err(|error| Failure {
        exit: match Path::new(asked).exists() {
            true => Exit::Usage,
            false => Exit::NoTarget,
        },
        ..usage(error.to_string())
    })?;
    if args.print {
        return cli::print(&text.text);
    }
    let typed = overrides(args);
    let again = again(asked, &typed);
    let scenario = Scenario::resolve(&text, &typed)
        .map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
    // Its figures would be those of another question.
    let of_engine = |one: &&Override| one.key.starts_with("engine.") && one.key != "engine.name";
    if scenario.engine.kind == EngineKind::None
        && let Some(one) = typed.iter().find(of_engine)
    {
        let (key, flag) = (&one.key, tidegate_terms::quoted(&one.flag));
        let why = format!("{key}: {flag}: means nothing to the engine none; add --engine cgroup");
        return Err(Failure::new(Exit::Usage, why));
    }
    let failed = |why: String| Failure::new(Exit::Failure, format!("sim: {why}"));
    if let Some(out) = &args.out {
        tidegate_lab::make_folder(out).map_err(|error| failed(error.to_string()))?;
    }
    let outcome = run(args, &scenario)
        .map_err(|why| failed(format!("{}: {why}; again: {again}", scenario.name)))?;
    let mut report = simulated_report::report(&scenario, &outcome, &again);
    if let Some(out) = &args.out {
        let written = report.write_files(out);
        written.map_err(|error| failed(format!("report: {error}; again: {again}")))?;
    }
    let shown = if args.json {
        report.to_json()
    } else {
        report.to_text()
    };
    cli::print(&format!("{}\n", shown.trim_end()))
}

fn list() -> Result<Exit, Failure> {
    let mut text = String::new();
    let width = BUILTIN.iter().map(|one| one.name.len()).max().unwrap_or(0);
    for builtin in BUILTIN {
        let resolved = Text::load(builtin.name)
            .ok()
            .and_then(|text| Scenario::resolve(&text, &[]).ok());
        let about = resolved.map(|scenario| scenario.about).unwrap_or_default();
        text += &format!("{:width$}  {about}\n", builtin.name);
    }
    cli::print(&text)
}

/// What flags lay over the file, each under the name of the flag that was typed.
fn overrides(args: &Args) -> Vec<Override> {
    let mut all = args.set.clone();
    let mut flag = |flag: &str, key: &str, value: Option<String>| {
        if let Some(value) = value {
            let flag = format!("{flag} {value}");
            all.push(Override {
                flag,
                ..Override::new(key, &value)
            });
        }
    };
    flag("--cpus", "machine.cpus", args.cpus.map(|n| n.to_string()));
    flag("--seed", "seed", args.seed.map(|n| n.to_string()));
    flag("--engine", "engine.name", args.engine.clone());
    all
}

/// The command that repeats a run. What does not change the figures is left out.
fn again(asked: &str, typed: &[Override]) -> String {
    let mut line = format!("tidegate-lab sim {}", word(asked));
    for one in typed {
        // A flag is a name, a space and a value.
        let (name, value) = one.flag.split_once(' ').unwrap_or((&one.flag, ""));
        line += &format!(" {name} {}", word(value));
    }
    line
}

/// A word as a shell takes it.
fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./=,%:+".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

fn run(args: &Args, scenario: &Scenario) -> Result<Outcome, RunError> {
    let stage = Stage::new(scenario)?;
    let progress = Progress::new("sim", scenario.duration_ns, args.quiet || args.json);
    let ran = stage.run(scenario, &mut |ns| progress.done(ns));
    progress.finish();
    ran
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_a_shell() {
        assert_eq!(word("group.web.headroom=30%"), "group.web.headroom=30%");
        assert_eq!(word("a b"), "'a b'");
        assert_eq!(word("it's"), r"'it'\''s'");
        assert_eq!(word(""), "''");
    }
}
