//! The command line: what can be typed, one file a subcommand.

pub mod agent;
pub mod check;
pub mod doctor;
pub mod events;
pub mod explain;
pub mod guardian;
pub mod metrics;
pub mod objective;
pub mod policy;
pub mod record;
pub mod repair;
pub mod run;
pub mod set;
pub mod show;
pub mod status;
pub mod stop;
pub mod top;
pub mod unset;
pub mod web;

use clap::{CommandFactory, Parser, Subcommand};

use crate::connect;
use tidegate_api::Exit;
use tidegate_api::cli::{self, Failure};

/// CPU headroom on Linux: side work runs on what main work leaves, and gives way at once
///
/// Start best-effort work with `tidegate run --side -- CMD`. While it runs, Tidegate keeps a part of the machine idle
/// (the headroom) for the bursts of everything else.
#[derive(Parser)]
#[command(name = "tidegate", version, max_term_width = 80, after_help = Exit::table())]
#[command(disable_help_subcommand = true, arg_required_else_help = true)]
pub struct Cli {
    /// Use the agent of this socket, and start none [env: TIDEGATE_HOST]
    #[arg(
        long,
        global = true,
        value_name = "unix:PATH",
        help_heading = "Global options"
    )]
    pub host: Option<String>,
    #[command(subcommand)]
    pub command: Cmd,
}

impl Cli {
    /// Whether the command asks an agent and nothing else: the others are about this machine's files and processes.
    fn asks_agent(&self) -> bool {
        matches!(
            self.command,
            Cmd::Run(_)
                | Cmd::Set(_)
                | Cmd::Unset(_)
                | Cmd::Objective(_)
                | Cmd::Show(_)
                | Cmd::Status(_)
                | Cmd::Top(_)
                | Cmd::Explain(_)
                | Cmd::Events(_)
                | Cmd::Metrics(_)
                | Cmd::Diff(_)
                | Cmd::Apply(_)
                | Cmd::Confirm(_)
                | Cmd::Rollback(_)
                | Cmd::Reload(_)
                | Cmd::Policy(_)
                | Cmd::Web(_)
        )
    }

    /// Puts `--host` in force.
    fn use_host(&self) -> Result<(), Failure> {
        match (&self.host, self.asks_agent()) {
            (host, true) => connect::use_host(host.as_deref()),
            (None, false) => Ok(()),
            (Some(_), false) => {
                let why = "--host: this command is about this machine, not about the agent of a socket; leave it out";
                Err(Failure::new(Exit::Usage, why))
            }
        }
    }
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
    Top(top::Args),
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
    Web(web::Args),
    Record(record::Args),
    Doctor(doctor::Args),
    Agent(agent::Args),
    Stop(stop::Args),
    Repair(repair::Args),
    Completions(cli::completions::Args),
    Man(cli::man::Args),
    #[command(hide = true)]
    Guardian(guardian::Args),
}

/// Does what was typed.
pub fn dispatch(cli: Option<Cli>) -> Result<Exit, Failure> {
    let Some(cli) = cli else {
        return Ok(Exit::Ok);
    };
    let is_run = matches!(cli.command, Cmd::Run(_));
    cli.use_host().map_err(|failure| match is_run {
        true => failure.before_run(),
        false => failure,
    })?;
    match cli.command {
        Cmd::Run(args) => run::main(args),
        Cmd::Set(args) => set::main(&args),
        Cmd::Unset(args) => unset::main(&args),
        Cmd::Objective(args) => objective::main(&args),
        Cmd::Show(args) => show::main(&args),
        Cmd::Status(args) => status::main(&args),
        Cmd::Top(args) => top::main(&args),
        Cmd::Explain(args) => explain::main(&args),
        Cmd::Events(args) => events::main(&args),
        Cmd::Metrics(args) => metrics::main(&args),
        Cmd::Check(args) => check::main(&args),
        Cmd::Diff(args) => policy::diff(&args),
        Cmd::Apply(args) => policy::apply(&args),
        Cmd::Confirm(args) => policy::confirm(&args),
        Cmd::Rollback(args) => policy::rollback(&args),
        Cmd::Reload(args) => policy::reload(&args),
        Cmd::Policy(args) => policy::main(&args),
        Cmd::Web(args) => web::main(&args),
        Cmd::Record(args) => record::main(&args),
        Cmd::Doctor(args) => doctor::main(&args),
        Cmd::Agent(args) => agent::main(&args),
        Cmd::Stop(args) => stop::main(&args),
        Cmd::Repair(args) => repair::main(&args),
        Cmd::Completions(args) => cli::completions::main(&args, Cli::command()),
        Cmd::Man(args) => cli::man::main(&args, Cli::command()),
        Cmd::Guardian(args) => guardian::main(&args),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_definitions_agree_with_each_other() {
        <super::Cli as clap::CommandFactory>::command().debug_assert();
    }
}
