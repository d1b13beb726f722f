//! Why the scheduler ended, as the kernel told its last callback.

use std::fmt;

use serde::Serialize;

use crate::intf::Exit;

/// From here on an end is a failure (`SCX_EXIT_ERROR`); below, it was asked for.
const FAILURES_FROM: u32 = 1024;

/// Its link was closed, by us or by our end (`SCX_EXIT_UNREG`).
const UNREGISTERED: u32 = 64;

/// Of our scheduler's programs: real-time tasks withheld CPUs from all others
/// (`EXT_CODE_REAL_TIME`).
const LEFT_REAL_TIME: i64 = 1;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SchedulerEnd {
    /// The kernel's number for it (`enum scx_exit_kind`).
    pub kind: u32,
    /// What the scheduler itself gave for a reason, if it ended itself.
    pub code: i64,
    /// The kernel's words for the kind: "runnable task stall", "disabled by sysrq-S", ...
    pub reason: String,
    pub message: String,
    /// The state of all CPUs and tasks then; empty for an end that was asked for.
    pub dump: String,
}

impl SchedulerEnd {
    /// None while it runs.
    pub(crate) fn from_kernel(exit: &Exit) -> Option<SchedulerEnd> {
        (exit.kind != 0).then(|| SchedulerEnd {
            kind: exit.kind,
            code: exit.code,
            reason: text(&exit.reason),
            message: text(&exit.message),
            dump: text(&exit.dump),
        })
    }

    /// Its loader let go of it; else the kernel, a program or a person (sysrq-S) ended it.
    pub fn is_ours(&self) -> bool {
        self.kind == UNREGISTERED
    }

    /// The kernel threw it out, or a program gave up.
    pub fn is_failure(&self) -> bool {
        self.kind >= FAILURES_FROM
    }

    /// A program of ours ended it because real-time tasks left others no CPU.
    pub fn left_for_real_time(&self) -> bool {
        self.is_failure() && self.code == LEFT_REAL_TIME
    }
}

impl fmt::Display for SchedulerEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        if !self.message.is_empty() {
            write!(f, " ({})", self.message)?;
        }
        Ok(())
    }
}

fn text(chars: &[i8]) -> String {
    let end = chars.iter().position(|char| *char == 0);
    let chars = &chars[..end.unwrap_or(chars.len())];
    let bytes: Vec<u8> = chars.iter().map(|char| char.cast_unsigned()).collect();
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_are_kept() {
        let mut exit = Exit::default();
        assert_eq!(SchedulerEnd::from_kernel(&exit), None);
        exit.kind = 1026;
        exit.reason[..5].copy_from_slice(&b"stall".map(u8::cast_signed));
        exit.message[..4].copy_from_slice(&b"init".map(u8::cast_signed));
        let ended = SchedulerEnd::from_kernel(&exit).unwrap();
        assert_eq!(ended.to_string(), "stall (init)");
        assert!(ended.is_failure());
        assert!(!ended.is_ours());
        assert!(!ended.left_for_real_time());
        exit.code = 1;
        assert!(
            SchedulerEnd::from_kernel(&exit)
                .unwrap()
                .left_for_real_time()
        );
        for (kind, is_ours) in [(64, true), (67, false)] {
            exit.kind = kind;
            let ended = SchedulerEnd::from_kernel(&exit).unwrap();
            assert!(!ended.is_failure(), "{kind}: it was asked for");
            assert_eq!(ended.is_ours(), is_ours, "{kind}");
        }
    }
}
