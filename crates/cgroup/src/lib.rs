//! The one place where kernel files are read and written.
//!
//! All code reaches kernel files through [`KernelFs`]. [`RealFs`] is the machine. The module
//! `testkit` has two more: a cgroup v1 or v2 tree in memory with the kernel's own refusals, and a
//! wrapper that makes chosen operations fail. The code that runs in production is therefore the
//! code that the fault tests drive.

pub mod bandwidth;
pub mod class;
pub mod cpus;
pub mod discover;
pub mod group;
pub mod group_path;
#[cfg(debug_assertions)]
mod inject;
mod layer;
pub mod nodes;
mod programs;
mod real;
pub mod sched;
pub mod sched_attr;
pub mod subgroups;
pub mod target;
#[cfg(any(test, feature = "testkit"))]
pub mod testkit;
pub mod topology;

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use real::RealFs;

use sched_attr::{SchedWrite, TaskSched};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    Read,
    Write,
    Mkdir,
    Rmdir,
    List,
    Stat,
    Access,
    Replace,
    Append,
    Rename,
    Unlink,
    SchedGet,
    SchedSet,
    Programs,
}

impl Op {
    pub fn is_change(self) -> bool {
        matches!(
            self,
            Self::Write
                | Self::Mkdir
                | Self::Rmdir
                | Self::Replace
                | Self::Append
                | Self::Rename
                | Self::Unlink
                | Self::SchedSet
        )
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Mkdir => "mkdir",
            Op::Rmdir => "rmdir",
            Op::List => "list",
            Op::Stat => "stat",
            Op::Access => "access",
            Op::Replace => "replace",
            Op::Append => "append",
            Op::Rename => "rename",
            Op::Unlink => "unlink",
            Op::SchedGet => "sched_getattr",
            Op::SchedSet => "sched_setattr",
            Op::Programs => "BPF_PROG_QUERY",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{op}: {}: {}; {}", .path.display(), why(*.errno), remedy(*.errno))]
pub struct KfsError {
    pub op: Op,
    pub path: PathBuf,
    pub errno: i32,
}

impl KfsError {
    pub fn new(op: Op, path: impl Into<PathBuf>, errno: i32) -> Self {
        Self {
            op,
            path: path.into(),
            errno,
        }
    }

    pub fn is_gone(&self) -> bool {
        matches!(self.errno, libc::ENOENT | libc::ENODEV | libc::ESRCH)
    }

    /// The caller may not do that, or the tree may not be written at all.
    pub fn is_denied(&self) -> bool {
        matches!(self.errno, libc::EPERM | libc::EACCES | libc::EROFS)
    }
}

fn why(errno: i32) -> String {
    std::io::Error::from_raw_os_error(errno).to_string()
}

/// What a person can do about an errno, in few words; what is specific to one file is said by the
/// caller.
fn remedy(errno: i32) -> &'static str {
    match errno {
        libc::ENOENT | libc::ENODEV => "it is gone, or this kernel does not have it",
        libc::ESRCH => "the process has exited",
        libc::EPERM | libc::EACCES => "run as root, or have the group delegated",
        libc::EROFS => "mount the cgroup tree read-write",
        libc::EBUSY => "it is in use; end or move what is in it",
        libc::EINVAL => "the kernel refuses this value here",
        libc::EOPNOTSUPP => "the kernel does not allow this for a group of this type",
        libc::ENOSPC => "make room on that file system",
        libc::EXDEV | libc::ELOOP => "the path leaves its tree or goes through a symlink",
        libc::EIO => "the kernel failed inside; see dmesg",
        _ => "see dmesg and the path's permissions",
    }
}

/// Error messages quote what was found, but never pages of it.
pub fn clip(text: &str) -> String {
    text.chars().take(80).collect()
}

/// How a checked text is shown, and how serde reads and writes it: by its `parse` alone.
macro_rules! checked_text {
    ($Type:ident, $Error:ty) => {
        impl std::fmt::Display for $Type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $Type {
            type Error = $Error;
            fn try_from(text: String) -> Result<Self, Self::Error> {
                Self::parse(&text)
            }
        }

        impl From<$Type> for String {
            fn from(checked: $Type) -> Self {
                checked.0
            }
        }
    };
}
pub(crate) use checked_text;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileStat {
    pub dev: u64,
    /// The inode; for a cgroup directory, its id as BPF programs see it.
    pub ino: u64,
    pub uid: u32,
    pub is_dir: bool,
}

/// One name in a directory. Names that are not UTF-8 are left out: no group of ours has one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    pub name: String,
    pub is_dir: bool,
}

/// The machine's files as agent, guardian and repair use them: confined below the cgroup mounts
/// `roots`.
pub fn machine<P: AsRef<Path>>(roots: impl IntoIterator<Item = P>) -> KfsResult<Arc<dyn KernelFs>> {
    let confined = RealFs::with_roots(roots)?;
    #[cfg(debug_assertions)]
    if let Some(plan) = inject::FaultPlan::from_env() {
        return Ok(Arc::new(inject::FaultyFs::new(confined, plan)));
    }
    Ok(Arc::new(confined))
}

pub type KfsResult<T> = Result<T, KfsError>;

/// How errors of [`KernelFs::sched`] and [`KernelFs::set_sched`] name a task.
pub fn task_path(tid: i32) -> PathBuf {
    PathBuf::from(format!("/proc/{tid}"))
}

pub trait KernelFs: Send + Sync {
    /// Reads a whole file into `buffer`, which is cleared first and whose memory is used again: no
    /// allocation in the steady state.
    fn read_into(&self, path: &Path, buffer: &mut Vec<u8>) -> KfsResult<()>;
    /// Writes to an existing kernel file, in exactly one write(2).
    fn write(&self, path: &Path, value: &str) -> KfsResult<()>;
    fn mkdir(&self, path: &Path) -> KfsResult<()>;
    /// Removes a directory (for a cgroup: with the kernel's files in it).
    fn rmdir(&self, path: &Path) -> KfsResult<()>;
    fn list(&self, path: &Path) -> KfsResult<Vec<DirEntry>>;
    /// The names of the directories in a directory, sorted.
    fn subdirs(&self, path: &Path) -> KfsResult<Vec<String>> {
        let entries = self.list(path)?.into_iter();
        let dirs = entries.filter(|entry| entry.is_dir);
        Ok(dirs.map(|entry| entry.name).collect())
    }
    fn stat(&self, path: &Path) -> KfsResult<FileStat>;
    /// Whether the caller may write there, by asking, not by trying.
    fn access_write(&self, path: &Path) -> KfsResult<()>;
    /// Puts an ordinary file with these contents in the place of `path`, so that a reader sees the
    /// old or the new one whole. For the run directory, not for kernel files.
    fn replace(&self, path: &Path, contents: &[u8]) -> KfsResult<()>;
    /// Adds to the end of an ordinary file that is there already. A refusal may leave a part of
    /// `contents` in it.
    fn append(&self, path: &Path, contents: &[u8]) -> KfsResult<()>;
    fn rename(&self, from: &Path, to: &Path) -> KfsResult<()>;
    fn unlink(&self, path: &Path) -> KfsResult<()>;
    /// How a task is scheduled; 0 is the calling thread. No file, but a thing of the kernel's all
    /// the same: errors name [`task_path`].
    fn sched(&self, tid: i32) -> KfsResult<TaskSched>;
    fn set_sched(&self, tid: i32, write: &SchedWrite) -> KfsResult<()>;
    /// Holds a process by its number, which means no other while this is open; readable once it has
    /// exited. `None` where the kernel cannot (before 5.3).
    fn pidfd(&self, pid: i32) -> KfsResult<Option<OwnedFd>>;
    /// Whether a BPF program is attached to the group whose directory this is (an address filter, a
    /// device list).
    fn has_programs(&self, dir: &Path) -> KfsResult<bool>;

    /// Whether this is the running machine, of which what was found once holds.
    fn is_machine(&self) -> bool {
        false
    }

    /// Reads a whole file as text; bytes that are not UTF-8 become U+FFFD (and fail to parse where
    /// it matters).
    fn read(&self, path: &Path) -> KfsResult<String> {
        let mut buffer = Vec::new();
        self.read_into(path, &mut buffer)?;
        Ok(match String::from_utf8(buffer) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        })
    }

    /// Whether something is there. An error other than "not there" counts as there: the next step
    /// names it.
    fn exists(&self, path: &Path) -> bool {
        !matches!(self.stat(path), Err(error) if error.is_gone() || error.errno == libc::ENOTDIR)
    }
}
