//! Reading a command line.

use std::ffi::OsString;
use std::io::Write;

use clap::error::ErrorKind;
use clap::{Command, FromArgMatches};

use super::print::finish;
use super::{Failure, program};
use crate::Exit;

/// Reads the command line. Help and version are printed here, and there is nothing left to do. What
/// is wrong is printed after the program's name and `prefix`.
pub fn parse<C: FromArgMatches>(
    command: Command,
    words: &[OsString],
    prefix: &str,
) -> Result<Option<C>, Failure> {
    let read = command.try_get_matches_from(words);
    let error = match read.and_then(|matches| C::from_arg_matches(&matches)) {
        Ok(read) => return Ok(Some(read)),
        Err(error) => error,
    };
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            finish(error.print())?;
            return Ok(None);
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
        }
        _ => {
            let text = error.render().to_string();
            let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
            // clap's text has a usage line and a hint after the first line, which alone gets the
            // program's name.
            let _ = writeln!(anstream::stderr(), "{}: {prefix}{text}", program());
        }
    }
    Err(Failure::new(Exit::Usage, ""))
}
