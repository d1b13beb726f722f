//! Reading the command line, whose definition is in `cmd/`.

use std::ffi::{OsStr, OsString};

use tidegate_api::Exit;
use tidegate_api::cli::{self, Failure};

use crate::cmd::{self, Cli};

/// Reads the command line. Help and version are printed here and end the program with success.
pub fn parse(words: &[OsString]) -> Result<Option<Cli>, Failure> {
    match subcommand(words) {
        // Any status below 125 could be the command's own.
        Some(word) if word == OsStr::new("run") => {
            read(words, "run: ").map_err(|failure| Failure {
                exit: Exit::RunFailed,
                ..failure
            })
        }
        _ => read(words, ""),
    }
}

fn read(words: &[OsString], prefix: &str) -> Result<Option<Cli>, Failure> {
    let Some((typed, matches)) = cli::parse(cmd::command(), words, prefix)? else {
        return Ok(None);
    };
    cmd::use_host(&matches).map_err(|failure| Failure {
        message: format!("{prefix}{}", failure.message),
        ..failure
    })?;
    Ok(Some(typed))
}

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
