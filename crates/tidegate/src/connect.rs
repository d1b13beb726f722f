//! Reaching the agent of the run directory.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tidegate_agent::paths::RunDir;
use tidegate_agent::{client, has_records};
use tidegate_api::client::Client;
use tidegate_api::{ApiError, ErrorKind};

use tidegate_api::Exit;
use tidegate_api::cli::Failure;

pub fn socket() -> PathBuf {
    RunDir::from_env().socket()
}

pub fn to_agent() -> Result<Client, Failure> {
    let run_dir = RunDir::from_env();
    client::connect(&run_dir).map_err(|error| {
        let socket = run_dir.socket();
        let is_absent = |error: io::Error| {
            matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            )
        };
        if error.kind == ErrorKind::Unreachable
            && UnixStream::connect(&socket).is_err_and(is_absent)
        {
            let why = without_agent(&run_dir);
            return Failure::new(
                Exit::Unreachable,
                format!("agent: {}: {why}", socket.display()),
            );
        }
        Failure::from(error)
    })
}

/// What holds while no agent runs.
pub fn without_agent(run_dir: &RunDir) -> &'static str {
    match has_records(run_dir) {
        false if !may_start(run_dir) => {
            "no agent runs, so nothing is limited; `sudo tidegate run` or an administrator starts one"
        }
        true => {
            "no agent runs, and the limits of the last one are still in force; the next `tidegate run` takes them \
             over, and `tidegate agent repair` undoes them once their commands have ended"
        }
        false => {
            "no agent runs, so nothing is limited; the first `tidegate run` or `set` starts one"
        }
    }
}

/// Whether the caller may make the run directory, or files in it.
fn may_start(run_dir: &RunDir) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    let mut there = run_dir.dir().ancestors().filter(|dir| dir.exists());
    let may_write = |dir| rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).is_ok();
    is_root || there.next().is_some_and(may_write)
}

pub fn is_running() -> bool {
    to_agent().is_ok()
}

/// How long a call is repeated when the agent is asked too often: a loop of short commands is no
/// misuse.
const PATIENCE: Duration = Duration::from_secs(5);

/// Calls the agent that runs now, or a new one.
pub fn call_starting<R>(call: impl Fn(&Client) -> Result<R, ApiError>) -> Result<R, Failure> {
    let client = client::connect_or_start(&RunDir::from_env())?;
    let started = Instant::now();
    loop {
        match call(&client) {
            Err(error) if error.kind == ErrorKind::Busy && started.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(100));
            }
            answer => return Ok(answer?),
        }
    }
}

/// `gate:` before a bare name, so that `tidegate explain ffmpeg` means the gate of that name.
pub fn target(text: &str) -> Result<String, Failure> {
    if text.is_empty() {
        return Err(Failure::new(
            Exit::Usage,
            "target: \"\" is empty; write a gate's name, pid:N, unit:NAME or cgroup:/PATH",
        ));
    }
    if text.contains(':') {
        return Ok(text.to_owned());
    }
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Failure::new(
            Exit::Usage,
            format!("target: \"{text}\" is a bare number; write pid:{text} or gate:{text}"),
        ));
    }
    if text.starts_with('/') {
        return Err(Failure::new(
            Exit::Usage,
            format!("target: \"{text}\" is a bare path; write cgroup:{text}"),
        ));
    }
    Ok(format!("gate:{text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_names_are_gates_and_ambiguous_words_are_refused() {
        assert_eq!(target("ffmpeg").unwrap(), "gate:ffmpeg");
        assert_eq!(target("pid:1").unwrap(), "pid:1");
        assert!(target("123").unwrap_err().message.contains("pid:123"));
        assert!(target("/a/b").unwrap_err().message.contains("cgroup:/a/b"));
        assert!(target("").is_err());
    }
}
