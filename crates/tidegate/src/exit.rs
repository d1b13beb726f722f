//! Failures of the command, with their exit codes.

use std::fmt;

use tidegate_api::ApiError;
pub use tidegate_api::Exit;
use tidegate_terms::{ConfigErrors, TermError};

use crate::plain_text::escaped;

/// A failure with its message (what: where: why; mend) and its exit code.
#[derive(Debug)]
pub struct Failure {
    /// The status.
    pub exit: Exit,
    /// What is printed after `tidegate: `; empty when all has been said already.
    pub message: String,
}

impl Failure {
    /// A failure of one's own.
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

    /// Prints the message on standard error.
    pub fn report(&self) {
        if !self.message.is_empty() {
            report(&self.message);
        }
    }
}

/// One or more lines of diagnostics, each with our name before it.
pub fn report(message: &str) {
    use std::io::Write;
    let mut stderr = anstream::stderr().lock();
    for line in message.lines() {
        // Nothing is left to write to when standard error is closed.
        let _ = writeln!(stderr, "tidegate: {}", escaped(line));
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
