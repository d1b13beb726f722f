//! What can stop an experiment. Each message says what, where, why, and the mend.

use std::io;
use std::path::PathBuf;

/// Why an experiment ended without a report.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Ctrl-C or SIGTERM; everything was cleaned up.
    #[error("interrupted by a signal; processes and cgroups of the experiment are gone")]
    Interrupted,
    /// The experiment cannot run here.
    #[error("{what}: {why}; {mend}")]
    Needs {
        /// What was to be done.
        what: String,
        /// Why it cannot be.
        why: String,
        /// What to change.
        mend: String,
    },
    /// An option that this experiment cannot take.
    #[error("{what}: {why}; {mend}")]
    Asked {
        /// The option, as it was given.
        what: String,
        /// Why it cannot be.
        why: String,
        /// What to give instead.
        mend: String,
    },
    /// A file of the kernel or of the report.
    #[error("{what}: {path}: {source}")]
    File {
        /// What was to be done.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The report has no place.
    #[error("{path}: the report cannot be written: {source}; name another folder with --out", path = path.display())]
    Report {
        /// The folder, or the file in it.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The VM lacks something, or failed.
    #[error("{0}")]
    Bed(#[from] tidegate_vm::VmError),
    /// A process of the experiment did not do its part.
    #[error("{what}: {why}")]
    Process {
        /// Which process.
        what: String,
        /// What it did instead.
        why: String,
    },
    /// A simulation broke one of its own rules, or was built wrongly.
    #[error("{what}: {why}; to see it again: {again}")]
    Simulation {
        /// Which cell, and which part of it.
        what: String,
        /// What was found.
        why: String,
        /// The command that repeats it.
        again: String,
    },
    /// A plot could not be drawn.
    #[error("drawing '{title}': {why}")]
    Plot {
        /// Which plot.
        title: String,
        /// Why not.
        why: String,
    },
}

impl LabError {
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
    /// The stage adds the cell and the command.
    pub(crate) fn simulation(what: impl Into<String>, why: impl Into<String>) -> Self {
        LabError::Simulation {
            what: what.into(),
            why: why.into(),
            again: String::new(),
        }
    }
}
