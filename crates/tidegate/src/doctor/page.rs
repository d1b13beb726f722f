//! `tidegate doctor` for people.

use anstyle::{AnsiColor, Style};

use super::{Mechanism, Now, Report};
use crate::render::{BAD, BOLD, GOOD, styled, wrapped};

const MIDDLING: Style = AnsiColor::Yellow.on_default();

pub fn of(report: &Report) -> String {
    let mut text = String::new();
    for (label, line) in &report.facts {
        text.push_str(&wrapped(&format!("{label:>10}: "), line));
    }
    text.push('\n');
    text.push_str(&styled(
        BOLD,
        &format!(
            "{:<14} {:<7} {:<6} {}",
            "MECHANISM", "NOW", "ENGINE", "HOW EXACTLY"
        ),
    ));
    text.push('\n');
    let mut said = None;
    for row in &report.mechanisms {
        text.push_str(&mechanism(row));
        // What is in the way of several is said once.
        if let Some(change) = &row.change
            && said != Some(change)
        {
            text.push_str(&wrapped(&format!("{:<30}Change: ", ""), change));
            said = Some(change);
        }
    }
    text.push('\n');
    for note in &report.notes {
        text.push_str(&wrapped("Note: ", note));
    }
    let (word, style) = if report.enforceable {
        ("Yes: ", GOOD)
    } else {
        ("No: ", BAD)
    };
    text.push_str(&painted(&wrapped(word, &report.verdict), word, style));
    text
}

fn mechanism(row: &Mechanism) -> String {
    let (now, style) = match row.now {
        Now::Yes => ("yes", GOOD),
        Now::Partly => ("partly", MIDDLING),
        Now::No => ("no", BAD),
    };
    let engine = if row.engine.is_empty() {
        "-"
    } else {
        row.engine
    };
    let label = format!("{:<14} {now:<7} {engine:<6} ", row.name);
    painted(&wrapped(&label, &row.how), now, style)
}

/// Colours the first occurrence of a word. Widths are counted before, on plain text.
fn painted(text: &str, word: &str, style: Style) -> String {
    text.replacen(word, &styled(style, word), 1)
}
