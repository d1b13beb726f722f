//! `tidegate lab`: the experiments.

use std::path::PathBuf;

use tidegate_lab::{Experiment, LabError, LabOptions, Report, Sense};

use crate::exit::{self, Exit, Failure};
use crate::render;

const NOTES: &str = "\
Experiments:
  law       main constant at 30 to 80 % of the machine: what side work gets and
            what stays idle, beside the seed's table; and varying main
  headroom  main's latency at several loads, with side work placed as people
            start it, in ways the kernel offers, and by Tidegate
  step      main steps from 10 to 80 % of the machine: how soon side work gives
            way, beside two published control laws
  demo      quick versions of all three, and one sentence on what was seen

Each prints a table and writes a page (HTML), CSV and JSON.";

/// Measure on this machine what Tidegate does
#[derive(clap::Args)]
#[command(after_help = NOTES)]
pub struct Args {
    /// law, headroom, step or demo
    #[arg(value_parser = parse_what)]
    experiment: What,
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
    Demo,
}

fn parse_what(text: &str) -> Result<What, String> {
    match text {
        "demo" => Ok(What::Demo),
        _ => text.parse().map(What::One),
    }
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    match args.experiment {
        What::One(experiment) => {
            let report = perform(args, experiment)
                .map_err(|error| Failure::new(Exit::Failure, said(experiment, &error)))?;
            show(args, &report)
        }
        What::Demo => demo(args),
    }
}

/// Each experiment that this machine and this user allow. One that lacks something is told and left out: a demonstration
/// shows what there is to show.
fn demo(args: &Args) -> Result<Exit, Failure> {
    let mut reports: Vec<Report> = Vec::new();
    for experiment in Experiment::ALL {
        match perform(args, experiment) {
            Ok(report) => {
                show(args, &report)?;
                reports.push(report);
            }
            Err(error @ LabError::Needs { .. }) => exit::report(&said(experiment, &error)),
            Err(error) => return Err(Failure::new(Exit::Failure, said(experiment, &error))),
        }
    }
    if args.json {
        return Ok(Exit::Ok);
    }
    if reports.is_empty() {
        return render::print(
            "\nNothing could be measured here; `tidegate doctor` says what is missing.\n",
        );
    }
    render::print(&format!("\n{}\n", tidegate_lab::demo_sentence(&reports)))
}

fn perform(args: &Args, experiment: Experiment) -> Result<Report, LabError> {
    tidegate_lab::run(&options(args, experiment))
}

fn said(experiment: Experiment, error: &LabError) -> String {
    format!("lab: {}: {error}", experiment.name())
}

fn show(args: &Args, report: &Report) -> Result<Exit, Failure> {
    let text = if args.json {
        report.to_json()
    } else {
        report.to_text()
    };
    render::print(&format!("{}\n", text.trim_end()))
}

fn options(args: &Args, experiment: Experiment) -> LabOptions {
    let mut options = LabOptions::new(experiment);
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
