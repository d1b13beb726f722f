//! The load generators, each in a process of its own so that it sits in a cgroup of its own.
//!
//! `tidegate lab-worker server|constant|burner|cyclictest|hackbench|schbench|bursty|hog|forks|fibtest --page FILE ...`. A worker obeys lines on
//! its standard input and answers each with one line of JSON on its standard output; it ends when
//! its input ends or the process that started it dies, so that nothing outlives the lab.

pub mod attributes;
pub mod burner;
pub mod bursty;
pub mod constant;
pub mod cyclictest;
pub mod fibtest;
pub mod forks;
pub mod hackbench;
pub mod hog;
pub mod schbench;
pub mod server;
pub mod shared_page;
pub mod spin;
pub mod work;

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use hdrhistogram::Histogram;

use self::shared_page::SharedPage;
use crate::clock::monotonic_ns;
use crate::{LabError, dist};

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
                    return Err(LabError::process("lab-worker", why));
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
            .map_err(|_| LabError::process("lab-worker", format!("--{name} {text}: not a number")))
    }

    fn page(&self) -> Result<SharedPage, LabError> {
        let path = self
            .values
            .get("page")
            .map(PathBuf::from)
            .ok_or_else(|| LabError::process("lab-worker", "--page FILE is missing"))?;
        SharedPage::open(&path)
    }
}

/// Runs `tidegate lab-worker ARGS`; returns the exit code (0, or 2 with a message on stderr).
pub fn worker_main(args: &[String]) -> i32 {
    match run(args) {
        Ok(()) => 0,
        Err(e) => {
            eprintln!("tidegate: lab-worker: {e}");
            2
        }
    }
}

fn run(args: &[String]) -> Result<(), LabError> {
    die_with_parent();
    crate::clock::no_timer_slack();
    let (kind, rest) = args
        .split_first()
        .ok_or_else(|| LabError::process("lab-worker", "server, constant or burner?"))?;
    let args = Args::parse(rest)?;
    match kind.as_str() {
        "server" => server::run(Arc::new(args.page()?), &args),
        "constant" => constant::run(Arc::new(args.page()?), &args),
        "burner" => burner::run(Arc::new(args.page()?), &args),
        "cyclictest" => cyclictest::run(Arc::new(args.page()?), &args),
        "hackbench" => hackbench::run(Arc::new(args.page()?), &args),
        "schbench" => schbench::run(Arc::new(args.page()?), &args),
        "bursty" => bursty::run(Arc::new(args.page()?), &args),
        "hog" => hog::run(Arc::new(args.page()?), &args),
        "fibtest" => fibtest::run(Arc::new(args.page()?), &args),
        "forks" => forks::run(Arc::new(args.page()?), &args),
        other => Err(LabError::process(
            "lab-worker",
            format!("unknown kind '{other}'"),
        )),
    }
}

/// The kernel kills this process when the thread that started it ends; that survives the exec of
/// `tidegate run`, which is why a worker asks for it itself, beside the parent. To be called between fork and exec, too.
pub fn die_with_parent() {
    // SAFETY: PR_SET_PDEATHSIG takes one integer and touches no memory.
    unsafe {
        libc::prctl(
            libc::PR_SET_PDEATHSIG,
            libc::SIGKILL as usize,
            0usize,
            0usize,
            0usize,
        );
    }
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

/// Obeys the parent: `measure` starts a window, `report` answers with a [`dist::Latency`] of it. Of work with an interval it says how
/// many moments were due.
pub fn serve_window(
    page: &SharedPage,
    window: &Mutex<Histogram<u64>>,
    interval_ns: Option<u64>,
) -> Result<(), LabError> {
    let mut from = (monotonic_ns(), 0);
    serve_commands(page, |command| {
        let mut window = lock(window);
        let now = (monotonic_ns(), page.cpu_ns());
        let mut latency = dist::summarise_ns(&window);
        (latency.window_ns, latency.cpu_ns) = (now.0 - from.0, now.1 - from.1);
        if let Some(interval_ns) = interval_ns {
            latency.offered = latency.window_ns / interval_ns;
        }
        if command == "measure" {
            window.reset();
            from = now;
        }
        serde_json::json!(latency)
    })
}

/// A thread that panicked while it held a lock left plain numbers behind: they are still good.
pub fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Pins the calling thread to the `index`-th CPU that it may use.
pub fn pin(index: usize) {
    let cpus = allowed_cpus();
    let Some(&cpu) = cpus.get(index % cpus.len().max(1)) else {
        return;
    };
    // SAFETY: cpu_set_t is a plain bit set for which zero is valid; `cpu` came from such a set, so
    // it is within its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

/// The CPUs that this process may run on.
pub fn allowed_cpus() -> Vec<usize> {
    // SAFETY: as in `pin`; the kernel fills at most the size that it is told.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) != 0 {
            return vec![0];
        }
        (0..libc::CPU_SETSIZE as usize)
            .filter(|&c| libc::CPU_ISSET(c, &set))
            .collect()
    }
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

    #[test]
    fn unknown_kinds_end_with_2() {
        // run() would bind this process's life to the test thread's parent; only parsing is tried.
        assert!(!allowed_cpus().is_empty());
    }
}
