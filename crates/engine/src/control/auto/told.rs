//! What there is to show of a headroom that is found.

use tidegate_law::harm::{Config, Harm, Verdict};

use super::{Auto, Stage};

/// Every turn: nothing is known of the tail yet.
const ALL_PPM: i32 = 1_000_000;

/// What is known of the level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// There is no side work, or it wants little more than its tolerance.
    NoSide,
    /// Main leaves side work little more than its tolerance at this level, which therefore costs main nothing; it was not measured.
    NoRoom,
    /// Main has hardly anything to do.
    NoMain,
    /// It is being measured.
    Learning,
    /// It is within the aim, and the one below is not.
    Known,
    /// No harm was found, and a few times the aim would have been: main has too little to do for less.
    Unproven,
    /// Harm cannot be told, for this reason; the machine's default is in force.
    Unknown(&'static str),
}

impl State {
    /// The search rests at a level that it chose.
    pub fn is_found(self) -> bool {
        matches!(self, State::Known | State::Unproven)
    }
}

/// What was found, to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The headroom in force while none is compared with it.
    pub level_ppm: u32,
    /// What is known of it.
    pub state: State,
    /// Harm that is accepted.
    pub aim_ppm: u32,
    /// Time that main's work takes, of that at the highest headroom: estimate and bounds, 1,000,000 for no harm.
    pub ratio_ppm: Option<[u32; 3]>,
    /// Main's turns that wait long because of side work.
    pub tail: Option<FoundTail>,
    /// The highest headroom is kept at this moment, to compare.
    pub is_low: bool,
}

/// What was found of the turns of main that wait long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundTail {
    /// A longer wait than this is long: the mean CPU time of a turn.
    pub late_after_ns: u64,
    /// The share of main's turns that wait long, less that at the highest headroom, in millionths: estimate and bounds.
    pub more_ppm: [i32; 3],
    /// So much more is accepted.
    pub aim_ppm: u32,
    /// The level, or the one below it, is above what is accepted by these waits alone.
    pub decides: bool,
}

impl Auto {
    /// What there is to show.
    pub fn found(&self) -> Option<Found> {
        self.asked?;
        let law = self.law.as_ref();
        // Until the first look there is no upper bound.
        let judged = law.filter(|law| law.upper_ppm() < 1_000_000_000);
        Some(Found {
            level_ppm: self.level_ppm()?,
            state: self.state(),
            aim_ppm: self.asked.map_or(0, |(aim_ppm, _)| aim_ppm),
            ratio_ppm: judged.map(|law| [law.ratio_ppm(), law.lower_ppm(), law.upper_ppm()]),
            tail: judged.and_then(|law| self.found_tail(law)),
            is_low: self.is_low,
        })
    }

    fn found_tail(&self, law: &Harm) -> Option<FoundTail> {
        let more_ppm = law.tail_ppm();
        let is_known = more_ppm[2] < ALL_PPM;
        is_known.then_some(FoundTail {
            late_after_ns: self.tail.late_after_ns().filter(|ns| *ns < u64::MAX)?,
            more_ppm,
            aim_ppm: Config::default().tail_ppm,
            decides: self.by_tail,
        })
    }

    fn state(&self) -> State {
        if !self.activity.main() {
            return State::NoMain;
        }
        if !self.tells_waits {
            return State::Unknown(
                "sensing by usage files does not tell how long main waits to run",
            );
        }
        let verdict = self.law.as_ref().map(Harm::verdict);
        match self.search.stage() {
            Stage::Fit if self.search.is_most() => State::Known,
            Stage::Fit if self.measured().is_none() => State::NoRoom,
            Stage::Fit if matches!(verdict, Some(Verdict::Unknown(_))) => State::Unproven,
            Stage::Fit => State::Known,
            Stage::Unknown if self.is_caused => {
                State::Unknown("main's work grows with side work, which seems to cause it")
            }
            Stage::Unknown => State::Unknown(match verdict {
                Some(Verdict::Unknown(reason)) => reason.as_str(),
                _ => "too little data",
            }),
            Stage::Measuring if self.no_room_ns > 0 => State::NoRoom,
            Stage::Measuring if self.activity.side() => State::Learning,
            Stage::Measuring => State::NoSide,
        }
    }
}
