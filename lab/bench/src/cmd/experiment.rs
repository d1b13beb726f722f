//! The experiments, each a subcommand.

use std::path::PathBuf;

use tidegate_lab::experiments;
use tidegate_lab::{Engine, Experiment, LabError, LabOptions, On, Report, Sense};

use clap::error::ErrorKind;
use tidegate_api::Exit;
use tidegate_api::cli::{self, Failure, report};

const NOTES: &str = "\
The simulator needs no privilege and touches nothing on this machine; the same
seed gives the same bytes. --on vm boots the newest stock kernel of a series
under qemu (apt-get install qemu-system-x86 busybox-static binutils): one CPU on
which an instruction is a nanosecond, so that figures are exact whatever else
runs here.";

const PEERS_NOTES: &str = "\
Ordinary work (hackbench, schbench, cyclictest, stress-ng, a shell; those that
are installed) runs under the kernel's own scheduler, the sched_ext engine, and
other sched_ext schedulers that are installed, each named with --peer NAME=PATH.";

/// The experiments, each a subcommand, with `all` and `demo`.
pub struct Experiments(pub Args);

const ALL: &str = "Run every experiment that can run there, except peers";
const DEMO: &str = "Show what Tidegate does in 80 seconds: main's latency and the side work done, here and simulated";

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
        subcommands().fold(command, |command, (name, about, what)| {
            let one = <Args as clap::Args>::augment_args(clap::Command::new(name)).about(about);
            command.subcommand(match what {
                What::One(experiment) if experiment.name == "peers" => one.after_help(PEERS_NOTES),
                _ => one,
            })
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

/// Options of every experiment
#[derive(clap::Args)]
#[command(after_help = NOTES)]
pub struct Args {
    #[arg(skip = What::All)]
    what: What,
    /// Where: host, vm or sim
    #[arg(long, value_name = "WHERE", default_value = "host")]
    on: On,
    /// Which engine: cgroup, or sched_ext (Tidegate's own scheduler in the kernel, with the kernel's own and the cgroup engine beside it)
    #[arg(long, value_name = "ENGINE", default_value = "cgroup")]
    engine: Engine,
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
    /// peers: another scheduler of sched_ext, and its installed program
    #[arg(long, value_name = "NAME=PATH", value_parser = parse_peer)]
    peer: Vec<(String, PathBuf)>,
    /// --on sim: sizes of the simulated machine [default: the experiment's own]; peers --on vm: CPUs of the guest [default: 1]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    cpus: Option<Vec<u32>>,
    /// --on sim: simulate on this many threads [default: one a CPU]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// --on vm: the kernel's series [default: 6.18]
    #[arg(long, value_name = "SERIES")]
    kernel: Option<String>,
    /// Write the whole report too, for the host of this guest
    #[arg(long, hide = true)]
    serialise: bool,
    /// No progress on standard error
    #[arg(short, long)]
    quiet: bool,
    /// Print the report as JSON (all and demo: {"reports": [...]})
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy)]
enum What {
    One(&'static Experiment),
    All,
    Demo,
}

fn parse_peer(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => {
            Ok((name.into(), path.into()))
        }
        _ => Err("expected NAME=PATH, as lavd=/usr/bin/scx_lavd".into()),
    }
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    match args.what {
        What::One(experiment) => {
            let report =
                perform(args, experiment, args.on).map_err(|error| failure(experiment, &error))?;
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
    for experiment in experiments::all_on(args.on, args.engine) {
        match perform(args, experiment, args.on) {
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

/// Four ways of placing side work, here and simulated, on one screen.
fn demo(args: &Args) -> Result<Exit, Failure> {
    let fixed = [
        ("--engine", args.engine != Engine::Cgroup),
        ("--on", args.on != On::Host),
        ("--loads", args.loads.is_some()),
        ("--cpus", args.cpus.is_some()),
        ("--main-cmd", args.main_cmd.is_some()),
    ];
    if let Some((option, _)) = fixed.iter().find(|(_, given)| *given) {
        let why = format!(
            "demo: {option}: its comparison is always the same; give an experiment, or all"
        );
        return Err(Failure::new(Exit::Usage, why));
    }
    // The simulated machine has the experiment's name in its commands.
    let options = options(args, &experiments::HEADROOM, On::Host);
    let demo = tidegate_lab::demo::run(&options).map_err(|error| {
        let exit = exit_of(&error);
        Failure::new(exit, format!("demo: {error}"))
    })?;
    cli::print(&if args.json {
        tidegate_lab::to_json_all(&demo.reports) + "\n"
    } else {
        format!("\n{}", demo.to_text())
    })
}

fn perform(args: &Args, experiment: &'static Experiment, on: On) -> Result<Report, LabError> {
    tidegate_lab::run(&options(args, experiment, on))
}

fn said(experiment: &'static Experiment, error: &LabError) -> String {
    format!("{}: {error}", experiment.name)
}

fn failure(experiment: &'static Experiment, error: &LabError) -> Failure {
    Failure::new(exit_of(error), said(experiment, error))
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

fn options(args: &Args, experiment: &'static Experiment, on: On) -> LabOptions {
    let mut options = LabOptions::new(experiment);
    options.on = on;
    options.engine = args.engine;
    options.peers = args.peer.clone();
    options.cpus = args.cpus.clone();
    options.jobs = args.jobs;
    options.kernel = args.kernel.clone();
    options.serialise = args.serialise;
    options.quick = args.quick;
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
