//! The search for the least headroom at which side work does main no harm above the aim.
//!
//! Levels are percent of the machine in steps of 5, from 0 (the idle class alone) to 60. One level at a time is measured; what is
//! known is a bracket: the highest level known to harm, and the lowest known to be fit. 60 % is fit: the others are compared with it.
//! Pure: no clock, no files.

/// Levels are this far apart.
const STEP_PCT: u32 = 5;
/// The highest level: more would leave side work less than half of the machine for a doubtful gain.
pub const MOST_PCT: u32 = 60;
/// A fit level is tried lower after this long, later after twice as long each time that this fails.
const LOWER_AFTER_US: u64 = 600_000_000;
/// The longest wait; also until what could not be found is looked for again.
const AGAIN_AFTER_US: u64 = 3_600_000_000;

/// What was measured of the level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Harm is above what is accepted.
    Harms,
    /// Harm is within the aim.
    Fit,
    /// It cannot be told.
    Unknown,
}

/// What to do about a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Measure the level, from the beginning.
    Measure,
    /// Hold the level; it was measured last.
    Hold,
    /// Hold the level; it was measured before others.
    Return,
}

/// What is known of the level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// Nothing yet: it is measured.
    #[default]
    Measuring,
    /// It is fit, and the one below is known to harm (or it is 0 %).
    Fit,
    /// It could not be told, and no level is known to be fit.
    Unknown,
}

/// The bracket and what comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    level_pct: u32,
    harmful_pct: Option<u32>,
    fit_pct: Option<u32>,
    stage: Stage,
    /// A fit level is tried lower, after nothing was known to be wrong with it.
    trying_lower: bool,
    lower_after_us: u64,
    left_us: u64,
}

impl Default for Search {
    fn default() -> Self {
        Self {
            level_pct: 0,
            harmful_pct: None,
            fit_pct: None,
            stage: Stage::Measuring,
            trying_lower: false,
            lower_after_us: LOWER_AFTER_US,
            left_us: 0,
        }
    }
}

impl Search {
    /// The level that is measured or held.
    pub fn level_pct(&self) -> u32 {
        self.level_pct
    }

    /// The level that is known to be fit; 0 where none is.
    pub fn known_pct(&self) -> u32 {
        self.fit_pct.unwrap_or(0)
    }

    /// It is the highest, with which others are compared.
    pub fn is_most(&self) -> bool {
        self.level_pct == MOST_PCT
    }

    /// What is known of it.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// The level was measured.
    pub fn found(&mut self, finding: Finding) -> Next {
        match finding {
            Finding::Unknown if self.fit_pct.or(self.harmful_pct).is_none() => {
                self.rest(Stage::Unknown, AGAIN_AFTER_US)
            }
            // A level that cannot be told is held as little as one that harms.
            Finding::Harms | Finding::Unknown => {
                self.harmful_pct = Some(self.level_pct);
                // A higher one that was fit before main changed is so no more.
                self.fit_pct = self.fit_pct.filter(|fit| *fit > self.level_pct);
                self.within(self.fit_pct.unwrap_or(MOST_PCT))
            }
            Finding::Fit => {
                if std::mem::take(&mut self.trying_lower) {
                    self.lower_after_us = LOWER_AFTER_US;
                }
                self.fit_pct = Some(self.level_pct);
                self.harmful_pct = self.harmful_pct.filter(|harmful| *harmful < self.level_pct);
                self.within(self.level_pct)
            }
        }
    }

    /// What was known of the level is out of date, and it is measured again.
    pub fn drifted(&mut self) {
        self.begin_at(self.level_pct);
    }

    /// Nothing is known; this level is measured first, or the one below where it is the highest.
    pub fn begin_at(&mut self, level_pct: u32) {
        *self = Self {
            level_pct: (level_pct / STEP_PCT * STEP_PCT).min(MOST_PCT - STEP_PCT),
            fit_pct: (level_pct >= MOST_PCT).then_some(MOST_PCT),
            ..Self::default()
        };
    }

    /// Time passed at a level that is held; whether another try begins, at the level then named.
    pub fn passed(&mut self, us: u64) -> bool {
        self.left_us = self.left_us.saturating_sub(us);
        if self.left_us > 0 || self.stage == Stage::Measuring {
            return false;
        }
        match self.fit_pct.filter(|_| self.stage == Stage::Fit) {
            Some(0) => return false,
            Some(fit_pct) => {
                self.trying_lower = true;
                self.harmful_pct = None;
                self.level_pct = fit_pct - STEP_PCT;
            }
            None => *self = Self::default(),
        }
        self.stage = Stage::Measuring;
        true
    }

    /// `fit_pct` is fit: the middle of what may lie below, until nothing does.
    fn within(&mut self, fit_pct: u32) -> Next {
        let low_pct = match self.harmful_pct {
            Some(harmful_pct) if fit_pct - harmful_pct <= STEP_PCT => return self.settle(fit_pct),
            Some(harmful_pct) => harmful_pct,
            None if fit_pct == 0 => return self.settle(fit_pct),
            None => 0,
        };
        // Rounded down, and never the harmful one itself: the bracket is wider than a step.
        let middle_pct = (low_pct + fit_pct) / 2 / STEP_PCT * STEP_PCT;
        self.level_pct = middle_pct;
        Next::Measure
    }

    /// Holds the level that is fit.
    fn settle(&mut self, fit_pct: u32) -> Next {
        if std::mem::take(&mut self.trying_lower) {
            self.lower_after_us = (2 * self.lower_after_us).min(AGAIN_AFTER_US);
        }
        let next = if self.level_pct == fit_pct {
            Next::Hold
        } else {
            Next::Return
        };
        (self.level_pct, self.fit_pct) = (fit_pct, Some(fit_pct));
        self.rest(Stage::Fit, self.lower_after_us);
        next
    }

    fn rest(&mut self, stage: Stage, us: u64) -> Next {
        self.stage = stage;
        self.left_us = us;
        self.trying_lower = false;
        Next::Hold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A main that is harmed below `due_pct`: the levels that are measured until one is held.
    fn levels(search: &mut Search, due_pct: u32) -> Vec<u32> {
        let mut levels = vec![search.level_pct()];
        for _ in 0..20 {
            let finding = if search.level_pct() < due_pct {
                Finding::Harms
            } else {
                Finding::Fit
            };
            if search.found(finding) != Next::Measure {
                return levels;
            }
            levels.push(search.level_pct());
        }
        panic!("no end: {levels:?}");
    }

    #[test]
    fn the_idle_class_alone_is_tried_first_and_held_where_it_is_fit() {
        let mut search = Search::default();
        assert_eq!(levels(&mut search, 0), [0]);
        assert_eq!((search.level_pct(), search.stage()), (0, Stage::Fit));
        assert!(!search.passed(10 * AGAIN_AFTER_US), "nothing is lower");
    }

    #[test]
    fn every_level_is_found_to_a_step_and_in_few_tries() {
        for due_pct in (5..=60).step_by(5) {
            let mut search = Search::default();
            let tries = levels(&mut search, due_pct);
            assert_eq!(
                (search.level_pct(), search.stage()),
                (due_pct, Stage::Fit),
                "{tries:?}"
            );
            assert!(tries.len() <= 6, "{tries:?}");
        }
        assert_eq!(levels(&mut Search::default(), 15), [0, 30, 15, 5, 10]);
        assert_eq!(levels(&mut Search::default(), 40), [0, 30, 45, 35, 40]);
    }

    #[test]
    fn a_fit_level_is_tried_lower_ever_more_rarely_while_that_fails() {
        let mut search = Search::default();
        levels(&mut search, 20);
        for wait_us in [600, 1200, 2400, 3600, 3600].map(|s| s * 1_000_000) {
            assert!(!search.passed(wait_us - 1));
            assert!(search.passed(1));
            assert_eq!(search.level_pct(), 15);
            assert_eq!(search.found(Finding::Harms), Next::Return);
            assert_eq!((search.level_pct(), search.stage()), (20, Stage::Fit));
        }
        assert!(search.passed(AGAIN_AFTER_US));
        assert_eq!(levels(&mut search, 5), [15, 5, 0]);
        assert_eq!(search.level_pct(), 5);
        assert!(search.passed(LOWER_AFTER_US), "soon again: it did not fail");
    }

    #[test]
    fn what_cannot_be_told_is_not_held() {
        let mut search = Search::default();
        assert_eq!(search.found(Finding::Unknown), Next::Hold);
        assert_eq!((search.level_pct(), search.stage()), (0, Stage::Unknown));
        assert!(search.passed(AGAIN_AFTER_US));
        assert_eq!(search.stage(), Stage::Measuring);
        search.found(Finding::Harms);
        assert_eq!(search.found(Finding::Unknown), Next::Measure);
        assert_eq!(search.level_pct(), 45);
        search = Search::default();
        search.found(Finding::Harms);
        search.found(Finding::Fit);
        for level_pct in [15, 20, 25] {
            assert_eq!(search.level_pct(), level_pct);
            let next = search.found(Finding::Unknown);
            assert_eq!(next == Next::Return, level_pct == 25);
        }
        assert_eq!((search.level_pct(), search.stage()), (30, Stage::Fit));
    }

    #[test]
    fn what_an_earlier_agent_found_is_measured_first() {
        let mut search = Search::default();
        search.begin_at(20);
        assert_eq!(levels(&mut search, 15), [20, 10, 15]);
        for (asked, level_pct) in [(7, 5), (u32::MAX, 55)] {
            search.begin_at(asked);
            assert_eq!(
                (search.level_pct(), search.stage()),
                (level_pct, Stage::Measuring)
            );
        }
    }

    #[test]
    fn after_a_drift_the_search_begins_at_the_present_level() {
        let mut search = Search::default();
        levels(&mut search, 20);
        search.drifted();
        assert_eq!((search.level_pct(), search.stage()), (20, Stage::Measuring));
        assert_eq!(levels(&mut search, 30), [20, 40, 30, 25]);
        assert_eq!(search.level_pct(), 30);
        search.drifted();
        assert_eq!(levels(&mut search, 0), [30, 15, 5, 0]);
        assert_eq!(search.level_pct(), 0);
    }
}
