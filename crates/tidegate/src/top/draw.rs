//! The screen: machine above, gates or a page below, alerts and keys at the bottom.

mod list;
mod machine;
mod page;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

use super::screen::{Note, Page, Prompt, Screen};
use super::style::{Look, Tone};
use tidegate_api::cli::escaped;

/// Narrower screens lose the right ends of lines.
pub const WIDTH_MIN: u16 = 80;

const HEAD_LINES: u16 = 4;
const PLOT_LINES: (u16, u16) = (8, 16);
/// Below this there is no plot.
const LINES_WITH_PLOT: u16 = 20;
const ALERTS_MAX: usize = 3;

pub fn height_of_all(screen: &Screen) -> u16 {
    let gates = u16::try_from(screen.gates.len()).unwrap_or(u16::MAX);
    // The list's heading, and the line at the bottom.
    let rest = gates.saturating_add(HEAD_LINES + 2 + alert_lines(screen));
    // With the plot a third of all.
    let plot = (rest / 2).clamp(PLOT_LINES.0, PLOT_LINES.1);
    rest.saturating_add(plot).max(LINES_WITH_PLOT)
}

pub fn whole(frame: &mut Frame, screen: &mut Screen, look: &Look) {
    let area = frame.area();
    let plot = match area.height {
        0..LINES_WITH_PLOT => 0,
        height => (height / 3).clamp(PLOT_LINES.0, PLOT_LINES.1),
    };
    let [head, plot, body, alerts, foot] = Layout::vertical([
        Constraint::Length(HEAD_LINES),
        Constraint::Length(plot),
        Constraint::Min(0),
        Constraint::Length(alert_lines(screen)),
        Constraint::Length(foot_lines(screen, area.width)),
    ])
    .areas(area);
    machine::head(frame, head, screen, look);
    match screen.page {
        Page::List => {
            machine::plot(frame, plot, screen, look);
            list::gates(frame, body, screen, look);
        }
        _ => page::whole(frame, plot.union(body), screen),
    }
    draw_alerts(frame, alerts, screen, look);
    draw_foot(frame, foot, screen, look);
    for cell in &mut frame.buffer_mut().content {
        if let Some(ascii) = look.ascii(cell.symbol()) {
            cell.set_symbol(ascii);
        }
    }
}

fn alert_lines(screen: &Screen) -> u16 {
    let Some(machine) = &screen.machine else {
        return 0;
    };
    // At most four.
    (machine.alerts.len().min(ALERTS_MAX) + usize::from(machine.measuring.is_some())) as u16
}

fn draw_alerts(frame: &mut Frame, area: Rect, screen: &Screen, look: &Look) {
    let Some(machine) = &screen.machine else {
        return;
    };
    let count = machine.alerts.len();
    let measuring = machine
        .measuring
        .iter()
        .map(|measuring| strong(look, &format!("Measuring: {}", measuring.sentence)));
    let alerts = machine
        .alerts
        .iter()
        .take(ALERTS_MAX)
        .enumerate()
        .map(|(nth, alert)| {
            let more = match (nth + 1 == ALERTS_MAX, count - (nth + 1)) {
                (true, more) if more > 0 => format!(" (and {more} more: tidegate status)"),
                _ => String::new(),
            };
            Line::styled(
                escaped(&format!("! {alert}{more}")),
                look.style(Tone::Alert),
            )
        });
    let lines: Vec<Line> = measuring.chain(alerts).collect();
    frame.render_widget(ratatui::text::Text::from(lines), area);
}

fn foot_lines(screen: &Screen, width: u16) -> u16 {
    match &screen.note {
        Some(Note::Done(text) | Note::Error(text)) => {
            let lines = text.chars().count() / usize::from(width.max(1)) + 1;
            // At most four, and words break where a line ends.
            (lines + usize::from(lines > 1)).min(4) as u16
        }
        None => 1,
    }
}

fn draw_foot(frame: &mut Frame, area: Rect, screen: &Screen, look: &Look) {
    let line = match (&screen.prompt, &screen.note) {
        (Prompt::Filter(_), _) => strong(look, &format!("/{}_", screen.filter)),
        (Prompt::Unset(chosen), _) => strong(
            look,
            &format!("take back all terms of gate {}? y or n", chosen.name),
        ),
        (Prompt::Terms(chosen, text), None) => {
            strong(look, &format!("terms for gate {}: {text}_", chosen.name))
        }
        (Prompt::Jump(text), _) => strong(look, &format!("to the time of day: {text}_")),
        (_, Some(Note::Error(why))) => Line::styled(escaped(why), look.style(Tone::Alert)),
        (_, Some(Note::Done(said))) => Line::raw(escaped(said)),
        _ => keys(screen, look),
    };
    frame.render_widget(Paragraph::new(line).wrap(Wrap { trim: true }), area);
}

fn strong<'a>(look: &Look, text: &str) -> Line<'a> {
    Line::styled(escaped(text), look.style(Tone::Strong))
}

fn keys<'a>(screen: &Screen, look: &Look) -> Line<'a> {
    let keys: &[(&str, &str)] = match screen.page {
        Page::List if screen.is_recording => &[
            ("?", "keys"),
            ("Space", "play"),
            ("[ ]", "step"),
            ("g", "jump"),
            ("+ -", "speed"),
            ("Enter", "explain"),
            ("e", "events"),
            ("q", "quit"),
        ],
        Page::List => &[
            ("?", "keys"),
            ("Enter", "explain"),
            ("/", "filter"),
            ("<>", "sort"),
            ("Space", "freeze"),
            ("e", "events"),
            ("q", "quit"),
        ],
        _ => &[("Up Down", "scroll"), ("q", "back")],
    };
    let mut spans = Vec::new();
    for (key, what) in keys {
        spans.push(Span::styled((*key).to_owned(), look.style(Tone::Strong)));
        spans.push(Span::styled(format!(" {what}   "), look.style(Tone::Faint)));
    }
    Line::from(spans)
}
