//! `tidegate agent stop`: ends the agent.

use std::fs::OpenOptions;
use std::time::{Duration, Instant};

use tidegate_agent::client;
use tidegate_agent::paths::RunDir;
use tidegate_api::{Done, ErrorKind};

use crate::connect;
use crate::render;
use tidegate_api::Exit;
use tidegate_api::cli::Failure;

const NOTES: &str = "\
What was changed for processes and groups by set is put back. Side commands that
still run keep cpu.idle and a small static quota until they end, so that they
never become main's equal. Waits until the agent has left.";

/// Stop the agent and restore what it changed
#[derive(clap::Args)]
#[command(after_long_help = NOTES)]
pub struct Args {
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    let run_dir = RunDir::from_env();
    let done = match client::connect(&run_dir) {
        Ok(client) => {
            let done = client.stop()?;
            wait_until_left(&run_dir)?;
            done
        }
        // What was asked for is so already.
        Err(error) if error.kind == ErrorKind::Unreachable => Done {
            message: connect::without_agent(&run_dir).to_owned(),
        },
        Err(error) => return Err(error.into()),
    };
    render::show_done(args.json, &done)
}

/// How long an agent may take to put everything back.
const PATIENCE: Duration = Duration::from_secs(10);

/// The agent answers before it leaves; `repair` or another agent next needs it gone.
fn wait_until_left(run_dir: &RunDir) -> Result<(), Failure> {
    let path = run_dir.agent_lock();
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        // Who may not open the lock cannot tell, and need not wait.
        let Ok(lock) = OpenOptions::new().write(true).open(&path) else {
            return Ok(());
        };
        if lock.try_lock().is_ok() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let log = run_dir.log();
    Err(Failure::new(
        Exit::Failure,
        format!(
            "stop: the agent is still there after {PATIENCE:?}; see {}",
            log.display()
        ),
    ))
}
