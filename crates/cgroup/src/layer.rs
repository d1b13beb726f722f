//! File systems that do what another does, with something around each operation.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use crate::sched_attr::{SchedWrite, TaskSched};
use crate::{DirEntry, FileStat, KernelFs, KfsResult, Op, task_path};

/// A [`KernelFs`] over another.
pub trait Layer: Send + Sync {
    type Inner: KernelFs + ?Sized;

    fn inner(&self) -> &Self::Inner;

    /// Does `act`, or what comes in its place.
    fn around<T>(
        &self,
        op: Op,
        path: &Path,
        act: impl FnOnce(&Self::Inner) -> KfsResult<T>,
    ) -> KfsResult<T>;

    /// The same of a read, which may also end with something else in `buffer`.
    fn around_read(&self, path: &Path, buffer: &mut Vec<u8>) -> KfsResult<()> {
        self.around(Op::Read, path, |fs| fs.read_into(path, buffer))
    }
}

impl<L: Layer> KernelFs for L {
    fn read_into(&self, path: &Path, buffer: &mut Vec<u8>) -> KfsResult<()> {
        self.around_read(path, buffer)
    }
    fn write(&self, path: &Path, value: &str) -> KfsResult<()> {
        self.around(Op::Write, path, |fs| fs.write(path, value))
    }
    fn mkdir(&self, path: &Path) -> KfsResult<()> {
        self.around(Op::Mkdir, path, |fs| fs.mkdir(path))
    }
    fn rmdir(&self, path: &Path) -> KfsResult<()> {
        self.around(Op::Rmdir, path, |fs| fs.rmdir(path))
    }
    fn list(&self, path: &Path) -> KfsResult<Vec<DirEntry>> {
        self.around(Op::List, path, |fs| fs.list(path))
    }
    fn subdirs(&self, path: &Path) -> KfsResult<Vec<String>> {
        self.around(Op::List, path, |fs| fs.subdirs(path))
    }
    fn stat(&self, path: &Path) -> KfsResult<FileStat> {
        self.around(Op::Stat, path, |fs| fs.stat(path))
    }
    fn access_write(&self, path: &Path) -> KfsResult<()> {
        self.around(Op::Access, path, |fs| fs.access_write(path))
    }
    fn replace(&self, path: &Path, contents: &[u8]) -> KfsResult<()> {
        self.around(Op::Replace, path, |fs| fs.replace(path, contents))
    }
    fn append(&self, path: &Path, contents: &[u8]) -> KfsResult<()> {
        self.around(Op::Append, path, |fs| fs.append(path, contents))
    }
    fn rename(&self, from: &Path, to: &Path) -> KfsResult<()> {
        self.around(Op::Rename, from, |fs| fs.rename(from, to))
    }
    fn unlink(&self, path: &Path) -> KfsResult<()> {
        self.around(Op::Unlink, path, |fs| fs.unlink(path))
    }
    fn sched(&self, tid: i32) -> KfsResult<TaskSched> {
        self.around(Op::SchedGet, &task_path(tid), |fs| fs.sched(tid))
    }
    fn set_sched(&self, tid: i32, write: &SchedWrite) -> KfsResult<()> {
        self.around(Op::SchedSet, &task_path(tid), |fs| fs.set_sched(tid, write))
    }
    fn pidfd(&self, pid: i32) -> KfsResult<Option<OwnedFd>> {
        self.around(Op::Stat, &task_path(pid), |fs| fs.pidfd(pid))
    }
    fn has_programs(&self, dir: &Path) -> KfsResult<bool> {
        self.around(Op::Programs, dir, |fs| fs.has_programs(dir))
    }
    fn is_machine(&self) -> bool {
        self.inner().is_machine()
    }
}

impl<T: KernelFs + ?Sized> Layer for Arc<T> {
    type Inner = T;

    fn inner(&self) -> &T {
        self
    }

    fn around<R>(&self, _: Op, _: &Path, act: impl FnOnce(&T) -> KfsResult<R>) -> KfsResult<R> {
        act(self)
    }
}
