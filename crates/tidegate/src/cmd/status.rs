//! `tidegate status`: the machine, the agent and the gates at a glance.

use crate::connect;
use crate::render::{self, status};
use tidegate_api::Exit;
use tidegate_api::cli::Failure;

/// Show the machine, the agent and the gates at a glance
#[derive(clap::Args)]
#[command(after_help = "Ends with 3 when no agent runs; then nothing is limited by Tidegate.")]
pub struct Args {
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    let view = connect::to_agent()?.status()?;
    if args.json {
        render::json(&view)
    } else {
        render::print(&status::page(&view))
    }
}
