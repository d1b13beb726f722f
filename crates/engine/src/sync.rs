//! Locks.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A mutex whose holder panicked still holds good numbers: no step leaves anything half done that
/// matters.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
