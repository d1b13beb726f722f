//! `tidegate unset`: takes terms back.

use tidegate_api::UnsetRequest;
use tidegate_terms::{Term, remedy_for_unknown};

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
    #[arg(value_name = "TERM", value_parser = term)]
    terms: Vec<String>,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

fn term(name: &str) -> Result<String, String> {
    let unknown = || format!("no such term; {}", remedy_for_unknown(name, &Term::names()));
    let term = Term::from_name(name).ok_or_else(unknown)?;
    Ok(term.name().to_owned())
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    let request = UnsetRequest {
        target: connect::target(&args.target)?,
        terms: args.terms.clone(),
    };
    let done = connect::to_agent()?.unset(&request)?;
    render::show_done(args.json, &done)
}
