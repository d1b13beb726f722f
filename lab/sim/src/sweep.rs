//! Sweeps: every combination of some values, on several threads, with results in the order of the
//! values.
//!
//! A run depends on its scenario alone, and a result goes to the place of its point: the number of
//! threads changes nothing but the time it takes.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::scenario::Override;

/// A key and the values that it takes, from `key=a,b,c`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// The key, with its tables.
    pub key: String,
    pub values: Vec<String>,
}

impl Sweep {
    /// From `key=a,b,c`, as `--sweep` takes it.
    ///
    /// # Errors
    /// Not of that form.
    pub fn parse(text: &str) -> Result<Sweep, String> {
        let bad = || {
            format!(
                "\"{}\" is not of the form key=a,b,c; write it as in machine.cpus=2,16,80",
                tidegate_terms::quoted(text)
            )
        };
        let (key, values) = text.split_once('=').ok_or_else(bad)?;
        let values: Vec<String> = values
            .split(',')
            .map(|value| value.trim().to_owned())
            .collect();
        if key.trim().is_empty() || values.iter().any(String::is_empty) {
            return Err(bad());
        }
        Ok(Sweep {
            key: key.trim().to_owned(),
            values,
        })
    }
}

/// Every combination, the last sweep's values changing fastest. Without a sweep that is one point
/// without values.
pub fn points(sweeps: &[Sweep]) -> Vec<Vec<Override>> {
    let mut points = vec![Vec::new()];
    for sweep in sweeps {
        points = points
            .iter()
            .flat_map(|point: &Vec<Override>| {
                sweep.values.iter().map(|value| {
                    let mut longer = point.clone();
                    longer.push(Override::new(&sweep.key, value));
                    longer
                })
            })
            .collect();
    }
    points
}

/// Does `count` pieces of work on up to `jobs` threads; results are in the order of the pieces.
pub fn parallel<R: Send>(jobs: usize, count: usize, work: impl Fn(usize) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<R>>> = (0..count).map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, count.max(1)) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(slot) = results.get(at) else {
                        return;
                    };
                    let result = work(at);
                    if let Ok(mut slot) = slot.lock() {
                        *slot = Some(result);
                    }
                }
            });
        }
    });
    // A thread that panicked has ended the scope with its panic; otherwise every slot is full.
    results
        .into_iter()
        .filter_map(|slot| slot.into_inner().ok().flatten())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_every_combination_in_order() {
        let sweeps = [
            Sweep::parse("machine.cpus=2, 4").unwrap(),
            Sweep::parse("seed=1,2").unwrap(),
        ];
        let labels: Vec<String> = points(&sweeps)
            .iter()
            .map(|point| {
                point
                    .iter()
                    .map(|o| o.value.as_str())
                    .collect::<Vec<_>>()
                    .join("/")
            })
            .collect();
        assert_eq!(labels, ["2/1", "2/2", "4/1", "4/2"]);
        assert_eq!(points(&[]), [vec![]]);
        for wrong in ["", "a", "=1", "a=", "a=1,,2"] {
            assert!(Sweep::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn results_are_in_order_on_any_number_of_threads() {
        for jobs in [0, 1, 2, 7, 100] {
            let squares = parallel(jobs, 20, |at| at * at);
            assert_eq!(squares, (0..20).map(|at| at * at).collect::<Vec<_>>());
        }
        assert!(parallel(3, 0, |at| at).is_empty());
    }
}
