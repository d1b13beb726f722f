//! What is seen of a life from outside, all the time: whether side work is limited, and main is
//! not.

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
        // One that has left or ended meanwhile may find its group's limit lifted.
        let loose = |pid: u32, is_there: &dyn Fn() -> bool| {
            let why = match Limit::open(&root) {
                Some(limit) => limit.wrong()?,
                None => "no such group".to_owned(),
            };
            is_there().then(|| format!("side work ({pid}) is not limited: {why}"))
        };
        let lent_is_side = || is_side(self.lent);
        if lent_is_side()
            && let Some(why) = loose(self.lent, &lent_is_side)
        {
            return Some(why);
        }
        let job = self.job.load(Ordering::SeqCst);
        let is_job = || self.job.load(Ordering::SeqCst) == job;
        let job_is_side = || is_side(job) && is_job();
        if job != 0 {
            if job_is_side()
                && let Some(why) = loose(job, &job_is_side)
            {
                return Some(why);
            }
            if !is_side(job) && is_job() {
                return Some(format!("side work is in {}", cgroups_of(job).trim()));
            }
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
