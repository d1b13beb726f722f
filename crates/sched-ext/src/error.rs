//! What can go wrong in loading and asking the scheduler.

use crate::log;

/// A failure of this engine.
#[derive(Debug, thiserror::Error)]
pub enum SchedExtError {
    #[error(
        "sched_ext: kernel {release}: {why}; use a kernel from 6.12 with CONFIG_SCHED_CLASS_EXT (Debian: a kernel of trixie-backports)"
    )]
    Unsupported {
        /// `uname -r`.
        release: String,
        why: &'static str,
    },
    /// Another scheduler is loaded already.
    #[error("sched_ext: the scheduler {name} is loaded; stop it first")]
    Taken {
        /// Its name, as it calls itself.
        name: String,
    },
    /// The caller may not.
    #[error(
        "sched_ext: loading a scheduler needs CAP_BPF, CAP_PERFMON and CAP_SYS_ADMIN; run as root"
    )]
    NotRoot,
    /// The kernel or libbpf refused.
    #[error("sched_ext: {step}: {why}{log}; see docs/sched-ext.md, or try another kernel")]
    Refused {
        step: &'static str,
        why: String,
        /// The end of libbpf's log, on lines of its own; empty if it said nothing.
        log: String,
    },
    /// The machine is not one that the scheduler can serve.
    #[error("sched_ext: {0}; nothing was changed")]
    Machine(String),
    /// It was taken in and gave up at once.
    #[error("sched_ext: the scheduler was ejected while it started: {0}; the kernel's own runs")]
    Ejected(String),
}

/// libbpf's error, with what it said.
pub fn refused(step: &'static str, why: &libbpf_rs::Error) -> SchedExtError {
    match why.kind() {
        libbpf_rs::ErrorKind::PermissionDenied if !rustix::process::geteuid().is_root() => {
            SchedExtError::NotRoot
        }
        _ => SchedExtError::Refused {
            step,
            why: format!("{why:#}"),
            log: log::end(),
        },
    }
}
