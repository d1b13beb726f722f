//! Exit codes, and failures that carry one.

use std::fmt;
use std::process::ExitCode;

use tidegate_agent::client::{ClientError, ErrorKind};
use tidegate_terms::{ConfigErrors, TermError};

/// Every status that `tidegate` itself ends with. Stable: scripts may rely on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done. For `doctor`: headroom can be enforced here.
    Ok = 0,
    /// Failed, for a reason that was printed. For `doctor`: headroom cannot be enforced here.
    Failure = 1,
    /// The command line or a term is wrong.
    Usage = 2,
    /// No agent runs, or it does not answer.
    Unreachable = 3,
    /// The caller may not, or the machine cannot.
    Refused = 4,
    /// There is no such gate, process or group.
    NoTarget = 5,
    /// `run`: failed before the command was started.
    RunFailed = 125,
    /// `run`: the command was found and cannot be executed.
    RunCannotExecute = 126,
    /// `run`: the command was not found.
    RunNotFound = 127,
}

impl Exit {
    const ALL: &[(Exit, &str)] = &[
        (Exit::Ok, "done (doctor: headroom can be enforced here)"),
        (
            Exit::Failure,
            "failed (doctor: headroom cannot be enforced here)",
        ),
        (Exit::Usage, "the command line or a term is wrong"),
        (Exit::Unreachable, "no agent runs, or it does not answer"),
        (Exit::Refused, "the caller may not, or the machine cannot"),
        (Exit::NoTarget, "no such gate, process or group"),
        (Exit::RunFailed, "run: failed before CMD was started"),
        (
            Exit::RunCannotExecute,
            "run: CMD was found and cannot be executed",
        ),
        (Exit::RunNotFound, "run: CMD was not found"),
    ];

    /// The list for help and the man page.
    pub fn table() -> String {
        let mut text = String::from("Exit codes:\n");
        for (exit, meaning) in Exit::ALL {
            text.push_str(&format!("  {:>3}  {meaning}\n", *exit as u8));
        }
        text.push_str("run ends as CMD does: with its exit code, or killed by the same signal.");
        text
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

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
        // Nobody is left to tell when standard error is closed.
        let _ = writeln!(stderr, "tidegate: {line}");
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        let exit = match error.kind {
            ErrorKind::Unreachable => Exit::Unreachable,
            ErrorKind::Usage => Exit::Usage,
            ErrorKind::Denied | ErrorKind::Unsupported | ErrorKind::Busy => Exit::Refused,
            ErrorKind::NotFound => Exit::NoTarget,
            ErrorKind::Internal => Exit::Failure,
        };
        Failure::new(exit, error.message)
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
