//! What can go wrong with a group.

use std::path::PathBuf;

use crate::KfsError;
use crate::bandwidth::{Bandwidth, BandwidthError};
use crate::discover::DiscoverError;
use crate::group_path::{GroupPath, GroupPathError};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    #[error("group {group}: {source}")]
    Kfs { group: GroupPath, source: KfsError },
    #[error("group {group}: {}: {why}: {text:?}; is the cgroup mount the kernel's own?", .path.display())]
    Garbage {
        group: GroupPath,
        path: PathBuf,
        text: String,
        why: &'static str,
    },
    #[error(
        "group {group}: cannot be removed: {}",
        why_busy(.pids, .groups)
    )]
    Busy {
        group: GroupPath,
        /// The processes in it (none: they were just leaving, try again).
        pids: Vec<i32>,
        groups: Vec<String>,
    },
    /// A process with real-time threads may not enter a group of a kernel with RT_GROUP_SCHED.
    #[error(
        "process {pid}: cannot enter {group}: its threads {tids:?} are real-time and this kernel has \
         CONFIG_RT_GROUP_SCHED; the process stays where it was; give those threads another policy (chrt -o -p 0 TID) first"
    )]
    RealTime {
        pid: i32,
        tids: Vec<i32>,
        group: GroupPath,
    },
    /// A process was moved in one hierarchy, refused in the next, and could not be moved back.
    #[error("process {pid}: half moved to {group}: {why}, and back: {back}; move it by hand: echo {pid} > {}", .file.display())]
    HalfMoved {
        pid: i32,
        group: GroupPath,
        why: Box<GroupError>,
        back: Box<KfsError>,
        file: PathBuf,
    },
    #[error("group {group}: {why}; {remedy}")]
    NotPossible {
        group: GroupPath,
        why: String,
        remedy: String,
    },
    /// Some of several writes were made. What stands is no looser than both what was and what was
    /// asked.
    #[error("group {group}: bandwidth half changed from {} to {}: {source}; what stands is no looser than either", .ends.0, .ends.1)]
    HalfBandwidth {
        group: GroupPath,
        ends: Box<(Bandwidth, Bandwidth)>,
        source: KfsError,
        /// Writes that were made, each a refill.
        writes: u32,
    },
    #[error(transparent)]
    Discover(#[from] DiscoverError),
    #[error(transparent)]
    Path(#[from] GroupPathError),
}

impl GroupError {
    pub(crate) fn kfs(group: &GroupPath) -> impl FnOnce(KfsError) -> Self + '_ {
        move |source| Self::Kfs {
            group: group.clone(),
            source,
        }
    }

    pub(crate) fn bandwidth(
        group: &GroupPath,
        path: PathBuf,
    ) -> impl FnOnce(BandwidthError) -> Self {
        let group = group.clone();
        move |error| Self::Garbage {
            group,
            path,
            text: error.text,
            why: error.why,
        }
    }

    fn kernel(&self) -> Option<&KfsError> {
        match self {
            Self::Kfs { source, .. }
            | Self::HalfBandwidth { source, .. }
            | Self::Discover(DiscoverError::Kfs(source)) => Some(source),
            _ => None,
        }
    }

    pub fn is_gone(&self) -> bool {
        self.kernel().is_some_and(KfsError::is_gone)
    }

    pub fn is_denied(&self) -> bool {
        self.kernel().is_some_and(KfsError::is_denied)
    }

    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Busy { .. } => Some(libc::EBUSY),
            Self::RealTime { .. } => Some(libc::EINVAL),
            _ => self.kernel().map(|error| error.errno),
        }
    }
}

fn why_busy(pids: &[i32], groups: &[String]) -> String {
    match (pids, groups) {
        ([], []) => {
            "the kernel says that it is busy, and nothing is in it; it is tried again".to_owned()
        }
        (pids, []) => format!("processes {pids:?} are in it; end or move them"),
        ([], groups) => format!("groups {groups:?} are in it; remove them first"),
        (pids, groups) => {
            format!("processes {pids:?} and groups {groups:?} are in it; end or move them")
        }
    }
}
