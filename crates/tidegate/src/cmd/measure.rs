//! `tidegate measure`: what side work costs main, by an experiment that ends by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_api::cli::{Failure, Progress, lengths};
use tidegate_api::client::Client;
use tidegate_api::{Exit, MeasureRequest, MeasureView};

use crate::connect;
use crate::render::{self, measure};

const NOTES: &str = "\
Every half second side work gets another of the levels, in random order, or is
held at its tolerance, the reference. The table has main's slowdown against the
reference with its 95 % interval, the rise of the share of late runs (which wait
for longer than main's mean run), and the CPUs that side work used. It needs a
main gate, side work and BPF sensing. Ctrl-C, a lost terminal or a dead agent
end it, and what was in force before is so again within 2 s.

Examples:
  sudo tidegate measure
  sudo tidegate measure --for 10m --levels 0,10,20,30,40
  sudo tidegate measure --by-gate
      which side gate costs how much: each is held and freed by its own coin
  sudo tidegate measure backup build
      the same of these side gates";

/// Measure what side work costs main, at several headrooms or by gate
#[derive(clap::Args)]
#[command(after_long_help = NOTES)]
pub struct Args {
    /// Switch only these side gates, each by itself
    #[arg(value_name = "GATE", hide_short_help = true)]
    gates: Vec<String>,
    /// How long
    #[arg(long = "for", value_name = "TIME", default_value = "2m", value_parser = length)]
    length: u64,
    /// Headrooms to compare, in percent of the machine
    #[arg(long, value_name = "PERCENT,...", default_value = "0,20,40", value_delimiter = ',', value_parser = level)]
    levels: Vec<f64>,
    /// Switch each side gate by itself
    #[arg(long)]
    by_gate: bool,
    /// Print the result as JSON
    #[arg(long, hide_short_help = true)]
    json: bool,
    /// No progress on standard error
    #[arg(short, long, hide_short_help = true)]
    quiet: bool,
}

/// Half of the agent's patience would do; four calls a second cost it little.
const POLL: Duration = Duration::from_millis(250);
const ENDING: [i32; 2] = [libc::SIGTERM, libc::SIGINT];

/// The shortest length depends on levels and gates; the agent checks it.
fn length(text: &str) -> Result<u64, String> {
    lengths::seconds_to(text, 3_600, "write a time up to 1h, as in 2m")
}

fn level(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%');
    let percent: Result<f64, _> = number.parse();
    match percent {
        Ok(percent) if (0.0..100.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err("is not from 0 to below 100; write percent, as in 0,20,40".to_owned()),
    }
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    let ends = Arc::new(AtomicBool::new(false));
    for signal in ENDING {
        signal_hook::flag::register(signal, Arc::clone(&ends))
            .map_err(|error| Failure::new(Exit::Failure, format!("measure: signals: {error}")))?;
    }
    let gates: Result<Vec<String>, Failure> = args
        .gates
        .iter()
        .map(|gate| connect::target(gate))
        .collect();
    let request = MeasureRequest {
        length_seconds: args.length,
        headroom_ratios: args.levels.clone(),
        by_gate: args.by_gate || !args.gates.is_empty(),
        gates: gates?,
    };
    let agent = connect::to_agent()?;
    let mut view = agent.measure(&request)?;
    let progress = Progress::new("measuring", view.length_seconds as u64, args.quiet);
    let followed = follow(&agent, &mut view, &progress, &ends);
    progress.finish();
    if let Err(error) = &followed {
        view.state = "ended".to_owned();
        view.ended_because = Some(error.message.clone());
    }
    render::show(args.json, &view, measure::page)?;
    match view.state.as_str() {
        "done" => Ok(Exit::Ok),
        _ => Ok(Exit::Failure),
    }
}

/// Asks until it is over; `view` has what was known last.
fn follow(
    agent: &Client,
    view: &mut MeasureView,
    progress: &Progress,
    ends: &AtomicBool,
) -> Result<(), Failure> {
    let id = view.id;
    let mut shown = 0;
    while view.state == "running" {
        std::thread::sleep(POLL);
        if ends.swap(false, Ordering::Relaxed) {
            *view = agent.end_measure()?;
            return Ok(());
        }
        let now = agent.measured(id)?;
        if now.id != id {
            let why = "measure: another agent has taken over, and knows nothing of it";
            return Err(Failure::new(Exit::Failure, why));
        }
        *view = now;
        let over = view.elapsed_seconds as u64;
        progress.done(over.saturating_sub(shown));
        shown = over;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_percent() {
        assert_eq!(level("20"), Ok(0.2));
        assert_eq!(level(" 2.5% "), Ok(0.025));
        for wrong in ["", "100", "-1", "many"] {
            assert!(level(wrong).is_err(), "{wrong}");
        }
    }
}
