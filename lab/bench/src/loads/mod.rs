//! The load generators, each in a process of its own so that it sits in a cgroup of its own.
//!
//! `tidegate-lab worker PAGE JOB`, with a [`Job`] in JSON. A worker obeys lines on its standard
//! input and answers each with one line of JSON on its standard output; it ends when its input ends
//! or the process that started it dies, so that nothing outlives the lab.

pub mod forks;
pub mod hog;
pub mod level;
pub mod server;
pub mod shared_page;
pub mod spin;
pub mod timer;

use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};
use tidegate_cgroup::sched_attr::SchedWrite;
use tidegate_cgroup::{KernelFs as _, RealFs};
use tidegate_sim::Histogram;

use self::shared_page::SharedPage;
use crate::LabError;
use crate::scene::Latency;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    pub generator: Generator,
    pub threads: usize,
    /// A slice of the EEVDF class; 0: the default.
    pub slice_us: u64,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Generator {
    Server(server::Options),
    Level,
    Timer,
    Hog(hog::Options),
    /// Each thread is a parent, whose children work for so long.
    Forks {
        work_us: u64,
    },
}

/// Runs `tidegate-lab worker PAGE JOB`; returns the exit code (0, or 2 with a message on stderr).
pub fn worker_main(words: &[String]) -> i32 {
    match run(words) {
        Ok(()) => 0,
        Err(e) => {
            eprintln!("tidegate-lab: worker: {e}");
            2
        }
    }
}

fn run(words: &[String]) -> Result<(), LabError> {
    die_with_parent();
    crate::clock::no_timer_slack();
    let failed = |why: String| LabError::process("worker", why);
    let [page, job] = words else {
        return Err(failed("takes a page and a job".into()));
    };
    let page = Arc::new(SharedPage::open(Path::new(page))?);
    let job: Job = serde_json::from_str(job).map_err(|e| failed(e.to_string()))?;
    set_slice_us(job.slice_us)?;
    match job.generator {
        Generator::Server(options) => server::run(page, job.threads, options),
        Generator::Level => level::run(page, job.threads),
        Generator::Timer => timer::run(page),
        Generator::Hog(options) => hog::run(page, job.threads, options),
        Generator::Forks { work_us } => forks::run(&page, job.threads, work_us * 1000),
    }
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
    named: Vec<(&'static str, Mutex<Histogram>)>,
}

impl Windows {
    pub fn new(names: &[&'static str]) -> Arc<Self> {
        let named = names.iter().map(|name| (*name, Mutex::default()));
        Arc::new(Windows {
            named: named.collect(),
        })
    }

    /// Records a latency in the window of this number.
    pub fn record(&self, at: usize, ns: u64) {
        lock(&self.named[at].1).record(ns);
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
                    *window = Histogram::new();
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
fn set_slice_us(slice_us: u64) -> Result<(), LabError> {
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
fn allowed_cpus() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_default();
    (0..CpuSet::MAX_CPU).filter(|c| set.is_set(*c)).collect()
}
