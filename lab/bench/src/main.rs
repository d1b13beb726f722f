//! The `tidegate-lab` command: experiments, the demonstration, the simulator, replay and tune. It
//! drives the `tidegate` command, and nothing of it is linked into that.

mod cmd;
mod render;

use std::process::ExitCode;

use clap::CommandFactory;
use tidegate_api::Exit;
use tidegate_api::cli;

fn main() -> ExitCode {
    cli::set_program("tidegate-lab");
    let words: Vec<std::ffi::OsString> = std::env::args_os().collect();
    let done = cli::parse(cmd::Cli::command(), &words, "")
        .and_then(|read| read.map_or(Ok(Exit::Ok), cmd::dispatch));
    match done {
        Ok(exit) => exit.into(),
        Err(failure) => {
            failure.report();
            failure.exit.into()
        }
    }
}
