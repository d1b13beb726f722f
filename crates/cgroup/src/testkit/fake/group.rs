//! A cgroup mount of the fake and a group's values.

use std::collections::BTreeSet;
use std::path::PathBuf;

#[derive(Debug)]
pub(super) struct Mount {
    pub path: PathBuf,
    pub version: u8,
    pub controllers: Vec<String>,
}

impl Mount {
    pub fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|one| one == controller)
    }
}

#[derive(Debug, Default)]
pub(super) struct Group {
    pub ino: u64,
    pub quota_us: Option<u64>,
    pub period_us: u64,
    pub burst_us: u64,
    pub idle: bool,
    /// v1's shares; v2's weight is kept apart, in its own unit.
    pub shares: u64,
    pub weight: u64,
    pub cpus: Vec<u32>,
    pub mems: String,
    pub threaded: bool,
    pub subtree: BTreeSet<String>,
    pub has_program: bool,
}

impl Group {
    pub fn new(ino: u64) -> Self {
        let mut group = Self {
            ino,
            ..Self::default()
        };
        group.reset_cpu();
        group
    }

    /// What a group has when the cpu controller comes to it.
    pub fn reset_cpu(&mut self) {
        self.quota_us = None;
        self.period_us = 100_000;
        self.burst_us = 0;
        self.idle = false;
        self.shares = 1_024;
        self.weight = 100;
    }
}
