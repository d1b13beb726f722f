//! `tidegate-lab worker`: the load generators of the lab, as processes of their own.

use std::ffi::OsString;

use tidegate_api::Exit;
use tidegate_api::cli::Failure;

/// A load generator (the lab starts this)
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// As the lab passes them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    let words: Vec<String> = args
        .words
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    match tidegate_lab::worker_main(&words) {
        0 => Ok(Exit::Ok),
        _ => Ok(Exit::Failure),
    }
}
