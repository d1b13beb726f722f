//! Failures of a command, with their exit codes.

use std::fmt;
use std::sync::OnceLock;

use tidegate_terms::{ConfigErrors, TermError};

use super::escaped;
use crate::{ApiError, Exit};

static PROGRAM: OnceLock<&'static str> = OnceLock::new();

/// Sets the name that precedes each line of diagnostics. The first call counts.
pub fn set_program(name: &'static str) {
    let _ = PROGRAM.set(name);
}

pub fn program() -> &'static str {
    PROGRAM.get().copied().unwrap_or("tidegate")
}

/// A failure with its message (what: where: why; remedy) and its exit code.
#[derive(Debug)]
pub struct Failure {
    pub exit: Exit,
    /// Printed after the program's name; empty when everything has been printed already.
    pub message: String,
}

impl Failure {
    pub fn new(exit: Exit, message: impl Into<String>) -> Failure {
        Failure {
            exit,
            message: message.into(),
        }
    }

    /// The same failure under `run`, whose own failures all have one code.
    pub fn before_run(self) -> Failure {
        Failure {
            exit: Exit::RunFailed,
            message: format!("run: {}", self.message),
        }
    }

    pub fn report(&self) {
        if !self.message.is_empty() {
            report(&self.message);
        }
    }
}

/// Prints lines of diagnostics, each after the program's name.
pub fn report(message: &str) {
    use std::io::Write;
    let mut stderr = anstream::stderr().lock();
    for line in message.lines() {
        // Nothing is left to write to when standard error is closed.
        let _ = writeln!(stderr, "{}: {}", program(), escaped(line));
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Failure {
        Failure::new(error.kind.exit(), error.to_string())
    }
}

impl From<TermError> for Failure {
    fn from(error: TermError) -> Failure {
        Failure::new(Exit::Usage, error.to_string())
    }
}

impl From<ConfigErrors> for Failure {
    fn from(errors: ConfigErrors) -> Failure {
        Failure::new(Exit::Failure, errors.to_string())
    }
}
