//! `tidegate lab`: the experiments.

use std::path::PathBuf;

use tidegate_lab::{Experiment, LabError, LabOptions, On, Report, Sense};

use crate::exit::{self, Exit, Failure};
use crate::render;

const NOTES: &str = "\
Experiments, on this machine or simulated (--on sim):
  law       main constant at 30 to 80 % of the machine: what side work gets and
            what stays idle, beside the seed's table; and varying main
  headroom  main's latency at several loads, with side work placed as people
            start it, in ways the kernel offers, and by Tidegate
  step      main steps from 10 to 80 % of the machine: how soon side work gives
            way, beside published control laws
  all       every one that can be had there
  demo      quick versions of those that this machine and this user allow, then
            of the others in the simulator, and what was seen in a few sentences
Simulated only:
  latency   latency hints: cyclictest beside hackbench, and hackbench itself
  burst     a quota with burst under a load that exceeds it now and then
  slices    a small quota on 80 CPUs: slices that expire and that do not
  caps      rate caps on tasks: how exact, and what a fork storm makes of them
  objective headroom that is found from main's run delay, beside asked for

Each prints a table and writes a page (HTML), CSV and JSON. The simulator needs
no privilege and touches nothing on this machine; the same seed gives the same
bytes.";

/// Measure on this machine what Tidegate does
#[derive(clap::Args)]
#[command(after_help = NOTES)]
pub struct Args {
    /// law, headroom, step, latency, burst, slices, caps, objective, all or demo
    #[arg(value_parser = parse_what)]
    experiment: What,
    /// Where: host or sim
    #[arg(long, value_name = "WHERE", default_value = "host")]
    on: On,
    /// Under a minute: shorter windows, fewer rounds
    #[arg(long)]
    quick: bool,
    /// Repeat each arm this often
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,
    /// Write the page, CSV and JSON into this folder [default: ./tidegate-lab]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// headroom: a shell command as main instead of the built-in server
    #[arg(long, value_name = "COMMAND")]
    main_cmd: Option<String>,
    /// headroom: a shell command as side work instead of ffmpeg or the burner
    #[arg(long, value_name = "COMMAND")]
    side_cmd: Option<String>,
    /// headroom: load levels, where 1.0 is 25 % of the machine
    #[arg(long, value_name = "L,L,...", value_delimiter = ',')]
    loads: Option<Vec<f64>>,
    /// The sensor of Tidegate's arms: bpf or usage
    #[arg(long, value_name = "HOW")]
    sense: Option<Sense>,
    /// Seed of every random choice
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// sim: sizes of the simulated machine [default: the experiment's own]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    cpus: Option<Vec<u32>>,
    /// sim: simulate on this many threads [default: one a CPU]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// No progress on standard error
    #[arg(short, long)]
    quiet: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug)]
enum What {
    One(Experiment),
    All,
    Demo,
}

fn parse_what(text: &str) -> Result<What, String> {
    match text {
        "all" => Ok(What::All),
        "demo" => Ok(What::Demo),
        _ => text.parse().map(What::One),
    }
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    match args.experiment {
        What::One(experiment) => {
            let report =
                perform(args, experiment, args.on).map_err(|error| failure(experiment, &error))?;
            show(args, &report)
        }
        What::All => all(args),
        What::Demo => demo(args),
    }
}

/// Every experiment that can be had there; one that fails is told and the others still run.
fn all(args: &Args) -> Result<Exit, Failure> {
    let mut reports: Vec<Report> = Vec::new();
    let mut failed = Vec::new();
    for experiment in Experiment::all_on(args.on) {
        match perform(args, experiment, args.on) {
            Ok(report) => {
                show(args, &report)?;
                reports.push(report);
            }
            Err(error @ LabError::Interrupted) => {
                return Err(Failure::new(Exit::Failure, said(experiment, &error)));
            }
            Err(error) => {
                exit::report(&said(experiment, &error));
                failed.push(experiment.name());
            }
        }
    }
    if !args.json {
        render::print(&format!("\n{}", tidegate_lab::headlines(&reports)))?;
    }
    if failed.is_empty() {
        return Ok(Exit::Ok);
    }
    let why = format!("lab: all: {} failed; see above", failed.join(", "));
    Err(Failure::new(Exit::Failure, why))
}

/// Each experiment that this machine and this user allow, then the simulator for what the machine cannot show. One that lacks
/// something is told and left out: a demonstration shows what there is to show.
fn demo(args: &Args) -> Result<Exit, Failure> {
    let mut reports: Vec<Report> = Vec::new();
    for experiment in Experiment::all_on(On::Host) {
        match perform(args, experiment, On::Host) {
            Ok(report) => {
                show(args, &report)?;
                reports.push(report);
            }
            Err(error @ LabError::Needs { .. }) => exit::report(&said(experiment, &error)),
            Err(error) => return Err(failure(experiment, &error)),
        }
    }
    if !args.json {
        render::print(tidegate_lab::DEMO_SIMULATED)?;
    }
    for experiment in Experiment::all_on(On::Sim) {
        let report =
            perform(args, experiment, On::Sim).map_err(|error| failure(experiment, &error))?;
        show(args, &report)?;
        reports.push(report);
    }
    if args.json {
        return Ok(Exit::Ok);
    }
    render::print(&format!("\n{}\n", tidegate_lab::demo_sentence(&reports)))
}

fn perform(args: &Args, experiment: Experiment, on: On) -> Result<Report, LabError> {
    tidegate_lab::run(&options(args, experiment, on))
}

fn said(experiment: Experiment, error: &LabError) -> String {
    format!("lab: {}: {error}", experiment.name())
}

/// What this machine or this user lacks, and what was asked wrongly, have exit codes of their own.
fn failure(experiment: Experiment, error: &LabError) -> Failure {
    let exit = match error {
        LabError::Needs { .. } => Exit::Refused,
        LabError::Asked { .. } => Exit::Usage,
        _ => Exit::Failure,
    };
    Failure::new(exit, said(experiment, error))
}

fn show(args: &Args, report: &Report) -> Result<Exit, Failure> {
    let text = if args.json {
        report.to_json()
    } else {
        report.to_text()
    };
    render::print(&format!("{}\n", text.trim_end()))
}

fn options(args: &Args, experiment: Experiment, on: On) -> LabOptions {
    let mut options = LabOptions::new(experiment);
    options.on = on;
    options.cpus = args.cpus.clone();
    options.jobs = args.jobs;
    options.quick = args.quick || matches!(args.experiment, What::Demo);
    options.rounds = args.rounds;
    options.out = args.out.clone();
    options.main_cmd = args.main_cmd.clone();
    options.side_cmd = args.side_cmd.clone();
    options.loads = args.loads.clone();
    options.sense = args.sense;
    options.seed = args.seed;
    options.quiet = args.quiet;
    options
}
