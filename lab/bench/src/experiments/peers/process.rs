//! Programs of others: another scheduler while it is in force, and a load from its start to its end.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use super::loads::{Beside, Output, Work};
use super::{Contender, Peer, server};
use crate::beds::host::Setup;
use crate::beds::host::arms::plain;
use crate::beds::host::proc::{Guarded, Worker, WorkerPlan};
use crate::beds::host::scheduler::{self, LOAD_LIMIT_S, Scheduler};
use crate::{LabError, clock, stop};

const S: u64 = 1_000_000_000;
const UNLOAD_NS: u64 = 20 * S;
/// The longest that a load may take.
const WORK_NS: u64 = 60 * S;
/// What runs beside a load has begun in earnest.
const SETTLE_NS: u64 = S / 2;

/// Who schedules, for as long as it is not dropped.
pub enum Running {
    /// The kernel.
    Eevdf,
    /// Tidegate.
    Ext(Scheduler),
    /// Another.
    Peer(Loaded),
}

impl Running {
    /// Waits until it is in force.
    pub fn start(arm: Contender, setup: &Setup, dir: &Path) -> Result<Running, LabError> {
        match arm {
            Contender::Eevdf => Ok(Running::Eevdf),
            Contender::Ext => Scheduler::start(&setup.exe, &[]).map(Running::Ext),
            Contender::Peer(peer) => Loaded::start(peer, dir).map(Running::Peer),
        }
    }

    /// An error where it was ejected.
    pub fn still_in_force(&self) -> Result<(), LabError> {
        match self {
            Running::Eevdf => Ok(()),
            Running::Ext(scheduler) => scheduler.still_in_force(),
            Running::Peer(loaded) if loaded.in_force() => Ok(()),
            Running::Peer(loaded) => Err(loaded.failed("left the kernel")),
        }
    }
}

/// Another scheduler that is loaded.
pub struct Loaded {
    peer: &'static Peer,
    guard: Guarded,
    log: std::path::PathBuf,
}

impl Loaded {
    fn start(peer: &'static Peer, dir: &Path) -> Result<Self, LabError> {
        let log = dir.join(format!("{}.log", peer.name));
        let mut command = Command::new(peer.name);
        command.args(peer.args).stdin(Stdio::null());
        into(&mut command, &log, &log)?;
        let mut loaded = Loaded {
            peer,
            guard: Guarded::start(peer.name, command, &[])?,
            log,
        };
        let until = clock::monotonic_ns() + LOAD_LIMIT_S * S;
        while !loaded.in_force() {
            if loaded.guard.ended().is_some() {
                return Err(loaded.failed("does not load"));
            }
            if clock::monotonic_ns() > until {
                return Err(loaded.failed(&format!("is not in force after {LOAD_LIMIT_S} s")));
            }
            stop::sleep_ns(S / 20)?;
        }
        Ok(loaded)
    }

    fn in_force(&self) -> bool {
        scheduler::loaded().is_some_and(|name| name.starts_with(self.peer.ops()))
    }

    /// With the last that it said.
    fn failed(&self, what: &str) -> LabError {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
        let last = lines[lines.len().saturating_sub(4)..].join(" | ");
        LabError::process(self.peer.name, format!("{what}: {last}"))
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        self.guard.end(UNLOAD_NS);
        let until = clock::monotonic_ns() + UNLOAD_NS;
        while scheduler::loaded().is_some() && clock::monotonic_ns() < until {
            clock::sleep_until(clock::monotonic_ns() + S / 20);
        }
    }
}

/// Its output into these files.
fn into(command: &mut Command, stdout: &Path, stderr: &Path) -> Result<(), LabError> {
    let open = |path: &Path| {
        File::options()
            .create(true)
            .append(true)
            .open(path)
            .map_err(|e| LabError::file("keep a program's output", path, e))
    };
    command.stdout(open(stdout)?).stderr(open(stderr)?);
    Ok(())
}

/// Runs a load once; its figures.
pub fn run(load: &Work, setup: &Setup, dir: &Path) -> Result<Vec<f64>, LabError> {
    if load.program == "nginx" {
        return server::run(setup);
    }
    let mut hogs = None;
    let mut hackbench = None;
    match load.beside {
        Beside::Nothing => {}
        Beside::Hogs(per_cpu) => {
            let plan = WorkerPlan {
                exe: &setup.exe,
                kind: "hog",
                args: Vec::new(),
                threads: per_cpu * setup.machine.cpus,
            };
            hogs = Some(Worker::start(&plan, &[], &plain)?);
        }
        Beside::Hackbench => {
            let mut command = Command::new("hackbench");
            command
                .args(["-g", "1", "-l", "100000000"])
                .stdin(Stdio::null())
                .stdout(Stdio::null());
            hackbench = Some(Guarded::start("hackbench", command, &[])?);
        }
    }
    if load.beside != Beside::Nothing {
        stop::sleep_ns(SETTLE_NS)?;
    }
    let (stdout, stderr) = (dir.join("load.out"), dir.join("load.err"));
    for file in [&stdout, &stderr] {
        // Of the load before.
        let _ = fs::remove_file(file);
    }
    let mut command = Command::new(load.program);
    command.args(load.words()).stdin(Stdio::null());
    into(&mut command, &stdout, &stderr)?;
    let from_ns = clock::monotonic_ns();
    let mut guard = Guarded::start(load.program, command, &[])?;
    let status = guard.wait(WORK_NS)?;
    let time_ms = (clock::monotonic_ns() - from_ns) as f64 / 1e6;
    drop((hogs, hackbench));
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    let output = Output {
        stdout: read(&stdout),
        stderr: read(&stderr),
        time_ms,
    };
    let figures = load.read(&output).filter(|_| status.success());
    figures.ok_or_else(|| {
        let said = output.stderr.lines().last().unwrap_or_default().trim();
        LabError::process(load.program, format!("ended with {status}: {said}"))
    })
}
