//! `tidegate-lab worker`: the load generators of the lab, as processes of their own.

use tidegate_api::Exit;
use tidegate_api::cli::Failure;

/// A load generator (the lab starts this)
#[derive(clap::Args)]
pub struct Args {
    /// The shared page, and the job
    words: Vec<String>,
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    match tidegate_lab::worker_main(&args.words) {
        0 => Ok(Exit::Ok),
        _ => Ok(Exit::Failure),
    }
}
