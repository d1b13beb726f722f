//! Answers for people: plain text under 80 columns, with colour only where it goes to a terminal.

pub mod events;
pub mod explain;
pub mod gates;
pub mod policy;
pub mod replay;
pub mod status;
#[cfg(test)]
mod tests;
pub mod tune;

use std::io::{ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd};

use anstyle::{AnsiColor, Style};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::exit::{Exit, Failure};
use crate::plain_text::escaped;

/// The widest line that is written.
pub const WIDTH: usize = 80;

/// Of headings.
pub const BOLD: Style = Style::new().bold();
/// Of what is well.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// Of what is not.
pub const BAD: Style = AnsiColor::Red.on_default().bold();

/// Prints to standard output; colours are taken out unless it is a terminal (and by `NO_COLOR`).
pub fn print(text: &str) -> Result<Exit, Failure> {
    let mut stdout = anstream::stdout().lock();
    finish(
        stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush()),
    )
}

/// Prints JSON, indented, with a line end.
pub fn json<T: serde::Serialize>(value: &T) -> Result<Exit, Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| {
        Failure::new(
            Exit::Failure,
            format!("json: {error}; report this as a bug"),
        )
    })?;
    let mut stdout = std::io::stdout().lock();
    finish(
        stdout
            .write_all(format!("{text}\n").as_bytes())
            .and_then(|()| stdout.flush()),
    )
}

/// Whether the other end of a pipe is open, or a terminal still there.
fn has_reader(output: BorrowedFd<'_>) -> bool {
    let mut looked = [PollFd::from_borrowed_fd(output, PollFlags::empty())];
    let gone = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
    // Where poll fails, a reader is assumed: a write finds out.
    match poll(&mut looked, Some(&Timespec::default())) {
        Ok(_) => !looked[0].revents().intersects(gone),
        Err(_) => true,
    }
}

fn finish(written: std::io::Result<()>) -> Result<Exit, Failure> {
    finished(written, std::io::stdout().as_fd())
}

fn finished(written: std::io::Result<()>, output: BorrowedFd<'_>) -> Result<Exit, Failure> {
    match written {
        Ok(()) => Ok(Exit::Ok),
        // The reader has seen enough (`tidegate status | head -3`).
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Exit::Ok),
        // The terminal is gone, which a write is told as an error of input and output, as a broken disk's is.
        Err(error) if is_io(&error) && !has_reader(output) => Ok(Exit::Ok),
        Err(error) => Err(Failure::new(
            Exit::Failure,
            format!("standard output: cannot be written: {error}; check where it goes"),
        )),
    }
}

fn is_io(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(libc::EIO)
}

/// The text in a style.
pub fn styled(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

/// CPUs with two decimals.
pub fn cpus(amount: f64) -> String {
    format!("{amount:.2}")
}

/// A length of time as people say it.
pub fn span(seconds: f64) -> String {
    // Views carry times since a start: never negative, and far below 2^63 seconds; `as` saturates anyway.
    let whole = seconds.max(0.0) as u64;
    match whole {
        0..10 => format!("{seconds:.1} s"),
        10..120 => format!("{whole} s"),
        120..7200 => format!("{} min {} s", whole / 60, whole % 60),
        7200..172_800 => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
        _ => format!("{} days", whole / 86_400),
    }
}

/// At most `width` characters, [`escaped`].
pub fn fit(text: &str, width: usize) -> String {
    let clean = escaped(text);
    if clean.chars().count() <= width {
        return clean;
    }
    clean
        .chars()
        .take(width.saturating_sub(1))
        .chain(['…'])
        .collect()
}

/// Words in lines of at most [`WIDTH`], the first after `label`, the rest below it. A word that is longer than a line (a
/// path) goes on in the next.
pub fn wrapped(label: &str, text: &str) -> String {
    let indent = label.chars().count();
    // A label that leaves no room would leave no progress either.
    let room = WIDTH.saturating_sub(indent).max(20);
    // A number and its % stay together.
    let text = fit(text, usize::MAX).replace(" %", "\u{a0}%");
    let mut lines: Vec<String> = Vec::new();
    let mut line: Vec<char> = Vec::new();
    for word in text.split_ascii_whitespace() {
        let word: Vec<char> = word.chars().collect();
        if !line.is_empty() && line.len() + 1 + word.len() > room {
            lines.push(line.drain(..).collect());
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.extend(word);
        while line.len() > room {
            lines.push(line.drain(..room).collect());
        }
    }
    lines.push(line.into_iter().collect());
    let below = " ".repeat(indent);
    let starts = std::iter::once(label).chain(std::iter::repeat(below.as_str()));
    let whole: String = starts
        .zip(&lines)
        .map(|(start, line)| format!("{}\n", format!("{start}{line}").trim_end()))
        .collect();
    whole.replace('\u{a0}', " ")
}

/// `1 process`, `2 processes`.
pub fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}
