//! `tidegate agent`: runs, stops and repairs the agent.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use tidegate_agent::paths::RunDir;
use tidegate_agent::startup::{self, Mode, Options};
use tidegate_terms::{self as terms, Engine, Sense};

use crate::cmd::{repair, stop};

use tidegate_api::Exit;
use tidegate_api::cli::Failure;

const NOTES: &str = "\
The first run or set starts one by itself (--on-demand), which leaves with the
last gate. A service manager starts one that stays: systemctl start tidegate.
TIDEGATE_RUN_DIR and TIDEGATE_PREFIX give a trial instance files and groups of
its own.";

/// Run, stop or repair the agent
#[derive(clap::Args)]
#[command(disable_help_subcommand = true, help_template = super::GROUP_HELP)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Run(RunArgs),
    Stop(stop::Args),
    Repair(repair::Args),
}

/// Run the agent: the one process that measures, decides and writes
#[derive(clap::Args)]
#[command(after_long_help = NOTES)]
struct RunArgs {
    /// Go to the background, and leave with the last gate
    #[arg(long, conflicts_with = "service")]
    on_demand: bool,
    /// Stay in the foreground until told to stop (the default)
    #[arg(long)]
    service: bool,
    /// How use is measured
    ///
    /// It overrides the configuration.
    #[arg(long, value_name = "HOW", value_parser = word::<Sense>(&["auto", "bpf", "usage"]))]
    sense: Option<Sense>,
    /// What enforces terms
    ///
    /// It overrides the configuration.
    #[arg(
        long,
        value_name = "ENGINE",
        value_parser = word::<Engine>(&["auto", "cgroup", "sched_ext"])
    )]
    engine: Option<Engine>,
    /// Name groups as process 1 does
    ///
    /// For a container with the machine's processes and cgroups.
    #[arg(long)]
    host_cgroups: bool,
    /// Wait for the running agent to end, and take its place
    ///
    /// An agent that gets SIGTERM while another one waits keeps all limits for it.
    #[arg(long, conflicts_with = "on_demand", hide_short_help = true)]
    take_over: bool,
}

/// A term's value that is one word of a few.
fn word<T>(words: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: terms::Value + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(words).try_map(|word| T::parse(&word))
}

/// Before this process has a second thread.
pub fn join_host_cgroups() -> Result<(), Failure> {
    tidegate_agent::join_host_cgroups().map_err(|error| {
        let remedy = "give the container the machine's processes (hostPID), CAP_SYS_ADMIN and CAP_SYS_PTRACE";
        Failure::new(Exit::Failure, format!("--host-cgroups: {error}; {remedy}"))
    })
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    match &args.what {
        What::Run(args) => run(args),
        What::Stop(args) => stop::main(args),
        What::Repair(args) => repair::main(args),
    }
}

fn run(args: &RunArgs) -> Result<Exit, Failure> {
    if args.host_cgroups {
        join_host_cgroups()?;
    }
    let mode = if args.on_demand {
        Mode::OnDemand
    } else {
        Mode::Service
    };
    let options = Options {
        mode,
        sense: args.sense,
        engine: args.engine,
        take_over: args.take_over,
    };
    startup::main(&RunDir::from_env(), &options)
        .map(|()| Exit::Ok)
        .map_err(|error| Failure::new(error.exit(), error.to_string()))
}
