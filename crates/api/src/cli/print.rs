//! Answers on standard output, with colour only where it goes to a terminal.

use std::io::{ErrorKind, Write};

use super::Failure;
use crate::Exit;

/// Prints to standard output; colours are taken out unless it is a terminal (and by `NO_COLOR`).
pub fn print(text: &str) -> Result<Exit, Failure> {
    let mut stdout = anstream::stdout().lock();
    finish(
        stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush()),
    )
}

pub fn json<T: serde::Serialize>(value: &T) -> Result<Exit, Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| {
        Failure::new(
            Exit::Failure,
            format!("json: {error}; report this as a bug"),
        )
    })?;
    let mut stdout = std::io::stdout().lock();
    finish(
        stdout
            .write_all(format!("{text}\n").as_bytes())
            .and_then(|()| stdout.flush()),
    )
}

pub(super) fn finish(written: std::io::Result<()>) -> Result<Exit, Failure> {
    match written {
        Ok(()) => Ok(Exit::Ok),
        // The reader has seen enough (`tidegate status | head -3`).
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Exit::Ok),
        Err(error) => Err(Failure::new(
            Exit::Failure,
            format!("standard output: cannot be written: {error}; check where it goes"),
        )),
    }
}
