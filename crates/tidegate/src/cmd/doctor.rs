//! `tidegate doctor`: what this machine can enforce.

use crate::doctor::{self, Facts};
use crate::exit::{Exit, Failure};
use crate::render;

const NOTES: &str = "\
Looks, and changes nothing that stays: it loads and unloads the BPF sensor and
may make an empty group for a moment. Ends with 0 if headroom can be enforced
here by whoever calls it, else with 1.";

/// Say what this machine can enforce, by which engine, how exactly, and what to change
#[derive(clap::Args)]
#[command(after_help = NOTES)]
pub struct Args {
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    let report = doctor::report(&Facts::gather());
    if args.json {
        render::json(&report)?
    } else {
        render::print(&render::doctor::page(&report))?
    };
    Ok(if report.enforceable {
        Exit::Ok
    } else {
        Exit::Failure
    })
}
