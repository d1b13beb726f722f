//! What the control loop came to, told once a second as events: side work that starves, an
//! objective that is missed.

use tidegate_engine::control::Protection;

use crate::events::EventKind;
use crate::runtime::Runtime;

/// Of the second between two polls, side work was at its tolerance for at least this long: it
/// starves.
const STARVES_NS: u64 = 900_000_000;
/// So many polls in a row tell a beginning or an end: main's bursts are neither.
const POLLS: u32 = 5;

#[derive(Default)]
pub(crate) struct LoopWatch {
    at_tolerance_ns: u64,
    starves: Lasting,
    misses: Lasting,
}

/// A state that is reported once it has lasted for [`POLLS`] polls.
#[derive(Default)]
struct Lasting {
    is_on: bool,
    other: u32,
}

impl Lasting {
    fn turns(&mut self, is_on: bool) -> bool {
        self.other = match is_on == self.is_on {
            true => 0,
            false => self.other + 1,
        };
        let turns = self.other >= POLLS;
        if turns {
            self.is_on = is_on;
            self.other = 0;
        }
        turns
    }
}

impl LoopWatch {
    pub(crate) fn poll(&mut self, runtime: &Runtime) {
        let (at_tolerance_ns, objective, is_limiting) = {
            let control = runtime.control();
            let is_limiting = !control.quotas.is_empty() && !control.is_enforced_by_sched_ext();
            let objective = control.protection();
            let now_ns = runtime.kernel.clock.now_ns();
            (control.at_tolerance_ns(now_ns), objective, is_limiting)
        };
        let lately_ns = at_tolerance_ns.saturating_sub(self.at_tolerance_ns);
        self.at_tolerance_ns = at_tolerance_ns;
        self.tell_of_starvation(runtime, is_limiting, lately_ns);
        self.tell_of_objective(runtime, objective.as_ref());
    }

    fn tell_of_starvation(&mut self, runtime: &Runtime, is_limiting: bool, lately_ns: u64) {
        if !is_limiting && self.starves.is_on {
            self.starves = Lasting::default();
            let what = "nothing limits side work here any longer";
            runtime.events.tell(EventKind::StarvationEnded, None, what);
        } else if self.starves.turns(lately_ns >= STARVES_NS) {
            let (kind, what) = match self.starves.is_on {
                true => (
                    EventKind::StarvationBegan,
                    "main leaves side work nothing above its tolerance",
                ),
                false => (
                    EventKind::StarvationEnded,
                    "side work has more than its tolerance again",
                ),
            };
            runtime.events.tell(kind, None, what);
        }
    }

    fn tell_of_objective(&mut self, runtime: &Runtime, objective: Option<&Protection>) {
        let Some(found) = objective else {
            if std::mem::take(&mut self.misses).is_on {
                let what = "no gate has an objective any longer";
                runtime.events.tell(EventKind::ObjectiveMet, None, what);
            }
            return;
        };
        // Where main sleeps or reports end, nothing is met and nothing is missed.
        let Some(is_missed) = found.is_missed() else {
            return;
        };
        if !self.misses.turns(is_missed) {
            return;
        }
        let (waits, late) = (found.recent.runs, found.recent.late);
        let late_pct = 100.0 * late as f64 / waits.max(1) as f64;
        let from = &found.objective.from;
        let (kind, what) = match self.misses.is_on {
            true => (EventKind::ObjectiveMissed, "is missed"),
            false => (EventKind::ObjectiveMet, "is met again"),
        };
        let what = format!("{from} {what}: {late_pct:.1} % of {waits} were longer");
        let gate = Some(found.objective.gate.as_str());
        runtime.events.tell(kind, gate, what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_seconds_in_a_row_are_a_beginning_and_an_end() {
        let mut starves = Lasting::default();
        let mut turns = |polls: &str| {
            polls
                .chars()
                .filter(|poll| starves.turns(*poll == 's'))
                .count()
        };
        assert_eq!(turns("ssss-ssss-"), 0);
        assert_eq!(turns("sssss"), 1);
        assert_eq!(turns("ss----ss-"), 0);
        assert_eq!(turns("----"), 1);
    }
}
