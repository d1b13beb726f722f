//! Simulations side by side, with the same results in the same order on any number of threads.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::LabError;

/// Does `work` on each item and returns what came out, in the items' order. The items of the
/// greatest cost begin first, so that no thread is left with a long one at the end. The first error
/// in the items' order is returned, however the threads ran.
pub fn map<T: Sync, R: Send>(
    jobs: Option<usize>,
    items: &[T],
    cost: impl Fn(&T) -> u64,
    work: impl Fn(&T) -> Result<R, LabError> + Sync,
) -> Result<Vec<R>, LabError> {
    let jobs = jobs.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
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
    let result = |slot: Mutex<Option<Result<R, LabError>>>| {
        let inner = slot.into_inner().unwrap_or_else(PoisonError::into_inner);
        inner.unwrap_or(Err(LabError::Interrupted))
    };
    done.into_iter().map(result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_items_order_on_any_number_of_threads() {
        let items: Vec<u64> = (0..100).collect();
        for jobs in [1, 2, 7, 200] {
            let doubled = map(Some(jobs), &items, |i| i * 7 % 13, |i| Ok(2 * i));
            let want: Vec<u64> = items.iter().map(|i| 2 * i).collect();
            assert_eq!(doubled.expect("no error"), want);
        }
        let fails = |i: &u64| match i % 20 {
            19 => Err(LabError::process(format!("item {i}"), "no")),
            _ => Ok(*i),
        };
        for jobs in [1, 3] {
            let failed = map(Some(jobs), &items, |i| *i, fails);
            assert_eq!(failed.expect_err("some fail").to_string(), "item 19: no");
        }
    }
}
