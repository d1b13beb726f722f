//! What is wrong with a scenario: what, where, why; and the mend.

use std::fmt;
use std::sync::Arc;

use tidegate_terms::quoted;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A line of a file.
    File {
        /// The file, as it was named.
        file: Arc<str>,
        /// From 1.
        line: u32,
    },
    /// A flag, as it was typed.
    Flag(Arc<str>),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File { file, line } => write!(f, "{file}:{line}"),
            Place::Flag(flag) => f.write_str(&quoted(flag)),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {place}: {why}; {mend}", quoted(key))]
pub struct ScenarioError {
    /// The key, with the tables that it is in.
    pub key: String,
    pub place: Place,
    pub why: String,
    pub mend: String,
}

/// All that is wrong with a scenario: at least one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioErrors(pub Vec<ScenarioError>);

impl fmt::Display for ScenarioErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ScenarioErrors {}
