//! Reading the command line, whose definition is in `cmd/`.

use std::ffi::{OsStr, OsString};

use clap::Parser;
use clap::error::ErrorKind;

use crate::cmd::{Cli, Cmd};
use crate::exit::{Exit, Failure};

/// Reads the command line. Help and version are printed here and end the program with success.
pub fn parse(words: &[OsString]) -> Result<Option<Cmd>, Failure> {
    let error = match Cli::try_parse_from(words) {
        Ok(cli) => return Ok(Some(cli.command)),
        Err(error) => error,
    };
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A closed pipe (`tidegate --help | head -1`) is no failure.
            let _ = error.print();
            return Ok(None);
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            return Err(Failure::new(Exit::Usage, ""));
        }
        _ => {}
    }
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
    let (exit, what) = match words.get(1).map(OsString::as_os_str) {
        // Any status below 125 could be the command's own.
        Some(word) if word == OsStr::new("run") => (Exit::RunFailed, "run: "),
        _ => (Exit::Usage, ""),
    };
    // clap's text has a usage line and a hint after the first line; only the first gets our name.
    use std::io::Write;
    let _ = writeln!(anstream::stderr(), "tidegate: {what}{text}");
    Err(Failure::new(exit, ""))
}
