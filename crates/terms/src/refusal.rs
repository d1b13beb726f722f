//! Why a text is no value of its type.

use std::fmt;

/// Why a piece of text is not a value of its type, as the end of a sentence that begins with the
/// text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(Box<Reason>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Reason {
    why: String,
    /// What the user may have meant, the likeliest first.
    meant: Vec<String>,
}

impl Refusal {
    pub fn new(why: impl Into<String>) -> Refusal {
        Refusal(Box::new(Reason {
            why: why.into(),
            meant: Vec::new(),
        }))
    }

    /// A bare number; `units` are those that may have been left out, the likeliest first.
    pub(crate) fn no_unit(number: &str, units: &[&str]) -> Refusal {
        Refusal(Box::new(Reason {
            why: "has no unit".to_owned(),
            meant: units.iter().map(|unit| format!("{number}{unit}")).collect(),
        }))
    }

    /// Keeps the suggestions that are accepted.
    pub(crate) fn tried(mut self, is_accepted: impl Fn(&str) -> bool) -> Refusal {
        self.0.meant.retain(|text| is_accepted(text));
        self
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.why)?;
        match self.0.meant.first() {
            Some(text) => write!(f, " (did you mean {text}?)"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Refusal {}
