//! Reaching the agent of an instance, and starting one when none runs.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;

use tidegate_api::client::Client;
use tidegate_api::{ApiError, ApiResult, ErrorKind};

use crate::paths::{RunDir, open_lock, remedy};
use crate::process::liveness::{agent_lives, next_agent_lives};
use crate::process::program::own_program;

pub fn connect(run_dir: &RunDir) -> ApiResult<Client> {
    Ok(Client::connect(run_dir.socket())?.with_log(run_dir.log()))
}

pub fn connect_or_start(run_dir: &RunDir) -> ApiResult<Client> {
    let client = match connect(run_dir) {
        Err(error) if error.kind == ErrorKind::Unreachable => {
            start_agent(run_dir, None)?;
            connect(run_dir)?
        }
        other => other?,
    };
    let run_dir = run_dir.clone();
    Ok(client.with_start_next(Box::new(move || start_agent(&run_dir, None))))
}

/// Starts an agent in the background and waits until it serves or says why it can't.
///
/// The caller may exec another program next, so the agent must not stay its child: `agent run
/// --on-demand` forks and its first process, which is waited for here, leaves at once. The agent
/// reports over its standard output, which it then turns into its log.
pub(crate) fn start_agent(run_dir: &RunDir, engine: Option<&str>) -> ApiResult<()> {
    run_dir.make().map_err(|why| failed(&why.to_string()))?;
    // Two `run`s at once: the second waits here and then finds the first one's agent.
    let lock_path = run_dir.start_lock();
    let lock = open_lock(&lock_path).map_err(of_file(&lock_path))?;
    lock.lock().map_err(of_file(&lock_path))?;
    if next_agent_lives(run_dir) {
        return Ok(());
    }
    let log_path = run_dir.log();
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&log_path)
        .map_err(of_file(&log_path))?;
    let mut command = own_program();
    command
        .args(["agent", "run", "--on-demand"])
        .args(engine.map(|engine| format!("--engine={engine}")))
        // Nothing else of the caller's environment is the agent's.
        .env_clear()
        .envs(std::env::vars_os().filter(|(name, _)| is_the_agents(name)))
        .envs(run_dir.env())
        .current_dir("/");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .process_group(0);
    let mut child = command
        .spawn()
        .map_err(|error| failed(&error.to_string()))?;
    let mut report = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        let _ = stdout.read_to_string(&mut report);
    }
    let _ = child.wait();
    match report.trim() {
        "ready" => Ok(()),
        // A starter that was killed has left one behind, and that was faster.
        _ if agent_lives(run_dir) => Ok(()),
        "" => {
            let why = format!("it ended without a word; see {}", log_path.display());
            Err(failed(&why))
        }
        why => Err(failed(why)),
    }
}

fn is_the_agents(name: &OsStr) -> bool {
    let needed = [
        "PATH",
        "RUST_BACKTRACE",
        "HOME",
        "XDG_RUNTIME_DIR",
        "XDG_CONFIG_HOME",
    ];
    needed.iter().any(|one| name == *one) || name.as_encoded_bytes().starts_with(b"TIDEGATE_")
}

fn failed(why: &str) -> ApiError {
    let why = why.strip_prefix("agent: ").unwrap_or(why);
    let detail = format!("agent: cannot be started: {why}");
    ApiError::new(ErrorKind::Unreachable, detail)
}

fn of_file(path: &Path) -> impl FnOnce(io::Error) -> ApiError + '_ {
    move |error| failed(&format!("{}: {error}", path.display())).with_remedy(remedy(&error))
}
