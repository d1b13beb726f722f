//! Tidegate as a user has it: the command. An instance of the lab's own (run directory and cgroup
//! prefix), so that an experiment never meets the gates of the machine it runs on.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use super::proc::Guarded;
use super::sched_ext_supported;
use crate::options::Sense;
use crate::{LabError, clock, stop};

/// How long an agent may take to come up (BPF programs are verified then).
const PATIENCE_NS: u64 = 10_000_000_000;
/// ... and to clean up: with the engine sched_ext the kernel moves every task.
const LEAVE_NS: u64 = 60_000_000_000;

pub struct Tidegate {
    exe: PathBuf,
    run_dir: PathBuf,
    prefix: String,
    agent: Guarded,
    agent_pid: i32,
    sensing: String,
}

/// Where the kernel says what scheduler of sched_ext is in force.
const EXT_STATE: &str = "/sys/kernel/sched_ext/state";
const EXT_NAME: &str = "/sys/kernel/sched_ext/root/ops";
/// Verifying takes seconds on one emulated CPU, and over a minute on several, of which each has a
/// part of the speed.
const LOAD_NS: u64 = 240_000_000_000;

/// The scheduler of sched_ext that is in force, by its name in the kernel.
fn loaded() -> Option<String> {
    let state = std::fs::read_to_string(EXT_STATE).ok()?;
    let name = std::fs::read_to_string(EXT_NAME).ok()?;
    (state.trim() == "enabled").then(|| name.trim().to_string())
}

/// Our own program, which is every load generator as well.
pub fn own_executable() -> Result<PathBuf, LabError> {
    let own = std::env::current_exe();
    own.map_err(|e| LabError::file("find our own executable", "/proc/self/exe", e))
}

/// The `tidegate` command that is driven: beside this program, or on the PATH.
pub fn executable() -> Result<PathBuf, LabError> {
    let own = own_executable()?;
    let beside = own.parent().map(Path::to_owned);
    let path = std::env::var_os("PATH").unwrap_or_default();
    beside
        .into_iter()
        .chain(std::env::split_paths(&path))
        .map(|folder| folder.join("tidegate"))
        .find(|file| file.is_file())
        .ok_or_else(|| LabError::Needs {
            what: "the tidegate command".into(),
            why: format!("it is neither beside {} nor on the PATH", own.display()),
            mend: "install the package tidegate, or run make build".into(),
        })
}

impl Tidegate {
    /// Starts an agent and waits until it answers.
    pub fn start(exe: &Path, sense: Option<Sense>) -> Result<Self, LabError> {
        match sense {
            Some(sense) => Tidegate::start_with(exe, &["--sense", sense.name()]),
            None => Tidegate::start_with(exe, &[]),
        }
    }

    /// Starts an agent with these options and waits until it answers.
    fn start_with(exe: &Path, options: &[&str]) -> Result<Self, LabError> {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "tglab-{}-{}",
            std::process::id(),
            (b'a' + (SERIAL.fetch_add(1, Ordering::Relaxed) % 26) as u8) as char
        );
        let parent = if Path::new("/run").is_dir() {
            PathBuf::from("/run")
        } else {
            std::env::temp_dir()
        };
        let run_dir = parent.join(&name);
        std::fs::create_dir_all(&run_dir)
            .map_err(|e| LabError::file("make a run directory", &run_dir, e))?;
        let log = run_dir.join("lab-agent.log");
        let out = File::create(&log).map_err(|e| LabError::file("make a log", &log, e))?;
        let err = out
            .try_clone()
            .map_err(|e| LabError::file("make a log", &log, e))?;
        let mut command = command_in(exe, &run_dir, &name);
        command
            .args(["agent", "run"])
            .args(options)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err);
        let agent = Guarded::start("tidegate agent", command, &[]).inspect_err(|_| {
            let _ = std::fs::remove_dir_all(&run_dir);
        })?;
        let mut tidegate = Tidegate {
            exe: exe.to_path_buf(),
            run_dir,
            prefix: name,
            agent,
            agent_pid: 0,
            sensing: String::new(),
        };
        tidegate.wait_ready(&log)?;
        Ok(tidegate)
    }

    /// Starts an agent whose scheduler is in force when this returns.
    pub fn start_sched_ext(exe: &Path) -> Result<Self, LabError> {
        sched_ext_supported()?;
        let agent = Tidegate::start_with(exe, &["--engine", "sched_ext"])?;
        let until = clock::monotonic_ns() + LOAD_NS;
        while loaded().is_none_or(|name| name != "tidegate") {
            if clock::monotonic_ns() > until {
                let why = format!("is not in force after 240 s: {}", agent.sched_ext()?["off"]);
                return Err(LabError::process("the sched_ext engine", why));
            }
            stop::sleep_ns(20_000_000)?;
        }
        Ok(agent)
    }

    pub fn sched_ext(&self) -> Result<Value, LabError> {
        Ok(self.status()?["sched_ext"].take())
    }

    /// An error if the scheduler was ejected: what was measured meanwhile was measured under
    /// another one.
    pub fn sched_ext_in_force(&self) -> Result<(), LabError> {
        let sched_ext = self.sched_ext()?;
        if sched_ext["on"] == true && sched_ext["ends"] == 0 {
            return Ok(());
        }
        let (reason, message) = (&sched_ext["last_reason"], &sched_ext["last_message"]);
        let why = format!("was ejected meanwhile: {reason}: {message}");
        Err(LabError::process("the sched_ext engine", why))
    }

    fn wait_ready(&mut self, log: &Path) -> Result<(), LabError> {
        let until = clock::monotonic_ns() + PATIENCE_NS;
        let said = || {
            let text = std::fs::read_to_string(log).unwrap_or_default();
            text.lines()
                .last()
                .unwrap_or("nothing in its log")
                .to_string()
        };
        loop {
            if self.run_dir.join("tidegate.sock").exists()
                && let Ok(status) = self.status()
            {
                self.agent_pid = status["pid"].as_i64().unwrap_or(0) as i32;
                self.sensing = status["sensing"].as_str().unwrap_or("").to_string();
                return Ok(());
            }
            if let Some(code) = self.agent.ended() {
                return Err(LabError::process(
                    "tidegate agent",
                    format!("ended ({code}): {}", said()),
                ));
            }
            if clock::monotonic_ns() > until {
                let why = format!("does not answer after 10 s: {}", said());
                return Err(LabError::process("tidegate agent", why));
            }
            stop::sleep_ns(20_000_000)?;
        }
    }

    pub fn agent_pid(&self) -> i32 {
        self.agent_pid
    }

    /// `bpf` or `usage`, as the agent says.
    pub fn sensing(&self) -> &str {
        &self.sensing
    }

    /// `tidegate run TERMS -- WORDS` in this instance.
    pub fn run(&self, terms: &[String], words: &[String]) -> Command {
        let mut command = command_in(&self.exe, &self.run_dir, &self.prefix);
        command.arg("run").args(terms).arg("--").args(words);
        command
    }

    /// `tidegate set TARGET TERMS` in this instance.
    pub fn set(&self, target: &str, terms: &str) -> Result<(), LabError> {
        let output = command_in(&self.exe, &self.run_dir, &self.prefix)
            .args(["set", target])
            .args(terms.split_whitespace())
            .stdin(Stdio::null())
            .output()
            .map_err(|e| LabError::process("tidegate set", e.to_string()))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(LabError::process("tidegate set", said.trim().to_string()))
    }

    /// `tidegate status --json`.
    pub fn status(&self) -> Result<Value, LabError> {
        let output = command_in(&self.exe, &self.run_dir, &self.prefix)
            .args(["status", "--json"])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .map_err(|e| LabError::process("tidegate status", e.to_string()))?;
        if !output.status.success() {
            return Err(LabError::process(
                "tidegate status",
                format!("ended ({})", output.status),
            ));
        }
        serde_json::from_slice(&output.stdout).map_err(|e| {
            LabError::process("tidegate status --json", format!("printed no JSON: {e}"))
        })
    }
}

/// The scheduler of another, a program that is installed, in force until it is dropped.
pub struct Peer {
    name: String,
    guard: Guarded,
    log: PathBuf,
}

impl Peer {
    /// Starts it, and waits until a scheduler is in force.
    pub fn start(name: &str, program: &Path, dir: &Path) -> Result<Self, LabError> {
        sched_ext_supported()?;
        let log = dir.join(format!("{name}.log"));
        let out = File::create(&log).map_err(|e| LabError::file("make a log", &log, e))?;
        let err = out
            .try_clone()
            .map_err(|e| LabError::file("make a log", &log, e))?;
        let mut command = Command::new(program);
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        let mut peer = Peer {
            name: name.into(),
            guard: Guarded::start(name, command, &[])?,
            log,
        };
        let until = clock::monotonic_ns() + LOAD_NS;
        while loaded().is_none() {
            if peer.guard.ended().is_some() || clock::monotonic_ns() > until {
                return Err(peer.failed("does not load"));
            }
            stop::sleep_ns(50_000_000)?;
        }
        Ok(peer)
    }

    /// An error if it was ejected.
    pub fn in_force(&self) -> Result<(), LabError> {
        loaded()
            .map(|_| ())
            .ok_or_else(|| self.failed("left the kernel"))
    }

    fn failed(&self, what: &str) -> LabError {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
        let last = lines[lines.len().saturating_sub(4)..].join(" | ");
        LabError::process(self.name.clone(), format!("{what}: {last}"))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.guard.end(LEAVE_NS);
        let until = clock::monotonic_ns() + LEAVE_NS;
        while loaded().is_some() && clock::monotonic_ns() < until {
            clock::sleep_until(clock::monotonic_ns() + 50_000_000);
        }
    }
}

fn command_in(exe: &Path, run_dir: &Path, prefix: &str) -> Command {
    let mut command = Command::new(exe);
    command
        .env("TIDEGATE_RUN_DIR", run_dir)
        .env("TIDEGATE_PREFIX", prefix);
    command
}

impl Drop for Tidegate {
    fn drop(&mut self) {
        // The agent restores what it wrote and removes its groups; the guard kills it only when it
        // has not done so in time.
        self.agent.end(LEAVE_NS);
        let _ = std::fs::remove_dir_all(&self.run_dir);
    }
}
