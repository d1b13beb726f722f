//! `tidegate show`: the gates, or one of them with its terms.

use crate::connect;
use crate::exit::{Exit, Failure};
use crate::render::{self, gates};

/// List the gates, or show one with its terms
#[derive(clap::Args)]
pub struct Args {
    /// pid:N, cgroup:/PATH, or a gate's name
    target: Option<String>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    let client = connect::to_owner()?;
    match &args.target {
        None => {
            let all = client.gates()?;
            if args.json {
                render::json(&all)
            } else {
                render::print(&gates::list(&all))
            }
        }
        Some(text) => {
            let gate = client.explain(&connect::target(text)?)?.gate;
            if args.json {
                render::json(&gate)
            } else {
                render::print(&gates::one(&gate))
            }
        }
    }
}
