//! The experiments, each a subcommand.

use tidegate_lab::experiments;
use tidegate_lab::{Experiment, LabError, LabOptions, On};

use clap::ValueEnum as _;
use clap::error::ErrorKind;
use tidegate_api::Exit;
use tidegate_api::cli::{self, Failure};

const NOTES: &str = "\
The simulator needs no privilege and touches nothing on this machine; the same
seed gives the same bytes. --on vm boots the newest stock kernel of a series
under qemu (apt-get install qemu-system-x86 busybox-static binutils): one CPU on
which an instruction is a nanosecond, so that figures are exact whatever else
runs here.";

/// The experiments, each a subcommand, with `demo`.
pub struct Experiments(pub Args);

const DEMO: &str =
    "Tour five mechanisms in 90 seconds, each beside the simplest alternative (as root)";

/// The names of the subcommands, their first lines, and the experiment; none is the tour.
fn subcommands() -> impl Iterator<Item = (&'static str, &'static str, What)> {
    let experiments = experiments::ALL.into_iter();
    let named = experiments.map(|one| (one.name, one.question, Some(one)));
    std::iter::once(("demo", DEMO, None)).chain(named)
}

impl clap::Subcommand for Experiments {
    fn augment_subcommands(command: clap::Command) -> clap::Command {
        subcommands().fold(command, |command, (name, about, what)| {
            let one = <Args as clap::Args>::augment_args(clap::Command::new(name)).about(about);
            let places: &[On] = what.map_or(On::value_variants(), |what| what.places);
            let names: Vec<&str> = places.iter().map(|on| on.name()).collect();
            command.subcommand(one.mut_arg("on", |on| {
                on.default_value(names[0])
                    .hide_possible_values(true)
                    .help(format!("Where it runs: {}", names.join(", ")))
            }))
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
    #[arg(skip)]
    what: What,
    #[command(flatten)]
    options: LabOptions,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

type What = Option<&'static Experiment>;

pub fn main(args: &Args) -> Result<Exit, Failure> {
    let Some(experiment) = args.what else {
        return demo(args);
    };
    let report = tidegate_lab::run(&LabOptions {
        experiment: Some(experiment),
        ..args.options.clone()
    });
    let report = report.map_err(|error| {
        let why = format!("{}: {error}", experiment.name);
        Failure::new(exit_of(&error), why)
    })?;
    let text = if args.json {
        report.to_json()
    } else {
        report.to_text()
    };
    cli::print(&format!("{}\n", text.trim_end()))
}

/// The tour, whose results appear as they come.
fn demo(args: &Args) -> Result<Exit, Failure> {
    let options = &args.options;
    if options.cpus.is_some() {
        let why = "demo: --cpus: its comparison is always the same; give an experiment";
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

/// What this machine or this user lacks, and what was asked wrongly, have exit codes of their own.
fn exit_of(error: &LabError) -> Exit {
    match error {
        LabError::Needs { .. } => Exit::Refused,
        LabError::Bed(trouble) if trouble.is_lacking() => Exit::Refused,
        LabError::Asked { .. } => Exit::Usage,
        _ => Exit::Failure,
    }
}
