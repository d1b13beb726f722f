//! `tidegate set`: terms for something that runs already.

use tidegate_api::SetRequest;
use tidegate_terms::{RawTerms, Source, Term};

use crate::connect;
use crate::render::{self, gates};
use tidegate_api::Exit;
use tidegate_api::cli::Failure;

const SAMPLE: &str = "\
Examples:
  sudo tidegate set pid:4711 class=side
  sudo tidegate set cgroup:/batch class=side tolerance=2% fallback=restore
  sudo tidegate set ffmpeg headroom=40%      (a gate's name, as status lists it)";

/// Give terms to a process, a group or a gate
#[derive(clap::Args)]
#[command(after_long_help = format!("{}\n\n{SAMPLE}", terms_table()))]
pub struct Args {
    /// pid:N, tid:N, unit:NAME, cgroup:/PATH, or a gate's name
    target: String,
    /// One or more terms
    #[arg(value_name = "TERM=VALUE", required = true)]
    terms: Vec<String>,
    /// For pid:N: the process alone, without those that it has started already
    #[arg(long, hide_short_help = true)]
    only: bool,
    /// Print the gate as JSON
    #[arg(long)]
    json: bool,
}

/// The terms as help shows them: one line each, from their table.
pub fn terms_table() -> String {
    let mut text = String::from("Terms:\n");
    let widest = Term::ALL.iter().map(|term| term.name().len()).max();
    let width = widest.unwrap_or(0);
    for term in Term::ALL {
        text.push_str(&render::wrapped(
            &format!("  {:<width$} ", term.name()),
            term.doc(),
        ));
        let range = format!("{} [default: {}]", term.range(), term.unsaid());
        text.push_str(&render::wrapped(&" ".repeat(width + 5), &range));
    }
    text.trim_end().to_owned()
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    let terms = RawTerms::from_assignments(&args.terms, &Source::Set)?;
    // Form only: the class may have been given before, and only the agent knows.
    terms.check()?;
    let request = SetRequest {
        target: connect::target(&args.target)?,
        terms: terms.to_map(),
        only: args.only,
    };
    let gate = connect::call_starting(|client| client.set(&request))?;
    render::show(args.json, &gate, gates::one)
}
