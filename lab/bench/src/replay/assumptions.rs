//! What a replay takes for granted, as its reports say it.

use tidegate_recording::Recording;

use crate::replay::demand::{Demand, Wants};
use crate::replay::view::FiguresView;

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

/// A simulated mean wait that is off the recorded one by this factor tells an order, and no more.
const NEAR: f64 = 2.0;

/// What is to be said where the same terms come out otherwise than they were: the machine was
/// busier than the recording tells, with many tasks that each wanted little.
pub fn caution(recorded: &FiguresView, simulated: &FiguresView) -> Option<String> {
    let was_us = recorded.main_wait_mean_us?.value;
    let is_us = simulated.main_wait_mean_us?.value;
    let is_near = is_us * NEAR >= was_us && is_us <= was_us * NEAR;
    (!is_near).then(|| {
        format!(
            "Under the recorded terms main waited {was_us:.0} us in the mean, and {is_us:.0} us in the simulation: trust the order of the rows, not their waits."
        )
    })
}

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
            "Held back in some or all seconds, so it wants more than it got then, with as many endless tasks as it had processes: {}.",
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::view::FigureView;

    fn waits(mean_us: f64) -> FiguresView {
        FiguresView {
            main_wait_mean_us: Some(FigureView {
                value: mean_us,
                ..FigureView::default()
            }),
            ..FiguresView::default()
        }
    }

    #[test]
    fn a_simulation_that_is_far_off_what_was_says_so() {
        let said = |was, is| caution(&waits(was), &waits(is));
        assert_eq!(said(100.0, 60.0), None);
        assert_eq!(said(100.0, 190.0), None);
        assert!(said(1_790.0, 262.0).unwrap().contains("waited 1790 us"));
        assert!(said(100.0, 210.0).is_some());
        assert_eq!(caution(&FiguresView::default(), &waits(1.0)), None);
    }
}
