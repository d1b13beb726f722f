//! By how much main is worse off beside side work at one level: of the level that harms, and of the highest, which is not counted.

use tidegate_law::harm::{Config, Harm};

use super::Auto;

const NO_HARM_PPM: u32 = 1_000_000;
/// The law of harm accepts no more.
const ACCEPTED_PPM_MAX: u32 = 1_000_000;

/// By the estimates, and none where side work does good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Excess {
    /// Main's work takes longer by this.
    pub ratio_ppm: u32,
    /// So many more of main's turns wait long.
    pub tail_ppm: u32,
}

impl Excess {
    /// What was found of the level that is measured.
    pub fn of(law: &Harm) -> Self {
        let [tail_ppm, ..] = law.tail_ppm();
        Self {
            ratio_ppm: law.ratio_ppm().saturating_sub(NO_HARM_PPM),
            tail_ppm: tail_ppm.max(0).unsigned_abs(),
        }
    }
}

/// What was found of a level that harms.
#[derive(Clone, Copy, Debug)]
pub(super) struct Harmed {
    /// By so much.
    pub excess: Excess,
    /// The mean is within what is accepted.
    pub by_tail: bool,
}

impl Auto {
    pub(super) fn unavoided(&self) -> Excess {
        self.unavoided.unwrap_or_default()
    }

    /// Main's work may take longer by this.
    pub(super) fn accepted_ppm(&self) -> u32 {
        let aim_ppm = self.asked.map_or(0, |(aim_ppm, _)| aim_ppm);
        (aim_ppm + self.unavoided().ratio_ppm).min(ACCEPTED_PPM_MAX)
    }

    /// By so much may the share of turns that wait long grow.
    pub(super) fn accepted_tail_ppm(&self) -> u32 {
        Config::default().tail_ppm + self.unavoided().tail_ppm
    }

    /// By the estimates, what harmed at the level before is within what is accepted once this is not counted.
    pub(super) fn is_no_better(&self, at_most: Excess) -> bool {
        let (aim_ppm, _) = self.asked.unwrap_or_default();
        let tail_ppm = Config::default().tail_ppm;
        self.harmed.is_some_and(|Harmed { excess, .. }| {
            excess.ratio_ppm <= aim_ppm + at_most.ratio_ppm
                && excess.tail_ppm <= tail_ppm + at_most.tail_ppm
        })
    }

    /// Headroom is no means against harm that the highest level does not avoid, which would cost side work much and win main nothing: the
    /// search begins again for the least headroom with no more harm than that.
    pub(super) fn accept(&mut self, at_most: Excess) {
        let harmed = self.harmed;
        self.forget();
        (self.unavoided, self.harmed) = (Some(at_most), harmed);
    }
}
