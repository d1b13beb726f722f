//! Faults on demand: wraps any [`KernelFs`] and makes chosen operations fail, shorten, lie, or
//! vanish.
//!
//! Each operation has a number, from 1, over the life of the wrapper. A test runs its scenario once
//! to count the operations and then once for each (operation, errno).

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::layer::Layer;
use crate::{KernelFs, KfsError, KfsResult, Op};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    Errno(i32),
    /// A read that ends after so many bytes.
    Short(usize),
    Garbage(String),
    /// The thing is gone: this errno now, and from now on for everything at or beneath the path.
    Vanish(i32),
    /// The machine stops here: this and every later operation does nothing and fails with EIO.
    Halt,
    /// The caller is frozen before this operation, and goes on when another has done that.
    Meanwhile(Meanwhile),
}

/// What another program does during an operation. It must not use the file system that it is a
/// fault of.
#[derive(Clone)]
pub struct Meanwhile(pub Arc<dyn Fn() + Send + Sync>);

impl fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("meanwhile")
    }
}

impl PartialEq for Meanwhile {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Meanwhile {}

/// When a fault strikes. All conditions that are set must hold.
#[derive(Clone, Debug)]
pub struct Rule {
    pub nth: Option<u64>,
    pub op: Option<Op>,
    pub path_suffix: Option<String>,
    pub fault: Fault,
    pub times: u64,
}

impl Rule {
    /// The n-th operation fails with `errno`, once.
    pub fn nth(nth: u64, errno: i32) -> Self {
        Self {
            nth: Some(nth),
            op: None,
            path_suffix: None,
            fault: Fault::Errno(errno),
            times: 1,
        }
    }

    /// Every operation of this kind on such a path meets the fault.
    pub fn on(op: Op, path_suffix: &str, fault: Fault) -> Self {
        Self {
            nth: None,
            op: Some(op),
            path_suffix: Some(path_suffix.to_owned()),
            fault,
            times: u64::MAX,
        }
    }

    pub fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }

    fn matches(&self, nth: u64, op: Op, path: &Path) -> bool {
        self.times > 0
            && self.nth.is_none_or(|own| own == nth)
            && self.op.is_none_or(|own| own == op)
            && self
                .path_suffix
                .as_ref()
                .is_none_or(|suffix| path.to_string_lossy().ends_with(suffix.as_str()))
    }
}

#[derive(Debug, Default)]
struct State {
    count: u64,
    halted: bool,
    rules: Vec<Rule>,
    gone: Vec<(PathBuf, i32)>,
    log: Vec<(Op, PathBuf)>,
}

/// A [`KernelFs`] that fails where told.
#[derive(Debug)]
pub struct FaultFs<F> {
    inner: F,
    state: Mutex<State>,
}

enum Verdict {
    Go,
    Fail(i32),
    Short(usize),
    Garbage(String),
}

impl<F: KernelFs> FaultFs<F> {
    pub fn new(inner: F) -> Self {
        Self {
            inner,
            state: Mutex::default(),
        }
    }

    /// Adds a rule; earlier rules come first.
    pub fn add(&self, rule: Rule) {
        self.state().rules.push(rule);
    }

    /// Forgets rules, vanished paths and a halt; counting goes on.
    pub fn clear(&self) {
        let mut state = self.state();
        state.rules.clear();
        state.gone.clear();
        state.halted = false;
    }

    pub fn count(&self) -> u64 {
        self.state().count
    }

    pub fn log(&self) -> Vec<(Op, PathBuf)> {
        self.state().log.clone()
    }

    pub fn writes(&self) -> Vec<PathBuf> {
        self.log()
            .into_iter()
            .filter(|(op, _)| *op == Op::Write)
            .map(|(_, path)| path)
            .collect()
    }

    pub fn inner(&self) -> &F {
        &self.inner
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A test that panicked elsewhere leaves counters, which stay true.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn judge(&self, op: Op, path: &Path) -> Verdict {
        let mut state = self.state();
        state.count += 1;
        let nth = state.count;
        state.log.push((op, path.to_path_buf()));
        if state.halted {
            return Verdict::Fail(libc::EIO);
        }
        if let Some((_, errno)) = state.gone.iter().find(|(gone, _)| path.starts_with(gone)) {
            return Verdict::Fail(*errno);
        }
        let Some(rule) = state
            .rules
            .iter_mut()
            .find(|rule| rule.matches(nth, op, path))
        else {
            return Verdict::Go;
        };
        rule.times -= 1;
        match rule.fault.clone() {
            Fault::Errno(errno) => Verdict::Fail(errno),
            Fault::Short(bytes) => Verdict::Short(bytes),
            Fault::Garbage(text) => Verdict::Garbage(text),
            Fault::Vanish(errno) => {
                let group = if op == Op::Read || op == Op::Write {
                    path.parent()
                } else {
                    Some(path)
                };
                let group = group.unwrap_or(path).to_path_buf();
                state.gone.push((group, errno));
                Verdict::Fail(errno)
            }
            Fault::Halt => {
                state.halted = true;
                Verdict::Fail(libc::EIO)
            }
            Fault::Meanwhile(meanwhile) => {
                drop(state);
                (meanwhile.0)();
                Verdict::Go
            }
        }
    }
}

impl<F: KernelFs> Layer for FaultFs<F> {
    type Inner = F;

    fn inner(&self) -> &F {
        &self.inner
    }

    fn around<T>(&self, op: Op, path: &Path, act: impl FnOnce(&F) -> KfsResult<T>) -> KfsResult<T> {
        match self.judge(op, path) {
            Verdict::Fail(errno) => Err(KfsError::new(op, path, errno)),
            _ => act(&self.inner),
        }
    }

    fn around_read(&self, path: &Path, buffer: &mut Vec<u8>) -> KfsResult<()> {
        match self.judge(Op::Read, path) {
            Verdict::Fail(errno) => return Err(KfsError::new(Op::Read, path, errno)),
            Verdict::Garbage(text) => {
                buffer.clear();
                buffer.extend_from_slice(text.as_bytes());
            }
            Verdict::Short(bytes) => {
                self.inner.read_into(path, buffer)?;
                buffer.truncate(bytes);
            }
            Verdict::Go => self.inner.read_into(path, buffer)?,
        }
        Ok(())
    }
}
