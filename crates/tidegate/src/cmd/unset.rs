//! `tidegate unset`: takes terms back.

use tidegate_api::UnsetRequest;
use tidegate_terms::{Source, Term};

use crate::connect;
use crate::render;
use tidegate_api::Exit;
use tidegate_api::cli::Failure;

const SAMPLE: &str = "\
Examples:
  sudo tidegate unset pid:4711
      all terms: each value that is still Tidegate's is put back
  sudo tidegate unset ffmpeg headroom
      this term: the value from the next weaker source counts";

/// Take terms back; without names, all of them, and the gate ends
#[derive(clap::Args)]
#[command(after_long_help = SAMPLE)]
pub struct Args {
    /// pid:N, tid:N, unit:NAME, cgroup:/PATH, or a gate's name
    target: String,
    /// Names of terms
    #[arg(value_name = "TERM")]
    terms: Vec<String>,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    let mut terms = Vec::new();
    for name in &args.terms {
        terms.push(Term::named(name, &Source::Set)?.name().to_owned());
    }
    let request = UnsetRequest {
        target: connect::target(&args.target)?,
        terms,
    };
    let done = connect::to_agent()?.unset(&request)?;
    render::show_done(args.json, &done)
}
