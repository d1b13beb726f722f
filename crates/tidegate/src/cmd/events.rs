//! `tidegate events`: what has happened.

use tidegate_api::EventsView;
use tidegate_api::client::{Client, Message};

use crate::connect;
use crate::render::{self, events};
use tidegate_api::Exit;
use tidegate_api::cli::Failure;

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
#[command(after_long_help = SAMPLE)]
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
    let mut since = args.since;
    let mut pid = None;
    loop {
        let agent = connect::to_agent()?;
        let found = agent.events(since)?;
        if pid.replace(found.pid).is_some_and(|pid| pid != found.pid) {
            // The next agent counts from 1 again.
            since = 0;
            continue;
        }
        print(args, &found)?;
        since = found.last_seq;
        match (found.events.is_empty(), args.follow) {
            (false, _) => {}
            (true, true) => since = follow(args, &agent, since, found.pid)?,
            (true, false) => return Ok(Exit::Ok),
        }
    }
}

/// Prints what comes after event number `since` until the stream of the agent `pid` ends; says how
/// far it came.
fn follow(args: &Args, agent: &Client, mut since: u64, pid: i32) -> Result<u64, Failure> {
    let mut stream = agent.stream_events(since)?;
    while stream.agent_pid() == pid
        && let Some(message) = stream.next_message()?
    {
        let mut found = EventsView::default();
        match message {
            Message::Event(event) => {
                since = event.seq;
                found.events.push(event);
            }
            Message::Gap(gap) => found.lost = gap.lost.unwrap_or(0),
            Message::Status(_) => {}
        }
        print(args, &found)?;
    }
    Ok(since)
}

fn print(args: &Args, found: &EventsView) -> Result<(), Failure> {
    let lines = match args.json {
        true => events::json_lines(found)?,
        false => events::page(found),
    };
    match lines.is_empty() {
        true => Ok(()),
        false => render::print(&lines).map(drop),
    }
}
