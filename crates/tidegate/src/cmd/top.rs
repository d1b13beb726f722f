//! `tidegate top`: the machine and its gates, live.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use crate::top::{self, Options, Playback};
use tidegate_api::Exit;
use tidegate_api::cli::Failure;
use tidegate_recording::span::{Span, load_span};

const SAMPLE: &str = "\
Keys: ? lists them. A gate that is selected stays selected wherever it moves in the list.

Examples:
  tidegate top
      everybody may look; to change a gate takes its owner or an administrator
  tidegate top --once | head -5
      one screen as text
  tidegate top --recording /var/lib/tidegate/recording/alerts/1795631144-outside-write.tgr
      the ten minutes around an alert: Space plays, [ ] step, g jumps";

/// Watch the machine and its gates live
#[derive(clap::Args)]
#[command(after_long_help = SAMPLE)]
pub struct Args {
    /// Seconds between polls, from 1 to 60
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=60))]
    period: u64,
    /// Print one screen with all gates, and end
    #[arg(long)]
    once: bool,
    /// Show a recording, or the last hour of a directory
    #[arg(long, value_name = "FILE")]
    recording: Option<PathBuf>,
    /// Draw with ASCII characters alone
    #[arg(long)]
    ascii: bool,
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    let options = Options {
        period_s: args.period,
        is_ascii: args.ascii,
    };
    let playback = match &args.recording {
        Some(path) => Some(playback(path)?),
        None => None,
    };
    if args.once {
        return top::once(&options, playback);
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        let why = "top: standard input and output are not both a terminal; write --once for one screen as text";
        return Err(Failure::new(Exit::Usage, why));
    }
    top::live(&options, playback)
}

fn playback(path: &Path) -> Result<Playback, Failure> {
    let span = match path.is_dir() {
        true => Span::default().or_last(HOUR_MS),
        false => Span::default(),
    };
    load_span("top", path, &span).map(Playback::new)
}

const HOUR_MS: u64 = 3_600_000;
