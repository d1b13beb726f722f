//! A text or a value with the place that it came from.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Where a piece of text came from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Nobody said anything; the table's default.
    #[default]
    Default,
    /// The default where side work is confined to whole cores.
    WholeCores,
    File {
        path: PathBuf,
        /// From 1.
        line: u32,
        /// From 1, in characters.
        column: u32,
    },
    RunFlag,
    /// `tidegate set`.
    Set,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Default => f.write_str("default"),
            Source::WholeCores => f.write_str("default on whole cores"),
            Source::File { path, line, column } => {
                write!(f, "{}:{line}:{column}", path.display())
            }
            Source::RunFlag => f.write_str("run flag"),
            Source::Set => f.write_str("set"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RawTerm {
    pub text: String,
    pub source: Source,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overridden {
    pub value: String,
    pub source: Source,
}

impl fmt::Display for Overridden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.value, self.source)
    }
}

/// A value that was decided on, where it came from, and what it overrode (weakest first).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved<T> {
    pub value: T,
    pub source: Source,
    pub overrode: Vec<Overridden>,
}

impl<T> Resolved<T> {
    /// True when nobody said anything.
    pub fn is_default(&self) -> bool {
        self.source == Source::Default
    }
}

/// A resolved term or setting without its type, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    pub name: &'static str,
    pub value: String,
    pub source: Source,
    pub overrode: Vec<Overridden>,
}
