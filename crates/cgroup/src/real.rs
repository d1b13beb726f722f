//! The machine's own files.
//!
//! Paths beneath a registered cgroup root are resolved by openat2 with RESOLVE_BENEATH, NO_SYMLINKS
//! and NO_MAGICLINKS from a descriptor of that root: whatever a name says, it cannot leave the
//! tree, and a mount put over the root later is not followed. Where openat2 is missing (before 5.6)
//! or a seccomp filter refuses it, the same walk is done one component at a time with O_NOFOLLOW.
//! Other paths (/proc, /sys, the run directory) are opened plainly.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{Access, AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::programs;
use super::sched_attr::{self, SchedWrite, TaskSched};
use crate::{DirEntry, FileStat, KernelFs, KfsError, KfsResult, Op, task_path};

/// Files larger than this are not kernel files that we read (`cgroup.procs` of 500,000 processes is
/// 4 MB).
const READ_MAX_BYTES: usize = 16 << 20;

/// So many files of groups stay open for the next read, and at most a quarter of the descriptors
/// that the process may have. The kernel keeps a page for each.
const KEPT_OPEN_MAX: usize = 800;

#[derive(Debug, Default)]
pub struct RealFs {
    roots: Vec<(PathBuf, OwnedFd)>,
    kept_open_max: usize,
    /// Files of groups that were read. A file whose group has ended says so (`ENODEV`), also when
    /// another group has its name.
    kept_open: Mutex<HashMap<PathBuf, Arc<Mutex<OwnedFd>>>>,
}

type Opened<'a> = (BorrowedFd<'a>, PathBuf);

impl RealFs {
    /// Without cgroup roots: good for discovery, which only reads.
    pub fn new() -> Self {
        Self::default()
    }

    pub fn with_roots<P: AsRef<Path>>(roots: impl IntoIterator<Item = P>) -> KfsResult<Self> {
        let mut fs = Self::default();
        for root in roots {
            let path = root.as_ref().to_path_buf();
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let fd = rustix::fs::open(&path, flags, Mode::empty())
                .map_err(|errno| KfsError::new(Op::Stat, &path, errno.raw_os_error()))?;
            fs.roots.push((path, fd));
        }
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        fs.kept_open_max =
            descriptors.map_or(KEPT_OPEN_MAX, |most| KEPT_OPEN_MAX.min(most as usize / 4));
        // The longest root wins where one lies inside another (v2 at /sys/fs/cgroup/unified).
        fs.roots
            .sort_by_key(|(path, _)| std::cmp::Reverse(path.as_os_str().len()));
        Ok(fs)
    }

    fn rooted<'a>(&'a self, path: &Path) -> Option<Opened<'a>> {
        self.roots.iter().find_map(|(root, fd)| {
            path.strip_prefix(root)
                .ok()
                .map(|rel| (fd.as_fd(), rel.to_path_buf()))
        })
    }

    fn open(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC;
        match self.rooted(path) {
            Some((root, rel)) => open_beneath(root, &rel, flags),
            None => rustix::fs::open(path, flags, Mode::empty()),
        }
    }

    /// Reads a file of a group that may be read again soon: from the same open file, a read costs a
    /// sixth.
    fn read_kept_open(&self, path: &Path, buffer: &mut Vec<u8>) -> Result<(), Errno> {
        let kept = || {
            self.kept_open
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        let open = kept().get(path).map(Arc::clone);
        if let Some(file) = open {
            // The kernel keeps the text for the file, and two readers would mix theirs.
            let fd = file.lock().unwrap_or_else(PoisonError::into_inner);
            match read_all(fd.as_fd(), buffer) {
                Err(Errno::NODEV) => drop(kept().remove(path)),
                result => return result,
            }
        }
        let fd = match self.open(path, OFlags::RDONLY) {
            Err(Errno::MFILE | Errno::NFILE) => {
                drop(std::mem::take(&mut *kept()));
                self.open(path, OFlags::RDONLY)?
            }
            result => result?,
        };
        read_all(fd.as_fd(), buffer)?;
        let mut kept = kept();
        let mut all = HashMap::new();
        if kept.len() >= self.kept_open_max {
            std::mem::swap(&mut *kept, &mut all);
        }
        kept.insert(path.to_path_buf(), Arc::new(Mutex::new(fd)));
        // The files are closed without the lock.
        drop(kept);
        drop(all);
        Ok(())
    }

    fn parent<'p>(&self, path: &'p Path) -> Result<(OwnedFd, &'p std::ffi::OsStr), Errno> {
        let name = match path.components().next_back() {
            Some(Component::Normal(name)) => name,
            _ => return Err(Errno::INVAL),
        };
        let parent = path.parent().ok_or(Errno::INVAL)?;
        Ok((self.open(parent, OFlags::PATH | OFlags::DIRECTORY)?, name))
    }
}

fn open_beneath(root: BorrowedFd<'_>, rel: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let rel = if rel.as_os_str().is_empty() {
        Path::new(".")
    } else {
        rel
    };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(root, rel, flags, Mode::empty(), resolve) {
        // EPERM is also what a seccomp filter answers; on cgroupfs open(2) itself never does, so
        // the walk gives the truth.
        Err(Errno::NOSYS | Errno::PERM) => walk_beneath(root, rel, flags),
        result => result,
    }
}

/// The fallback: no component may be a symlink or "..".
fn walk_beneath(root: BorrowedFd<'_>, rel: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut names = Vec::new();
    for component in rel.components() {
        match component {
            Component::Normal(name) => names.push(name),
            Component::CurDir => {}
            _ => return Err(Errno::XDEV),
        }
    }
    let Some((last, dirs)) = names.split_last() else {
        return rustix::fs::openat(root, ".", flags | OFlags::NOFOLLOW, Mode::empty());
    };
    let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at: Option<OwnedFd> = None;
    for dir in dirs {
        let here = at.as_ref().map_or(root, |fd| fd.as_fd());
        at = Some(rustix::fs::openat(here, *dir, step, Mode::empty())?);
    }
    let here = at.as_ref().map_or(root, |fd| fd.as_fd());
    rustix::fs::openat(here, *last, flags | OFlags::NOFOLLOW, Mode::empty())
}

fn read_all(fd: BorrowedFd<'_>, buffer: &mut Vec<u8>) -> Result<(), Errno> {
    buffer.clear();
    let mut filled = 0;
    loop {
        if buffer.len() - filled < 512 {
            if buffer.len() >= READ_MAX_BYTES {
                return Err(Errno::FBIG);
            }
            buffer.resize((buffer.len() * 2).max(4096), 0);
        }
        match rustix::io::pread(fd, &mut buffer[filled..], filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    buffer.truncate(filled);
    Ok(())
}

/// To a file that stays open, v1 repeats the list of tasks of up to a second ago.
fn is_task_list(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    matches!(name, Some("tasks" | "cgroup.procs" | "cgroup.threads"))
}

fn write_once(fd: BorrowedFd<'_>, value: &str) -> Result<(), Errno> {
    loop {
        match rustix::io::write(fd, value.as_bytes()) {
            Ok(count) if count == value.len() => return Ok(()),
            // The rest in a second write would be a second command to the kernel.
            Ok(_) => return Err(Errno::IO),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

fn list_dir(fd: OwnedFd) -> Result<Vec<DirEntry>, Errno> {
    let mut entries = Vec::new();
    for entry in rustix::fs::Dir::new(fd)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else {
            continue;
        };
        if name != "." && name != ".." {
            let is_dir = entry.file_type() == rustix::fs::FileType::Directory;
            entries.push(DirEntry {
                name: name.to_owned(),
                is_dir,
            });
        }
    }
    entries.sort();
    Ok(entries)
}

/// Temporary names must differ between processes and between threads.
fn temporary(path: &Path) -> Option<PathBuf> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name()?.to_str()?;
    let unique = COUNTER.fetch_add(1, Ordering::Relaxed);
    Some(path.with_file_name(format!(".{name}.{}-{unique}", std::process::id())))
}

fn replace_file(path: &Path, contents: &[u8]) -> Result<(), Errno> {
    let temporary = temporary(path).ok_or(Errno::INVAL)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let fd = rustix::fs::open(&temporary, flags, Mode::from_raw_mode(0o600))?;
    let written =
        write_all(fd.as_fd(), contents).and_then(|()| rustix::fs::rename(&temporary, path));
    if written.is_err() {
        // The old file still stands; only the half-made new one goes.
        let _ = rustix::fs::unlink(&temporary);
    }
    written
}

fn write_all(fd: BorrowedFd<'_>, mut contents: &[u8]) -> Result<(), Errno> {
    while !contents.is_empty() {
        match rustix::io::write(fd, contents) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => contents = &contents[count..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

impl KernelFs for RealFs {
    fn is_machine(&self) -> bool {
        true
    }

    fn read_into(&self, path: &Path, buffer: &mut Vec<u8>) -> KfsResult<()> {
        let read = match self.rooted(path) {
            Some(_) if !is_task_list(path) => self.read_kept_open(path, buffer),
            _ => self
                .open(path, OFlags::RDONLY)
                .and_then(|fd| read_all(fd.as_fd(), buffer)),
        };
        read.map_err(|errno| KfsError::new(Op::Read, path, errno.raw_os_error()))
    }

    fn write(&self, path: &Path, value: &str) -> KfsResult<()> {
        // No O_CREAT and no O_TRUNC: a group that is gone must say ENOENT, not grow a file.
        self.open(path, OFlags::WRONLY)
            .and_then(|fd| write_once(fd.as_fd(), value))
            .map_err(|errno| KfsError::new(Op::Write, path, errno.raw_os_error()))
    }

    fn mkdir(&self, path: &Path) -> KfsResult<()> {
        self.parent(path)
            .and_then(|(dir, name)| rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(0o755)))
            .map_err(|errno| KfsError::new(Op::Mkdir, path, errno.raw_os_error()))
    }

    fn rmdir(&self, path: &Path) -> KfsResult<()> {
        self.parent(path)
            .and_then(|(dir, name)| rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR))
            .map_err(|errno| KfsError::new(Op::Rmdir, path, errno.raw_os_error()))
    }

    fn list(&self, path: &Path) -> KfsResult<Vec<DirEntry>> {
        self.open(path, OFlags::RDONLY | OFlags::DIRECTORY)
            .and_then(list_dir)
            .map_err(|errno| KfsError::new(Op::List, path, errno.raw_os_error()))
    }

    fn subdirs(&self, path: &Path) -> KfsResult<Vec<String>> {
        // A directory has two links, by its name and by its own ".", and one by the ".." of each
        // directory in it. Most groups have none, and dozens of files that need not be listed to
        // tell so.
        let is_leaf = |fd: &OwnedFd| Ok(rustix::fs::fstat(fd)?.st_nlink == 2);
        let names = |fd: OwnedFd| match is_leaf(&fd)? {
            true => Ok(Vec::new()),
            false => list_dir(fd),
        };
        let entries = self
            .open(path, OFlags::RDONLY | OFlags::DIRECTORY)
            .and_then(names)
            .map_err(|errno| KfsError::new(Op::List, path, errno.raw_os_error()))?;
        let dirs = entries.into_iter().filter(|entry| entry.is_dir);
        Ok(dirs.map(|entry| entry.name).collect())
    }

    fn stat(&self, path: &Path) -> KfsResult<FileStat> {
        let stat = self
            .open(path, OFlags::PATH)
            .and_then(rustix::fs::fstat)
            .map_err(|errno| KfsError::new(Op::Stat, path, errno.raw_os_error()))?;
        let is_dir =
            rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Directory;
        // The types of these fields differ between architectures.
        #[allow(clippy::unnecessary_cast)]
        Ok(FileStat {
            dev: stat.st_dev as u64,
            ino: stat.st_ino as u64,
            uid: stat.st_uid,
            is_dir,
        })
    }

    fn access_write(&self, path: &Path) -> KfsResult<()> {
        let asked = match self.parent(path) {
            Ok((dir, name)) => rustix::fs::accessat(dir, name, Access::WRITE_OK, AtFlags::EACCESS),
            Err(errno) => Err(errno),
        };
        asked.map_err(|errno| KfsError::new(Op::Access, path, errno.raw_os_error()))
    }

    fn replace(&self, path: &Path, contents: &[u8]) -> KfsResult<()> {
        replace_file(path, contents)
            .map_err(|errno| KfsError::new(Op::Replace, path, errno.raw_os_error()))
    }

    fn append(&self, path: &Path, contents: &[u8]) -> KfsResult<()> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::open(path, flags, Mode::empty())
            .and_then(|fd| write_all(fd.as_fd(), contents))
            .map_err(|errno| KfsError::new(Op::Append, path, errno.raw_os_error()))
    }

    fn rename(&self, from: &Path, to: &Path) -> KfsResult<()> {
        rustix::fs::rename(from, to)
            .map_err(|errno| KfsError::new(Op::Rename, from, errno.raw_os_error()))
    }

    fn unlink(&self, path: &Path) -> KfsResult<()> {
        rustix::fs::unlink(path)
            .map_err(|errno| KfsError::new(Op::Unlink, path, errno.raw_os_error()))
    }

    fn sched(&self, tid: i32) -> KfsResult<TaskSched> {
        sched_attr::get(tid).map_err(|errno| KfsError::new(Op::SchedGet, task_path(tid), errno))
    }

    fn set_sched(&self, tid: i32, write: &SchedWrite) -> KfsResult<()> {
        sched_attr::set(tid, write)
            .map_err(|errno| KfsError::new(Op::SchedSet, task_path(tid), errno))
    }

    fn pidfd(&self, pid: i32) -> KfsResult<Option<OwnedFd>> {
        // Of a negative number `Pid` makes a panic.
        let positive = Some(pid).filter(|pid| *pid > 0);
        let held = positive
            .and_then(rustix::process::Pid::from_raw)
            .ok_or(Errno::SRCH)
            .and_then(|pid| rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()));
        match held {
            Ok(fd) => Ok(Some(fd)),
            // A seccomp filter answers EPERM.
            Err(Errno::NOSYS | Errno::PERM) => Ok(None),
            Err(errno) => Err(KfsError::new(
                Op::Stat,
                task_path(pid),
                errno.raw_os_error(),
            )),
        }
    }

    fn has_programs(&self, dir: &Path) -> KfsResult<bool> {
        self.open(dir, OFlags::RDONLY | OFlags::DIRECTORY)
            .map_err(|errno| errno.raw_os_error())
            .and_then(|group| programs::any_attached(group.as_fd()))
            .map_err(|errno| KfsError::new(Op::Programs, dir, errno))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_beneath_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir_all(root.join("a")).unwrap();
        std::fs::write(dir.path().join("secret"), "x").unwrap();
        std::os::unix::fs::symlink("../secret", root.join("link")).unwrap();
        std::os::unix::fs::symlink("..", root.join("up")).unwrap();
        let fs = RealFs::with_roots([&root]).unwrap();
        for path in ["link", "up/secret", "../secret", "a/../../secret"] {
            let error = fs.read(&root.join(path)).unwrap_err();
            assert!(
                matches!(error.errno, libc::EXDEV | libc::ELOOP),
                "{path}: {error}"
            );
            assert!(fs.write(&root.join(path), "y").is_err(), "{path}");
        }
        assert!(fs.mkdir(&root.join("up/b")).is_err());
        assert!(fs.mkdir(&root.join("a/..")).is_err());
        fs.mkdir(&root.join("a/b")).unwrap();
        fs.rmdir(&root.join("a/b")).unwrap();
        let root_fd = rustix::fs::open(&root, OFlags::PATH, Mode::empty()).unwrap();
        for path in ["link", "up/secret", "../secret", "a/../../secret"] {
            let walked = walk_beneath(root_fd.as_fd(), Path::new(path), OFlags::RDONLY);
            assert!(walked.is_err(), "{path}");
        }
        assert!(walk_beneath(root_fd.as_fd(), Path::new("a"), OFlags::PATH).is_ok());
    }

    #[test]
    fn a_write_neither_creates_nor_truncates() {
        let dir = tempfile::tempdir().unwrap();
        let fs = RealFs::new();
        let file = dir.path().join("f");
        assert_eq!(fs.write(&file, "1").unwrap_err().errno, libc::ENOENT);
        fs.replace(&file, b"12345").unwrap();
        fs.write(&file, "99").unwrap();
        assert_eq!(fs.read(&file).unwrap(), "99345");
        assert_eq!(
            fs.list(dir.path()).unwrap().len(),
            1,
            "no temporary file stays"
        );
    }

    #[test]
    fn the_directories_in_a_directory_are_told_with_and_without_a_list() {
        let dir = tempfile::tempdir().unwrap();
        let fs = RealFs::new();
        std::fs::write(dir.path().join("file"), "x").unwrap();
        assert!(fs.subdirs(dir.path()).unwrap().is_empty());
        for name in ["b", "a"] {
            fs.mkdir(&dir.path().join(name)).unwrap();
        }
        assert_eq!(fs.subdirs(dir.path()).unwrap(), ["a", "b"]);
        let gone = fs.subdirs(&dir.path().join("gone")).unwrap_err();
        assert!(gone.is_gone(), "{gone}");
    }

    #[test]
    fn reads_long_files_whole() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        let text = "0123456789".repeat(10_000);
        std::fs::write(&file, &text).unwrap();
        assert_eq!(RealFs::new().read(&file).unwrap(), text);
    }
}
