//! `headroom = auto`: the least headroom at which side work does main no harm above the aim, found by measurement.
//!
//! The law of harm (`law/harm.md`) compares main at two levels of side work's allowance, switched by a coin. LOW is what the highest
//! headroom leaves ([`MOST_PCT`]): harm that it does not avoid is not counted, since headroom is no means against that. HIGH is what the
//! headroom law gives at the level that is tried. In LOW the headroom law goes on undisturbed: it sees side work that uses less than its
//! allowance, and only the decision is replaced. The [`search`] says which level is next.
//!
//! Harm is of two kinds: main's work takes longer in the mean, or more of main's turns wait long ([`tail`]). A level is fit where neither
//! is above what is accepted.
//!
//! Nothing is learnt, and nothing is switched, while main or side work has hardly anything to do ([`activity`]).

mod activity;
mod search;
mod seen;
mod tail;
mod told;

use tidegate_law::harm::{Arm, Config, Harm, Verdict, Window};
use tidegate_law::{HeadroomDecision, Reason};

use crate::sense::Sensor;

use activity::Activity;
pub use search::Stage;
use search::{Finding, MOST_PCT, Next, Search};
pub(super) use seen::Seen;
use tail::Tail;
pub use told::{Found, FoundTail, State};

/// Harm that is not found by then does not raise the headroom: side work is held back half of the time meanwhile, and the law's own 300 s
/// would narrow the interval by a third only.
const LEARN_US: u32 = 120_000_000;
/// Main's CPU time cannot grow by half from shared cores and cold caches: what grows by more is work that side work itself brings. (At 0 %
/// side work runs at most 2.5 times as much as at 60 %, and so grows what it brings.)
const CAUSED_PPM: u128 = 1_500_000;
/// The headroom law leaves side work so little above its tolerance, in parts of the machine, that HIGH and LOW are the same.
const ROOM_OF_MACHINE: u64 = 50;
/// ... for this long: the level costs main nothing, and the search goes on.
const ROOM_AFTER_NS: u64 = 4_000_000_000;
/// Steps are added up to windows of about this much.
const WINDOW_NS: u64 = 20_000_000;
const PPM_PER_PCT: u32 = 10_000;
/// The highest headroom, with which others are compared.
pub(super) const MOST_PPM: u32 = MOST_PCT * PPM_PER_PCT;

/// The measurement and the search.
pub(super) struct Auto {
    /// Harm that is accepted, and the level where it cannot be told; none: the headroom was named.
    asked: Option<(u32, u32)>,
    /// The last aim that was asked for.
    aim_ppm: Option<u32>,
    law: Option<Harm>,
    /// Of the level that is fit, while others are measured.
    fit_law: Option<(Harm, Tail)>,
    tail: Tail,
    /// The last harm that was found is of the tail alone.
    by_tail: bool,
    search: Search,
    activity: Activity,
    tells_waits: bool,
    window: Window,
    /// Every step of the window can be used.
    is_sound: bool,
    /// The highest headroom is kept, to compare.
    is_low: bool,
    /// The decision for that was given, and is written.
    was_low: bool,
    is_written: bool,
    /// What the headroom law gives, in LOW as well.
    given_ucpu: u64,
    /// Side work was left no room for so long.
    no_room_ns: u64,
    /// Main's CPU time and the time itself in LOW and in HIGH, since the law began with this level.
    main_use: [(u64, u64); 2],
    /// Main's work turned out to be caused by side work.
    is_caused: bool,
}

impl Default for Auto {
    fn default() -> Self {
        Self {
            asked: None,
            aim_ppm: None,
            law: None,
            fit_law: None,
            tail: Tail::default(),
            by_tail: false,
            search: Search::default(),
            activity: Activity::default(),
            tells_waits: true,
            window: Window::default(),
            is_sound: true,
            is_low: false,
            was_low: false,
            is_written: false,
            given_ucpu: 0,
            no_room_ns: 0,
            main_use: [(0, 0); 2],
            is_caused: false,
        }
    }
}

impl Auto {
    /// Finds the headroom, with this aim and this headroom where harm cannot be told; or not (`None`). What was found with another
    /// aim is forgotten.
    pub fn follow(&mut self, aim_ppm: Option<u32>, default_ppm: u32) {
        self.asked = aim_ppm.map(|aim_ppm| (aim_ppm, default_ppm));
        if aim_ppm.is_some() && std::mem::replace(&mut self.aim_ppm, aim_ppm) != aim_ppm {
            self.forget();
        }
        if aim_ppm.is_none() {
            self.is_low = false;
            self.begin_window();
        }
    }

    fn forget(&mut self) {
        (self.law, self.fit_law) = (None, None);
        self.by_tail = false;
        self.search = Search::default();
        self.begin_level();
    }

    /// The headroom in force, where it is found.
    pub fn level_ppm(&self) -> Option<u32> {
        let (_, default_ppm) = self.asked?;
        let level_ppm = self.search.level_pct() * PPM_PER_PCT;
        let unknown = !self.tells_waits || self.search.stage() == Stage::Unknown;
        Some(match (unknown, self.activity.main()) {
            (true, true) => default_ppm,
            // There is no main to harm.
            (true, false) => 0,
            (false, true) => level_ppm,
            (false, false) => self.search.known_pct() * PPM_PER_PCT,
        })
    }

    /// The search begins at this level: an earlier one found it.
    pub fn begin_at(&mut self, level_pct: u32) {
        self.search.begin_at(level_pct);
    }

    /// The level that is known to be within the aim.
    pub fn known_pct(&self) -> Option<u32> {
        let is_known = self.asked.is_some() && self.search.stage() == Stage::Fit;
        is_known.then(|| self.search.known_pct())
    }

    /// Tells the sensor which waits are late. (An objective on run delay has a bound of its own; with an objective there is no `auto`.)
    pub fn set_late_after(&self, sensor: &mut dyn Sensor) {
        if let Some(late_after_ns) = self.late_after_ns() {
            sensor.set_late_after(late_after_ns);
        }
    }

    fn late_after_ns(&self) -> Option<u64> {
        self.asked.and(self.tail.late_after_ns())
    }

    /// The highest headroom is kept for the moment, to compare.
    pub fn is_low(&self) -> bool {
        self.is_low
    }

    /// A level is being measured, beside a main and side work that have something to do.
    pub fn measures(&self) -> bool {
        self.asked.is_some()
            && self.tells_waits
            && self.search.stage() == Stage::Measuring
            && self.activity.main()
            && self.activity.side()
    }

    /// What the headroom law gives while the highest headroom is kept: a cpuset moves too slowly to follow that.
    pub fn given_ucpu(&self) -> Option<u64> {
        self.is_low.then_some(self.given_ucpu)
    }

    /// One control step: whether the level changed.
    pub fn step(&mut self, seen: &Seen) -> bool {
        let before_ppm = self.level_ppm();
        if self.asked.is_some() {
            self.tells_waits = seen.tells_waits;
            self.activity.step(seen, self.is_low);
            self.compare(seen);
        }
        self.level_ppm() != before_ppm
    }

    /// What the headroom law decided; in LOW, what the highest headroom leaves of that.
    pub fn hold(&mut self, decision: HeadroomDecision) -> HeadroomDecision {
        let was_low = std::mem::replace(&mut self.was_low, self.is_low);
        self.given_ucpu = decision.allowance_ucpu;
        if !self.is_low {
            // The planner takes a cut back at once where it is told that the cut is over.
            let is_over = was_low && matches!(decision.reason, Reason::Track | Reason::Ramp);
            return HeadroomDecision {
                reason: if is_over {
                    Reason::Restore
                } else {
                    decision.reason
                },
                ..decision
            };
        }
        let more_ppm = MOST_PPM.saturating_sub(self.level_ppm().unwrap_or(MOST_PPM));
        let less_ucpu = decision.capacity_ucpu * u64::from(more_ppm) / 1_000_000;
        let allowance_ucpu = decision.allowance_ucpu.saturating_sub(less_ucpu);
        let begins = !was_low && !decision.reason.is_unusable();
        HeadroomDecision {
            allowance_ucpu: allowance_ucpu.max(decision.floor_ucpu),
            asked_ucpu: decision.asked_ucpu + less_ucpu,
            reason: if begins { Reason::Cut } else { decision.reason },
            ..decision
        }
    }

    /// Whether the last decision is in force.
    pub fn written(&mut self, is_written: bool) {
        self.is_written = is_written;
    }

    fn compare(&mut self, seen: &Seen) {
        let learns =
            seen.has_side && self.tells_waits && self.activity.main() && self.activity.side();
        if !learns {
            self.is_low = false;
            self.begin_window();
            self.wait(seen);
            return;
        }
        self.no_room_ns = 0;
        let main_ns = seen.main_ns();
        let is_usable = seen.window.wall_ns > 0;
        self.window.length_ns += seen.dt_ns;
        self.window.turns += seen.waits.runs;
        self.window.late += seen.waits.late;
        self.window.delay_ns += seen.waits.wait_ns;
        self.window.cpu_ns += main_ns;
        self.is_sound &= is_usable && self.is_written;
        // Half a step early is nearer than half a step late.
        if self.window.length_ns + seen.dt_ns / 2 < WINDOW_NS {
            return;
        }
        let arm = if self.is_low { Arm::Low } else { Arm::High };
        let window = match self.is_sound {
            true => self.window.at(arm),
            false => self.window.void(),
        };
        if self.is_sound {
            let (used_ns, time_ns) = &mut self.main_use[usize::from(!self.is_low)];
            *used_ns += self.window.cpu_ns;
            *time_ns += self.window.length_ns;
        }
        if self.is_low && self.tail.seen(&self.window, self.is_sound) {
            // Its waits were not compared until now.
            self.measure_again();
        }
        self.begin_window();
        self.window_ended(&window, seen.now_ns);
    }

    /// Nothing can be compared. Side work that may not have more, though main has work, costs it nothing at this level: lower ones are
    /// tried. What is held is held no longer for that.
    fn wait(&mut self, seen: &Seen) {
        let room_ucpu = self.given_ucpu.saturating_sub(seen.floor_ucpu);
        let is_full = room_ucpu <= u64::from(seen.cpus) * 1_000_000 / ROOM_OF_MACHINE;
        let blocked = seen.has_side && self.tells_waits && self.activity.main() && is_full;
        self.no_room_ns = match blocked {
            true => self.no_room_ns + seen.dt_ns,
            false => 0,
        };
        if self.search.stage() != Stage::Measuring {
            self.passed(seen.dt_ns / 1_000);
        } else if self.no_room_ns >= ROOM_AFTER_NS && self.search.level_pct() > 0 {
            self.no_room_ns = 0;
            self.go_on(Finding::Fit);
        }
    }

    /// Time passes at a level that is held, until another try.
    fn passed(&mut self, us: u64) {
        let stage = self.search.stage();
        if !self.search.passed(us) {
            return;
        }
        match stage {
            // A lower one is tried, and it may come back to this.
            Stage::Fit => {
                self.fit_law = self.measured();
                self.begin_level();
            }
            _ => self.forget(),
        }
    }

    /// What was measured of the level, if that has ended.
    fn measured(&self) -> Option<(Harm, Tail)> {
        let law = self.law.filter(|law| !law.learning());
        law.map(|law| (law, self.tail))
    }

    /// The level is measured as if it were the first.
    fn measure_again(&mut self) {
        (self.fit_law, self.by_tail) = (None, false);
        self.search.drifted();
        self.begin_level();
    }

    /// The law begins again.
    fn begin_level(&mut self) {
        self.main_use = [(0, 0); 2];
        self.is_caused = false;
        self.tail.begin_level();
        if let Some(law) = &mut self.law {
            law.restart();
        }
    }

    /// Harm that is more than CPUs can do to each other: main does work for side work, and has more to do the more that runs.
    fn is_caused(&self) -> bool {
        let [(low_ns, low_time_ns), (high_ns, high_time_ns)] = self
            .main_use
            .map(|(used, time)| (u128::from(used), u128::from(time)));
        low_time_ns > 0 && 1_000_000 * high_ns * low_time_ns > CAUSED_PPM * low_ns * high_time_ns
    }

    fn begin_window(&mut self) {
        self.window = Window::default();
        self.is_sound = true;
    }

    fn window_ended(&mut self, window: &Window, now_ns: u64) {
        if self.tail.late_after_ns().is_none() {
            self.is_low = true;
            return;
        }
        let config = Config {
            aim_ppm: self.asked.map_or(0, |(aim_ppm, _)| aim_ppm),
            learn_us: LEARN_US,
            ..Config::default()
        };
        // The clock is a seed that work on the machine cannot foresee, and the simulator's clock is the same in each run.
        let law = self.law.get_or_insert_with(|| Harm::new(config, now_ns));
        let us = window.length_ns / 1_000;
        match self.search.stage() {
            Stage::Measuring => {
                law.step(window);
                if let Some(finding) = finding(law) {
                    self.level_ended(finding);
                }
            }
            Stage::Fit if self.search.is_most() => self.passed(us),
            Stage::Fit => {
                // Not where main left no room to measure it.
                let was_measured = !law.learning();
                law.step(window);
                if was_measured && !law.learning() {
                    self.passed(us);
                } else {
                    self.measure_again();
                }
            }
            Stage::Unknown => self.passed(us),
        }
        let is_held = self.search.stage() == Stage::Unknown || self.search.is_most();
        let arm = self.law.as_ref().map_or(Arm::High, Harm::arm);
        self.is_low = !is_held && arm == Arm::Low;
    }

    fn level_ended(&mut self, finding: Finding) {
        let Some(law) = self.law else { return };
        let harms = finding == Finding::Harms;
        self.is_caused = harms && self.is_caused();
        if self.is_caused {
            return self.go_on(Finding::Unknown);
        }
        if harms {
            let (aim_ppm, _) = self.asked.unwrap_or_default();
            self.by_tail = law.by_tail() || law.ratio_ppm() <= 1_000_000 + aim_ppm;
        }
        self.go_on(finding);
    }

    fn go_on(&mut self, finding: Finding) {
        match self.search.found(finding) {
            Next::Hold => self.fit_law = None,
            Next::Measure => {
                if finding == Finding::Fit {
                    self.fit_law = self.measured();
                }
                self.begin_level();
            }
            Next::Return => match self.fit_law.take() {
                Some((fit, tail)) => (self.law, self.tail) = (Some(fit), tail),
                None => self.begin_level(),
            },
        }
    }
}

/// What the law of harm has come to, if it has.
fn finding(law: &Harm) -> Option<Finding> {
    if law.learning() {
        return None;
    }
    Some(match (law.held(), law.verdict()) {
        (Arm::High, _) => Finding::Fit,
        (Arm::Low, Verdict::Found) => Finding::Harms,
        (Arm::Low, _) => Finding::Unknown,
    })
}

#[cfg(test)]
mod tests;
