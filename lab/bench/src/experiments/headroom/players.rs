//! Main and side in one cell of the headroom experiment: a worker of ours or a command.

use std::process::Stdio;

use crate::LabError;
use crate::beds::host::arms::Placement;
use crate::beds::host::foreign::{Frames, parse_latency};
use crate::beds::host::nginx::Load;
use crate::beds::host::proc::{Guarded, Worker};
use crate::beds::host::samplers::Source;
use crate::dist::{self, Latency};

/// Main in one cell.
pub enum Main {
    /// The built-in server.
    Server(Worker),
    /// nginx under a load of ours.
    Nginx {
        /// Declared first: it ends before the server does.
        load: Load,
        /// The server.
        guard: Guarded,
    },
    /// A command that measures once and ends.
    Command {
        /// Its words.
        words: Vec<String>,
        /// While it runs.
        running: Option<Guarded>,
    },
}

impl Main {
    /// Its process, once it runs.
    pub fn pid(&self) -> Option<i32> {
        match self {
            Main::Server(worker) => Some(worker.pid()),
            Main::Nginx { guard, .. } => Some(guard.pid()),
            Main::Command { running, .. } => running.as_ref().map(Guarded::pid),
        }
    }

    /// Where its CPU time is read.
    pub fn source(&self) -> Source<'_> {
        match self {
            Main::Server(worker) => Source::Page(&worker.page),
            Main::Nginx { guard, .. } => Source::Processes(guard.pid()),
            Main::Command {
                running: Some(guard),
                ..
            } => Source::Processes(guard.pid()),
            Main::Command { .. } => Source::None,
        }
    }

    /// Starts the window.
    pub fn begin(&mut self, placement: &Placement<'_>) -> Result<(), LabError> {
        match self {
            Main::Server(worker) => worker.ask("measure").map(|_| ()),
            Main::Nginx { load, .. } => {
                load.take();
                Ok(())
            }
            Main::Command { words, running } => {
                let mut command = placement.main_command(words);
                command.stdin(Stdio::null()).stdout(Stdio::piped());
                *running = Some(Guarded::start(
                    "main command",
                    command,
                    &placement.main_join(),
                )?);
                Ok(())
            }
        }
    }

    /// Whether a command has ended; a server never does.
    pub fn ended(&mut self) -> bool {
        match self {
            Main::Server(_) | Main::Nginx { .. } => false,
            Main::Command { running, .. } => running.as_mut().is_none_or(|g| g.ended().is_some()),
        }
    }

    /// The window's latency; a command that prints none is measured by its wall time.
    pub fn finish(&mut self, wall_ns: u64) -> Result<Latency, LabError> {
        match self {
            Main::Server(worker) => serde_json::from_value(worker.ask("report")?)
                .map_err(|e| LabError::process("server", format!("its report: {e}"))),
            Main::Nginx { load, .. } => {
                let mut all = dist::histogram_ns();
                for ns in load.take() {
                    all.saturating_record(ns);
                }
                Ok(Latency {
                    offered: all.len(),
                    window_ns: wall_ns,
                    ..dist::summarise_ns(&all)
                })
            }
            Main::Command { running, .. } => {
                let mut text = String::new();
                if let Some(mut out) = running.as_mut().and_then(Guarded::take_stdout) {
                    use std::io::Read;
                    out.read_to_string(&mut text)
                        .map_err(|e| LabError::process("main command", e.to_string()))?;
                }
                let failed = running
                    .as_mut()
                    .and_then(Guarded::ended)
                    .filter(|s| !s.success());
                if let Some(status) = failed {
                    return Err(LabError::process(
                        "main command",
                        format!("ended ({status})"),
                    ));
                }
                let us = wall_ns as f64 / 1000.0;
                let wall = Latency {
                    avg_us: us,
                    p99_us: us,
                    completed: 1,
                    ..Latency::default()
                };
                Ok(Latency {
                    window_ns: wall_ns,
                    ..parse_latency(&text).unwrap_or(wall)
                })
            }
        }
    }
}

/// Side work in one cell.
pub struct Side {
    /// The burner.
    pub worker: Option<Worker>,
    /// A command.
    pub command: Option<Guarded>,
    /// What it reports, when it reports frames.
    pub frames: Option<Frames>,
}

impl Side {
    /// Its process.
    pub fn pid(&self) -> Option<i32> {
        let worker = self.worker.as_ref().map(Worker::pid);
        worker.or_else(|| self.command.as_ref().map(Guarded::pid))
    }

    /// Where its CPU time is read.
    pub fn source(&self) -> Source<'_> {
        match (&self.worker, &self.command) {
            (Some(worker), _) => Source::Page(&worker.page),
            (None, Some(guard)) => Source::Processes(guard.pid()),
            (None, None) => Source::None,
        }
    }

    /// Loops, or CPU seconds.
    /// An error where a command has ended: there would be nothing to give way.
    pub fn still_runs(&mut self) -> Result<(), LabError> {
        let Some(status) = self.command.as_mut().and_then(Guarded::ended) else {
            return Ok(());
        };
        let why =
            format!("ended ({status}) before the window; give one that runs until it is killed");
        Err(LabError::process("side command", why))
    }

    /// Loops done, or CPU seconds where nothing better is known.
    pub fn work(&self) -> f64 {
        match &self.worker {
            Some(worker) => worker.page.count() as f64,
            None => self.source().cpu_ns() as f64 / 1e9,
        }
    }
}
