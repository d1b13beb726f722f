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
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::layer::Layer;
use crate::{KernelFs, KfsError, KfsResult, Op};

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

impl<F: KernelFs> Layer for FaultyFs<F> {
    type Inner = F;

    fn inner(&self) -> &F {
        &self.inner
    }

    fn around<T>(&self, op: Op, path: &Path, act: impl FnOnce(&F) -> KfsResult<T>) -> KfsResult<T> {
        if !op.is_change() {
            return act(&self.inner);
        }
        let count = CHANGES.fetch_add(1, Ordering::SeqCst) + 1;
        let due = count == self.plan.nth.max(1);
        match self.plan.what {
            What::Errno(errno) if due && self.plan.strike(op, path) => {
                return Err(KfsError::new(op, path, refusal(op, errno)));
            }
            What::Errno(_) => return act(&self.inner),
            _ => {}
        }
        if due && self.plan.nth == 0 && self.plan.strike(op, path) {
            self.plan.what.befall();
        }
        let done = act(&self.inner);
        if due && self.plan.nth > 0 && self.plan.strike(op, path) {
            self.plan.what.befall();
        }
        done
    }
}
