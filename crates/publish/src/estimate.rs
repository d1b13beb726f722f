//! The side CPU that a node can promise, from its samples: slow to rise, quick to fall.

use crate::window::Window;
use crate::{Constants, GRAIN_MILLI};

/// The estimate and the samples behind it.
pub struct Estimate {
    constants: Constants,
    window: Window,
    milli: Option<u64>,
    rose_s: u64,
}

impl Estimate {
    /// Without a sample yet.
    pub fn new(constants: &Constants) -> Self {
        Estimate {
            constants: constants.clone(),
            window: Window::new(constants),
            milli: None,
            rose_s: 0,
        }
    }

    /// Whether an amount is below another by more than what does not count.
    pub fn is_clearly_below(&self, milli: u64, than_milli: u64) -> bool {
        // What pods request is as large as their writers like.
        let slack_milli = than_milli.saturating_mul(self.constants.slack_percent) / 100;
        milli.saturating_add(slack_milli.max(self.constants.slack_milli)) < than_milli
    }

    /// The estimate now; none before there are three minutes of samples.
    pub fn milli(&self) -> Option<u64> {
        self.milli
    }

    /// Takes the surplus of this second. The estimate falls to the mean of three minutes, and rises
    /// to what three of four seconds of the last fifteen minutes had.
    pub fn sample(&mut self, time_s: u64, surplus_milli: u64, may_rise: bool) {
        self.window.push(time_s, surplus_milli);
        let (Some(mean_milli), Some(low_milli)) =
            (self.window.mean_milli(), self.window.low_milli())
        else {
            return;
        };
        let promise_milli = low_milli.min(whole_grains(mean_milli));
        let Some(now_milli) = self.milli else {
            if self.window.covers_s() >= self.constants.warm_up_s {
                self.milli = Some(promise_milli);
                self.rose_s = time_s;
            }
            return;
        };
        if self.is_clearly_below(mean_milli, now_milli) {
            self.milli = Some(whole_grains(mean_milli));
        } else if promise_milli > now_milli
            && may_rise
            && time_s >= self.rose_s + self.constants.rise_gap_s
        {
            let most_milli =
                (now_milli * self.constants.rise_percent / 100).max(self.constants.rise_milli);
            self.milli = Some(promise_milli.min(whole_grains(now_milli + most_milli)));
            self.rose_s = time_s;
        }
    }
}

fn whole_grains(milli: u64) -> u64 {
    milli / GRAIN_MILLI * GRAIN_MILLI
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fed(estimate: &mut Estimate, from_s: u64, seconds: u64, surplus_milli: u64) {
        for time_s in from_s..from_s + seconds {
            estimate.sample(time_s, surplus_milli, true);
        }
    }

    #[test]
    fn three_minutes_of_samples_make_the_first_estimate() {
        let mut estimate = Estimate::new(&Constants::default());
        fed(&mut estimate, 0, 180, 4_250);
        assert_eq!(estimate.milli(), None);
        fed(&mut estimate, 180, 1, 4_250);
        assert_eq!(estimate.milli(), Some(4_200));
    }

    #[test]
    fn a_fall_is_followed_within_three_minutes_and_a_rise_one_cpu_a_minute() {
        let mut estimate = Estimate::new(&Constants::default());
        fed(&mut estimate, 0, 1_000, 6_000);
        assert_eq!(estimate.milli(), Some(6_000));
        fed(&mut estimate, 1_000, 180, 2_000);
        assert!(estimate.milli() <= Some(2_600), "{:?}", estimate.milli());
        fed(&mut estimate, 1_180, 780, 6_000);
        let before = estimate.milli();
        fed(&mut estimate, 1_960, 61, 6_000);
        let risen = estimate.milli().zip(before).map(|(now, was)| now - was);
        assert!(
            risen <= Some(2_000),
            "{before:?} then {:?}",
            estimate.milli()
        );
        fed(&mut estimate, 2_021, 300, 6_000);
        assert_eq!(estimate.milli(), Some(6_000));
    }

    #[test]
    fn a_short_dip_changes_nothing() {
        let mut estimate = Estimate::new(&Constants::default());
        fed(&mut estimate, 0, 1_000, 6_000);
        fed(&mut estimate, 1_000, 4, 0);
        fed(&mut estimate, 1_004, 60, 6_000);
        assert_eq!(estimate.milli(), Some(6_000));
    }
}
