//! `headroom = auto` on this machine: waiting until the agent has found a headroom, as its `status --json` says.

use crate::beds::host::tidegate::Tidegate;
use crate::report::Sample;
use crate::{LabError, clock, stop};

/// States in which the search rests.
const FOUND: [&str; 2] = ["known", "most"];

/// What was found, and when.
pub struct Search {
    found_s: Option<f64>,
    search_s: f64,
    state: String,
    level_pct: f64,
    sentence: String,
}

/// Waits until a headroom is found, at most `limit_s`.
pub fn wait(tidegate: &Tidegate, limit_s: f64) -> Result<Search, LabError> {
    let began = clock::monotonic_ns();
    loop {
        stop::sleep_ns(500_000_000)?;
        let harm = &tidegate.status()?["harm"];
        let state = harm["state"].as_str().unwrap_or("none").to_owned();
        let search_s = (clock::monotonic_ns() - began) as f64 / 1e9;
        let is_found = FOUND.contains(&state.as_str());
        if is_found || search_s >= limit_s {
            return Ok(Search {
                found_s: is_found.then_some(search_s),
                search_s,
                state,
                sentence: harm["sentence"].as_str().unwrap_or("nothing").to_owned(),
                level_pct: harm["level_pct"].as_f64().unwrap_or(f64::NAN),
            });
        }
    }
}

impl Search {
    /// Adds it to what was measured after it.
    pub fn tell<K>(self, sample: Sample<K>) -> Sample<K> {
        sample
            .with("level_pct", self.level_pct)
            .with("state", self.state)
            .with("sentence", self.sentence)
            .with("found_s", self.found_s)
            .with("search_s", self.search_s)
    }
}
