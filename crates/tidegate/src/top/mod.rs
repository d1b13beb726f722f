//! The live view: what comes from the agent ([`feed`]) and from the keyboard ([`keys`]) changes the [`screen`], which [`draw`] shows.

mod draw;
mod feed;
mod keys;
mod rows;
mod screen;
mod style;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ratatui::DefaultTerminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::crossterm::terminal;

use crate::connect;
use crate::exit::{Exit, Failure};
use crate::render;
use crate::top::feed::Feed;
use crate::top::keys::Command;
use crate::top::screen::{Note, Screen};
use crate::top::style::Look;

/// What was asked for.
pub struct Options {
    /// Seconds between two looks.
    pub period_s: u64,
    /// ASCII characters alone.
    pub is_ascii: bool,
}

/// A key is answered within this, and so is what the agent says.
const TURN: Duration = Duration::from_millis(100);

/// Signals that end a program; the terminal is put back first.
const ENDING: [i32; 2] = [libc::SIGTERM, libc::SIGINT];

/// What a shell says of a program that a hangup ended.
const HANGUP_STATUS: i32 = 128 + libc::SIGHUP;

/// Until `q`.
pub fn live(options: &Options) -> Result<Exit, Failure> {
    // A clear error before the screen is taken.
    connect::to_agent()?;
    let ends = Arc::new(AtomicBool::new(false));
    for signal in ENDING {
        signal_hook::flag::register(signal, Arc::clone(&ends))
            .map_err(|error| on_terminal(&error))?;
    }
    // The terminal is gone, and crossterm would read its end again and again without a pause.
    let at_once = Arc::new(AtomicBool::new(true));
    signal_hook::flag::register_conditional_shutdown(libc::SIGHUP, HANGUP_STATUS, at_once)
        .map_err(|error| on_terminal(&error))?;
    let mut terminal = ratatui::try_init().map_err(|error| on_terminal(&error))?;
    let result = run(&mut terminal, options, &ends);
    ratatui::restore();
    result.map_err(|error| on_terminal(&error))
}

fn on_terminal(error: &std::io::Error) -> Failure {
    let why = format!("top: the terminal: {error}; write --once for one screen as text");
    Failure::new(Exit::Failure, why)
}

fn run(
    terminal: &mut DefaultTerminal,
    options: &Options,
    ends: &AtomicBool,
) -> std::io::Result<Exit> {
    let look = Look::here(options.is_ascii);
    let mut screen = Screen::new(options.period_s);
    let mut feed = Feed::start(options.period_s);
    let mut is_stale = true;
    while !ends.load(Ordering::Relaxed) {
        for news in feed.news() {
            screen.take(news, now_unix_s());
            is_stale = true;
        }
        if let Some(target) = screen.wants_explained() {
            feed.explain(target);
        }
        if std::mem::take(&mut is_stale) {
            terminal.draw(|frame| draw::whole(frame, &mut screen, &look))?;
        }
        if !event::poll(TURN)? {
            continue;
        }
        is_stale = true;
        let Event::Key(key) = event::read()? else {
            continue;
        };
        if key.kind == KeyEventKind::Release {
            continue;
        }
        match keys::press(&mut screen, key) {
            Command::None => {}
            Command::Quit => break,
            Command::Period(period_s) => feed = Feed::start(period_s),
            Command::Set(request) => feed.set(request),
            Command::Unset(request) => feed.unset(request),
            Command::Save => screen.note = Some(save(&screen)),
        }
    }
    Ok(Exit::Ok)
}

/// One screen as text: as wide as the terminal, with all gates.
pub fn once(options: &Options) -> Result<Exit, Failure> {
    let agent = connect::to_agent()?;
    let mut screen = Screen::new(options.period_s);
    for news in feed::first_look(&agent)? {
        screen.take(news, now_unix_s());
    }
    let columns = terminal::size().map_or(0, |(columns, _)| columns);
    let columns = if columns < draw::WIDTH_MIN {
        draw::WIDTH_MIN
    } else {
        columns
    };
    let lines = draw::height_of_all(&screen);
    let look = Look::here(options.is_ascii).without_colour();
    let text = as_text(&mut screen, &look, columns, lines);
    render::print(&text)
}

/// What a terminal of this size would show.
fn as_text(screen: &mut Screen, look: &Look, columns: u16, lines: u16) -> String {
    let Ok(mut terminal) = ratatui::Terminal::new(TestBackend::new(columns, lines));
    let Ok(_) = terminal.draw(|frame| draw::whole(frame, screen, look));
    let buffer = terminal.backend().buffer();
    let rows = buffer.content.chunks(usize::from(columns.max(1)));
    rows.map(|row| {
        let line: String = row.iter().map(|cell| cell.symbol()).collect();
        format!("{}\n", line.trim_end())
    })
    .collect()
}

/// Writes what the agent said last into a file of the current directory.
fn save(screen: &Screen) -> Note {
    let Some(machine) = &screen.machine else {
        return Note::Error("nothing to save yet".to_owned());
    };
    let name = format!("tidegate-top-{}.json", now_unix_s());
    let written = serde_json::to_vec_pretty(machine)
        .map_err(std::io::Error::from)
        .and_then(|text| std::fs::write(&name, text));
    match written {
        Ok(()) => Note::Done(format!("saved as {name}")),
        Err(error) => Note::Error(format!("{name}: {error}; start top where you may write")),
    }
}

fn now_unix_s() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
