//! Exit codes of the command.

use std::process::ExitCode;

/// Every status that `tidegate` itself ends with. Stable: scripts may rely on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done. For `doctor`: headroom can be enforced here. For `policy diff`: nothing would change.
    Ok = 0,
    /// Failed, for a reason that was printed. For `doctor`: headroom cannot be enforced here. For
    /// `policy diff`: something would change.
    Failure = 1,
    Usage = 2,
    /// No agent runs, or it does not answer.
    Unreachable = 3,
    /// The caller may not, or the machine cannot.
    Refused = 4,
    /// There is no such gate, process, group, file or folder.
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
        (
            Exit::Ok,
            "done (doctor: headroom can be enforced here; policy diff: no change)",
        ),
        (
            Exit::Failure,
            "failed (doctor: headroom cannot be enforced here; policy diff: a change)",
        ),
        (Exit::Usage, "the command line or a term is wrong"),
        (Exit::Unreachable, "no agent runs, or it does not answer"),
        (Exit::Refused, "the caller may not, or the machine cannot"),
        (
            Exit::NoTarget,
            "no such gate, process, group, file or folder",
        ),
        (Exit::RunFailed, "run: failed before CMD was started"),
        (
            Exit::RunCannotExecute,
            "run: CMD was found and cannot be executed",
        ),
        (Exit::RunNotFound, "run: CMD was not found"),
    ];

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
