//! `tidegate guardian`: started by the agent alone, to act when the agent cannot.

use tidegate_agent::guardian;
use tidegate_agent::paths::RunDir;

use crate::exit::{Exit, Failure};

/// Watch an agent and write the fallback when it dies (the agent starts this)
#[derive(clap::Args)]
pub struct Args {
    /// The agent's process
    #[arg(long)]
    agent: i32,
    /// The agent was started on demand: bring it back
    #[arg(long)]
    on_demand: bool,
    /// The engine that the agent was asked for by name: the next one is, too
    #[arg(long, value_name = "ENGINE")]
    engine: Option<String>,
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    let engine = args.engine.as_deref();
    guardian::main(&RunDir::from_env(), args.agent, args.on_demand, engine)
        .map(|()| Exit::Ok)
        .map_err(|error| Failure::new(Exit::Failure, format!("guardian: {error}")))
}
