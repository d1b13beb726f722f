//! What a replay takes for granted, as its reports say it.

use tidegate_recording::Recording;

use crate::demand::{Demand, Wants};

fn listed(names: &[&str]) -> String {
    const SHOWN: usize = 6;
    let mut text = names
        .iter()
        .take(SHOWN)
        .copied()
        .collect::<Vec<_>>()
        .join(", ");
    if names.len() > SHOWN {
        text += &format!(" and {} more", names.len() - SHOWN);
    }
    text
}

/// In sentences.
pub fn of(recording: &Recording, demand: &Demand) -> Vec<String> {
    let wants_more = |more: bool| {
        let works = demand.works.iter();
        let chosen = works.filter(|work| matches!(work.wants, Wants::More { .. }) == more);
        chosen.map(|work| work.name.as_str()).collect::<Vec<_>>()
    };
    let (held, served) = (wants_more(true), wants_more(false));
    let mut all = Vec::new();
    if !served.is_empty() {
        all.push(format!(
            "Not held back, so it wants the CPU that it used, second by second, and what is not served waits: {}.",
            listed(&served)
        ));
    }
    if !held.is_empty() {
        all.push(format!(
            "Held back while it ran, so it wants more than it got, with as many endless tasks as it had processes: {}.",
            listed(&held)
        ));
    }
    let counted = recording.seconds.iter().any(|second| second.main_turns > 0);
    all.push(match counted {
        true => "Main's requests are as long as its CPU time per turn on a CPU; others take 1 ms. They come at random, within each second at an even rate.".to_owned(),
        false => "Requests take 1 ms, since turns on a CPU were not counted. They come at random, within each second at an even rate.".to_owned(),
    });
    all.push("CPU time is what was recorded: how works slow each other down by sharing cores and caches is not simulated.".to_owned());
    all.push("Groups without a gate share the CPU evenly; cpusets, quotas and weights of others than Tidegate are not known.".to_owned());
    if counted {
        all.push("Main's recorded p99 is the mean of its seconds' p99, each to a factor of two; the simulated one is of all waits from waking to running.".to_owned());
    }
    let stolen = stolen_pct(recording);
    if stolen >= 1.0 {
        all.push(format!(
            "The hypervisor took {stolen:.0} % of the machine, which the simulated machine has."
        ));
    }
    if recording.damaged_bytes > 0 {
        all.push(format!(
            "{} damaged bytes of the recording are left out.",
            recording.damaged_bytes
        ));
    }
    if let Some((first_ms, last_ms)) = recording.span_ms() {
        let seconds = recording.len_s();
        let missing = ((last_ms - first_ms) / 1_000 + 1).saturating_sub(seconds);
        if missing * 20 > seconds {
            all.push(format!(
                "{missing} seconds were not recorded; those beside them follow each other."
            ));
        }
    }
    all
}

fn stolen_pct(recording: &Recording) -> f64 {
    let seconds = recording.seconds.iter();
    let capacity: f64 = seconds.map(|second| f64::from(second.capacity_cpus)).sum();
    let whole = f64::from(recording.machine.cpus) * recording.seconds.len() as f64;
    (whole - capacity) * 100.0 / whole.max(1.0)
}
