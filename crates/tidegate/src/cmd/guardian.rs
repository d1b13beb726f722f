//! `tidegate guardian`: acts when the agent cannot. The agent starts one; another may watch from
//! outside.

use tidegate_agent::guardian;
use tidegate_agent::paths::RunDir;

use crate::cmd::agent::join_host_cgroups;
use tidegate_api::Exit;
use tidegate_api::cli::Failure;

/// Watch the agent and write the fallback when it dies (the agent starts one itself)
#[derive(clap::Args)]
pub struct Args {
    /// The agent's process; without it, whichever agent runs, until a signal
    #[arg(long, value_name = "PID")]
    agent: Option<i32>,
    /// The agent was started on demand: bring it back
    #[arg(long, requires = "agent")]
    on_demand: bool,
    /// The engine that the agent was asked for by name: the next one is, too
    #[arg(long, value_name = "ENGINE", requires = "agent")]
    engine: Option<String>,
    /// Name groups as process 1 does: for a container with the machine's processes and cgroups
    #[arg(long)]
    host_cgroups: bool,
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    if args.host_cgroups {
        join_host_cgroups()?;
    }
    let run_dir = RunDir::from_env();
    let watched = match args.agent {
        Some(agent) => {
            let engine = args.engine.as_deref();
            guardian::main(&run_dir, agent, args.on_demand, engine)
        }
        None => guardian::from_outside(&run_dir),
    };
    watched
        .map(|()| Exit::Ok)
        .map_err(|error| Failure::new(Exit::Failure, format!("guardian: {error}")))
}
