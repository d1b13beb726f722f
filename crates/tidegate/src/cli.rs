//! Reading the command line, whose definition is in `cmd/`.

use std::ffi::{OsStr, OsString};

use clap::Parser;
use clap::error::ErrorKind;

use crate::cmd::Cli;
use crate::exit::{Exit, Failure};

/// Reads the command line. Help and version are printed here and end the program with success.
pub fn parse(words: &[OsString]) -> Result<Option<Cli>, Failure> {
    let error = match Cli::try_parse_from(words) {
        Ok(cli) => return Ok(Some(cli)),
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
    let (exit, what) = match subcommand(words) {
        // Any status below 125 could be the command's own.
        Some(word) if word == OsStr::new("run") => (Exit::RunFailed, "run: "),
        _ => (Exit::Usage, ""),
    };
    // clap's text has a usage line and a hint after the first line; only the first gets our name.
    use std::io::Write;
    let _ = writeln!(anstream::stderr(), "tidegate: {what}{text}");
    Err(Failure::new(exit, ""))
}

/// The first word that is no option of all commands.
fn subcommand(words: &[OsString]) -> Option<&OsStr> {
    let mut words = words.iter().skip(1).map(OsString::as_os_str);
    let mut word = words.next()?;
    loop {
        if word == OsStr::new("--host") {
            words.next()?;
        } else if !word.as_encoded_bytes().starts_with(b"--host=") {
            return Some(word);
        }
        word = words.next()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subcommand_is_found_behind_the_host() {
        let found = |text: &str| {
            let words: Vec<OsString> = text.split(' ').map(OsString::from).collect();
            subcommand(&words).map(OsStr::to_owned)
        };
        for text in ["t run x", "t --host unix:/x run", "t --host=unix:/x run -x"] {
            assert_eq!(found(text), Some("run".into()), "{text}");
        }
        assert_eq!(found("t --host run"), None);
        assert_eq!(found("t"), None);
    }
}
