//! What can stop an experiment. Each message says what, where, why, and the remedy.

use std::io;
use std::path::PathBuf;

/// Why an experiment ended without a report.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Ctrl-C or SIGTERM; everything was cleaned up.
    #[error("interrupted by a signal; processes and cgroups of the experiment are gone")]
    Interrupted,
    #[error("{what}: {why}; {remedy}")]
    Needs {
        what: String,
        why: String,
        remedy: String,
    },
    #[error("{what}: {why}; {remedy}")]
    Asked {
        what: String,
        why: String,
        remedy: String,
    },
    #[error("{what}: {path}: {source}")]
    File {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{path}: the report cannot be written: {source}; name another folder with --out", path = path.display())]
    Report { path: PathBuf, source: io::Error },
    #[error("{0}")]
    Bed(#[from] tidegate_vm::VmError),
    /// A process of the experiment did not do its part.
    #[error("{what}: {why}")]
    Process { what: String, why: String },
    /// A simulation broke one of its own rules, or was built wrongly.
    #[error("{what}: {why}; to see it again: {again}")]
    Simulation {
        what: String,
        why: String,
        /// The command that repeats it.
        again: String,
    },
}

impl LabError {
    /// An option that the experiment cannot take, with what to give instead.
    pub(crate) fn asked(
        what: impl Into<String>,
        why: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let (what, why, remedy) = (what.into(), why.into(), remedy.into());
        LabError::Asked { what, why, remedy }
    }

    /// What this machine or this user lacks.
    pub(crate) fn needs(
        what: impl Into<String>,
        why: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let (what, why, remedy) = (what.into(), why.into(), remedy.into());
        LabError::Needs { what, why, remedy }
    }

    pub(crate) fn file(what: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        LabError::File {
            what,
            path: path.into(),
            source,
        }
    }

    pub(crate) fn process(what: impl Into<String>, why: impl Into<String>) -> Self {
        LabError::Process {
            what: what.into(),
            why: why.into(),
        }
    }
    pub(crate) fn simulation(what: impl Into<String>, why: impl Into<String>) -> Self {
        LabError::Simulation {
            what: what.into(),
            why: why.into(),
            again: String::new(),
        }
    }
}
