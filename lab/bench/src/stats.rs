//! The few statistics that the reports need.

use rand::RngExt as _;

/// Each once, in the order of appearance.
pub fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut all = Vec::new();
    for item in items {
        if !all.contains(&item) {
            all.push(item);
        }
    }
    all
}

/// Arithmetic mean; `None` of nothing.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The largest; NaN (which meets no target) of nothing or where one is NaN. `fold(0.0, f64::max)`
/// would skip both, and show what was not measured as the best there is.
pub fn most(values: impl IntoIterator<Item = f64>) -> f64 {
    let larger = |a: f64, b: f64| if a.is_nan() || a > b { a } else { b };
    values.into_iter().reduce(larger).unwrap_or(f64::NAN)
}

/// The smallest; NaN as with [`most`].
pub fn least(values: impl IntoIterator<Item = f64>) -> f64 {
    -most(values.into_iter().map(|v| -v))
}

/// Quantile `q` in 0…1 with linear interpolation between neighbours; `None` of nothing. Infinite
/// values (an event that was not seen to happen) sort last, as they should.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = q.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let (low, part) = (at.floor() as usize, at.fract());
    let high = (low + 1).min(sorted.len() - 1);
    if part == 0.0 || sorted[low] == sorted[high] {
        // Also keeps infinity − infinity out of the interpolation.
        return Some(sorted[low]);
    }
    Some(sorted[low] + part * (sorted[high] - sorted[low]))
}

pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// Geometric mean, right for ratios; `None` of nothing or of a value that is not positive.
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    if values.iter().any(|v| *v <= 0.0) {
        return None;
    }
    mean(&values.iter().map(|v| v.ln()).collect::<Vec<_>>()).map(f64::exp)
}

/// 95 % interval of `statistic` by the percentile bootstrap (2000 resamples, seeded). `None` below
/// three values, where resampling says nothing.
pub fn bootstrap95(
    values: &[f64],
    seed: u64,
    statistic: impl Fn(&[f64]) -> Option<f64>,
) -> Option<(f64, f64)> {
    if values.len() < 3 {
        return None;
    }
    let mut rng = crate::seeded(seed);
    let mut resample = vec![0.0; values.len()];
    let mut estimates = Vec::with_capacity(2000);
    for _ in 0..2000 {
        for slot in &mut resample {
            *slot = values[rng.random_range(0..values.len())];
        }
        estimates.extend(statistic(&resample));
    }
    Some((quantile(&estimates, 0.025)?, quantile(&estimates, 0.975)?))
}

/// `1.26` or `1.26 (1.19…1.33)`.
pub fn with_interval(value: f64, interval: Option<(f64, f64)>, digits: usize) -> String {
    match interval {
        Some((a, b)) => format!("{value:.digits$} ({a:.digits$}…{b:.digits$})"),
        None => format!("{value:.digits$}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_was_not_measured_is_neither_most_nor_least() {
        assert_eq!((most([1.0, 3.0, 2.0]), least([2.0, 1.0, 3.0])), (3.0, 1.0));
        let nothing: [&[f64]; 4] = [&[], &[f64::NAN, 0.0], &[0.0, f64::NAN], &[f64::NAN]];
        for values in nothing {
            assert!(most(values.to_vec()).is_nan() && least(values.to_vec()).is_nan());
        }
    }

    #[test]
    fn known_quantiles() {
        let v = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(quantile(&v, 0.0), Some(1.0));
        assert_eq!(median(&v), Some(2.5));
        assert_eq!(quantile(&v, 1.0), Some(4.0));
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(
            median(&[1.0, f64::INFINITY, f64::INFINITY]),
            Some(f64::INFINITY)
        );
        assert_eq!(median(&[1.0, 2.0, f64::INFINITY]), Some(2.0));
    }

    #[test]
    fn ratios_average_geometrically() {
        let g = geometric_mean(&[0.5, 2.0]).expect("positive");
        assert!((g - 1.0).abs() < 1e-12);
        assert_eq!(geometric_mean(&[1.0, 0.0]), None);
    }

    #[test]
    fn the_interval_covers_the_mean_about_as_often_as_it_says() {
        let mut rng = crate::seeded(11);
        let mut covered = 0;
        for trial in 0..200u64 {
            let values: Vec<f64> = (0..20).map(|_| rng.random::<f64>() * 2.0).collect();
            let (a, b) = bootstrap95(&values, trial, mean).expect("enough values");
            covered += u32::from((a..=b).contains(&1.0));
        }
        // 95 % in theory, a little less for 20 values; 170 of 200 is five deviations away.
        assert!(covered >= 170, "{covered} of 200");
        assert_eq!(bootstrap95(&[1.0, 2.0], 1, mean), None);
    }

    proptest! {
        #[test]
        fn quantiles_stay_inside_and_grow(mut v in proptest::collection::vec(-1e6..1e6f64, 1..40),
                                          p in 0.0..1.0f64, q in 0.0..1.0f64) {
            let (a, b) = (quantile(&v, p.min(q)).expect("values"), quantile(&v, p.max(q)).expect("values"));
            v.sort_by(f64::total_cmp);
            prop_assert!(a <= b + 1e-9);
            prop_assert!(v[0] <= a + 1e-9 && b <= v[v.len() - 1] + 1e-9);
        }

        #[test]
        fn the_interval_lies_within_the_data(v in proptest::collection::vec(0.1..10.0f64, 3..12)) {
            let (a, b) = bootstrap95(&v, 1, median).expect("values");
            prop_assert!(quantile(&v, 0.0).expect("values") <= a && a <= b);
            prop_assert!(b <= quantile(&v, 1.0).expect("values"));
        }
    }
}
