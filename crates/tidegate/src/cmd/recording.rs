//! `tidegate recording`: a part of what the agent records, as a file to keep.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use tidegate_agent::paths::RunDir;
use tidegate_recording::flight::Flight;
use tidegate_recording::{ENDING, LoadError, load, save};

use crate::connect;
use crate::render;
use tidegate_api::Exit;
use tidegate_api::cli::Failure;
use tidegate_api::cli::Progress;
use tidegate_api::cli::lengths;
use tidegate_recording::span::now_ms;

const NOTES: &str = "\
The agent records each second of the last seven days, and each step of its loop
in the last ten minutes; after an event that needs a look it keeps those ten
minutes in alerts/ of the same directory. A recording names gates, units,
groups and programs, and holds no command lines.

Examples:
  tidegate recording save --last 10m --out before.tgr
      what has just happened
  tidegate recording save --for 60s --out trial.tgr
      the next minute
  tidegate top --recording before.tgr
  tidegate-lab replay before.tgr --policy other.toml";

/// Save a part of what the agent records
#[derive(clap::Args)]
#[command(disable_help_subcommand = true, help_template = super::GROUP_HELP)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Save(Save),
}

/// Save a part of what the agent records as a file
#[derive(clap::Args)]
#[command(after_long_help = NOTES)]
struct Save {
    /// What has just happened [default: 10m]
    #[arg(long, value_name = "TIME", value_parser = lengths::seconds, conflicts_with = "ahead")]
    last: Option<u64>,
    /// What happens from now on: the command waits for so long
    #[arg(long = "for", value_name = "TIME", id = "ahead", value_parser = lengths::seconds)]
    ahead: Option<u64>,
    /// The file [default: tidegate-SECONDS.tgr]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// No progress on standard error
    #[arg(short, long)]
    quiet: bool,
}

const LAST_S: u64 = 600;

/// The agent writes a second once it is over.
const BEHIND: Duration = Duration::from_millis(2_200);

pub fn main(args: &Args) -> Result<Exit, Failure> {
    let What::Save(args) = &args.what;
    let failed = |why: String| Failure::new(Exit::Failure, format!("recording: {why}"));
    let began_ms = now_ms();
    if let Some(seconds) = args.ahead {
        if !is_recording()? {
            let why = "this agent records nothing: recording = \"off\" is in its configuration, or an alert of `tidegate status` says why";
            return Err(failed(why.to_owned()));
        }
        wait(seconds, args.quiet);
    }
    let dir = directory();
    let (from_ms, to_ms) = match args.ahead {
        Some(seconds) => (began_ms, began_ms + seconds * 1_000),
        None => {
            let last_ms = args.last.unwrap_or(LAST_S) * 1_000;
            (began_ms.saturating_sub(last_ms), began_ms)
        }
    };
    let mut recording = load(&dir, from_ms, to_ms).map_err(|error| Failure {
        exit: match &error {
            error if error.is_absence() => Exit::NoTarget,
            error if error.is_denied() => Exit::Refused,
            _ => Exit::Failure,
        },
        ..failed(told(&error))
    })?;
    if let Ok(flight) = Flight::look(&RunDir::from_env().flight()) {
        recording.steps = flight.since(from_ms * 1_000);
    }
    let out = args.out.clone();
    let out = out.unwrap_or_else(|| format!("tidegate-{}.{ENDING}", to_ms / 1_000).into());
    save(&recording, &out).map_err(|error| {
        failed(format!(
            "{}: {error}; write --out FILE where you may write",
            out.display()
        ))
    })?;
    let seconds = recording.len_s();
    let steps = recording.steps.len();
    render::print(&format!(
        "{}: {seconds} seconds, {steps} steps, {} events\n",
        out.display(),
        recording.events.len()
    ))
}

fn told(error: &LoadError) -> String {
    match error {
        error if error.is_denied() => format!("{error}; run as root"),
        LoadError::Io { error: why, .. } if why.kind() == std::io::ErrorKind::NotFound => {
            format!(
                "{error}; start an agent, which records while it runs (unless recording = \"off\", or an alert of `tidegate status` says why not)"
            )
        }
        _ => error.to_string(),
    }
}

/// An agent that has just started says so after its first second.
fn is_recording() -> Result<bool, Failure> {
    let agent = connect::to_agent()?;
    for _ in 0..6 {
        if agent.status()?.recording.is_some() {
            return Ok(true);
        }
        thread::sleep(Duration::from_millis(500));
    }
    Ok(false)
}

fn wait(seconds: u64, is_quiet: bool) {
    let progress = Progress::new("recording", seconds, is_quiet);
    for _ in 0..seconds {
        thread::sleep(Duration::from_secs(1));
        progress.done(1);
    }
    progress.finish();
    thread::sleep(BEHIND);
}

const OF_THE_SERVICE: &str = "/var/lib/tidegate/recording";

/// The directory of the agent that runs, or where the last one left one.
fn directory() -> PathBuf {
    let of_agent = connect::to_agent()
        .ok()
        .and_then(|agent| agent.status().ok()?.recording);
    if let Some(view) = of_agent {
        return view.directory.into();
    }
    let on_demand = RunDir::from_env().recording();
    match on_demand.is_dir() {
        true => on_demand,
        false => OF_THE_SERVICE.into(),
    }
}
