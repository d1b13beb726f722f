//! The live view: what comes from the agent ([`feed`]) or a recording ([`playback`]) and from the
//! keyboard ([`keys`]) changes the [`screen`], which [`draw`] shows.

mod draw;
mod feed;
mod keys;
mod playback;
mod rows;
mod screen;
mod style;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::crossterm::terminal;

use crate::connect;
use crate::render;
use crate::top::feed::{Feed, News};
use crate::top::keys::Command;
pub use crate::top::playback::Playback;
use crate::top::screen::{Note, Screen};
use crate::top::style::Look;
use tidegate_api::Exit;
use tidegate_api::cli::Failure;
use tidegate_recording::span::now_ms;

pub struct Options {
    pub period_s: u64,
    pub is_ascii: bool,
}

/// A key is answered within this, and so is what the agent says.
const TURN: Duration = Duration::from_millis(100);

/// Signals that end a program; the terminal is put back first.
const ENDING: [i32; 2] = [libc::SIGTERM, libc::SIGINT];

/// What a shell says of a program that a hangup ended.
const HANGUP_STATUS: i32 = 128 + libc::SIGHUP;

enum Shown {
    Live(Feed),
    Recording(Box<Playback>, Instant),
}

impl Shown {
    fn news(&mut self) -> Vec<News> {
        match self {
            Shown::Live(feed) => feed.news().collect(),
            Shown::Recording(playback, moved) => {
                if moved.elapsed() < Duration::from_secs(1) {
                    return Vec::new();
                }
                *moved = Instant::now();
                match playback.tick() {
                    true => playback.news(),
                    false => Vec::new(),
                }
            }
        }
    }

    fn explain(&self, gate: String) -> Option<News> {
        match self {
            Shown::Live(feed) => {
                feed.explain(gate);
                None
            }
            Shown::Recording(playback, _) => {
                let answer = playback.explain(&gate);
                Some(News::Explained(gate, Box::new(answer)))
            }
        }
    }
}

pub fn live(options: &Options, playback: Option<Playback>) -> Result<Exit, Failure> {
    // A clear error before the screen is taken.
    if playback.is_none() {
        connect::to_agent()?;
    }
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
    let result = run(&mut terminal, options, playback, &ends);
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
    playback: Option<Playback>,
    ends: &AtomicBool,
) -> std::io::Result<Exit> {
    let look = Look::here(options.is_ascii);
    let mut screen = first_screen(options, playback.as_ref());
    let mut shown = match playback {
        Some(playback) => Shown::Recording(Box::new(playback), Instant::now()),
        None => Shown::Live(Feed::start(options.period_s)),
    };
    let mut is_stale = true;
    while !ends.load(Ordering::Relaxed) {
        for news in shown.news() {
            is_stale = true;
            take(&mut screen, &shown, news);
        }
        if let Some(news) = screen
            .wants_explained()
            .and_then(|gate| shown.explain(gate))
        {
            take(&mut screen, &shown, news);
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
        match (keys::press(&mut screen, key), &mut shown) {
            (Command::Quit, _) => break,
            (Command::Period(period_s), Shown::Live(feed)) => *feed = Feed::start(period_s),
            (Command::Set(request), Shown::Live(feed)) => feed.set(request),
            (Command::Unset(request), Shown::Live(feed)) => feed.unset(request),
            (Command::Save, _) => screen.note = Some(save(&screen)),
            (Command::Move(to), Shown::Recording(playback, _)) => {
                if let Err(why) = playback.go(to) {
                    screen.note = Some(Note::Error(why));
                }
                let now_s = playback.unix_s();
                playback
                    .news()
                    .into_iter()
                    .for_each(|news| screen.take(news, now_s));
            }
            // Keys of the other kind of screen.
            _ => {}
        }
    }
    Ok(Exit::Ok)
}

/// Before anything has come from an agent; a recording is there already.
fn first_screen(options: &Options, playback: Option<&Playback>) -> Screen {
    let Some(playback) = playback else {
        return Screen::new(options.period_s);
    };
    let mut screen = Screen::of_recording();
    let news = playback.news().into_iter();
    news.for_each(|news| screen.take(news, playback.unix_s()));
    screen
}

fn take(screen: &mut Screen, shown: &Shown, news: News) {
    let now_s = match shown {
        Shown::Live(_) => now_unix_s(),
        Shown::Recording(playback, _) => playback.unix_s(),
    };
    screen.take(news, now_s);
}

/// The width of a screen as text where no terminal has one.
const TEXT_WIDTH: u16 = 120;

/// One screen as text: as wide as the terminal, with all gates.
pub fn once(options: &Options, playback: Option<Playback>) -> Result<Exit, Failure> {
    let mut screen = first_screen(options, playback.as_ref());
    if playback.is_none() {
        let agent = connect::to_agent()?;
        for news in feed::first_look(&agent)? {
            screen.take(news, now_unix_s());
        }
    }
    let columns = terminal::size().map_or(TEXT_WIDTH, |(columns, _)| columns);
    let columns = columns.max(draw::WIDTH_MIN);
    let lines = draw::height_of_all(&screen);
    let look = Look::here(options.is_ascii).without_colour();
    let text = as_text(&mut screen, &look, columns, lines);
    render::print(&text)
}

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
    now_ms() / 1_000
}
