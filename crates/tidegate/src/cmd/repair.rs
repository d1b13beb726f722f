//! `tidegate agent repair`: puts back what a dead agent left.

use serde::Serialize;
use tidegate_agent::paths::RunDir;
use tidegate_agent::systemd::own_unit::is_restarting;
use tidegate_agent::{After, is_handed_over};

use crate::render;
use tidegate_api::Exit;
use tidegate_api::cli::Failure;

const NOTES: &str = "\
Reads the ledger of what was written. A value is put back only where it is
still ours; running commands keep a static limit (side work never becomes
main's equal). Does nothing while an agent runs. The service's ExecStopPost:
after a crash ($SERVICE_RESULT) it only writes the fallback that gates declared,
and at a restart it does nothing.";

/// Restore what a dead agent left in kernel files
#[derive(clap::Args)]
#[command(after_long_help = NOTES)]
pub struct Args {
    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Repaired {
    lines: Vec<String>,
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    let run_dir = RunDir::from_env();
    let lines = tidegate_agent::repair(&run_dir, after(&run_dir)).map_err(|error| {
        match error.is_denied() {
            true => Failure::new(Exit::Refused, error.to_string()),
            false => Failure::new(Exit::Failure, error.to_string()),
        }
    })?;
    render::show(args.json, &Repaired { lines }, |done| {
        done.lines.iter().map(|line| format!("{line}\n")).collect()
    })
}

/// systemd tells its ExecStopPost how the service ended (systemd.exec(5), `$SERVICE_RESULT`); a
/// person tells nothing.
fn after(run_dir: &RunDir) -> After {
    match std::env::var("SERVICE_RESULT") {
        Ok(result) if result != "success" => After::Crash,
        // A stop may have overtaken the restart for which the agent left.
        Ok(_) if is_handed_over(run_dir) && is_restarting().unwrap_or(false) => After::HandOver,
        _ => After::End,
    }
}
