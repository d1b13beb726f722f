//! What a recording says of quotas and caps that were never or always in the way.

use serde::{Deserialize, Serialize};
use tidegate_recording::{Recording, Work, WorkSecond};

use crate::replay::recorded_terms::{limit_cpus, terms};

/// Fewer seconds tell nothing.
const SECONDS_MIN: usize = 30;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    pub gate: String,
    /// Its quota or cap, as it was written.
    pub limit: String,
    pub active_seconds: usize,
    /// Of them, percent in which it was throttled.
    pub throttled_pct: f64,
    /// The most that it used in a second, in CPUs.
    pub most_cpus: f64,
    pub suggestion: String,
}

/// Of every gate whose quota or cap never binds, or nearly always does.
pub fn of(recording: &Recording) -> Vec<Advice> {
    let gates = recording.works.values().filter(|work| work.is_gate);
    gates.filter_map(|work| of_gate(recording, work)).collect()
}

fn of_gate(recording: &Recording, work: &Work) -> Option<Advice> {
    let limit = limit_cpus(work)?;
    let terms = terms(work)?;
    let seconds: Vec<&WorkSecond> = recording
        .seconds
        .iter()
        .flat_map(|second| &second.works)
        .filter(|one| one.id == work.id && (one.used_cpus > 0.0 || one.throttled_us > 0))
        .collect();
    if seconds.len() < SECONDS_MIN {
        return None;
    }
    let throttled = seconds.iter().filter(|one| one.throttled_us > 0).count();
    let most = seconds.iter().map(|one| f64::from(one.used_cpus));
    let most_cpus = most.fold(0.0, f64::max);
    let share = throttled as f64 / seconds.len() as f64;
    let (term, value) = match terms.quota_us() {
        Some(_) => ("quota", terms.quota.value.to_string()),
        None => ("cap_hard", terms.cap_hard.value.to_string()),
    };
    let suggestion = if throttled == 0 && most_cpus < 0.9 * limit {
        format!(
            "never binds: it used at most {most_cpus:.2} of {limit:.2} CPUs; leave {term} out, or lower it to guard against more"
        )
    } else if share > 0.9 {
        format!(
            "holds it back nearly always; raise {term}, or where it only has to give way to main, take class = \"side\" in its place"
        )
    } else {
        return None;
    };
    Some(Advice {
        gate: work.name.clone(),
        limit: format!("{term} {value}"),
        active_seconds: seconds.len(),
        throttled_pct: share * 100.0,
        most_cpus,
        suggestion,
    })
}
