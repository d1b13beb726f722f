//! Pages of text: why a gate runs as it does, what has happened, the keys.

use anstream::adapter::strip_str;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Text};
use tidegate_api::EventsView;

use crate::render::{events, explain};
use crate::top::keys::{KEYS, KEYS_OF_RECORDING};
use crate::top::screen::{Page, Screen};

pub fn whole(frame: &mut Frame, area: Rect, screen: &mut Screen) {
    let text = match screen.page {
        Page::Explain => explanation(screen),
        Page::Events => what_has_happened(screen),
        Page::Help | Page::List if screen.is_recording => help(KEYS_OF_RECORDING),
        Page::Help | Page::List => help(KEYS),
    };
    let lines: Vec<Line> = text.lines().map(Line::raw).collect();
    let height = usize::from(area.height);
    let most = lines.len().saturating_sub(height);
    screen.scroll = screen.scroll.min(most);
    let seen: Vec<Line> = lines.into_iter().skip(screen.scroll).take(height).collect();
    frame.render_widget(Text::from(seen), area);
}

fn explanation(screen: &Screen) -> String {
    match &screen.explained {
        None => "asking".to_owned(),
        Some(Ok(view)) => strip_str(&explain::page(view)).to_string(),
        Some(Err(why)) => why.clone(),
    }
}

fn what_has_happened(screen: &Screen) -> String {
    if screen.events.is_empty() {
        return "nothing has happened since the agent started".to_owned();
    }
    let view = EventsView {
        events: screen.events.iter().rev().cloned().collect(),
        ..EventsView::default()
    };
    strip_str(&events::page(&view)).to_string()
}

fn help(keys: &[(&str, &str)]) -> String {
    let width = keys.iter().map(|(keys, _)| keys.len()).max().unwrap_or(0);
    keys.iter()
        .map(|(keys, what)| format!("  {keys:<width$}   {what}\n"))
        .collect()
}
