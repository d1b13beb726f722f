//! Refusals: what, where, why; and the remedy.

use std::path::PathBuf;

use crate::refusal::Refusal;
use crate::source::Source;
use crate::values::Class;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TermError {
    /// The text is not a value of the term.
    #[error("{name}: {source_place}: \"{}\" {why}; write {range}", quoted(input))]
    Value {
        name: &'static str,
        source_place: Source,
        input: String,
        why: Refusal,
        range: &'static str,
    },
    /// No term or setting has this name.
    #[error("{}: {source_place}: no such {kind}; {remedy}", quoted(name))]
    Unknown {
        name: String,
        source_place: Source,
        /// `term`, `setting` and the like.
        kind: &'static str,
        remedy: String,
    },
    #[error("{name}: {source_place}: a {class} gate does not take it; {remedy}")]
    WrongClass {
        name: &'static str,
        source_place: Source,
        class: Class,
        remedy: String,
    },
    /// The term contradicts another one, or means nothing without it.
    #[error("{name}: {source_place}: \"{}\" {why}; {remedy}", quoted(input))]
    Together {
        name: &'static str,
        source_place: Source,
        input: String,
        why: String,
        remedy: &'static str,
    },
    /// A file holds something that is neither text nor a number.
    #[error(
        "{}: {source_place}: {found} is not a value; write text in quotes, as in {example}",
        quoted(name)
    )]
    NotText {
        name: String,
        source_place: Source,
        found: String,
        example: String,
    },
    /// A rule, or a part of one, that cannot be.
    #[error("{}: {source_place}: {why}; {remedy}", quoted(name))]
    Rule {
        name: String,
        source_place: Source,
        why: String,
        remedy: String,
    },
    /// A file is not TOML.
    #[error("{source_place}: not valid TOML: {why}; correct the line or move the file away")]
    Toml { source_place: Source, why: String },
    #[error("{}: cannot be read: {why}; make it readable or move it away", path.display())]
    Read { path: PathBuf, why: String },
    /// An assignment without `=`.
    #[error(
        "\"{}\": {source_place}: not of the form term=value; write it as in headroom=30%",
        quoted(input)
    )]
    NotAssignment { input: String, source_place: Source },
}

impl TermError {
    /// What it is sorted by: files by name, and within one by line and column.
    pub(crate) fn position(&self) -> (PathBuf, u32, u32) {
        match self.place() {
            Some(Source::File { path, line, column }) => (path.clone(), *line, *column),
            _ => (PathBuf::new(), 0, 0),
        }
    }

    /// The term, setting or rule that is refused; none where the text as a whole is.
    pub fn name(&self) -> Option<&str> {
        match self {
            TermError::Value { name, .. }
            | TermError::WrongClass { name, .. }
            | TermError::Together { name, .. } => Some(name),
            TermError::Unknown { name, .. }
            | TermError::NotText { name, .. }
            | TermError::Rule { name, .. } => Some(name),
            TermError::Toml { .. } | TermError::Read { .. } | TermError::NotAssignment { .. } => {
                None
            }
        }
    }

    /// The message without name and place, for readers that show their own.
    pub fn why(&self) -> String {
        let message = self.to_string();
        let place = self.place().map(|place| format!("{place}: "));
        let why = place.and_then(|place| Some(message.split_once(&place)?.1.to_owned()));
        why.unwrap_or(message)
    }

    /// Where it stands; `None` for what has no place in a text.
    pub fn place(&self) -> Option<&Source> {
        match self {
            TermError::Value { source_place, .. }
            | TermError::Unknown { source_place, .. }
            | TermError::WrongClass { source_place, .. }
            | TermError::Together { source_place, .. }
            | TermError::NotText { source_place, .. }
            | TermError::Rule { source_place, .. }
            | TermError::Toml { source_place, .. }
            | TermError::NotAssignment { source_place, .. } => Some(source_place),
            TermError::Read { .. } => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines(.0))]
pub struct ConfigErrors(pub Vec<TermError>);

fn lines(errors: &[TermError]) -> String {
    let lines: Vec<String> = errors.iter().map(TermError::to_string).collect();
    lines.join("\n")
}

/// The longest piece of a user's text that a message repeats.
const QUOTED_CHARS_MAX: usize = 80;

/// The text as a message may show it: without control characters, which could drive the reader's
/// terminal, and short.
pub fn quoted(text: &str) -> String {
    let mut out = String::new();
    for (index, c) in text.chars().enumerate() {
        if index == QUOTED_CHARS_MAX {
            out.push('…');
            break;
        }
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// `did you mean X?`, or the list of what is known.
pub fn remedy_for_unknown(name: &str, known: &[&str]) -> String {
    match nearest(name, known) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("known are {}", known.join(", ")),
    }
}

fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    // Longer names are far from all of ours, and the distance below is quadratic in the length.
    if name.chars().count() > 40 {
        return None;
    }
    let plain = name.to_lowercase().replace('-', "_");
    known
        .iter()
        .map(|candidate| (strsim::levenshtein(&plain, candidate), *candidate))
        .filter(|(d, candidate)| *d <= 2 && *d * 2 < candidate.len())
        .min()
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_or_none() {
        let known = ["class", "headroom", "tolerance"];
        assert_eq!(nearest("hedroom", &known), Some("headroom"));
        assert_eq!(nearest("Tolerence", &known), Some("tolerance"));
        assert_eq!(nearest("quota", &known), None);
        assert_eq!(nearest("", &known), None);
    }

    #[test]
    fn quoting_disarms_control_characters_and_shortens() {
        assert_eq!(quoted("a\u{1b}[31m"), "a\\u{1b}[31m");
        assert_eq!(
            quoted(&"x".repeat(200)).chars().count(),
            QUOTED_CHARS_MAX + 1
        );
    }
}
