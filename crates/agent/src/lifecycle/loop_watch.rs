//! What the control loop came to, told once a second as events: side work that starves, a headroom that was found.

use tidegate_knobs::control::AutoState;

use crate::events::EventKind;
use crate::runtime::Runtime;
use crate::view::harm_sentence;

/// Of the second between two polls, side work was at its tolerance for at least this long: it starves.
const STARVES_NS: u64 = 900_000_000;
/// So many polls in a row tell a beginning or an end: main's bursts are neither.
const POLLS: u32 = 5;

/// What was told.
#[derive(Default)]
pub(crate) struct LoopWatch {
    at_tolerance_ns: u64,
    starves: bool,
    /// Polls in a row that contradict it.
    other: u32,
    found: Option<(AutoState, u32)>,
}

impl LoopWatch {
    /// One poll.
    pub(crate) fn poll(&mut self, runtime: &Runtime) {
        let (at_tolerance_ns, found, is_limiting) = {
            let control = runtime.control();
            let is_limiting = !control.quotas.is_empty() && !control.is_enforced_by_ext();
            (control.at_tolerance_ns, control.found(), is_limiting)
        };
        let lately_ns = at_tolerance_ns.saturating_sub(self.at_tolerance_ns);
        self.at_tolerance_ns = at_tolerance_ns;
        if !is_limiting && self.starves {
            *self = Self::default();
            let what = "nothing limits side work here any longer";
            runtime.events.tell(EventKind::StarvationEnded, None, what);
        } else if self.turns(lately_ns >= STARVES_NS) {
            let (kind, what) = match self.starves {
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
        let Some(found) = found else {
            self.found = None;
            return;
        };
        let is_found = matches!(
            found.state,
            AutoState::Known | AutoState::Most | AutoState::Unknown(_)
        );
        let now = Some((found.state, found.level_ppm));
        if is_found && self.found != now {
            self.found = now;
            let sentence = harm_sentence(&found);
            runtime.events.tell(EventKind::HarmFound, None, sentence);
        }
    }

    /// Whether this poll is the last that it takes to turn.
    fn turns(&mut self, starves: bool) -> bool {
        self.other = match starves == self.starves {
            true => 0,
            false => self.other + 1,
        };
        let turns = self.other >= POLLS;
        if turns {
            self.starves = starves;
            self.other = 0;
        }
        turns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_seconds_in_a_row_are_a_beginning_and_an_end() {
        let mut watch = LoopWatch::default();
        let mut turns = |polls: &str| {
            polls
                .chars()
                .filter(|poll| watch.turns(*poll == 's'))
                .count()
        };
        assert_eq!(turns("ssss-ssss-"), 0);
        assert_eq!(turns("sssss"), 1);
        assert_eq!(turns("ss----ss-"), 0);
        assert_eq!(turns("----"), 1);
    }
}
