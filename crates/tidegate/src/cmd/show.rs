//! `tidegate show`: the gates, or one of them with its terms.

use crate::connect;
use crate::render::{self, gates};
use tidegate_api::Exit;
use tidegate_api::cli::Failure;

/// List the gates, or show one with its terms
#[derive(clap::Args)]
pub struct Args {
    /// pid:N, unit:NAME, cgroup:/PATH, or a gate's name
    target: Option<String>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    match &args.target {
        None => {
            let all = connect::to_agent()?.gates()?;
            if args.json {
                render::json(&all)
            } else {
                render::print(&gates::list(&all))
            }
        }
        Some(text) => {
            let target = connect::target(text)?;
            let gate = connect::to_agent()?.explain(&target)?.gate;
            if args.json {
                render::json(&gate)
            } else {
                render::print(&gates::one(&gate))
            }
        }
    }
}
