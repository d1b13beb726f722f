//! Simulations side by side, with the same results in the same order on any number of threads.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::LabError;

/// Threads to use when nobody says: one a CPU.
pub fn default_jobs() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Does `work` on each item and returns what came out, in the items' order. The dearest items (by
/// `cost`) are begun first, so that no thread is left with a long one at the end. The first error in
/// the items' order is the one that is returned, however the threads ran.
pub fn map<T: Sync, R: Send>(
    jobs: usize,
    items: &[T],
    cost: impl Fn(&T) -> u64,
    work: impl Fn(&T) -> Result<R, LabError> + Sync,
) -> Result<Vec<R>, LabError> {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(cost(&items[i])), i));
    let next = AtomicUsize::new(0);
    let interrupted = AtomicBool::new(false);
    let done: Vec<Mutex<Option<Result<R, LabError>>>> =
        items.iter().map(|_| Mutex::new(None)).collect();
    thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, items.len().max(1)) {
            scope.spawn(|| {
                while let Some(&i) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if interrupted.load(Ordering::Relaxed) {
                        return;
                    }
                    let result = work(&items[i]);
                    if matches!(result, Err(LabError::Interrupted)) {
                        interrupted.store(true, Ordering::Relaxed);
                    }
                    *done[i].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
                }
            });
        }
    });
    done.into_iter()
        .map(|slot| {
            slot.into_inner()
                .unwrap_or_else(PoisonError::into_inner)
                .unwrap_or(Err(LabError::Interrupted))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_items_order_on_any_number_of_threads() {
        let items: Vec<u64> = (0..100).collect();
        for jobs in [1, 2, 7, 200] {
            let doubled = map(jobs, &items, |i| i * 7 % 13, |i| Ok(2 * i)).expect("no error");
            assert_eq!(doubled, items.iter().map(|i| 2 * i).collect::<Vec<_>>());
        }
        let none: Vec<u64> = map(4, &[], |_: &u64| 0, |i| Ok(*i)).expect("nothing to do");
        assert!(none.is_empty());
    }

    #[test]
    fn the_first_error_is_the_same_on_any_number_of_threads() {
        let items: Vec<u64> = (0..50).collect();
        for jobs in [1, 3] {
            let failed = map(
                jobs,
                &items,
                |i| *i,
                |i| {
                    if i % 20 == 19 {
                        Err(LabError::process(format!("item {i}"), "no"))
                    } else {
                        Ok(*i)
                    }
                },
            );
            assert_eq!(failed.expect_err("two fail").to_string(), "item 19: no");
        }
    }
}
