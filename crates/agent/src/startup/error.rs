//! Why an agent cannot start.

use std::io;
use std::path::{Path, PathBuf};

use tidegate_api::{ApiError, Exit};
use tidegate_cgroup::KfsError;
use tidegate_cgroup::target::TargetError;
use tidegate_engine::sense::SenseError;
use tidegate_sched_ext::SchedExtError;
use tidegate_terms::ConfigErrors;

use crate::errors::MachineError;
use crate::paths::{RunDirError, remedy};

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("TIDEGATE_PREFIX: {0}")]
    Prefix(TargetError),
    #[error("agent: {0}")]
    RunDir(RunDirError),
    #[error("agent: {}: {error}; {}", .path.display(), remedy(.error))]
    Denied { path: PathBuf, error: io::Error },
    #[error("agent: {}: another agent runs; see `tidegate status`", .path.display())]
    Running { path: PathBuf },
    #[error("agent: {0}")]
    TreeTaken(ApiError),
    #[error("agent: {}: {error}; check the run directory", .path.display())]
    RunFile { path: PathBuf, error: io::Error },
    /// The machine has no cpu controller that groups could be made under.
    #[error("agent: no gates can be made here: {0}")]
    NoGates(String),
    #[error("agent: {0}; limits stay as they are; check the run directory")]
    Records(KfsError),
    #[error("agent: {0}; or take engine = cgroup")]
    SchedExt(SchedExtError),
    #[error("agent: {what}: {error}")]
    Call { what: String, error: io::Error },
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    #[error(transparent)]
    Machine(#[from] MachineError),
    #[error(transparent)]
    Sense(#[from] SenseError),
}

impl StartError {
    pub fn exit(&self) -> Exit {
        match self {
            Self::Prefix(_) | Self::Config(_) => Exit::Usage,
            Self::Denied { .. }
            | Self::NoGates(_)
            | Self::SchedExt(_)
            | Self::Machine(MachineError::Discover(_))
            | Self::Sense(_) => Exit::Refused,
            Self::RunDir(RunDirError::Make { error, .. })
                if error.kind() == io::ErrorKind::PermissionDenied =>
            {
                Exit::Refused
            }
            _ => Exit::Failure,
        }
    }

    pub(super) fn of(what: &str) -> impl FnOnce(io::Error) -> Self {
        let what = what.to_owned();
        move |error| Self::Call { what, error }
    }

    pub(super) fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::RunFile { path, error }
    }
}
