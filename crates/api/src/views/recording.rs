//! The recorder, as status tells of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where the machine is recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RecordingView {
    /// The directory, which `tidegate-lab replay` and `tidegate top --recording` read.
    pub directory: String,
    /// Bytes in it.
    pub bytes: u64,
    /// It never has more.
    pub bytes_max: u64,
    /// Seconds and events that could not be written.
    pub lost: u64,
}
