//! The `tidegate` command. Each subcommand is a file in `cmd/`; what they share stands beside this
//! one.
//!
//! Exit codes are those of [`tidegate_api::Exit`]. `run` becomes its command, so there the
//! command's own status is the answer, and 125, 126 and 127 mean that there is no command to answer
//! (as with `env` and `timeout`).

mod cli;
mod cmd;
mod connect;
mod doctor;
mod exec;
mod identity;
mod inherited;
mod jobserver;
mod render;
mod terms_flags;
mod top;
mod web;
mod without_agent;

use std::process::ExitCode;

use tidegate_api::Exit;

fn main() -> ExitCode {
    let words: Vec<std::ffi::OsString> = std::env::args_os().collect();
    let done = cli::parse(&words).and_then(|cli| cli.map_or(Ok(Exit::Ok), cmd::dispatch));
    match done {
        Ok(exit) => exit.into(),
        Err(failure) => {
            failure.report();
            failure.exit.into()
        }
    }
}
