//! `tidegate status`: the machine, the agent and the gates at a glance, or one gate with its terms.

use tidegate_api::Exit;
use tidegate_api::cli::Failure;

use crate::connect;
use crate::render::{self, gates, status};

/// Show the machine and its gates, or one gate
#[derive(clap::Args)]
#[command(after_long_help = "Ends with 3 when no agent runs; then nothing is limited by Tidegate.")]
pub struct Args {
    /// Show this gate: its name, pid:N, unit:NAME or cgroup:/PATH
    #[arg(value_name = "GATE")]
    target: Option<String>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    if let Some(text) = &args.target {
        let target = connect::target(text)?;
        let gate = connect::to_agent()?.explain(&target)?.gate;
        return render::show(args.json, &gate, gates::one);
    }
    let view = connect::to_agent()?.status()?;
    render::show(args.json, &view, status::page)
}
