//! Reading the command line, whose definition is in `cmd/`.

use std::ffi::OsString;

use tidegate_api::Exit;
use tidegate_api::cli::{self, Failure};

use crate::cmd::{self, Cli};

/// Reads the command line. Help and version are printed here and end the program with success.
pub fn parse(words: &[OsString]) -> Result<Option<Cli>, Failure> {
    if words.get(1).is_none_or(|word| word != "run") {
        return cli::parse(cmd::command(), words, "");
    }
    // Any status below 125 could be the command's own.
    cli::parse(cmd::command(), words, "run: ").map_err(|failure| Failure {
        exit: Exit::RunFailed,
        ..failure
    })
}
