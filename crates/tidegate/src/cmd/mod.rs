//! The command line: what can be typed, one file a subcommand.

pub mod agent;
pub mod check;
pub mod completions;
pub mod doctor;
pub mod events;
pub mod explain;
pub mod guardian;
pub mod lab;
pub mod lab_worker;
pub mod man;
pub mod metrics;
pub mod objective;
pub mod policy;
pub mod repair;
pub mod run;
pub mod set;
pub mod show;
pub mod sim;
mod sim_asked;
pub mod status;
pub mod stop;
pub mod unset;

use clap::{CommandFactory, Parser, Subcommand};

use crate::exit::{Exit, Failure};

/// CPU headroom on Linux: side work runs on what main work leaves, and gives way at once
///
/// Start best-effort work with `tidegate run --side -- CMD`. While it runs, Tidegate keeps a part of the machine idle
/// (the headroom) for the bursts of everything else.
#[derive(Parser)]
#[command(name = "tidegate", version, max_term_width = 80, after_help = Exit::table())]
#[command(disable_help_subcommand = true, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Cmd,
}

/// What was typed.
#[derive(Subcommand)]
pub enum Cmd {
    Run(run::Args),
    Set(set::Args),
    Unset(unset::Args),
    Objective(objective::Args),
    Show(show::Args),
    Status(status::Args),
    Explain(explain::Args),
    Events(events::Args),
    Metrics(metrics::Args),
    Check(check::Args),
    Diff(policy::DiffArgs),
    Apply(policy::ApplyArgs),
    Confirm(policy::ConfirmArgs),
    Rollback(policy::RollbackArgs),
    Reload(policy::ReloadArgs),
    Policy(policy::Args),
    Doctor(doctor::Args),
    Lab(lab::Args),
    Sim(sim::Args),
    Agent(agent::Args),
    Stop(stop::Args),
    Repair(repair::Args),
    Completions(completions::Args),
    Man(man::Args),
    #[command(hide = true)]
    Guardian(guardian::Args),
    #[command(hide = true)]
    LabWorker(lab_worker::Args),
}

/// The whole command line as clap knows it, for completions and man pages.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Does what was typed.
pub fn dispatch(command: Option<Cmd>) -> Result<Exit, Failure> {
    match command {
        None => Ok(Exit::Ok),
        Some(Cmd::Run(args)) => run::main(args),
        Some(Cmd::Set(args)) => set::main(&args),
        Some(Cmd::Unset(args)) => unset::main(&args),
        Some(Cmd::Objective(args)) => objective::main(&args),
        Some(Cmd::Show(args)) => show::main(&args),
        Some(Cmd::Status(args)) => status::main(&args),
        Some(Cmd::Explain(args)) => explain::main(&args),
        Some(Cmd::Events(args)) => events::main(&args),
        Some(Cmd::Metrics(args)) => metrics::main(&args),
        Some(Cmd::Check(args)) => check::main(&args),
        Some(Cmd::Diff(args)) => policy::diff(&args),
        Some(Cmd::Apply(args)) => policy::apply(&args),
        Some(Cmd::Confirm(args)) => policy::confirm(&args),
        Some(Cmd::Rollback(args)) => policy::rollback(&args),
        Some(Cmd::Reload(args)) => policy::reload(&args),
        Some(Cmd::Policy(args)) => policy::main(&args),
        Some(Cmd::Doctor(args)) => doctor::main(&args),
        Some(Cmd::Lab(args)) => lab::main(&args),
        Some(Cmd::Sim(args)) => sim::main(&args),
        Some(Cmd::Agent(args)) => agent::main(&args),
        Some(Cmd::Stop(args)) => stop::main(&args),
        Some(Cmd::Repair(args)) => repair::main(&args),
        Some(Cmd::Completions(args)) => completions::main(&args),
        Some(Cmd::Man(args)) => man::main(&args),
        Some(Cmd::Guardian(args)) => guardian::main(&args),
        Some(Cmd::LabWorker(args)) => lab_worker::main(&args),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_definitions_agree_with_each_other() {
        super::command().debug_assert();
    }
}
