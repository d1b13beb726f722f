//! `tidegate policy`: the rules of the files, before they are in force, in force and out of force.

use jiff::SignedDuration;
use tidegate_agent::paths::RunDir;
use tidegate_api::cli::{Failure, lengths};
use tidegate_api::{ApplyRequest, Exit, PolicyChangeView};

use crate::cmd::check;
use crate::connect;
use crate::render::{self, policy};

/// Show, check, compare and apply policy files
#[derive(clap::Args)]
#[command(disable_help_subcommand = true, help_template = super::GROUP_HELP)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Show the policy in force: its files, rules and what they match
    Show(JsonArgs),
    Check(check::Args),
    /// Show what applying the policy files would change
    #[command(after_long_help = DIFF_SAMPLE)]
    Diff(JsonArgs),
    Apply(ApplyArgs),
    Confirm(ConfirmArgs),
    /// Go back to the previous policy
    #[command(after_long_help = ROLLBACK_SAMPLE)]
    Rollback(ChangeArgs),
    /// Read the policy files again, as service managers do
    #[command(
        hide = true,
        after_long_help = "All or nothing, and done when it returns (ExecReload= of the service)."
    )]
    Reload(ChangeArgs),
}

#[derive(clap::Args)]
struct JsonArgs {
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

const DIFF_SAMPLE: &str = "\
Nothing is changed, and no agent is started: what `tidegate policy apply` would
do is done in memory. Each gate and each kernel file that would differ is shown.
Ends with 0 if nothing would change, with 1 if something would, and with another
code if that cannot be found out.";

const APPLY_SAMPLE: &str = "\
Examples:
  sudo tidegate policy apply --for 10m
      try the files for ten minutes; without `tidegate policy confirm` by then
      the previous policy is in force again
  sudo tidegate policy apply
      applies until the next apply

All or nothing: a mistake in a file, or an unsupported term, leaves everything
as it was.";

/// Put the policy files in force, for good or on trial
#[derive(clap::Args)]
#[command(after_long_help = APPLY_SAMPLE)]
struct ApplyArgs {
    /// Go back after this time unless confirmed, as in 10m or 1h
    #[arg(long = "for", value_name = "TIME")]
    trial: Option<String>,
    /// Print what changed as JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct ChangeArgs {
    /// Print what changed as JSON
    #[arg(long)]
    json: bool,
}

/// Keep the policy that is on trial
#[derive(clap::Args)]
struct ConfirmArgs {
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

const ROLLBACK_SAMPLE: &str = "\
The files stay as they are, and are not read again until they are applied,
not even by the agent's next start.";

pub fn main(args: &Args) -> Result<Exit, Failure> {
    match &args.what {
        What::Show(args) => show(args),
        What::Check(args) => check::main(args),
        What::Diff(args) => diff(args),
        What::Apply(args) => apply(args),
        What::Confirm(args) => confirm(args),
        What::Rollback(args) => rollback(args),
        What::Reload(args) => reload(args),
    }
}

fn show(args: &JsonArgs) -> Result<Exit, Failure> {
    let view = connect::to_agent()?.policy()?;
    render::show(args.json, &view, policy::page)
}

fn tell(changes: &PolicyChangeView, json: bool, tense: policy::Tense) -> Result<Exit, Failure> {
    render::show(json, changes, |changes| policy::changes(changes, tense))
}

/// Ends with 1 where something would change, so no failure has that code.
fn diff(args: &JsonArgs) -> Result<Exit, Failure> {
    let changes = difference().map_err(|failure| match failure.exit {
        Exit::Failure => Failure {
            exit: Exit::Refused,
            ..failure
        },
        _ => failure,
    })?;
    tell(&changes, args.json, policy::Tense::Would)?;
    let is_same = changes.gates.is_empty() && changes.writes.is_empty();
    match is_same {
        true => Ok(Exit::Ok),
        false => Ok(Exit::Failure),
    }
}

fn difference() -> Result<PolicyChangeView, Failure> {
    match connect::to_agent() {
        Err(failure) if failure.exit == Exit::Unreachable => {
            Ok(tidegate_agent::diff_without_agent(&RunDir::from_env())?)
        }
        agent => Ok(agent?.diff()?),
    }
}

fn apply(args: &ApplyArgs) -> Result<Exit, Failure> {
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
                "on trial: without `tidegate policy confirm` the policy before is back in {trial:#}\n"
            ))
        }
        _ => Ok(Exit::Ok),
    }
}

fn seconds(text: &str) -> Result<u64, Failure> {
    lengths::seconds(text)
        .map_err(|why| Failure::new(Exit::Usage, format!("--for: \"{text}\" {why}")))
}

fn reload(args: &ChangeArgs) -> Result<Exit, Failure> {
    let changes = connect::to_agent()?.apply(&ApplyRequest::default())?;
    tell(&changes, args.json, policy::Tense::Did)
}

fn confirm(args: &ConfirmArgs) -> Result<Exit, Failure> {
    let done = connect::to_agent()?.confirm()?;
    render::show_done(args.json, &done)
}

fn rollback(args: &ChangeArgs) -> Result<Exit, Failure> {
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
