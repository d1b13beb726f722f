//! `tidegate-lab replay`: a recording under another policy.

use std::path::{Path, PathBuf};

use tidegate_lab::replay::{Arm, Options, Policy, Replay, ReplayError};

use crate::render;
use tidegate_api::Exit;
use tidegate_api::cli::Progress;
use tidegate_api::cli::{self, Failure, report};
use tidegate_recording::span::{self, load_span};

/// Runs of each arm.
const SEEDS: u32 = 5;

const NOTES: &str = "\
Examples:
  tidegate-lab replay night.tgr
      under the terms that were recorded: how well the simulator tells what was
  tidegate-lab replay night.tgr --policy tidegate.toml --policy bolder.toml
      what was, and what would have been under each policy
  tidegate-lab replay /var/lib/tidegate/recording --last 1h --policy new.toml
      the last hour of this machine's agent
  tidegate-lab replay night.tgr --policy new.toml --scenario night.toml
      the scenario as well: edit it and run `tidegate-lab sim night.toml`

A policy is a file as in /etc/tidegate. Its rules match the recorded works by
unit and cgroup, and by exe and user where those were recorded; what was set or
given with run stays. Nothing on this machine is touched.";

/// Replay a recording under other terms: what would have been, beside what was
#[derive(clap::Args)]
#[command(after_help = NOTES)]
pub struct Args {
    /// A recording, or the directory of an agent that records
    recording: PathBuf,
    /// A policy file to replay under; repeat for more
    #[arg(long, value_name = "FILE")]
    policy: Vec<PathBuf>,
    #[command(flatten)]
    span: span::Span,
    #[command(flatten)]
    how: How,
    /// Write the scenario of the first policy into this file
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// How to simulate.
#[derive(clap::Args)]
pub struct How {
    /// Runs of each arm, with random numbers of their own: they make the
    /// intervals [default: 5, and 3 of tune]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    seeds: Option<u32>,
    /// Run this many at a time [default: one a CPU]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// No progress on standard error
    #[arg(short, long)]
    pub quiet: bool,
}

impl How {
    pub fn options(&self, seeds: u32) -> Options {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Options {
            seeds: self.seeds.unwrap_or(seeds),
            jobs: self.jobs.unwrap_or(cores).max(1),
        }
    }
}

pub fn failed(command: &str, error: &ReplayError) -> Failure {
    let exit = match error {
        ReplayError::Idle => Exit::Usage,
        ReplayError::Scenario { .. } | ReplayError::Run { .. } => Exit::Failure,
    };
    Failure::new(exit, format!("{command}: {error}"))
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    let policies = read_policies(&args.policy)?;
    let recording = load_span("replay", &args.recording, &args.span)?;
    let failed = |error: ReplayError| failed("replay", &error);
    let replay = Replay::new(&recording, args.how.options(SEEDS)).map_err(failed)?;
    let arms = replay.arms(&policies);
    if let (Some(path), Some(first)) = (&args.scenario, arms.first()) {
        write_scenario(path, &replay, first)?;
    }
    let quiet = args.how.quiet || args.json;
    let progress = Progress::new("replay", replay.total_ns(arms.len()), quiet);
    let view = replay.view(&arms, &|ns| progress.done(ns));
    progress.finish();
    let view = view.map_err(failed)?;
    match args.json {
        true => cli::json(&view),
        false => cli::print(&render::replay::page(&view)),
    }
}

/// Policy files; all that is wrong with any of them.
fn read_policies(paths: &[PathBuf]) -> Result<Vec<Policy>, Failure> {
    let (mut policies, mut problems) = (Vec::new(), Vec::new());
    for path in paths {
        match Policy::read(path) {
            Ok(policy) => policies.push(policy),
            Err(errors) => problems.push(errors.to_string()),
        }
    }
    match problems.is_empty() {
        true => Ok(policies),
        false => {
            let exit = match paths.iter().all(|path| path.exists()) {
                true => Exit::Usage,
                false => Exit::NoTarget,
            };
            Err(Failure::new(exit, problems.join("\n")))
        }
    }
}

fn write_scenario(path: &Path, replay: &Replay<'_>, arm: &Arm) -> Result<(), Failure> {
    let text = replay.prepare(arm).written.text;
    std::fs::write(path, text).map_err(|error| {
        let why = format!(
            "replay: --scenario: {}: cannot be written: {error}; choose another place",
            path.display()
        );
        Failure::new(Exit::Failure, why)
    })?;
    report(&format!(
        "wrote {0}; `tidegate-lab sim {0}` runs it",
        path.display()
    ));
    Ok(())
}
