//! `headroom = auto` on this machine: waiting until the agent has found a headroom, as its `status --json` says.

use crate::beds::host::tidegate::Tidegate;
use crate::report::Sample;
use crate::{LabError, clock, stop};

/// States in which the search rests.
const FOUND: [&str; 2] = ["known", "unproven"];

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
        let mut search = Search {
            found_s: None,
            search_s: (clock::monotonic_ns() - began) as f64 / 1e9,
            state: String::new(),
            level_pct: f64::NAN,
            sentence: String::new(),
        };
        search.look(tidegate)?;
        if FOUND.contains(&search.state.as_str()) {
            search.found_s = Some(search.search_s);
        }
        if search.found_s.is_some() || search.search_s >= limit_s {
            return Ok(search);
        }
    }
}

impl Search {
    /// Where the agent stands now.
    pub fn look(&mut self, tidegate: &Tidegate) -> Result<(), LabError> {
        let harm = &tidegate.status()?["harm"];
        let text = |name: &str| harm[name].as_str().unwrap_or("none").to_owned();
        self.state = text("state");
        self.sentence = text("sentence");
        self.level_pct = harm["level_pct"].as_f64().unwrap_or(f64::NAN);
        Ok(())
    }

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
