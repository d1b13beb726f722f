//! The load generators, each in a process of its own so that it sits in a cgroup of its own.
//!
//! `tidegate-lab worker server|constant|timer|hackbench|hog|forks --page FILE ...`. A worker obeys
//! lines on its standard input and answers each with one line of JSON on its standard output; it
//! ends when its input ends or the process that started it dies, so that nothing outlives the lab.

pub mod constant;
pub mod forks;
pub mod hackbench;
pub mod hog;
pub mod server;
pub mod shared_page;
pub mod spin;
pub mod timer;
pub mod work;

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use hdrhistogram::Histogram;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tidegate_cgroup::sched_attr::SchedWrite;
use tidegate_cgroup::{KernelFs as _, RealFs};

use self::shared_page::SharedPage;
use crate::LabError;
use crate::scene::{Latency, histogram};

/// The arguments of a worker: `--name value` pairs after its kind.
pub struct Args {
    values: BTreeMap<String, String>,
}

impl Args {
    fn parse(args: &[String]) -> Result<Self, LabError> {
        let mut values = BTreeMap::new();
        for pair in args.chunks(2) {
            match pair {
                [name, value] if name.starts_with("--") => {
                    values.insert(name[2..].to_string(), value.clone());
                }
                other => {
                    let why = format!("arguments are '--name value' pairs, not {other:?}");
                    return Err(LabError::process("worker", why));
                }
            }
        }
        Ok(Args { values })
    }

    /// A number; `default` when absent.
    pub fn number<T: std::str::FromStr>(&self, name: &str, default: T) -> Result<T, LabError> {
        let Some(text) = self.values.get(name) else {
            return Ok(default);
        };
        text.parse()
            .map_err(|_| LabError::process("worker", format!("--{name} {text}: not a number")))
    }

    fn page(&self) -> Result<SharedPage, LabError> {
        let path = self
            .values
            .get("page")
            .map(PathBuf::from)
            .ok_or_else(|| LabError::process("worker", "--page FILE is missing"))?;
        SharedPage::open(&path)
    }
}

/// Runs `tidegate-lab worker ARGS`; returns the exit code (0, or 2 with a message on stderr).
pub fn worker_main(args: &[String]) -> i32 {
    match run(args) {
        Ok(()) => 0,
        Err(e) => {
            eprintln!("tidegate-lab: worker: {e}");
            2
        }
    }
}

fn run(args: &[String]) -> Result<(), LabError> {
    die_with_parent();
    crate::clock::no_timer_slack();
    let (kind, rest) = args
        .split_first()
        .ok_or_else(|| LabError::process("worker", "which kind?"))?;
    let args = Args::parse(rest)?;
    let run = match kind.as_str() {
        "server" => server::run,
        "constant" => constant::run,
        "timer" => timer::run,
        "hackbench" => hackbench::run,
        "hog" => hog::run,
        "forks" => forks::run,
        other => {
            let why = format!("unknown kind '{other}'");
            return Err(LabError::process("worker", why));
        }
    };
    run(Arc::new(args.page()?), &args)
}

/// The kernel kills this process when the thread that started it ends; that survives the exec of
/// `tidegate run`, which is why a worker asks for it itself, beside the parent. To be called
/// between fork and exec, too.
pub fn die_with_parent() {
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
}

/// Obeys the parent until it hangs up: each line goes to `answer`, whose JSON goes back.
pub fn serve_commands(
    page: &SharedPage,
    mut answer: impl FnMut(&str) -> serde_json::Value,
) -> Result<(), LabError> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        if line == "quit" {
            break;
        }
        // The parent may be gone already; then its end of the pipe ends this loop as well.
        if writeln!(out, "{}", answer(&line))
            .and_then(|()| out.flush())
            .is_err()
        {
            break;
        }
    }
    page.stop();
    Ok(())
}

pub struct Windows {
    named: Vec<(&'static str, Mutex<Histogram<u64>>)>,
}

impl Windows {
    pub fn new(names: &[&'static str]) -> Arc<Self> {
        let named = names.iter().map(|name| (*name, Mutex::new(histogram())));
        Arc::new(Windows {
            named: named.collect(),
        })
    }

    /// Records a latency in the window of this number; what is beyond the histogram saturates
    /// instead of being lost.
    pub fn record(&self, at: usize, ns: u64) {
        lock(&self.named[at].1).saturating_record(ns.max(1));
    }

    /// Obeys the parent: `measure` starts a window, `report` answers with a [`Latency`] for each
    /// name.
    pub fn serve(&self, page: &SharedPage) -> Result<(), LabError> {
        serve_commands(page, |command| {
            let mut answer = serde_json::Map::new();
            for (name, window) in &self.named {
                let mut window = lock(window);
                answer.insert((*name).into(), serde_json::json!(Latency::of(&window)));
                if command == "measure" {
                    window.reset();
                }
            }
            answer.into()
        })
    }
}

/// A thread that panicked while it held a lock left plain numbers behind: they are still good.
pub fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Gives the calling thread an EEVDF slice, which the threads that it makes inherit; 0 leaves it
/// alone.
pub fn set_slice_us(slice_us: u64) -> Result<(), LabError> {
    if slice_us == 0 {
        return Ok(());
    }
    let write = SchedWrite::Slice {
        nice: 0,
        slice_ns: slice_us * 1_000,
    };
    let set = RealFs::new().set_sched(0, &write);
    set.map_err(|e| LabError::process("worker", e.to_string()))
}

/// Pins the calling thread to the `index`-th CPU that it may use.
pub fn pin(index: usize) {
    let cpus = allowed_cpus();
    if let Some(&cpu) = cpus.get(index % cpus.len().max(1)) {
        let mut set = CpuSet::new();
        set.set(cpu);
        let _ = sched_setaffinity(None, &set);
    }
}

/// The CPUs that this process may run on.
pub fn allowed_cpus() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_default();
    (0..CpuSet::MAX_CPU).filter(|c| set.is_set(*c)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_pairs() {
        let words = |s: &str| s.split(' ').map(str::to_string).collect::<Vec<_>>();
        let args = Args::parse(&words("--threads 4 --level 250000")).expect("pairs");
        assert_eq!(args.number("threads", 1usize).expect("a number"), 4);
        assert_eq!(args.number("seed", 9u64).expect("the default"), 9);
        assert!(Args::parse(&words("--threads")).is_err());
        assert!(Args::parse(&words("threads 4")).is_err());
        let bad = Args::parse(&words("--threads four")).expect("pairs");
        assert!(bad.number("threads", 1usize).is_err());
    }
}
