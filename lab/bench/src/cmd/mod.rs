//! The command line, one file a subcommand.

mod experiment;
mod replay;
mod sim;
mod sim_fleet;
mod tune;
mod worker;

use clap::{CommandFactory, Parser, Subcommand};
use tidegate_api::Exit;
use tidegate_api::cli::{self, Failure};

/// Measure, simulate and rehearse what Tidegate does
///
/// Each experiment prints a table and writes a page (HTML) and JSON. It is simulated (--on sim),
/// which touches nothing here; law, step and caps also run on this machine, law and caps on a stock
/// kernel in virtual time (--on vm).
#[derive(Parser)]
#[command(name = "tidegate-lab", version, max_term_width = 80)]
#[command(arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Cmd,
}

#[derive(Subcommand)]
enum Cmd {
    #[command(flatten)]
    Experiment(experiment::Experiments),
    Sim(Box<sim::Args>),
    Replay(replay::Args),
    Tune(tune::Args),
    #[command(hide = true)]
    Completions(cli::completions::Args),
    #[command(hide = true)]
    Man(cli::man::Args),
    #[command(hide = true)]
    Worker(worker::Args),
}

pub fn dispatch(cli: Cli) -> Result<Exit, Failure> {
    match cli.command {
        Cmd::Experiment(asked) => experiment::main(&asked.0),
        Cmd::Sim(args) => sim::main(&args),
        Cmd::Replay(args) => replay::main(&args),
        Cmd::Tune(args) => tune::main(&args),
        Cmd::Completions(args) => cli::completions::main(&args, Cli::command()),
        Cmd::Man(args) => cli::man::main(&args, Cli::command()),
        Cmd::Worker(args) => worker::main(&args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_agree_with_each_other() {
        Cli::command().debug_assert();
    }
}
