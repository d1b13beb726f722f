//! What is seen of a life from outside, all the time: whether side work is limited, and main is not.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::common::{Background, cgroups_of, cpu_mount};
use crate::support_kill::watch::Limit;

/// A look reads four or five small files.
const LOOK: Duration = Duration::from_millis(4);

/// The processes of one life; 0 is none now.
#[derive(Clone)]
pub struct Outside {
    prefix: String,
    /// Another program's process, which is side work for a while.
    lent: u32,
    /// Side work of `run`: in its place from when it has begun until it is ended.
    pub job: Arc<AtomicU32>,
    /// Main.
    pub web: Arc<AtomicU32>,
}

impl Outside {
    pub fn new(prefix: &str, lent: u32) -> Self {
        Self {
            prefix: prefix.to_owned(),
            lent,
            job: Arc::default(),
            web: Arc::default(),
        }
    }

    pub fn set(&self, which: &AtomicU32, to: Option<&Background>) {
        which.store(to.map_or(0, Background::pid), Ordering::SeqCst);
    }

    /// Looks until the life is over; each thing that was wrong, once.
    pub fn watch(&self, over: &AtomicBool) -> BTreeSet<String> {
        let mut wrong = BTreeSet::new();
        while !over.load(Ordering::Relaxed) {
            wrong.extend(self.look().map(|what| format!("seen from outside: {what}")));
            std::thread::sleep(LOOK);
        }
        wrong
    }

    /// What is wrong just now: side work that is in its place is limited there, and main is not.
    pub fn look(&self) -> Option<String> {
        let side = format!("{}-side", self.prefix);
        let is_side = |pid: u32| cgroups_of(pid).contains(&format!("{side}/"));
        let root = cpu_mount().0.join(&side);
        let loose = |pid: u32| {
            // One that leaves meanwhile may find its group's limit lifted.
            is_side(pid)
                && !Limit::open(&root).is_some_and(|limit| limit.is_bounded())
                && is_side(pid)
        };
        let job = self.job.load(Ordering::SeqCst);
        // Looked for again: it may just have been ended.
        let job_is_out = || job != 0 && !is_side(job) && self.job.load(Ordering::SeqCst) == job;
        if loose(self.lent) || job != 0 && loose(job) {
            return Some("side work is not limited".to_owned());
        }
        if job_is_out() {
            return Some(format!("side work is in {}", cgroups_of(job).trim()));
        }
        let web = self.web.load(Ordering::SeqCst);
        let main = cpu_mount().0.join(format!("{}-main", self.prefix));
        let is_limited = || Limit::open(&main).is_some_and(|limit| limit.rate_ucpu().is_some());
        if web != 0 && is_limited() {
            return Some("main is limited".to_owned());
        }
        if web != 0 && is_side(web) {
            return Some("main is among side work".to_owned());
        }
        None
    }
}
