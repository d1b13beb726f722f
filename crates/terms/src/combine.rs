//! The one rule that merges what several gates ask of the machine. Engines receive the result.
//!
//! | term | what counts | why |
//! |---|---|---|
//! | headroom | the largest; `default_headroom` where no gate names one | idle kept for one main serves every main, so headrooms do not add up |
//! | tolerance | the smallest | it promises main how little side work takes at worst; the strictest promise holds |
//! | objective | the shortest time, then the smallest share | the strictest counts; of equal times, the higher percentile. One is in force, whether on run delay or on a reported latency; `status` names the others as not used |
//!
//! Only gates that name a term are asked. A default does not compete with a named value: it holds
//! where no gate names one. Of equal values the first gate's counts, so that messages keep the name
//! that they have.

use std::cmp::Reverse;

pub fn headroom<T>(named: impl IntoIterator<Item = T>, ppm: impl Fn(&T) -> u32) -> Option<T> {
    // `max_by_key` would return the last of equals.
    named.into_iter().min_by_key(|one| Reverse(ppm(one)))
}

pub fn tolerance<T>(named: impl IntoIterator<Item = T>, ppm: impl Fn(&T) -> u32) -> Option<T> {
    named.into_iter().min_by_key(ppm)
}

/// The item with the strictest objective, given as (the time from which a run is late in ns, the
/// share that may be late in millionths).
pub fn objective<T>(
    named: impl IntoIterator<Item = T>,
    late: impl Fn(&T) -> (u64, u32),
) -> Option<T> {
    named.into_iter().min_by_key(late)
}
