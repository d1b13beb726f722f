//! A queue: tasks of one kind that wait in one cache, and those of them that run, in virtual time.
//!
//! Order is the virtual deadline, `vruntime + slice / weight`, moved by the hint (law/latency.h). `V`, the mean of the members'
//! vruntime by weight, is what a fair scheduler would have given each; lag is how far a task is behind it. A hint that brings
//! a deadline forward is used only by a task that is not ahead of V by more than a quarter of its slice: it says when CPU
//! time comes, not how much. (EEVDF asks at each pick whether a task is eligible; a queue of BPF's orders once, when a task is
//! put in, and a wakeup that found itself ahead by a microsecond would wait a whole round.)

use std::collections::BTreeMap;

use tidegate_law::latency;

use super::weight::{FLAT_ONE, virtual_ns};
use crate::TaskId;

/// Virtual time starts here, so that a lag or an offset before the start has room.
const V_START: u64 = 1 << 50;

/// Where a task stands in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    /// What it has had.
    pub(super) vruntime: u64,
    /// Its vruntime at the end of its slice.
    pub(super) end: u64,
    /// Its flat weight while it stands there.
    pub(super) flat: u64,
    /// Its place in the order.
    pub(super) deadline: u64,
}

/// What a task brings to a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Comer {
    pub(super) flat: u64,
    /// Its own weight, in the unit of a flat one: by it a hint is worth as much in a group as in the root.
    pub(super) own: u64,
    pub(super) slice_ns: u64,
    pub(super) hint: i32,
    /// What it was behind by when it left (positive), in virtual time.
    pub(super) lag: i64,
    /// Its vruntime, when it never left this line's competition.
    pub(super) vruntime: Option<u64>,
    /// What is left of its slice, or 0 for a new one.
    pub(super) left_ns: u64,
}

type Key = (u64, u64);

/// One queue.
#[derive(Default)]
pub(super) struct Line {
    /// Waiting, in order, for any CPU of the cache.
    wide: BTreeMap<Key, TaskId>,
    /// Waiting for some of its CPUs only.
    narrow: BTreeMap<Key, TaskId>,
    arrivals: u64,
    base: u64,
    /// The furthest that virtual time has come.
    reached: u64,
    flats: u64,
    /// Of (vruntime − base) · flat.
    moment: i128,
}

/// How many tasks that may not run there a CPU passes over in one look: a BPF loop is bounded.
const LOOKS: usize = 64;

impl Line {
    /// Virtual time: the mean vruntime of the members, which never goes back. (Those who come back owed something lower the
    /// mean, and whoever had done nothing would be ahead of it all at once.)
    pub(super) fn v(&self) -> u64 {
        let mean = self.mean();
        if latency::before(mean, self.reached) {
            return self.reached;
        }
        mean
    }

    fn mean(&self) -> u64 {
        if self.flats == 0 {
            return self.base.max(V_START);
        }
        let mean = self.moment.div_euclid(i128::from(self.flats));
        self.base.wrapping_add(mean as u64)
    }

    /// Weights of the members, added up.
    pub(super) fn weight(&self) -> u64 {
        self.flats
    }

    pub(super) fn waiting(&self) -> usize {
        self.wide.len() + self.narrow.len()
    }

    fn weigh_in(&mut self, vruntime: u64, flat: u64) {
        self.reached = self.v();
        if self.flats == 0 {
            self.base = vruntime;
            self.moment = 0;
        }
        self.flats += flat;
        self.moment += i128::from(vruntime.wrapping_sub(self.base) as i64) * i128::from(flat);
    }

    fn weigh_out(&mut self, vruntime: u64, flat: u64) {
        let v = self.v();
        self.reached = v;
        self.flats -= flat;
        self.moment -= i128::from(vruntime.wrapping_sub(self.base) as i64) * i128::from(flat);
        if self.flats == 0 {
            self.base = v;
            self.moment = 0;
        }
    }

    /// A task comes to compete; it does not wait yet. Lag beyond a slice either way is forgotten.
    pub(super) fn join(&mut self, comer: &Comer, period_ns: u64) -> Standing {
        let slice_v = virtual_ns(comer.slice_ns, comer.flat);
        let most = slice_v.min(1 << 48) as i64;
        let vruntime = comer.vruntime.unwrap_or_else(|| self.place(comer, most));
        let left_v = match comer.left_ns {
            0 => slice_v,
            left_ns => virtual_ns(left_ns, comer.flat).min(slice_v),
        };
        self.weigh_in(vruntime, comer.flat);
        let mut standing = Standing {
            vruntime,
            end: vruntime.wrapping_add(left_v),
            flat: comer.flat,
            deadline: 0,
        };
        standing.deadline = self.deadline(&standing, comer, period_ns);
        standing
    }

    /// Where one that comes back stands: behind V by what it was behind by, or ahead, within a slice. (The kernel stretches
    /// the lag, for there each that comes moves V; here V does not go back.)
    fn place(&self, comer: &Comer, most: i64) -> u64 {
        self.v().wrapping_sub(comer.lag.clamp(-most, most) as u64)
    }

    /// The place in the order: the end of the slice, moved by the hint.
    fn deadline(&self, standing: &Standing, comer: &Comer, period_ns: u64) -> u64 {
        let slice_v = virtual_ns(comer.slice_ns, comer.flat);
        let hint = if self.is_eligible(standing.vruntime, slice_v) {
            comer.hint
        } else {
            comer.hint.max(0)
        };
        let scaled_ns = virtual_ns(period_ns, comer.flat.max(1)).min(1 << 40);
        let scaled_ns =
            (u128::from(scaled_ns) * u128::from(comer.own) / u128::from(FLAT_ONE)) as u64;
        latency::deadline(standing.end, 0, hint, scaled_ns)
    }

    /// Not ahead of its share by more than a quarter of its slice.
    pub(super) fn is_eligible(&self, vruntime: u64, slice_v: u64) -> bool {
        !latency::before(self.v().wrapping_add(slice_v / 4), vruntime)
    }

    /// A member goes; what it is behind by.
    pub(super) fn leave(&mut self, standing: &Standing) -> i64 {
        let lag = self.v().wrapping_sub(standing.vruntime) as i64;
        self.weigh_out(standing.vruntime, standing.flat);
        lag
    }

    /// A member ran; true: its slice is over.
    pub(super) fn charge(&mut self, standing: &mut Standing, ran_ns: u64) -> bool {
        let ran_v = virtual_ns(ran_ns, standing.flat);
        standing.vruntime = standing.vruntime.wrapping_add(ran_v);
        self.moment += i128::from(ran_v) * i128::from(standing.flat);
        !latency::before(standing.vruntime, standing.end)
    }

    /// A member waits; the key is what [`Line::unwait`] wants.
    pub(super) fn wait(&mut self, task: TaskId, deadline: u64, narrow: bool) -> Key {
        self.arrivals += 1;
        let key = (deadline, self.arrivals);
        if narrow {
            self.narrow.insert(key, task);
        } else {
            self.wide.insert(key, task);
        }
        key
    }

    /// A waiting member is taken out of the order (it stays a member).
    pub(super) fn unwait(&mut self, key: Key) {
        if self.wide.remove(&key).is_none() {
            self.narrow.remove(&key);
        }
    }

    /// The first in the order that `may` run here.
    pub(super) fn first(&self, mut may: impl FnMut(TaskId) -> bool) -> Option<(Key, TaskId)> {
        let wide = self.wide.iter().take(LOOKS).find(|(_, task)| may(**task));
        let narrow = self.narrow.iter().take(LOOKS).find(|(_, task)| may(**task));
        let first = match (wide, narrow) {
            (Some(wide), Some(narrow)) => {
                if wide.0 <= narrow.0 {
                    wide
                } else {
                    narrow
                }
            }
            (wide, narrow) => wide.or(narrow)?,
        };
        Some((*first.0, *first.1))
    }

    /// The last in the order that `may` go elsewhere.
    pub(super) fn last(&self, mut may: impl FnMut(TaskId) -> bool) -> Option<(Key, TaskId)> {
        let last = self
            .wide
            .iter()
            .rev()
            .take(LOOKS)
            .find(|(_, task)| may(**task))?;
        Some((*last.0, *last.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn comer(flat: u64, hint: i32, lag: i64) -> Comer {
        Comer {
            flat,
            own: FLAT_ONE,
            slice_ns: 3 * MS,
            hint,
            lag,
            vruntime: None,
            left_ns: 0,
        }
    }

    #[test]
    fn the_mean_is_by_weight_and_lag_survives_a_sleep() {
        let mut line = Line::default();
        let mut a = line.join(&comer(FLAT_ONE, 0, 0), 24 * MS);
        let b = line.join(&comer(3 * FLAT_ONE, 0, 0), 24 * MS);
        let start = line.v();
        assert!(!line.charge(&mut a, 2 * MS));
        assert_eq!(line.v() - start, MS / 2);
        let lag = line.leave(&b);
        assert_eq!(lag, (MS / 2) as i64);
        assert_eq!(line.v(), a.vruntime);
        let again = line.join(&comer(3 * FLAT_ONE, 0, lag), 24 * MS);
        assert_eq!(line.v() - again.vruntime, MS / 2);
        assert!(line.charge(&mut a, 2 * MS), "the slice of 3 ms is over");
    }

    #[test]
    fn a_hint_moves_the_owed_forward_and_the_paid_not() {
        let mut line = Line::default();
        line.join(&comer(FLAT_ONE, 0, 0), 24 * MS);
        let plain = line.join(&comer(FLAT_ONE, 0, 0), 24 * MS);
        let urgent = line.join(&comer(FLAT_ONE, -20, 0), 24 * MS);
        assert_eq!(plain.deadline - urgent.deadline, 24 * MS);
        let paid = line.join(&comer(FLAT_ONE, -20, -2 * MS as i64), 24 * MS);
        assert_eq!(paid.deadline, paid.end, "ahead of its share: no offset");
        let lax = line.join(&comer(FLAT_ONE, 10, 0), 24 * MS);
        assert_eq!(lax.deadline - lax.end, 12 * MS);
    }

    #[test]
    fn a_hint_counts_in_a_group_as_in_the_root() {
        let mut line = Line::default();
        // One of a hundred in a group: its slice is a hundred times as long in virtual time, and so is the offset.
        let plain = line.join(&comer(FLAT_ONE / 100, 0, 0), 24 * MS);
        let urgent = line.join(&comer(FLAT_ONE / 100, -20, 0), 24 * MS);
        let moved = plain.deadline - urgent.deadline;
        assert!(moved.abs_diff(2_400 * MS) < MS, "{moved}");
    }

    #[test]
    fn the_order_passes_over_those_that_may_not_run_here() {
        let mut line = Line::default();
        line.wait(TaskId(1), 10, true);
        let key = line.wait(TaskId(2), 20, false);
        line.wait(TaskId(3), 5, false);
        assert_eq!(line.first(|_| true).map(|found| found.1), Some(TaskId(3)));
        assert_eq!(
            line.first(|task| task != TaskId(3)).map(|found| found.1),
            Some(TaskId(1))
        );
        assert_eq!(line.last(|_| true), Some((key, TaskId(2))));
        line.unwait(key);
        assert_eq!(line.waiting(), 2);
    }
}
