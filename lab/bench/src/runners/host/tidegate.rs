//! Tidegate as a user has it: the command. An instance of the lab's own (run directory and cgroup
//! prefix), so that an experiment never meets the gates of the machine it runs on.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};

use serde_json::Value;
use tidegate_sim::engines::cgroup::Sensing;

use super::cleanup;
use super::groups::PREFIX;
use super::proc::Guarded;
use crate::{LabError, stop};

/// How long an agent may take to come up (BPF programs are verified then).
const PATIENCE_NS: u64 = 10_000_000_000;
/// ... and to clean up.
const LEAVE_NS: u64 = 60_000_000_000;
/// How long gates may outlive their commands.
const GATES_NS: u64 = 10_000_000_000;

/// Our own program, which is every load generator as well.
pub fn own_executable() -> Result<PathBuf, LabError> {
    let own = std::env::current_exe();
    own.map_err(|e| LabError::file("find our own executable", "/proc/self/exe", e))
}

/// The `tidegate` command that is driven: next to this program, or on the PATH.
pub fn executable() -> Result<PathBuf, LabError> {
    let own = own_executable()?;
    let folder = own.parent().map(Path::to_owned);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = folder.into_iter().chain(std::env::split_paths(&path));
    let mut files = folders.map(|folder| folder.join("tidegate"));
    files.find(|file| file.is_file()).ok_or_else(|| {
        LabError::needs(
            "the tidegate command",
            format!("it is neither next to {} nor on the PATH", own.display()),
            "install the package tidegate, or run make build",
        )
    })
}

fn last_words(log: &Path, count: usize) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(count)..].join(" | ")
}

pub struct Tidegate {
    exe: PathBuf,
    run_dir: PathBuf,
    prefix: String,
    agent: Guarded,
    status: Value,
}

impl Tidegate {
    /// Starts an agent and waits until it answers.
    pub fn start(exe: &Path, sense: Option<Sensing>) -> Result<Self, LabError> {
        static SERIAL: AtomicU8 = AtomicU8::new(0);
        let serial = char::from(b'a' + SERIAL.fetch_add(1, Ordering::Relaxed) % 26);
        let prefix = format!("{PREFIX}{}-{serial}", std::process::id());
        let parent = match Path::new("/run").is_dir() {
            true => PathBuf::from("/run"),
            false => std::env::temp_dir(),
        };
        let run_dir = parent.join(&prefix);
        std::fs::create_dir_all(&run_dir)
            .map_err(|e| LabError::file("make a run directory", &run_dir, e))?;
        let mut command = command_in(exe, &run_dir, &prefix);
        command.args(["agent", "run"]);
        if let Some(sense) = sense {
            command.args(["--sense", sense.name()]);
        }
        let log = run_dir.join("lab-agent.log");
        let agent = Guarded::logged("tidegate agent", command, &log).inspect_err(|_| {
            let _ = std::fs::remove_dir_all(&run_dir);
        })?;
        let mut tidegate = Tidegate {
            exe: exe.to_path_buf(),
            run_dir,
            prefix,
            agent,
            status: Value::Null,
        };
        let is_ready = stop::wait_for(PATIENCE_NS, || {
            if tidegate.run_dir.join("tidegate.sock").exists() {
                tidegate.status = tidegate.status().unwrap_or_default();
            }
            Ok(!tidegate.status.is_null() || tidegate.agent.ended().is_some())
        })?;
        let why = match tidegate.agent.ended() {
            Some(code) => format!("ended ({code})"),
            None if !is_ready => "does not answer after 10 s".into(),
            None => return Ok(tidegate),
        };
        let why = format!("{why}: {}", last_words(&log, 1));
        Err(LabError::process("tidegate agent", why))
    }

    pub fn agent_pid(&self) -> i32 {
        self.status["pid"].as_i64().unwrap_or(0) as i32
    }

    /// `bpf` or `usage`, as the agent says.
    pub fn sensing(&self) -> &str {
        self.status["sensing"].as_str().unwrap_or("")
    }

    /// `tidegate run TERMS -- WORDS` in this instance.
    pub fn run(&self, terms: &[String], words: &[String]) -> Command {
        let mut command = command_in(&self.exe, &self.run_dir, &self.prefix);
        command.arg("run").args(terms).arg("--").args(words);
        command
    }

    /// `tidegate set TARGET TERMS` in this instance.
    pub fn set(&self, target: &str, terms: &[String]) -> Result<(), LabError> {
        let words = ["set", target].into_iter();
        self.call(words.chain(terms.iter().map(String::as_str)))?;
        Ok(())
    }

    /// Waits until the gates of the scene before have ended. The agent notices within two seconds
    /// that their processes have gone, and keeps their headroom until then.
    pub fn await_no_gates(&self) -> Result<(), LabError> {
        let has_none = || {
            let status = self.status()?;
            Ok(status["gates"].as_array().is_none_or(Vec::is_empty))
        };
        match stop::wait_for(GATES_NS, has_none)? {
            true => Ok(()),
            false => Err(LabError::process(
                "tidegate agent",
                "keeps gates whose commands have ended",
            )),
        }
    }

    pub fn status(&self) -> Result<Value, LabError> {
        let text = self.call(["status", "--json"].into_iter())?;
        serde_json::from_slice(&text)
            .map_err(|e| LabError::process("tidegate status", format!("printed no JSON: {e}")))
    }

    fn call<'w>(&self, words: impl Iterator<Item = &'w str>) -> Result<Vec<u8>, LabError> {
        let mut command = command_in(&self.exe, &self.run_dir, &self.prefix);
        let failed = |why: String| LabError::process("tidegate", why);
        let output = command.args(words).stdin(Stdio::null()).output();
        let output = output.map_err(|e| failed(e.to_string()))?;
        match output.status.success() {
            true => Ok(output.stdout),
            false => Err(failed(
                String::from_utf8_lossy(&output.stderr).trim().into(),
            )),
        }
    }
}

impl Drop for Tidegate {
    fn drop(&mut self) {
        // The agent restores what it wrote and removes its groups; the guard kills it only when it
        // has not done so in time.
        self.agent.end(LEAVE_NS);
        cleanup::remove_groups_of(&self.prefix);
        let _ = std::fs::remove_dir_all(&self.run_dir);
    }
}

fn command_in(exe: &Path, run_dir: &Path, prefix: &str) -> Command {
    let mut command = Command::new(exe);
    command
        .env("TIDEGATE_RUN_DIR", run_dir)
        .env("TIDEGATE_PREFIX", prefix);
    command
}
