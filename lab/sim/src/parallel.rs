//! Pieces of work on several threads, with results in the order of the pieces.
//!
//! A run depends on its scenario alone, and a result goes to the place of its piece: the number of
//! threads changes nothing but the time it takes.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

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
    fn results_are_in_order_on_any_number_of_threads() {
        for jobs in [0, 1, 2, 7, 100] {
            let squares = parallel(jobs, 20, |at| at * at);
            assert_eq!(squares, (0..20).map(|at| at * at).collect::<Vec<_>>());
        }
        assert!(parallel(3, 0, |at| at).is_empty());
    }
}
