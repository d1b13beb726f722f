//! Errors of the machine as the socket names them.

use std::fmt::Display;

use tidegate_api::{ApiError, ErrorKind};
use tidegate_cgroup::KfsError;
use tidegate_cgroup::discover::DiscoverError;
use tidegate_cgroup::group::{GroupError, GroupPath, Groups};
use tidegate_engine::apply::JournalError;
use tidegate_engine::ledger::LedgerError;

/// The machine, or what an earlier agent recorded of it, cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    #[error(transparent)]
    Discover(#[from] DiscoverError),
    #[error(transparent)]
    Kfs(#[from] KfsError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

pub(crate) fn refuse(kind: ErrorKind, error: impl Display) -> ApiError {
    ApiError::new(kind, error.to_string())
}

pub(crate) fn usage(error: impl Display) -> ApiError {
    refuse(ErrorKind::Usage, error)
}

pub(crate) fn not_found(error: impl Display) -> ApiError {
    refuse(ErrorKind::NotFound, error)
}

pub(crate) fn internal(error: impl Display) -> ApiError {
    refuse(ErrorKind::Internal, error)
}

pub(crate) fn no_gate(target: &str) -> ApiError {
    not_found(format!("{target}: there is no such gate")).with_remedy("see `tidegate status`")
}

pub(crate) fn no_group(groups: &Groups, target: &str) -> ApiError {
    let detail = format!("{target}: there is no such group");
    let mount = groups.dir(&GroupPath::root());
    ApiError::new(ErrorKind::NotFound, detail).with_remedy(format!(
        "list the groups with: find {} -type d",
        mount.display()
    ))
}

/// Names what an error is about.
pub(crate) fn about(what: &str) -> impl FnOnce(ApiError) -> ApiError + '_ {
    move |error| ApiError {
        detail: format!("{what}: {}", error.detail),
        ..error
    }
}

pub(crate) fn of_group(error: GroupError) -> ApiError {
    let kind = match &error {
        error if error.is_gone() => ErrorKind::NotFound,
        error if error.is_denied() => ErrorKind::Denied,
        GroupError::NotPossible { .. } => ErrorKind::Unsupported,
        _ => ErrorKind::Internal,
    };
    refuse(kind, error)
}

/// A journal that could not be kept, or a write that failed after it.
pub(crate) fn not_recorded(error: JournalError) -> ApiError {
    match error {
        JournalError::Group(error) => of_group(error),
        error => internal(error),
    }
}
