//! `tidegate policy`, `diff`, `apply`, `reload`, `confirm`, `rollback`: the rules of the files, before, in and out of force.

use jiff::SignedDuration;
use tidegate_api::{ApplyRequest, PolicyChangeView};

use crate::connect;
use crate::render::{self, policy};
use tidegate_api::Exit;
use tidegate_api::cli::Failure;
use tidegate_api::cli::lengths;

/// Show the policy in force: its files, rules and what they match
#[derive(clap::Args)]
#[command(after_help = "See also: tidegate check, diff, apply, confirm, rollback.")]
pub struct Args {
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

const DIFF_SAMPLE: &str = "\
Nothing is changed: the agent does in memory what `tidegate apply` would do,
and shows each gate and each kernel file that would be different.";

/// Show what the policy files would change, were they applied now
#[derive(clap::Args)]
#[command(after_help = DIFF_SAMPLE)]
pub struct DiffArgs {
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

const APPLY_SAMPLE: &str = "\
Examples:
  sudo tidegate apply --for 10m
      try the files for ten minutes; without `tidegate confirm` by then the
      policy before is in force again
  sudo tidegate apply
      the files are in force until others are

All or nothing: a mistake in a file, or a term that cannot be had here, leaves
everything as it was.";

/// Put the policy files in force, for good or on trial
#[derive(clap::Args)]
#[command(after_help = APPLY_SAMPLE)]
pub struct ApplyArgs {
    /// Go back after this time unless confirmed, as in 10m or 1h
    #[arg(long = "for", value_name = "TIME")]
    trial: Option<String>,
    /// Print what changed as JSON
    #[arg(long)]
    json: bool,
}

/// Read the policy files again: `apply` under the name that service managers know
#[derive(clap::Args)]
#[command(after_help = "All or nothing, and done when it returns (ExecReload= of the service).")]
pub struct ReloadArgs {
    /// Print what changed as JSON
    #[arg(long)]
    json: bool,
}

/// Keep the policy that is on trial
#[derive(clap::Args)]
pub struct ConfirmArgs {
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

/// Go back to the policy that was in force before
#[derive(clap::Args)]
#[command(after_help = "\
The files stay as they are, and are not read again until they are applied,
not even by the agent's next start.")]
pub struct RollbackArgs {
    /// Print what changed as JSON
    #[arg(long)]
    json: bool,
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    let view = connect::to_agent()?.policy()?;
    match args.json {
        true => render::json(&view),
        false => render::print(&policy::page(&view)),
    }
}

fn tell(changes: &PolicyChangeView, json: bool, tense: policy::Tense) -> Result<Exit, Failure> {
    match json {
        true => render::json(changes),
        false => render::print(&policy::changes(changes, tense)),
    }
}

pub fn diff(args: &DiffArgs) -> Result<Exit, Failure> {
    let changes = connect::to_agent()?.diff()?;
    tell(&changes, args.json, policy::Tense::Would)
}

pub fn apply(args: &ApplyArgs) -> Result<Exit, Failure> {
    let for_seconds = args.trial.as_deref().map(seconds).transpose()?;
    let request = ApplyRequest {
        for_seconds,
        is_first: !connect::is_running(),
    };
    let changes = connect::call_starting(|client| client.apply(&request))?;
    tell(&changes, args.json, policy::Tense::Did)?;
    match for_seconds {
        Some(seconds) if !args.json => {
            let trial = SignedDuration::from_secs(seconds as i64);
            render::print(&format!(
                "on trial: without `tidegate confirm` the policy before is back in {trial:#}\n"
            ))
        }
        _ => Ok(Exit::Ok),
    }
}

fn seconds(text: &str) -> Result<u64, Failure> {
    lengths::seconds(text)
        .map_err(|why| Failure::new(Exit::Usage, format!("--for: \"{text}\": {why}")))
}

pub fn reload(args: &ReloadArgs) -> Result<Exit, Failure> {
    let changes = connect::to_agent()?.apply(&ApplyRequest::default())?;
    tell(&changes, args.json, policy::Tense::Did)
}

pub fn confirm(args: &ConfirmArgs) -> Result<Exit, Failure> {
    let done = connect::to_agent()?.confirm()?;
    match args.json {
        true => render::json(&done),
        false => render::print(&format!("{}\n", done.message)),
    }
}

pub fn rollback(args: &RollbackArgs) -> Result<Exit, Failure> {
    let changes = connect::to_agent()?.rollback()?;
    tell(&changes, args.json, policy::Tense::Did)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_is_as_long_as_people_write_it() {
        assert_eq!(seconds("10m").unwrap(), 600);
        assert_eq!(seconds("1h 30m").unwrap(), 5_400);
        assert_eq!(seconds("45s").unwrap(), 45);
        for wrong in ["", "ten", "-5m", "0s", "8d", "10"] {
            assert_eq!(seconds(wrong).unwrap_err().exit, Exit::Usage, "{wrong}");
        }
    }
}
