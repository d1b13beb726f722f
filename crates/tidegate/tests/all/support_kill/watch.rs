//! A watcher that reads a side root's `cpu.idle` and quota as fast as it can and keeps every moment
//! at which side work was unlimited or main's equal.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::common::{cpu_mount, quota_file};

/// The files that keep a group of side work in its place.
pub struct Limit {
    quota: File,
    period: Option<File>,
    idle: File,
    floor_ucpu: u64,
}

impl Limit {
    /// `None` where there is no such group.
    pub fn open(group: &Path) -> Option<Limit> {
        let (_, v1) = cpu_mount();
        let open = |name: &str| File::open(group.join(name)).ok();
        let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64);
        let period = match v1 {
            true => Some(open("cpu.cfs_period_us")?),
            false => None,
        };
        Some(Limit {
            quota: File::open(quota_file(group, None).0).ok()?,
            period,
            idle: open("cpu.idle")?,
            // The default tolerance, 1 % of the machine.
            floor_ucpu: 10_000 * cpus,
        })
    }

    fn text(file: &File) -> String {
        let mut buffer = [0_u8; 64];
        match file.read_at(&mut buffer, 0) {
            Ok(length) => String::from_utf8_lossy(&buffer[..length]).trim().to_owned(),
            Err(error) => error.to_string(),
        }
    }

    /// The rate, in millionths of a CPU; `None` when there is no quota (or no such group any more).
    pub fn rate_ucpu(&self) -> Option<u64> {
        let text = Limit::text(&self.quota);
        let mut words = text.split(' ');
        let quota_us: u64 = words.next()?.parse().ok()?;
        let period_us: u64 = match &self.period {
            Some(period) => Limit::text(period).parse().ok()?,
            None => words.next()?.parse().ok()?,
        };
        Some(quota_us * 1_000_000 / period_us)
    }

    pub fn is_idle(&self) -> bool {
        Limit::text(&self.idle) == "1"
    }

    /// At the tolerance, as the fallback leaves it.
    pub fn is_at_floor(&self) -> bool {
        self.rate_ucpu() == Some(self.floor_ucpu)
    }

    /// What is wrong just now, where side work is to have a quota and be in the idle class. Out of
    /// the idle class is right only at the tolerance (where the agent helps side work that
    /// starves); since the files cannot be read at one instant, idle is read before and after.
    pub fn wrong(&self) -> Option<String> {
        let idle_before = Limit::text(&self.idle);
        let quota = Limit::text(&self.quota);
        let limited = quota
            .split(' ')
            .next()
            .is_some_and(|word| word.parse::<u64>().is_ok());
        if limited && idle_before == "1" {
            return None;
        }
        let rate_ucpu = self.rate_ucpu();
        let idle_after = Limit::text(&self.idle);
        // A thousandth: periods are whole microseconds.
        let may_be_out =
            rate_ucpu.is_some_and(|rate| rate <= self.floor_ucpu + self.floor_ucpu / 1_000);
        let out = idle_before == "0" && idle_after == "0" && !may_be_out;
        let unread = !matches!(idle_before.as_str(), "0" | "1");
        (!limited || out || unread).then(|| {
            format!("quota {quota:?} ({rate_ucpu:?}), cpu.idle {idle_before:?} then {idle_after:?}")
        })
    }
}

/// Watches until it is asked what it saw.
pub struct Watch {
    stop: Arc<AtomicBool>,
    looks: Arc<AtomicU64>,
    seen: Arc<Mutex<Vec<String>>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// `group` has side work in it from now until [`Watch::end`].
    pub fn begin(group: &Path) -> Watch {
        let limit = Limit::open(group).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let looks = Arc::new(AtomicU64::new(0));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (stopped, looked, found) = (Arc::clone(&stop), Arc::clone(&looks), Arc::clone(&seen));
        let began = Instant::now();
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                if let Some(what) = limit.wrong() {
                    let mut found = found.lock().unwrap();
                    if found.len() < 20 {
                        found.push(format!("after {:?}: {what}", began.elapsed()));
                    }
                }
                looked.fetch_add(1, Ordering::Relaxed);
                // Room for the others on two CPUs; a write to the files in between would still be
                // seen as what it left.
                std::thread::sleep(Duration::from_micros(40));
            }
        });
        Watch {
            stop,
            looks,
            seen,
            thread: Some(thread),
        }
    }

    /// Nothing wrong was seen so far.
    pub fn check(&self) {
        let seen = self.seen.lock().unwrap();
        assert!(seen.is_empty(), "side work was let loose: {seen:#?}");
    }

    /// Ends the watch; says how often it looked.
    pub fn end(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        self.check();
        let looks = self.looks.load(Ordering::Relaxed);
        assert!(looks > 100, "the watcher looked only {looks} times");
        looks
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
