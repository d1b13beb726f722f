//! The experiments, each a subcommand.

use tidegate_lab::experiments;
use tidegate_lab::{Experiment, LabError, LabOptions, Report};

use clap::error::ErrorKind;
use tidegate_api::Exit;
use tidegate_api::cli::{self, Failure, report};

const NOTES: &str = "\
The simulator needs no privilege and touches nothing on this machine; the same
seed gives the same bytes. --on vm boots the newest stock kernel of a series
under qemu (apt-get install qemu-system-x86 busybox-static binutils): one CPU on
which an instruction is a nanosecond, so that figures are exact whatever else
runs here.";

/// The experiments, each a subcommand, with `all` and `demo`.
pub struct Experiments(pub Args);

const ALL: &str = "Run every experiment that can run there";
const DEMO: &str =
    "Tour five mechanisms in 90 seconds, each beside the simplest alternative (as root)";

/// The names of the subcommands and their first lines.
fn subcommands() -> impl Iterator<Item = (&'static str, &'static str, What)> {
    let experiments = experiments::ALL.into_iter();
    let named = experiments.map(|one| (one.name, one.question, What::One(one)));
    [("demo", DEMO, What::Demo), ("all", ALL, What::All)]
        .into_iter()
        .chain(named)
}

impl clap::Subcommand for Experiments {
    fn augment_subcommands(command: clap::Command) -> clap::Command {
        subcommands().fold(command, |command, (name, about, _)| {
            let one = <Args as clap::Args>::augment_args(clap::Command::new(name)).about(about);
            command.subcommand(one)
        })
    }

    fn augment_subcommands_for_update(command: clap::Command) -> clap::Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        subcommands().any(|one| one.0 == name)
    }
}

impl clap::FromArgMatches for Experiments {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Experiments, clap::Error> {
        let typed = matches.subcommand();
        let (name, rest) = typed.ok_or_else(|| clap::Error::new(ErrorKind::MissingSubcommand))?;
        let mut args = <Args as clap::FromArgMatches>::from_arg_matches(rest)?;
        if let Some((.., what)) = subcommands().find(|one| one.0 == name) {
            args.what = what;
        }
        Ok(Experiments(args))
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        *self = clap::FromArgMatches::from_arg_matches(matches)?;
        Ok(())
    }
}

#[derive(clap::Args)]
#[command(after_help = NOTES)]
pub struct Args {
    #[arg(skip = What::All)]
    what: What,
    #[command(flatten)]
    options: LabOptions,
    /// Print the report as JSON (all: {"reports": [...]})
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy)]
enum What {
    One(&'static Experiment),
    All,
    Demo,
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    match args.what {
        What::One(experiment) => {
            let report = perform(args, experiment).map_err(|error| {
                let exit = exit_of(&error);
                Failure::new(exit, said(experiment, &error))
            })?;
            show(args, &report)
        }
        What::All => all(args),
        What::Demo => demo(args),
    }
}

/// Every experiment that can run there; one that fails is told and the others still run.
fn all(args: &Args) -> Result<Exit, Failure> {
    let mut reports: Vec<Report> = Vec::new();
    let mut failed = Vec::new();
    for experiment in experiments::all_on(args.options.on, args.options.engine) {
        match perform(args, experiment) {
            Ok(report) => {
                if !args.json {
                    show(args, &report)?;
                }
                reports.push(report);
            }
            Err(error @ LabError::Interrupted) => {
                return Err(Failure::new(Exit::Failure, said(experiment, &error)));
            }
            Err(error) => {
                report(&said(experiment, &error));
                failed.push(experiment.name);
            }
        }
    }
    cli::print(&if args.json {
        tidegate_lab::to_json_all(&reports) + "\n"
    } else {
        format!("\n{}", tidegate_lab::headlines(&reports))
    })?;
    if failed.is_empty() {
        return Ok(Exit::Ok);
    }
    let why = format!("all: {} failed; see above", failed.join(", "));
    Err(Failure::new(Exit::Failure, why))
}

/// The tour, whose results appear as they come.
fn demo(args: &Args) -> Result<Exit, Failure> {
    let options = &args.options;
    let fixed = [
        ("--loads", options.loads.is_some()),
        ("--cpus", options.cpus.is_some()),
    ];
    if let Some((option, _)) = fixed.iter().find(|(_, given)| *given) {
        let why = format!(
            "demo: {option}: its comparison is always the same; give an experiment, or all"
        );
        return Err(Failure::new(Exit::Usage, why));
    }
    let mut say = |text: &str| {
        if !args.json {
            let _ = cli::print(text);
        }
    };
    let demo = tidegate_lab::demo::run(options, &mut say).map_err(|error| {
        let exit = exit_of(&error);
        Failure::new(exit, format!("demo: {error}"))
    })?;
    cli::print(&if args.json {
        demo.report.to_json() + "\n"
    } else {
        demo.text
    })
}

fn perform(args: &Args, experiment: &'static Experiment) -> Result<Report, LabError> {
    tidegate_lab::run(&LabOptions {
        experiment: Some(experiment),
        ..args.options.clone()
    })
}

fn said(experiment: &'static Experiment, error: &LabError) -> String {
    format!("{}: {error}", experiment.name)
}

/// What this machine or this user lacks, and what was asked wrongly, have exit codes of their own.
fn exit_of(error: &LabError) -> Exit {
    match error {
        LabError::Needs { .. } => Exit::Refused,
        LabError::Bed(trouble) if trouble.is_lacking() => Exit::Refused,
        LabError::Asked { .. } => Exit::Usage,
        _ => Exit::Failure,
    }
}

fn show(args: &Args, report: &Report) -> Result<Exit, Failure> {
    let text = if args.json {
        report.to_json()
    } else {
        report.to_text()
    };
    cli::print(&format!("{}\n", text.trim_end()))
}
