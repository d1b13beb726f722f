//! A queue: tasks of one kind that wait in one cache, and those of them that run, in virtual time.
//!
//! Order is the virtual deadline, `vruntime + slice / weight`, moved by the hint (law/latency.h). `V`, the mean of the members'
//! vruntime by weight, is what a fair scheduler would have given each; lag is how far a task is behind it. A hint that brings
//! a deadline forward is used only by a task that is not ahead of V by more than a quarter of its slice: it says when CPU
//! time comes, not how much. (EEVDF asks at each pick whether a task is eligible; a queue of BPF's orders once, when a task is
//! put in, and a wakeup that found itself ahead by a microsecond would wait a whole round.)
//!
//! crates/ext/bpf/queue/runqueue.h is the same in C, there with weights cut to 23 bits. What members have run since they were last charged
//! counts in V; V as it is read is that of the line's last change, here as there.

use std::collections::BTreeMap;

use tidegate_law::latency;

use super::weight::{FLAT_ONE, virtual_ns};
use crate::{Ns, TaskId};

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
    /// It runs, and the line counts what it has run since then.
    pub(super) open_ns: Option<Ns>,
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
    /// Its vruntime when it left, if it left this line.
    pub(super) left_at: Option<u64>,
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
    /// The furthest that virtual time has come, at the last change.
    reached: u64,
    flats: u64,
    members: u64,
    /// Of (vruntime − base) · flat.
    moment: i128,
    /// Members that run, and the sum of the times since when.
    open: u64,
    open_since_ns: u64,
}

/// How many tasks that may not run there a CPU passes over in one look: a BPF loop is bounded.
const LOOKS: usize = 4096;
/// Brings a place in the order before all that have not won yet; such places keep their own order.
const FRONT: u64 = 1 << 44;

impl Line {
    /// Virtual time: the mean vruntime of the members, which never goes back. (Those who come back owed something lower the
    /// mean, and a task that had done nothing would be ahead of it all at once.)
    pub(super) fn v(&self) -> u64 {
        self.reached.max(V_START)
    }

    fn mean(&self, now_ns: Ns) -> u64 {
        if self.flats == 0 {
            return self.base.max(V_START);
        }
        let open_ns = self.open * now_ns - self.open_since_ns;
        let moment = self.moment + i128::from(open_ns) * i128::from(FLAT_ONE);
        let mean = moment.div_euclid(i128::from(self.flats));
        self.base.wrapping_add(mean as u64)
    }

    fn settle(&mut self, now_ns: Ns) {
        let mean = self.mean(now_ns);
        if latency::before(self.v(), mean) {
            self.reached = mean;
        }
        if self.flats == 0 {
            self.base = self.v();
            self.moment = 0;
        }
    }

    /// Weights of the members, added up; and how many they are.
    pub(super) fn weight(&self) -> (u64, u64) {
        (self.flats, self.members)
    }

    pub(super) fn waiting(&self) -> usize {
        self.wide.len() + self.narrow.len()
    }

    fn weigh_in(&mut self, vruntime: u64, flat: u64) {
        if self.flats == 0 {
            self.base = vruntime;
        }
        self.members += 1;
        self.flats += flat;
        self.moment += i128::from(vruntime.wrapping_sub(self.base) as i64) * i128::from(flat);
    }

    fn weigh_out(&mut self, vruntime: u64, flat: u64) {
        self.members -= 1;
        self.flats -= flat;
        self.moment -= i128::from(vruntime.wrapping_sub(self.base) as i64) * i128::from(flat);
    }

    /// A task comes to compete; it does not wait yet. Lag beyond a slice either way is forgotten.
    pub(super) fn join(&mut self, comer: &Comer, period_ns: u64, now_ns: Ns) -> Standing {
        let slice_v = virtual_ns(comer.slice_ns, comer.flat);
        self.settle(now_ns);
        let vruntime = self.place(comer, slice_v.min(1 << 39) as i64);
        self.weigh_in(vruntime, comer.flat);
        self.settle(now_ns);
        let mut standing = Standing {
            vruntime,
            end: vruntime.wrapping_add(left_v(comer, slice_v)),
            flat: comer.flat,
            deadline: 0,
            open_ns: None,
        };
        standing.deadline = self.deadline(&standing, comer, period_ns);
        standing
    }

    /// Where one that comes back stands: as far behind V as it was, or ahead, within a slice; but one that was ahead is so only
    /// until V has come to where it left: it pays by sleeping. (The kernel stretches the lag, for there each that comes moves V;
    /// here V does not go back.)
    fn place(&self, comer: &Comer, most: i64) -> u64 {
        let v = self.v();
        match comer.left_at {
            Some(left_at) if comer.lag < 0 && latency::before(left_at, v) => v,
            Some(left_at) if comer.lag < 0 => v + left_at.wrapping_sub(v).min(most as u64),
            _ => v.wrapping_sub(comer.lag.clamp(-most, most) as u64),
        }
    }

    /// A member is put back in order, with the rest of its slice or, when that is over, a new one. It never left the
    /// competition, so its vruntime stands; what it weighs may have changed.
    pub(super) fn again(
        &mut self,
        standing: &mut Standing,
        comer: &Comer,
        period_ns: u64,
        now_ns: Ns,
    ) {
        self.weigh_out(standing.vruntime, standing.flat);
        self.weigh_in(standing.vruntime, comer.flat);
        self.settle(now_ns);
        standing.flat = comer.flat;
        let slice_v = virtual_ns(comer.slice_ns, comer.flat);
        standing.end = standing.vruntime.wrapping_add(left_v(comer, slice_v));
        standing.deadline = self.deadline(standing, comer, period_ns);
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
    pub(super) fn leave(&mut self, standing: &mut Standing, now_ns: Ns) -> i64 {
        self.close(standing);
        self.settle(now_ns);
        let lag = self.v().wrapping_sub(standing.vruntime) as i64;
        self.weigh_out(standing.vruntime, standing.flat);
        self.settle(now_ns);
        lag
    }

    /// A member begins to run.
    pub(super) fn open(&mut self, standing: &mut Standing, now_ns: Ns) {
        self.close(standing);
        self.open += 1;
        self.open_since_ns += now_ns;
        standing.open_ns = Some(now_ns);
    }

    /// A member has been charged for what it ran, and runs no longer.
    pub(super) fn close(&mut self, standing: &mut Standing) {
        if let Some(open_ns) = standing.open_ns.take() {
            self.open -= 1;
            self.open_since_ns -= open_ns;
        }
    }

    /// A member ran until now; true: its slice is over.
    pub(super) fn charge(&mut self, standing: &mut Standing, ran_ns: u64, now_ns: Ns) -> bool {
        let ran_v = virtual_ns(ran_ns, standing.flat);
        standing.vruntime = standing.vruntime.wrapping_add(ran_v);
        self.moment += i128::from(ran_v) * i128::from(standing.flat);
        if standing.open_ns.is_some() {
            self.open(standing, now_ns);
        }
        !latency::before(standing.vruntime, standing.end)
    }

    /// A member waits; the key is what [`Line::unwait`] wants. At the front, if it has won against who runs and only waits for
    /// him to have his quarter.
    pub(super) fn wait(&mut self, task: TaskId, deadline: u64, narrow: bool, front: bool) -> Key {
        self.arrivals += 1;
        let deadline = if front { deadline - FRONT } else { deadline };
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

    /// The first of those that may run anywhere, if it `may` go elsewhere.
    pub(super) fn first_wide(&self, may: impl FnOnce(TaskId) -> bool) -> Option<(Key, TaskId)> {
        let (key, task) = self.wide.first_key_value()?;
        may(*task).then_some((*key, *task))
    }
}

fn left_v(comer: &Comer, slice_v: u64) -> u64 {
    match comer.left_ns {
        0 => slice_v,
        left_ns => virtual_ns(left_ns, comer.flat).min(slice_v),
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
            left_at: None,
            left_ns: 0,
        }
    }

    #[test]
    fn the_mean_is_by_weight_and_lag_survives_a_sleep() {
        let mut line = Line::default();
        let mut a = line.join(&comer(FLAT_ONE, 0, 0), 24 * MS, 0);
        let mut b = line.join(&comer(3 * FLAT_ONE, 0, 0), 24 * MS, 0);
        let start = line.v();
        assert!(!line.charge(&mut a, 2 * MS, 0));
        let lag = line.leave(&mut b, 0);
        assert_eq!(lag, (MS / 2) as i64);
        assert_eq!(line.v(), a.vruntime);
        assert_eq!(line.v() - start, 2 * MS);
        let again = line.join(&comer(3 * FLAT_ONE, 0, lag), 24 * MS, 0);
        assert_eq!(line.v() - again.vruntime, MS / 2);
        assert!(line.charge(&mut a, 2 * MS, 0), "the slice of 3 ms is over");
    }

    #[test]
    fn what_has_run_and_was_not_charged_counts() {
        let mut line = Line::default();
        let mut a = line.join(&comer(FLAT_ONE, 0, 0), 24 * MS, 0);
        let start = line.v();
        line.open(&mut a, 10 * MS);
        let plain = comer(FLAT_ONE, 0, 0);
        let mut b = line.join(&plain, 24 * MS, 12 * MS);
        assert_eq!(b.vruntime - start, 2 * MS, "beside who ran 2 ms");
        line.charge(&mut a, 2 * MS, 12 * MS);
        line.close(&mut a);
        assert_eq!(line.leave(&mut b, 20 * MS), 0, "and then no longer");
        assert_eq!(line.v(), a.vruntime);
    }

    #[test]
    fn one_that_left_ahead_pays_by_sleeping_and_no_longer() {
        let mut line = Line::default();
        let mut other = line.join(&comer(FLAT_ONE, 0, 0), 24 * MS, 0);
        let mut a = line.join(&comer(FLAT_ONE, 0, 0), 24 * MS, 0);
        line.charge(&mut a, 2 * MS, 0);
        let lag = line.leave(&mut a, 0);
        assert_eq!(lag, -(MS as i64));
        let again = Comer {
            left_at: Some(a.vruntime),
            ..comer(FLAT_ONE, 0, lag)
        };
        assert_eq!(line.place(&again, 3 * MS as i64), a.vruntime, "V is behind");
        line.charge(&mut other, 5 * MS, 0);
        line.settle(0);
        assert_eq!(line.place(&again, 3 * MS as i64), line.v(), "V has come");
        let elsewhere = Comer {
            left_at: None,
            ..again
        };
        assert_eq!(line.place(&elsewhere, 3 * MS as i64), line.v() + MS);
    }

    #[test]
    fn being_put_back_moves_nobody() {
        let mut line = Line::default();
        line.join(&comer(FLAT_ONE, 0, 0), 24 * MS, 0);
        let mut behind = line.join(&comer(FLAT_ONE, 0, 2 * MS as i64), 24 * MS, 0);
        let before = line.v();
        line.again(&mut behind, &comer(FLAT_ONE, 0, 0), 24 * MS, 0);
        assert_eq!(line.v(), before);
        line.again(&mut behind, &comer(2 * FLAT_ONE, 0, 0), 24 * MS, 0);
        assert_eq!(line.v(), before, "V never goes back");
    }

    #[test]
    fn a_hint_moves_the_owed_forward_and_the_paid_not() {
        let mut line = Line::default();
        line.join(&comer(FLAT_ONE, 0, 0), 24 * MS, 0);
        let plain = line.join(&comer(FLAT_ONE, 0, 0), 24 * MS, 0);
        let urgent = line.join(&comer(FLAT_ONE, -20, 0), 24 * MS, 0);
        assert_eq!(plain.deadline - urgent.deadline, 24 * MS);
        let paid = line.join(&comer(FLAT_ONE, -20, -2 * MS as i64), 24 * MS, 0);
        assert_eq!(paid.deadline, paid.end, "ahead of its share: no offset");
        let lax = line.join(&comer(FLAT_ONE, 10, 0), 24 * MS, 0);
        assert_eq!(lax.deadline - lax.end, 12 * MS);
    }

    #[test]
    fn a_hint_counts_in_a_group_as_in_the_root() {
        let mut line = Line::default();
        // One of a hundred in a group: its slice is a hundred times as long in virtual time, and so is the offset.
        let plain = line.join(&comer(FLAT_ONE / 100, 0, 0), 24 * MS, 0);
        let urgent = line.join(&comer(FLAT_ONE / 100, -20, 0), 24 * MS, 0);
        let moved = plain.deadline - urgent.deadline;
        assert!(moved.abs_diff(2_400 * MS) < MS, "{moved}");
    }

    #[test]
    fn the_order_passes_over_those_that_may_not_run_here() {
        let mut line = Line::default();
        let at = |deadline: u64| V_START + deadline;
        line.wait(TaskId(1), at(10), true, false);
        let key = line.wait(TaskId(2), at(20), false, false);
        line.wait(TaskId(3), at(5), false, false);
        assert_eq!(line.first(|_| true).map(|found| found.1), Some(TaskId(3)));
        assert_eq!(
            line.first(|task| task != TaskId(3)).map(|found| found.1),
            Some(TaskId(1))
        );
        let wide = line.first_wide(|_| true).map(|found| found.1);
        assert_eq!(wide, Some(TaskId(3)));
        line.unwait(key);
        assert_eq!(line.waiting(), 2);
        line.wait(TaskId(4), at(30), true, true);
        assert_eq!(line.first(|_| true).map(|found| found.1), Some(TaskId(4)));
    }
}
