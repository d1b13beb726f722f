//! Cgroup v1 and v2 in memory, with the kernel's own refusals, for tests.
//!
//! What it refuses and with which errno follows `kernel/sched/core.c` (`tg_set_cfs_bandwidth`,
//! `sched_group_set_idle`) and `kernel/cgroup/cgroup.c` (`cgroup_vet_subtree_control_enable`,
//! `cgroup_migrate_vet_dst`, `cgroup_enable_threaded`); `crates/engine/tests/all/fake_is_true.rs`
//! holds the same steps against the running kernel. It knows processes, not single threads' places.

mod cpu;
mod cpuset;
mod group;
mod process;
mod procfs;
mod sched;
mod tree;
mod unified;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::sched_attr::{SchedWrite, TaskSched};
use crate::{DirEntry, FileStat, KernelFs, KfsError, KfsResult, Op, task_path};
use group::Mount;
pub use process::FakeProcess;
use tree::State;

#[derive(Debug)]
pub struct FakeFs {
    state: Mutex<State>,
}

pub const SELF_PID: i32 = 100;

impl FakeFs {
    /// cpu and cpuacct mounted apart, an empty v2 beside them: as on the build machine.
    pub fn mixed() -> Self {
        Self::with_mounts(&[
            (1, "/sys/fs/cgroup/cpu", &["cpu"]),
            (1, "/sys/fs/cgroup/cpuacct", &["cpuacct"]),
            (2, "/sys/fs/cgroup/unified", &[]),
        ])
    }

    pub fn mixed_with_cpuset() -> Self {
        Self::with_mounts(&[
            (1, "/sys/fs/cgroup/cpu", &["cpu"]),
            (1, "/sys/fs/cgroup/cpuacct", &["cpuacct"]),
            (1, "/sys/fs/cgroup/cpuset", &["cpuset"]),
            (2, "/sys/fs/cgroup/unified", &[]),
        ])
    }

    /// cpu and cpuacct mounted together, as systemd does it on v1.
    pub fn v1() -> Self {
        Self::with_mounts(&[
            (1, "/sys/fs/cgroup/cpu,cpuacct", &["cpu", "cpuacct"]),
            (1, "/sys/fs/cgroup/memory", &["memory"]),
        ])
    }

    /// v2 with the usual controllers, none handed down yet.
    pub fn v2() -> Self {
        Self::with_mounts(&[(
            2,
            "/sys/fs/cgroup",
            &["cpuset", "cpu", "io", "memory", "pids"],
        )])
    }

    pub fn with_mounts(mounts: &[(u8, &str, &[&str])]) -> Self {
        let mut state = State {
            next_ino: 1,
            rt_group_sched: true,
            ..State::default()
        };
        for (version, path, controllers) in mounts {
            let controllers = controllers.iter().map(|one| (*one).to_owned()).collect();
            state.add_mount(Mount {
                path: PathBuf::from(path),
                version: *version,
                controllers,
            });
        }
        state.add_process(FakeProcess::new(1));
        state.add_process(FakeProcess::new(SELF_PID));
        for (path, text) in [
            ("/proc/sys/kernel/osrelease", "6.18.0-fake\n"),
            (
                "/proc/sys/kernel/random/boot_id",
                "00000000-0000-4000-8000-000000000001\n",
            ),
            ("/sys/devices/system/cpu/online", "0-1\n"),
        ] {
            state
                .files
                .insert(PathBuf::from(path), text.as_bytes().to_vec());
        }
        Self {
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state is consistent between operations, so a panicked test elsewhere does not matter.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets an ordinary file (of /proc, /sys or the run directory), or one of a group for which
    /// there are no rules here.
    pub fn set_file(&self, path: &str, text: &str) {
        self.state()
            .files
            .insert(PathBuf::from(path), text.as_bytes().to_vec());
    }

    pub fn add_process(&self, process: FakeProcess) {
        self.state().add_process(process);
    }

    pub fn end_process(&self, pid: i32) {
        self.state().end_process(pid);
    }

    pub fn set_read_only(&self, read_only: bool) {
        self.state().read_only = read_only;
    }

    /// This kernel has no such file in any group (`cpu.idle` before 5.15).
    pub fn hide_file(&self, name: &str) {
        self.state().hidden.insert(name.to_owned());
    }

    pub fn set_rt_group_sched(&self, on: bool) {
        self.state().rt_group_sched = on;
    }

    pub fn attach_program(&self, dir: &str) {
        if let Some(group) = self.state().groups.get_mut(Path::new(dir)) {
            group.has_program = true;
        }
    }

    /// A file's text now; panics where there is none, for tests.
    pub fn text(&self, path: &str) -> String {
        match self.read(Path::new(path)) {
            Ok(text) => text.trim().to_owned(),
            Err(error) => panic!("{error}"),
        }
    }

    fn edit<T>(
        &self,
        op: Op,
        path: &Path,
        action: impl FnOnce(&mut State) -> Result<T, i32>,
    ) -> KfsResult<T> {
        action(&mut self.state()).map_err(|errno| KfsError::new(op, path, errno))
    }
}

impl KernelFs for FakeFs {
    fn read_into(&self, path: &Path, buffer: &mut Vec<u8>) -> KfsResult<()> {
        let contents = self.edit(Op::Read, path, |state| state.read(path))?;
        buffer.clear();
        buffer.extend_from_slice(&contents);
        Ok(())
    }

    fn write(&self, path: &Path, value: &str) -> KfsResult<()> {
        self.edit(Op::Write, path, |state| state.write(path, value))
    }

    fn mkdir(&self, path: &Path) -> KfsResult<()> {
        self.edit(Op::Mkdir, path, |state| state.mkdir(path))
    }

    fn rmdir(&self, path: &Path) -> KfsResult<()> {
        self.edit(Op::Rmdir, path, |state| state.rmdir(path))
    }

    fn list(&self, path: &Path) -> KfsResult<Vec<DirEntry>> {
        self.edit(Op::List, path, |state| state.list(path))
    }

    fn stat(&self, path: &Path) -> KfsResult<FileStat> {
        self.edit(Op::Stat, path, |state| state.stat(path))
    }

    fn access_write(&self, path: &Path) -> KfsResult<()> {
        self.edit(Op::Access, path, |state| {
            state.stat(path)?;
            if state.read_only && state.mount_of(path).is_some() {
                Err(libc::EROFS)
            } else {
                Ok(())
            }
        })
    }

    fn replace(&self, path: &Path, contents: &[u8]) -> KfsResult<()> {
        self.edit(Op::Replace, path, |state| {
            state.files.insert(path.to_path_buf(), contents.to_vec());
            Ok(())
        })
    }

    fn append(&self, path: &Path, contents: &[u8]) -> KfsResult<()> {
        self.edit(Op::Append, path, |state| {
            let file = state.files.get_mut(path).ok_or(libc::ENOENT)?;
            file.extend_from_slice(contents);
            Ok(())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> KfsResult<()> {
        self.edit(Op::Rename, from, |state| {
            let contents = state.files.remove(from).ok_or(libc::ENOENT)?;
            state.files.insert(to.to_path_buf(), contents);
            Ok(())
        })
    }

    fn unlink(&self, path: &Path) -> KfsResult<()> {
        self.edit(Op::Unlink, path, |state| {
            state.files.remove(path).map(|_| ()).ok_or(libc::ENOENT)
        })
    }

    fn sched(&self, tid: i32) -> KfsResult<TaskSched> {
        let state = self.state();
        let asked = state.sched.get(&state.procs, tid);
        asked.map_err(|errno| KfsError::new(Op::SchedGet, task_path(tid), errno))
    }

    fn set_sched(&self, tid: i32, write: &SchedWrite) -> KfsResult<()> {
        let State { sched, procs, .. } = &mut *self.state();
        let asked = sched.set(procs, tid, write);
        asked.map_err(|errno| KfsError::new(Op::SchedSet, task_path(tid), errno))
    }

    /// A pipe, whose other end is closed when the process exits.
    fn pidfd(&self, pid: i32) -> KfsResult<Option<OwnedFd>> {
        self.edit(Op::Stat, &task_path(pid), |state| state.hold(pid))
            .map(Some)
    }

    fn has_programs(&self, dir: &Path) -> KfsResult<bool> {
        self.edit(Op::Programs, dir, |state| {
            let group = state.groups.get(dir).ok_or(libc::ENOENT)?;
            Ok(group.has_program)
        })
    }
}
