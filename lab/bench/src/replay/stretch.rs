//! The part of a long recording that tells most: the minutes in which main used most while a work
//! ran.

use tidegate_recording::Recording;

/// What is simulated of a long recording, in seconds.
pub const SECONDS_MAX: usize = 300;

/// The stretch of at most [`SECONDS_MAX`] seconds in which main used most CPU beside the work,
/// added up; none where the recording is no longer than that.
pub fn busiest(recording: &Recording, work: u32) -> Option<Recording> {
    let seconds = &recording.seconds;
    if seconds.len() <= SECONDS_MAX {
        return None;
    }
    let beside = |nth: usize| {
        let found = seconds[nth].works.iter().find(|one| one.id == work);
        let ran = found.is_some_and(|one| one.used_cpus > 0.0 || one.throttled_us > 0);
        if ran {
            f64::from(seconds[nth].main_cpus)
        } else {
            0.0
        }
    };
    let mut sum: f64 = (0..SECONDS_MAX).map(beside).sum();
    let (mut best, mut best_sum) = (0, sum);
    for first in 1..=seconds.len() - SECONDS_MAX {
        sum += beside(first + SECONDS_MAX - 1) - beside(first - 1);
        if sum > best_sum + 1e-6 {
            (best, best_sum) = (first, sum);
        }
    }
    let from_ms = seconds[best].unix_ms;
    let to_ms = seconds[best + SECONDS_MAX - 1].unix_ms;
    Some(recording.between(from_ms, to_ms))
}

#[cfg(test)]
mod tests {
    use tidegate_recording::{Second, WorkSecond};

    use super::*;

    #[test]
    fn the_stretch_is_where_main_was_busy_beside_the_work() {
        let second = |nth: u64| Second {
            unix_ms: nth * 1_000,
            // Main is busiest first, while the work does not run.
            main_cpus: match nth {
                0..700 => 4.0,
                2_000..2_300 => 2.0,
                _ => 1.0,
            },
            works: vec![WorkSecond {
                id: 3,
                used_cpus: if nth < 700 { 0.0 } else { 0.5 },
                ..WorkSecond::default()
            }],
            ..Second::default()
        };
        let recording = Recording {
            seconds: (0..3_600).map(second).collect(),
            ..Recording::default()
        };
        let found = busiest(&recording, 3).unwrap();
        assert_eq!(found.span_ms(), Some((2_000_000, 2_299_000)));
        assert!(busiest(&found, 3).is_none());
    }
}
