//! `tidegate report`: the latency of main, as its operator measures it.

use tidegate_api::ReportRequest;

use crate::connect;
use crate::render;
use tidegate_api::Exit;
use tidegate_api::cli::Failure;

const SAMPLE: &str = "\
Examples:
  sudo tidegate set unit:nginx class=main objective='reported<80ms'
  while sleep 2; do sudo tidegate report nginx \"$(p99-of-nginx)\"; done
      headroom is found from these figures; report one every few
      seconds, each of the last seconds. A minute after the last one
      the headroom goes back to the default, 1 % a second";

/// Report the latency of main, for an objective reported<TIME
#[derive(clap::Args)]
#[command(after_long_help = SAMPLE)]
pub struct Args {
    /// The gate: its name, unit:NAME or cgroup:/PATH
    #[arg(value_name = "GATE")]
    target: String,
    /// The latency, as in 4.2ms
    #[arg(value_name = "VALUE")]
    latency: String,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    let request = ReportRequest {
        target: connect::target(&args.target)?,
        latency: args.latency.clone(),
    };
    let done = connect::to_agent()?.report(&request)?;
    render::show_done(args.json, &done)
}
