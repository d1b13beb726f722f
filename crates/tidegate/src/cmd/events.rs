//! `tidegate events`: what has happened.

use std::time::Duration;

use crate::connect;
use crate::exit::{Exit, Failure};
use crate::render::{self, events};

/// Between two looks with `--follow`.
const LOOK_PERIOD: Duration = Duration::from_millis(500);

const SAMPLE: &str = "\
Examples:
  tidegate events
      what has happened since the agent started
  tidegate events --follow --json
      an object a line, until the agent ends
  journalctl SYSLOG_IDENTIFIER=tidegate TIDEGATE_EVENT=outside_write
      where the agent is a service, the journal has them as well";

/// Show what has happened to gates, limits and the agent
#[derive(clap::Args)]
#[command(after_help = SAMPLE)]
pub struct Args {
    /// Only events after this number
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    since: u64,
    /// Go on as events come
    #[arg(long)]
    follow: bool,
    /// Print JSON, an object a line
    #[arg(long)]
    json: bool,
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    let agent = connect::to_agent()?;
    let mut since = args.since;
    let mut pid = None;
    loop {
        let found = agent.events(since)?;
        if pid.replace(found.pid).is_some_and(|pid| pid != found.pid) {
            // The next agent counts from 1 again.
            since = 0;
            continue;
        }
        let lines = match args.json {
            true => events::json_lines(&found)?,
            false => events::page(&found),
        };
        if !lines.is_empty() {
            render::print(&lines)?;
        }
        let is_last = found.events.is_empty();
        since = found.last_seq;
        match (is_last, args.follow) {
            (false, _) => {}
            (true, true) => std::thread::sleep(LOOK_PERIOD),
            (true, false) => return Ok(Exit::Ok),
        }
    }
}
