//! What keys do.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use tidegate_api::{SetRequest, UnsetRequest};
use tidegate_terms::{RawTerms, Source};

use super::playback::{Move, time_of_day};
use super::screen::{Chosen, Note, Page, Prompt, Screen};

pub const KEYS: &[(&str, &str)] = &[
    ("Up Down j k", "select a gate (PgUp PgDn Home End: further)"),
    ("Enter", "why the gate runs as it does"),
    ("/", "list only gates that contain a text; Esc lists all"),
    ("< > s", "sort by the next column; the other way round"),
    (
        "t",
        "as a tree: gates below those in which they were started",
    ),
    ("Space", "the list stands still, plots and bars go on"),
    ("e", "what has happened"),
    ("+ -", "look more or less often"),
    ("=", "give the selected gate terms, as in weight=50"),
    ("u", "take the selected gate's terms back"),
    ("w", "save what is known as JSON in the current directory"),
    ("q Esc", "back; from the list, q ends top"),
];

pub const KEYS_OF_RECORDING: &[(&str, &str)] = &[
    ("Space", "play, or stop"),
    ("[ ]", "a second back, a second on"),
    ("{ }", "a minute back, a minute on"),
    ("g", "to a time of the day, as in 03:04:30"),
    ("+ -", "play faster, slower"),
    ("Up Down j k", "select a gate (PgUp PgDn Home End: further)"),
    ("Enter", "the gate in this second"),
    ("/", "list only gates that contain a text; Esc lists all"),
    ("< > s", "sort by the next column; the other way round"),
    ("e", "what had happened by then"),
    ("q Esc", "back; from the list, q ends top"),
];

/// The periods that + and - choose from, in seconds.
const PERIODS_S: [u64; 6] = [1, 2, 5, 10, 30, 60];

const PAGE_ROWS: isize = 10;

#[derive(Debug)]
pub enum Command {
    None,
    Quit,
    Period(u64),
    Set(SetRequest),
    Unset(UnsetRequest),
    Save,
    Move(Move),
}

pub fn press(screen: &mut Screen, key: KeyEvent) -> Command {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Command::Quit,
            _ => Command::None,
        };
    }
    match std::mem::take(&mut screen.prompt) {
        Prompt::None => command(screen, key.code),
        Prompt::Filter(before) => filter(screen, before, key.code),
        Prompt::Unset(chosen) => confirm(screen, chosen, key.code),
        Prompt::Terms(chosen, text) => terms(screen, chosen, text, key.code),
        Prompt::Jump(text) => jump(screen, text, key.code),
    }
}

fn in_recording(screen: &mut Screen, code: KeyCode) -> Option<Command> {
    let to = match code {
        KeyCode::Char(' ') => Move::Play,
        KeyCode::Char('[') => Move::By(-1),
        KeyCode::Char(']') => Move::By(1),
        KeyCode::Char('{') => Move::By(-60),
        KeyCode::Char('}') => Move::By(60),
        KeyCode::Char('+') => Move::Speed(1),
        KeyCode::Char('-') => Move::Speed(-1),
        KeyCode::Char('g') => {
            screen.prompt = Prompt::Jump(String::new());
            return Some(Command::None);
        }
        KeyCode::Char('u' | '=') => {
            let why = "this is a recording: nothing can be changed; start top without --recording";
            screen.note = Some(Note::Error(why.to_owned()));
            return Some(Command::None);
        }
        _ => return None,
    };
    Some(Command::Move(to))
}

fn jump(screen: &mut Screen, mut text: String, code: KeyCode) -> Command {
    match code {
        KeyCode::Esc => return Command::None,
        KeyCode::Enter => {}
        code => {
            edit(&mut text, code);
            screen.prompt = Prompt::Jump(text);
            return Command::None;
        }
    }
    match time_of_day(&text) {
        Some(second) => Command::Move(Move::To(second)),
        None => {
            let why = format!("\"{text}\" is no time of the day; write one as in 03:04:30");
            screen.note = Some(Note::Error(why));
            Command::None
        }
    }
}

fn command(screen: &mut Screen, code: KeyCode) -> Command {
    screen.note = None;
    if screen.is_recording
        && let Some(done) = in_recording(screen, code)
    {
        return done;
    }
    match code {
        KeyCode::Char('q') if screen.page == Page::List => return Command::Quit,
        KeyCode::Char('q') => screen.page = Page::List,
        KeyCode::Esc if screen.page == Page::List => screen.filter.clear(),
        KeyCode::Esc => screen.page = Page::List,
        KeyCode::Char('?' | 'h') => open(screen, Page::Help),
        KeyCode::Char('e') => open(screen, Page::Events),
        KeyCode::Char('+') => return period(screen, -1),
        KeyCode::Char('-') => return period(screen, 1),
        KeyCode::Char('w') => return Command::Save,
        KeyCode::Char('u') => ask(screen, Prompt::Unset),
        KeyCode::Char('=') => ask(screen, |chosen| Prompt::Terms(chosen, String::new())),
        KeyCode::Char(' ') => screen.freeze(),
        _ => match screen.page {
            Page::List => in_list(screen, code),
            _ => in_page(screen, code),
        },
    }
    Command::None
}

fn open(screen: &mut Screen, page: Page) {
    screen.page = page;
    screen.scroll = 0;
}

fn in_list(screen: &mut Screen, code: KeyCode) {
    match code {
        KeyCode::Up | KeyCode::Char('k') => screen.move_by(-1),
        KeyCode::Down | KeyCode::Char('j') => screen.move_by(1),
        KeyCode::PageUp => screen.move_by(-PAGE_ROWS),
        KeyCode::PageDown => screen.move_by(PAGE_ROWS),
        KeyCode::Home => screen.move_by(isize::MIN),
        KeyCode::End => screen.move_by(isize::MAX),
        KeyCode::Enter => match screen.chosen() {
            Some(_) => screen.open_explain(),
            None => screen.note = Some(select_first()),
        },
        KeyCode::Char('/') => screen.prompt = Prompt::Filter(screen.filter.clone()),
        KeyCode::Char('<') => screen.sort.column = screen.sort.column.next(-1),
        KeyCode::Char('>') => screen.sort.column = screen.sort.column.next(1),
        KeyCode::Char('s') => screen.sort.is_reversed = !screen.sort.is_reversed,
        KeyCode::Char('t') => screen.is_tree = !screen.is_tree,
        _ => {}
    }
}

fn in_page(screen: &mut Screen, code: KeyCode) {
    // The end of a page is known when it is drawn.
    let step = match code {
        KeyCode::Up | KeyCode::Char('k') => -1,
        KeyCode::Down | KeyCode::Char('j') => 1,
        KeyCode::PageUp => -PAGE_ROWS,
        KeyCode::PageDown => PAGE_ROWS,
        KeyCode::Home => isize::MIN,
        KeyCode::End => isize::MAX,
        KeyCode::Enter => {
            screen.page = Page::List;
            return;
        }
        _ => 0,
    };
    screen.scroll = screen.scroll.saturating_add_signed(step);
}

fn select_first() -> Note {
    Note::Error("no gate is selected; choose one with Up and Down".to_owned())
}

fn ask(screen: &mut Screen, prompt: impl FnOnce(Chosen) -> Prompt) {
    match screen.chosen() {
        Some(chosen) => screen.prompt = prompt(chosen),
        None => screen.note = Some(select_first()),
    }
}

fn period(screen: &mut Screen, step: isize) -> Command {
    let at = PERIODS_S.partition_point(|period_s| *period_s < screen.period_s);
    let last = PERIODS_S.len() - 1;
    screen.period_s = PERIODS_S[at.saturating_add_signed(step).min(last)];
    Command::Period(screen.period_s)
}

fn filter(screen: &mut Screen, before: String, code: KeyCode) -> Command {
    match code {
        KeyCode::Enter => return Command::None,
        KeyCode::Esc => {
            screen.filter = before;
            return Command::None;
        }
        code => edit(&mut screen.filter, code),
    }
    screen.prompt = Prompt::Filter(before);
    Command::None
}

fn edit(text: &mut String, code: KeyCode) {
    match code {
        KeyCode::Char(c) => text.push(c),
        KeyCode::Backspace => {
            text.pop();
        }
        _ => {}
    }
}

fn confirm(screen: &mut Screen, chosen: Chosen, code: KeyCode) -> Command {
    if code != KeyCode::Char('y') {
        screen.note = Some(Note::Done("nothing was changed".to_owned()));
        return Command::None;
    }
    match is_there(screen, &chosen) {
        true => Command::Unset(UnsetRequest {
            target: format!("gate:{}", chosen.name),
            terms: vec![],
        }),
        false => Command::None,
    }
}

fn terms(screen: &mut Screen, chosen: Chosen, mut text: String, code: KeyCode) -> Command {
    match code {
        KeyCode::Esc => return Command::None,
        KeyCode::Enter if text.trim().is_empty() => return Command::None,
        KeyCode::Enter => {}
        code => {
            edit(&mut text, code);
            screen.prompt = Prompt::Terms(chosen, text);
            return Command::None;
        }
    }
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    let read = RawTerms::from_assignments(&words, &Source::Set).and_then(|raw| {
        raw.check()?;
        Ok(raw)
    });
    match read {
        Ok(raw) if is_there(screen, &chosen) => Command::Set(SetRequest {
            target: format!("gate:{}", chosen.name),
            terms: raw.to_map(),
            only: false,
        }),
        Ok(_) => Command::None,
        Err(error) => {
            // What was typed is there to be fixed.
            screen.note = Some(Note::Error(error.to_string()));
            screen.prompt = Prompt::Terms(chosen, text);
            Command::None
        }
    }
}

/// Between question and answer a gate may end, and another one get its name.
fn is_there(screen: &mut Screen, chosen: &Chosen) -> bool {
    let is_there = screen.is_there(chosen);
    if !is_there {
        let why = format!(
            "gate {} has ended meanwhile; nothing was changed",
            chosen.name
        );
        screen.note = Some(Note::Error(why));
    }
    is_there
}
