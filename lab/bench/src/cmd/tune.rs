//! `tidegate-lab tune`: which terms would have served a work best.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Serialize;
use tidegate_lab::replay::tune::{self, Aim, TuneError, TuneView};
use tidegate_lab::replay::{Demand, Replay, rule, stretch, target};
use tidegate_lab::runners::host::tidegate::executable;
use tidegate_recording::Recording;
use tidegate_terms::Share;

use crate::cmd::replay;
use crate::render;
use tidegate_api::Exit;
use tidegate_api::cli::Progress;
use tidegate_api::cli::{self, Failure, report};
use tidegate_recording::span::{self, load_span, time};

/// Where no flag says which part: an hour.
const SPAN_MS: u64 = 3_600_000;

/// Runs of each candidate.
const SEEDS: u32 = 3;

const NOTES: &str = "\
Examples:
  tidegate-lab tune backup.service --recording night.tgr
      the terms under which it does most while main's requests take at most 5 %
      longer
  tidegate-lab tune unit:backup.service --aim 'p99<5ms' --out backup.toml
      of the last hour of this machine's agent: main waits at most 5 ms for a
      CPU in 99 of 100 cases; what is found is a policy file
  tidegate policy check backup.toml
      before it goes to /etc/tidegate/tidegate.toml.d

Each candidate is simulated on the recorded demand (see `tidegate-lab replay`).
Ends with 1 where no candidate meets the aim.";

/// Find the terms that would have served side work best, from a recording
#[derive(clap::Args)]
#[command(after_help = NOTES)]
pub struct Args {
    /// The work: gate:NAME, unit:NAME, cgroup:/PATH, or a name alone
    target: String,
    /// A recording, or the directory of an agent that records [default: this
    /// machine's agent's, of which the last hour]
    #[arg(long, value_name = "PATH")]
    recording: Option<PathBuf>,
    #[command(flatten)]
    span: span::Span,
    /// How long main may wait to run, as in p99<5ms
    #[arg(long, value_name = "PNN<TIME", value_parser = Aim::parse, conflicts_with = "harm")]
    aim: Option<Aim>,
    /// How much longer main's requests may take because of it [default: 5%]
    #[arg(long, value_name = "PERCENT", value_parser = harm)]
    harm: Option<Aim>,
    /// Write what was found as a policy file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    how: replay::How,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Tuned<'v> {
    #[serde(flatten)]
    view: &'v TuneView,
    /// The policy file; none where there is none.
    policy: Option<&'v str>,
}

fn harm(text: &str) -> Result<Aim, String> {
    let share = Share::parse(text).map_err(|why| format!("{why}; write it as in 5%"))?;
    Ok(Aim::Harm { ppm: share.ppm() })
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    let whole = load(args)?;
    let failed = |exit, why: String| Failure::new(exit, format!("tune: {why}"));
    let find = |recording: &Recording, demand: &Demand| {
        target::find(recording, demand, &args.target)
            .map_err(|error| failed(Exit::NoTarget, error.to_string()))
    };
    let demand = Demand::of(&whole);
    let work = &demand.works[find(&whole, &demand)?];
    let busiest = work.id.and_then(|id| stretch::busiest(&whole, id));
    let is_cut = busiest.is_some();
    let recording = busiest.unwrap_or(whole);
    let replayed = Replay::new(&recording, args.how.options(SEEDS))
        .map_err(|error| replay::failed("tune", &error))?;
    let work = find(&recording, &replayed.demand)?;
    let aim = args.aim.or(args.harm).unwrap_or(Aim::Harm {
        ppm: Share::FIVE_PERCENT.ppm(),
    });
    let quiet = args.how.quiet || args.json;
    let progress = Progress::new("tune", replayed.total_ns(tune::arms()), quiet);
    let view = tune::tune(&replayed, work, aim, &|ns| progress.done(ns));
    progress.finish();
    let mut view = view.map_err(|error| match error {
        TuneError::IsMain(_) => failed(Exit::Usage, error.to_string()),
        TuneError::Replay(error) => replay::failed("tune", &error),
    })?;
    if is_cut {
        view.assumptions.insert(0, cut_note(&recording));
    }
    let policy = policy_of(&view);
    let tuned = Tuned {
        view: &view,
        policy: policy.as_ref().and_then(|policy| policy.as_deref().ok()),
    };
    match args.json {
        true => cli::json(&tuned)?,
        false => cli::print(&render::tune::page(&view, tuned.policy))?,
    };
    finish(args, &view, policy)
}

fn cut_note(recording: &Recording) -> String {
    let (first_ms, last_ms) = recording.span_ms().unwrap_or_default();
    format!(
        "Of the recording the five minutes are simulated in which main used most beside this work, from {} to {}; --from and --to take another part.",
        time(first_ms as f64 / 1e3),
        time(last_ms as f64 / 1e3)
    )
}

fn load(args: &Args) -> Result<Recording, Failure> {
    match &args.recording {
        Some(path) => load_span("tune", path, &args.span),
        None => {
            let span = args.span.or_last(SPAN_MS);
            load_span("tune", &recorded_here(), &span)
        }
    }
}

/// The directory in which the agent that runs here records, or the service's.
fn recorded_here() -> PathBuf {
    let status = || -> Option<serde_json::Value> {
        let mut command = Command::new(executable().ok()?);
        let output = command.args(["status", "--json"]).output().ok()?;
        serde_json::from_slice(&output.stdout).ok()
    };
    let status = status().unwrap_or_default();
    let directory = status["recording"]["directory"].as_str();
    directory.unwrap_or("/var/lib/tidegate/recording").into()
}

/// The best candidate as a policy file, or why there can be none.
fn policy_of(view: &TuneView) -> Option<Result<String, String>> {
    let row = view.rows.get(view.chosen?)?;
    let headroom_pct = row.headroom_pct?;
    let about = format!(
        "Found by tidegate-lab tune for {}: {}.",
        view.target.escape_debug(),
        view.aim
    );
    let policy = rule::policy(&view.target, &view.cgroup, headroom_pct, &about);
    Some(policy.map_err(|error| error.to_string()))
}

fn finish(
    args: &Args,
    view: &TuneView,
    policy: Option<Result<String, String>>,
) -> Result<Exit, Failure> {
    let Some(policy) = policy else {
        let why = format!(
            "tune: {}: no candidate meets the aim ({}); allow more with --aim or --harm, or leave the work out of busy hours",
            view.target, view.aim
        );
        return Err(Failure::new(Exit::Failure, why));
    };
    match (policy, &args.out) {
        (Ok(text), Some(path)) => write(path, &text),
        (Err(why), Some(_)) => Err(Failure::new(Exit::Usage, format!("tune: --out: {why}"))),
        (Err(why), None) => {
            report(&format!("tune: {why}"));
            Ok(Exit::Ok)
        }
        (Ok(_), None) => Ok(Exit::Ok),
    }
}

fn write(path: &Path, text: &str) -> Result<Exit, Failure> {
    std::fs::write(path, text).map_err(|error| {
        let why = format!(
            "tune: --out: {}: cannot be written: {error}; choose another place",
            path.display()
        );
        Failure::new(Exit::Failure, why)
    })?;
    report(&format!(
        "wrote {0}; `tidegate policy check {0}`, then put it into /etc/tidegate/tidegate.toml.d",
        path.display()
    ));
    Ok(Exit::Ok)
}
