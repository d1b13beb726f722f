//! The samples of the last minutes: their mean over the last one, and the amount that most of them
//! reach.

use std::collections::VecDeque;

use crate::{Constants, GRAIN_MILLI};

struct Sample {
    time_s: u64,
    milli: u64,
}

/// Samples of an amount, the newest at the back.
pub struct Window {
    window_s: u64,
    mean_s: u64,
    low_percent: usize,
    samples: VecDeque<Sample>,
    /// Of `samples`, how many at the back count for the mean, and their sum.
    recent: usize,
    recent_sum_milli: u64,
    /// How many samples lie in each [`GRAIN_MILLI`]; the percentile, rounded down, is the start of
    /// one of them.
    grains: Vec<u32>,
    /// The grain in which the percentile lies, and how many samples lie below that grain.
    low: usize,
    below_low: usize,
}

impl Window {
    pub fn new(constants: &Constants) -> Self {
        Window {
            window_s: constants.window_s,
            mean_s: constants.mean_s,
            low_percent: constants.low_percent.min(100) as usize,
            samples: VecDeque::new(),
            recent: 0,
            recent_sum_milli: 0,
            grains: Vec::new(),
            low: 0,
            below_low: 0,
        }
    }

    /// Takes one sample; those that are too old leave. Times never go back.
    pub fn push(&mut self, time_s: u64, milli: u64) {
        self.forget_before(time_s);
        let grain = grain(milli);
        if self.grains.len() <= grain {
            self.grains.resize(grain + 1, 0);
        }
        self.grains[grain] += 1;
        self.below_low += usize::from(grain < self.low);
        self.samples.push_back(Sample { time_s, milli });
        self.recent += 1;
        self.recent_sum_milli += milli;
        self.settle();
    }

    /// The mean over [`Constants::mean_s`]; none without a sample.
    pub fn mean_milli(&self) -> Option<u64> {
        self.recent_sum_milli.checked_div(self.recent as u64)
    }

    /// What all but [`Constants::low_percent`] of the samples reach, rounded down to
    /// [`GRAIN_MILLI`]; none without a sample.
    pub fn low_milli(&self) -> Option<u64> {
        (!self.samples.is_empty()).then_some(self.low as u64 * GRAIN_MILLI)
    }

    /// From the first sample to the last.
    pub fn covers_s(&self) -> u64 {
        match (self.samples.front(), self.samples.back()) {
            (Some(first), Some(last)) => last.time_s - first.time_s,
            _ => 0,
        }
    }

    fn forget_before(&mut self, now_s: u64) {
        while let Some(oldest_recent) = self.samples.len().checked_sub(self.recent) {
            match self.samples.get(oldest_recent) {
                Some(sample) if sample.time_s + self.mean_s <= now_s => {
                    self.recent -= 1;
                    self.recent_sum_milli -= sample.milli;
                }
                _ => break,
            }
        }
        while let Some(sample) = self
            .samples
            .front()
            .filter(|one| one.time_s + self.window_s <= now_s)
        {
            let grain = grain(sample.milli);
            self.grains[grain] -= 1;
            self.below_low -= usize::from(grain < self.low);
            self.samples.pop_front();
        }
    }

    /// Moves the mark of the percentile: neighbouring samples differ little, so it moves by few
    /// grains.
    fn settle(&mut self) {
        // The sample of this rank, from 0, is the percentile.
        let rank = (self.samples.len() - 1) * self.low_percent / 100;
        while self.below_low > rank {
            self.low -= 1;
            self.below_low -= self.grains[self.low] as usize;
        }
        while self.below_low + self.grains[self.low] as usize <= rank {
            self.below_low += self.grains[self.low] as usize;
            self.low += 1;
        }
    }
}

fn grain(milli: u64) -> usize {
    (milli / GRAIN_MILLI) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_window_is_what_sorting_its_samples_gives(
            steps in prop::collection::vec((0_u64..40, 0_u64..9_000), 1..400),
        ) {
            let mut window = Window::new(&Constants::default());
            let mut all: Vec<(u64, u64)> = Vec::new();
            let mut now_s = 0;
            for (pause_s, milli) in steps {
                now_s += pause_s;
                window.push(now_s, milli);
                all.push((now_s, milli));
                let within = |span_s: u64| -> Vec<u64> {
                    let is_in = |one: &&(u64, u64)| one.0 + span_s > now_s;
                    all.iter().filter(is_in).map(|one| one.1).collect()
                };
                let recent = within(180);
                prop_assert_eq!(window.mean_milli(), Some(recent.iter().sum::<u64>() / recent.len() as u64));
                let mut long = within(900);
                long.sort_unstable();
                let low = long[(long.len() - 1) / 4] / GRAIN_MILLI * GRAIN_MILLI;
                prop_assert_eq!(window.low_milli(), Some(low));
            }
        }
    }

    #[test]
    fn an_empty_window_knows_nothing() {
        let window = Window::new(&Constants::default());
        assert_eq!(window.mean_milli(), None);
        assert_eq!(window.low_milli(), None);
        assert_eq!(window.covers_s(), 0);
    }
}
