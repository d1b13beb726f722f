//! The machine over the last hour, a sample a second: a ring of fixed size.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

use tidegate_api::{HistoryPointView, HistoryView};
use tidegate_engine::sync::lock;

/// An hour. With 40 bytes a sample, 144 kB.
pub(crate) const KEPT: usize = 3_600;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    pub(crate) unix_s: u64,
    pub(crate) capacity_cpus: f32,
    pub(crate) main_cpus: f32,
    pub(crate) side_cpus: f32,
    pub(crate) idle_cpus: f32,
    pub(crate) allowance_cpus: f32,
    pub(crate) headroom_ratio: f32,
    pub(crate) idle_kept_ratio: f32,
    pub(crate) late_steps: u32,
}

/// The last samples. Their room is made with the first.
#[derive(Default)]
pub(crate) struct History(Mutex<VecDeque<Sample>>);

impl History {
    pub(crate) fn add(&self, sample: Sample) {
        let mut samples = lock(&self.0);
        if samples.capacity() == 0 {
            samples.reserve_exact(KEPT);
        }
        if samples.len() == KEPT {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// The means of steps of `step_s` (at least 1) seconds from `from_s` to `to_s`.
    pub(crate) fn view(&self, from_s: u64, to_s: u64, step_s: u64) -> HistoryView {
        // By time, and not as they were added: the wall clock may be set back.
        let mut steps: BTreeMap<u64, HistoryPointView> = BTreeMap::new();
        for sample in lock(&self.0).iter() {
            if (from_s..=to_s).contains(&sample.unix_s) {
                let nth = (sample.unix_s - from_s) / step_s;
                add(steps.entry(nth).or_default(), sample);
            }
        }
        let points = steps.into_iter();
        HistoryView {
            from_unix_seconds: from_s,
            to_unix_seconds: to_s,
            step_seconds: step_s,
            points: points
                .map(|(nth, sums)| mean(&sums, from_s + nth * step_s))
                .collect(),
        }
    }
}

fn add(sums: &mut HistoryPointView, sample: &Sample) {
    sums.samples += 1;
    sums.capacity_cpus += f64::from(sample.capacity_cpus);
    sums.main_cpus += f64::from(sample.main_cpus);
    sums.side_cpus += f64::from(sample.side_cpus);
    sums.idle_cpus += f64::from(sample.idle_cpus);
    sums.allowance_cpus += f64::from(sample.allowance_cpus);
    sums.headroom_ratio += f64::from(sample.headroom_ratio);
    sums.idle_kept_ratio += f64::from(sample.idle_kept_ratio);
    sums.late_steps += u64::from(sample.late_steps);
}

fn mean(sums: &HistoryPointView, began_s: u64) -> HistoryPointView {
    let count = sums.samples.max(1) as f64;
    // What is kept has seven digits.
    let mean = |sum: f64| (1e6 * sum / count).round() / 1e6;
    HistoryPointView {
        time_unix_seconds: began_s,
        samples: sums.samples,
        capacity_cpus: mean(sums.capacity_cpus),
        main_cpus: mean(sums.main_cpus),
        side_cpus: mean(sums.side_cpus),
        idle_cpus: mean(sums.idle_cpus),
        allowance_cpus: mean(sums.allowance_cpus),
        headroom_ratio: mean(sums.headroom_ratio),
        idle_kept_ratio: mean(sums.idle_kept_ratio),
        late_steps: sums.late_steps,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(seconds: impl IntoIterator<Item = u64>) -> History {
        let history = History::default();
        for unix_s in seconds {
            history.add(Sample {
                unix_s,
                main_cpus: unix_s as f32,
                late_steps: 1,
                ..Sample::default()
            });
        }
        history
    }

    #[test]
    fn an_hour_is_kept_and_no_more() {
        let history = history(1..=4_000);
        let view = history.view(0, 10_000, 1);
        assert_eq!(view.points.len(), KEPT);
        assert_eq!(view.points[0].time_unix_seconds, 401);
        assert!(KEPT * size_of::<Sample>() <= 1 << 20);
        assert_eq!(lock(&history.0).capacity(), KEPT, "it does not grow");
    }

    #[test]
    fn steps_are_means_and_a_pause_leaves_none() {
        let view = history([10, 11, 12, 13, 40, 41]).view(10, 60, 10);
        let points: Vec<(u64, u64, f64, u64)> = view
            .points
            .iter()
            .map(|p| (p.time_unix_seconds, p.samples, p.main_cpus, p.late_steps))
            .collect();
        assert_eq!(points, [(10, 4, 11.5, 4), (40, 2, 40.5, 2)]);
        assert!(history([5]).view(6, 9, 1).points.is_empty());
    }

    #[test]
    fn a_clock_that_is_set_back_changes_no_order() {
        let view = history([100, 101, 50, 51]).view(0, 200, 1);
        let times: Vec<u64> = view.points.iter().map(|p| p.time_unix_seconds).collect();
        assert_eq!(times, [50, 51, 100, 101]);
    }
}
