//! Events, a line each.

use anstyle::Style;
use tidegate_api::{EventView, EventsView};

use super::{BAD, BOLD};
use tidegate_api::Exit;
use tidegate_api::cli::Failure;
use tidegate_api::cli::escaped;
use tidegate_recording::span::time;

pub fn page(found: &EventsView) -> String {
    let mut out = String::new();
    if found.lost > 0 {
        out += &format!("({} earlier events are forgotten)\n", found.lost);
    }
    for event in &found.events {
        out += &line(event);
    }
    out
}

fn line(event: &EventView) -> String {
    let style = match EventView::is_warning(&event.kind) {
        true => BAD,
        false => Style::new(),
    };
    let gate = event
        .gate
        .as_deref()
        .map(|gate| format!("{}: ", escaped(gate)));
    format!(
        "{:>6}  {}  {style}{:<18}{style:#} {BOLD}{}{BOLD:#}{}\n",
        event.seq,
        time(event.time_unix_seconds),
        escaped(&event.kind),
        gate.unwrap_or_default(),
        escaped(&event.message)
    )
}

pub fn json_lines(found: &EventsView) -> Result<String, Failure> {
    let mut out = String::new();
    for event in &found.events {
        let text = serde_json::to_string(event).map_err(|error| {
            Failure::new(
                Exit::Failure,
                format!("json: {error}; report this as a bug"),
            )
        })?;
        out += &format!("{text}\n");
    }
    Ok(out)
}
