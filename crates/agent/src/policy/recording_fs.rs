//! The machine's files, read as they are and written in memory alone: what a change would write.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tidegate_api::KernelWriteView;
use tidegate_cgroup::sched_attr::{SchedWrite, TaskSched};
use tidegate_cgroup::{DirEntry, FileStat, KernelFs, KfsError, KfsResult, Op};
use tidegate_engine::sync::lock;

/// What a group's files hold once the controller is enabled in the group above.
const FRESH: [(&str, &str); 4] = [
    ("cpu.max", "max 100000"),
    ("cpu.max.burst", "0"),
    ("cpu.weight", "100"),
    ("cpu.idle", "0"),
];

/// A task that is written to one of these joins those that are there.
const LISTS: [&str; 3] = ["cgroup.procs", "cgroup.threads", "tasks"];

/// Reads go to the machine unless the file was written here; ordinary files below `own` are written
/// as ever.
pub(super) struct RecordingFs {
    machine: Arc<dyn KernelFs>,
    own: PathBuf,
    written: Mutex<Written>,
}

#[derive(Default)]
struct Written {
    now: BTreeMap<PathBuf, String>,
    order: Vec<PathBuf>,
}

impl RecordingFs {
    pub fn new(machine: Arc<dyn KernelFs>, own: &Path) -> Self {
        Self {
            machine,
            own: own.to_owned(),
            written: Mutex::default(),
        }
    }

    /// What was written so far, each file once, and forgets it as news: what stands goes on to
    /// stand.
    pub fn take(&self) -> Vec<KernelWriteView> {
        let mut written = lock(&self.written);
        let order = std::mem::take(&mut written.order);
        let mut seen = std::collections::BTreeSet::new();
        let once = order.into_iter().filter(|path| seen.insert(path.clone()));
        let view = |path: PathBuf| {
            let lists_tasks = LISTS.iter().any(|name| path.ends_with(name));
            let from = match lists_tasks {
                true => None,
                false => self.machine.read(&path).ok(),
            };
            let to = written.now[&path].trim().to_owned();
            KernelWriteView {
                path: path.display().to_string(),
                from: from.map(|text| text.trim().to_owned()),
                to,
            }
        };
        let differs = |view: &KernelWriteView| view.from.as_ref() != Some(&view.to);
        once.map(view).filter(differs).collect()
    }

    fn refuse(op: Op, path: &Path) -> KfsError {
        KfsError::new(op, path, libc::EROFS)
    }

    /// The machine, for a file of the agent's own.
    fn of_own(&self, op: Op, path: &Path) -> KfsResult<&dyn KernelFs> {
        match path.starts_with(&self.own) {
            true => Ok(&*self.machine),
            false => Err(Self::refuse(op, path)),
        }
    }

    /// What a file that is not there yet would hold.
    fn fresh(&self, path: &Path) -> Option<String> {
        let name = path.file_name()?.to_str()?;
        let (_, text) = FRESH.iter().find(|(known, _)| *known == name)?;
        let above = path.parent()?.parent()?.join("cgroup.subtree_control");
        let enabled = lock(&self.written).now.get(&above)?.contains("cpu");
        enabled.then(|| (*text).to_owned())
    }
}

impl KernelFs for RecordingFs {
    fn read_into(&self, path: &Path, buffer: &mut Vec<u8>) -> KfsResult<()> {
        let written = lock(&self.written).now.get(path).cloned();
        let text = match written {
            Some(text) => text,
            None => match self.machine.read_into(path, buffer) {
                Err(error) if error.is_gone() => self.fresh(path).ok_or(error)?,
                other => return other,
            },
        };
        buffer.clear();
        buffer.extend(text.as_bytes());
        Ok(())
    }

    fn write(&self, path: &Path, value: &str) -> KfsResult<()> {
        let is_switch = path.ends_with("cgroup.subtree_control");
        let text = match value.trim().strip_prefix('+').filter(|_| is_switch) {
            Some(controller) => {
                let before = self.read(path)?;
                format!("{} {controller}", before.trim()).trim().to_owned()
            }
            None => value.trim().to_owned(),
        };
        let mut written = lock(&self.written);
        written.order.push(path.to_owned());
        written.now.insert(path.to_owned(), text + "\n");
        Ok(())
    }

    fn mkdir(&self, path: &Path) -> KfsResult<()> {
        Err(Self::refuse(Op::Mkdir, path))
    }

    fn rmdir(&self, path: &Path) -> KfsResult<()> {
        Err(Self::refuse(Op::Rmdir, path))
    }

    fn list(&self, path: &Path) -> KfsResult<Vec<DirEntry>> {
        self.machine.list(path)
    }

    fn subdirs(&self, path: &Path) -> KfsResult<Vec<String>> {
        self.machine.subdirs(path)
    }

    fn stat(&self, path: &Path) -> KfsResult<FileStat> {
        match self.machine.stat(path) {
            Err(error) if error.is_gone() && self.fresh(path).is_some() => {
                self.machine.stat(path.parent().unwrap_or(path))
            }
            other => other,
        }
    }

    fn access_write(&self, path: &Path) -> KfsResult<()> {
        match self.machine.access_write(path) {
            Err(error) if error.is_gone() && self.fresh(path).is_some() => Ok(()),
            other => other,
        }
    }

    fn replace(&self, path: &Path, contents: &[u8]) -> KfsResult<()> {
        self.of_own(Op::Replace, path)?.replace(path, contents)
    }

    fn append(&self, path: &Path, contents: &[u8]) -> KfsResult<()> {
        self.of_own(Op::Append, path)?.append(path, contents)
    }

    fn rename(&self, from: &Path, to: &Path) -> KfsResult<()> {
        self.of_own(Op::Rename, to)?;
        self.of_own(Op::Rename, from)?.rename(from, to)
    }

    fn unlink(&self, path: &Path) -> KfsResult<()> {
        self.of_own(Op::Unlink, path)?.unlink(path)
    }

    fn sched(&self, tid: i32) -> KfsResult<TaskSched> {
        self.machine.sched(tid)
    }

    fn set_sched(&self, _: i32, _: &SchedWrite) -> KfsResult<()> {
        Ok(())
    }

    fn pidfd(&self, pid: i32) -> KfsResult<Option<OwnedFd>> {
        self.machine.pidfd(pid)
    }

    fn has_programs(&self, dir: &Path) -> KfsResult<bool> {
        self.machine.has_programs(dir)
    }
}
