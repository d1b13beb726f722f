//! Faults in the real processes of an instance: which, how often, and what must hold after each.

pub mod life;
mod outside;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::common::Instance;
use life::Life;

/// Lives at once: each waits most of its time.
const AT_ONCE: usize = 10;
/// A life has a few writes more or less, by the loop's timing: it is over when this many faults
/// found no write.
const MISSES_MAX: u64 = 6;

/// What a process meets at its n-th change of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Kill,
    KillBoth,
    Panic,
    Stop,
    Errno(i32),
}

/// One fault, as the variable has it.
#[derive(Clone, Debug)]
pub struct Fault {
    pub who: &'static str,
    pub nth: u64,
    pub what: What,
}

impl Fault {
    pub fn new(who: &'static str, nth: u64, what: What) -> Fault {
        Fault { who, nth, what }
    }

    pub fn variable(&self, mark: &str) -> String {
        let what = match self.what {
            What::Kill | What::KillBoth => "kill".to_owned(),
            What::Panic => "panic".to_owned(),
            What::Stop => "stop".to_owned(),
            What::Errno(errno) => errno.to_string(),
        };
        format!("{}:{}:{what}:{mark}", self.who, self.nth)
    }
}

/// The long form: everything, everywhere.
pub fn long() -> bool {
    std::env::var("TIDEGATE_FAULTS").is_ok_and(|text| text == "all")
}

/// Counts one kind of fault, for the summary of `cargo xtask test` and of the soak.
pub fn tell(kind: &str, count: u64) {
    eprintln!("faults: kernel: {kind}: {count}");
}

/// One life for each fault that `faults` names, n by n until a life has no n-th write any more; at
/// least so many, as the failure contract's page has it.
pub fn strike_all(name: &str, least: u64, faults: impl Fn(u64) -> Vec<Fault> + Sync) {
    let Some(instance) = Instance::new(name) else {
        return;
    };
    let next = AtomicU64::new(0);
    let misses = AtomicU64::new(0);
    let injected = AtomicU64::new(0);
    let broken = Mutex::new(Vec::new());
    let began = Instant::now();
    let work = || {
        while misses.load(Ordering::SeqCst) < MISSES_MAX {
            let nth = next.fetch_add(1, Ordering::SeqCst);
            for fault in faults(nth) {
                let (struck, wrong) = Life::new(&instance, &fault).live();
                match struck {
                    Some(_) => injected.fetch_add(1, Ordering::SeqCst),
                    None => misses.fetch_add(1, Ordering::SeqCst),
                };
                if !wrong.is_empty() {
                    let at = struck.unwrap_or_else(|| "no strike".to_owned());
                    let line = format!("{fault:?} at {}: {}", at.trim(), wrong.join("; "));
                    broken.lock().unwrap().push(line);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(work);
        }
    });
    let count = injected.load(Ordering::SeqCst);
    tell(name, count);
    eprintln!("{name}: {count} faults in {:.0?}", began.elapsed());
    let broken = broken.into_inner().unwrap();
    assert!(
        broken.is_empty(),
        "{} of {count}: {broken:#?}",
        broken.len()
    );
    assert!(
        count >= least,
        "only {count} faults were injected; {least} are promised"
    );
}
