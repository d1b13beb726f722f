//! One fault in a real process, for tests of the failure contract: an agent, a guardian or a repair
//! dies, stops or is refused at its n-th change of a file. Only a build with debug assertions has
//! this; a release build does not know the variable.
//!
//! `TIDEGATE_FAULT=WHO:NTH:WHAT:MARK`
//!
//! | part | says |
//! |---|---|
//! | WHO | the subcommand that it strikes: `agent`, `guardian` or `repair` |
//! | NTH | how many changes are made first: writes, directories made and removed, files replaced, added to, renamed and removed |
//! | WHAT | after the n-th: `kill` (SIGKILL), `stop` (SIGSTOP) or `panic`; or an errno, with which the n-th fails |
//! | MARK | a file that is made when it strikes, with the process and the operation in it; while it exists, nothing strikes |
//!
//! Who comes after the dead one inherits the variable and finds the mark, so one fault is one
//! fault.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sched_attr::{SchedWrite, TaskSched};
use crate::{DirEntry, FileStat, KernelFs, KfsError, KfsResult, Op, task_path};

const VARIABLE: &str = "TIDEGATE_FAULT";

/// Changes that this process has made, over all its views of the machine: a guardian opens one for
/// each fallback.
static CHANGES: AtomicU64 = AtomicU64::new(0);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Signal(i32),
    Panic,
    Errno(i32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultPlan {
    nth: u64,
    what: What,
    mark: PathBuf,
}

impl FaultPlan {
    /// As the environment has it, when it is about the subcommand that runs.
    pub fn from_env() -> Option<Self> {
        let text = std::env::var(VARIABLE).ok()?;
        let mut words = std::env::args().skip(1);
        let subcommand = match (words.next()?, words.next()) {
            // `agent run` is the agent; `agent repair` is another process.
            (word, Some(within)) if word == "agent" && within != "run" => within,
            (word, _) => word,
        };
        Self::parse(&text, &subcommand)
    }

    fn parse(text: &str, subcommand: &str) -> Option<Self> {
        let mut parts = text.splitn(4, ':');
        if parts.next()? != subcommand {
            return None;
        }
        let nth = parts.next()?.parse().ok()?;
        let what = match parts.next()? {
            "kill" => What::Signal(libc::SIGKILL),
            "stop" => What::Signal(libc::SIGSTOP),
            "panic" => What::Panic,
            errno => What::Errno(errno.parse().ok()?),
        };
        let mark = PathBuf::from(parts.next()?);
        Some(Self { nth, what, mark })
    }

    /// Leaves the mark; false where there is one already.
    fn strike(&self, op: Op, path: &Path) -> bool {
        let made = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&self.mark);
        made.is_ok_and(|mut file| {
            let pid = std::process::id();
            writeln!(file, "{pid} {op} {}", path.display()).is_ok()
        })
    }
}

#[derive(Debug)]
pub struct FaultyFs<F> {
    inner: F,
    plan: FaultPlan,
}

impl<F: KernelFs> FaultyFs<F> {
    pub fn new(inner: F, plan: FaultPlan) -> Self {
        Self { inner, plan }
    }

    fn change(
        &self,
        op: Op,
        path: &Path,
        change: impl FnOnce(&F) -> KfsResult<()>,
    ) -> KfsResult<()> {
        let count = CHANGES.fetch_add(1, Ordering::SeqCst) + 1;
        let due = count == self.plan.nth.max(1);
        match self.plan.what {
            What::Errno(errno) if due && self.plan.strike(op, path) => {
                return Err(KfsError::new(op, path, refusal(op, errno)));
            }
            What::Errno(_) => return change(&self.inner),
            _ => {}
        }
        if due && self.plan.nth == 0 && self.plan.strike(op, path) {
            self.plan.what.befall();
        }
        let done = change(&self.inner);
        if due && self.plan.nth > 0 && self.plan.strike(op, path) {
            self.plan.what.befall();
        }
        done
    }
}

impl What {
    fn befall(self) {
        match self {
            What::Signal(signal) => raise(signal),
            What::Panic => panic!("a fault was asked for ({VARIABLE})"),
            What::Errno(_) => {}
        }
    }
}

/// For a removal "gone" is no refusal but an answer, and would be a lie here.
fn refusal(op: Op, errno: i32) -> i32 {
    let takes_away = matches!(op, Op::Rmdir | Op::Unlink | Op::SchedSet);
    match errno {
        libc::ENOENT | libc::ENODEV if takes_away => libc::EBUSY,
        errno => errno,
    }
}

fn raise(signal: i32) {
    // SAFETY: no memory is involved; the signal is one that stops or ends this very process.
    unsafe {
        libc::kill(libc::getpid(), signal);
    }
    // Another thread may be the one that takes it: this one makes no further change.
    if signal == libc::SIGKILL {
        loop {
            std::thread::yield_now();
        }
    }
}

impl<F: KernelFs> KernelFs for FaultyFs<F> {
    fn read_into(&self, path: &Path, buffer: &mut Vec<u8>) -> KfsResult<()> {
        self.inner.read_into(path, buffer)
    }
    fn write(&self, path: &Path, value: &str) -> KfsResult<()> {
        self.change(Op::Write, path, |fs| fs.write(path, value))
    }
    fn mkdir(&self, path: &Path) -> KfsResult<()> {
        self.change(Op::Mkdir, path, |fs| fs.mkdir(path))
    }
    fn rmdir(&self, path: &Path) -> KfsResult<()> {
        self.change(Op::Rmdir, path, |fs| fs.rmdir(path))
    }
    fn list(&self, path: &Path) -> KfsResult<Vec<DirEntry>> {
        self.inner.list(path)
    }
    fn stat(&self, path: &Path) -> KfsResult<FileStat> {
        self.inner.stat(path)
    }
    fn access_write(&self, path: &Path) -> KfsResult<()> {
        self.inner.access_write(path)
    }
    fn replace(&self, path: &Path, contents: &[u8]) -> KfsResult<()> {
        self.change(Op::Replace, path, |fs| fs.replace(path, contents))
    }
    fn append(&self, path: &Path, contents: &[u8]) -> KfsResult<()> {
        self.change(Op::Append, path, |fs| fs.append(path, contents))
    }
    fn rename(&self, from: &Path, to: &Path) -> KfsResult<()> {
        self.change(Op::Rename, from, |fs| fs.rename(from, to))
    }
    fn unlink(&self, path: &Path) -> KfsResult<()> {
        self.change(Op::Unlink, path, |fs| fs.unlink(path))
    }
    fn sched(&self, tid: i32) -> KfsResult<TaskSched> {
        self.inner.sched(tid)
    }
    fn set_sched(&self, tid: i32, write: &SchedWrite) -> KfsResult<()> {
        let path = task_path(tid);
        self.change(Op::SchedSet, &path, |fs| fs.set_sched(tid, write))
    }
    fn pidfd(&self, pid: i32) -> KfsResult<Option<OwnedFd>> {
        self.inner.pidfd(pid)
    }
    fn has_programs(&self, dir: &Path) -> KfsResult<bool> {
        self.inner.has_programs(dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_for_one_subcommand() {
        let plan = FaultPlan::parse("agent:12:kill:/run/x:y/mark", "agent").unwrap();
        assert_eq!((plan.nth, plan.what), (12, What::Signal(libc::SIGKILL)));
        assert_eq!(plan.mark, Path::new("/run/x:y/mark"));
        let refused = FaultPlan::parse("repair:0:28:/m", "repair").unwrap();
        assert_eq!(refused.what, What::Errno(libc::ENOSPC));
        let panics = FaultPlan::parse("repair:0:panic:/m", "repair").unwrap();
        assert_eq!(panics.what, What::Panic);
        for (text, word) in [
            ("agent:12:kill:/m", "guardian"),
            ("agent:12:kill", "agent"),
            ("agent:x:kill:/m", "agent"),
            ("agent:1:eat:/m", "agent"),
            ("", "agent"),
        ] {
            assert_eq!(FaultPlan::parse(text, word), None, "{text}");
        }
    }

    #[test]
    fn one_plan_strikes_once() {
        let dir = tempfile::tempdir().unwrap();
        let plan = FaultPlan {
            nth: 1,
            what: What::Errno(libc::EIO),
            mark: dir.path().join("mark"),
        };
        let path = Path::new("/sys/x");
        assert!(plan.strike(Op::Write, path));
        assert!(!plan.strike(Op::Write, path), "the mark stands");
        let said = std::fs::read_to_string(&plan.mark).unwrap();
        assert!(said.ends_with(" write /sys/x\n"), "{said}");
    }
}
