//! `tidegate explain`: why a gate runs at its present rate, on one screen.

use crate::connect;
use crate::exit::{Exit, Failure};
use crate::render::{self, explain};

/// Say why a gate runs at its present rate
#[derive(clap::Args)]
pub struct Args {
    /// pid:N, unit:NAME, cgroup:/PATH, or a gate's name
    target: String,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    let target = connect::target(&args.target)?;
    let view = connect::to_agent()?.explain(&target)?;
    if args.json {
        render::json(&view)
    } else {
        render::print(&explain::page(&view))
    }
}
