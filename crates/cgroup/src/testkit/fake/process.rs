//! The fake's processes: what a test says of one, and where its threads are.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FakeProcess {
    pub pid: i32,
    pub start_ticks: u64,
    pub uid: u32,
    pub comm: String,
    /// Threads besides the first: number and whether it is real-time.
    pub threads: Vec<(i32, bool)>,
    pub real_time: bool,
    pub kernel_thread: bool,
}

impl FakeProcess {
    pub fn new(pid: i32) -> Self {
        Self {
            pid,
            start_ticks: 1_000 + pid.unsigned_abs() as u64,
            uid: 0,
            comm: "work".to_owned(),
            threads: Vec::new(),
            real_time: false,
            kernel_thread: false,
        }
    }
}

#[derive(Debug)]
pub(super) struct Process {
    pub facts: FakeProcess,
    /// Its group's directory in each mount, by the mount's number.
    pub at: Vec<PathBuf>,
    /// Ends of pipes, which go with it.
    pub held: Vec<OwnedFd>,
    /// Threads that were moved alone, and where they are in each mount.
    pub apart: BTreeMap<i32, Vec<PathBuf>>,
}

impl Process {
    pub fn tids(&self) -> impl Iterator<Item = i32> {
        let others = self.facts.threads.iter().map(|(tid, _)| *tid);
        std::iter::once(self.facts.pid).chain(others)
    }

    /// Of one of its threads, by policy; `None` if it is another process'.
    pub fn is_real_time(&self, tid: i32) -> Option<bool> {
        let facts = &self.facts;
        let mut threads = facts.threads.iter();
        match threads.find(|(own, _)| *own == tid) {
            Some((_, real_time)) => Some(*real_time),
            None => (facts.pid == tid).then_some(facts.real_time),
        }
    }

    pub fn place(&self, tid: i32, mount: usize) -> &Path {
        &self.apart.get(&tid).unwrap_or(&self.at)[mount]
    }

    pub fn is_in(&self, mount: usize, dir: &Path) -> bool {
        self.tids().any(|tid| self.place(tid, mount) == dir)
    }
}
