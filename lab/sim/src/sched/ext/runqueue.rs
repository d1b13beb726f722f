//! A run queue: tasks of one kind that wait in one cache, and those of them that run. Their order, and the mean by which those
//! that come back are placed, are law/runqueue.h.
//!
//! V as it is read is that of the last change, here as in BPF.

use std::collections::BTreeMap;

use tidegate_law::hweight::virtual_ns;
use tidegate_law::latency;
use tidegate_law::runqueue::{Mean, Task, is_near, place, reweighed};
use tidegate_law::tuning::{ENQUEUE_FRONT, PICK_NEAR_SCAN_MAX};

use crate::{Ns, TaskId};

/// Where a task stands in a run queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// What it has had.
    pub(super) vruntime: u64,
    /// Its vruntime at the end of its slice.
    pub(super) end: u64,
    /// Its hierarchical weight while it is a member.
    pub(super) hweight: u64,
    /// Its place in the order.
    pub(super) deadline: u64,
    /// It runs, and the run queue counts what it has run since then.
    pub(super) running_since_ns: Option<Ns>,
}

/// What a task brings to a run queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entrant {
    pub(super) hweight: u64,
    /// CPUs of its cache, of which its hweight counts for one at most; 0: it may run on fewer, or is not main's.
    pub(super) cpus: u64,
    /// Its own weight.
    pub(super) weight: u32,
    pub(super) slice_ns: u64,
    pub(super) hint: i32,
    /// A hint of −20 brings a deadline forward by so much.
    pub(super) period_ns: u64,
    /// What it was behind by when it left (positive), in virtual time.
    pub(super) lag: i64,
    /// Its vruntime when it left, if it left this run queue.
    pub(super) left_at: Option<u64>,
    /// What is left of its slice, or 0 for a new one.
    pub(super) left_ns: u64,
}

impl Entrant {
    fn slice_v(&self) -> u64 {
        virtual_ns(self.slice_ns, self.hweight)
    }

    /// What its slice, or the rest of it, comes to in virtual time.
    fn left_v(&self) -> u64 {
        match self.left_ns {
            0 => self.slice_v(),
            left_ns => virtual_ns(left_ns, self.hweight).min(self.slice_v()),
        }
    }
}

pub(super) type Key = (u64, u64);

/// One queue.
#[derive(Default)]
pub(super) struct RunQueue {
    /// Waiting, in order, for any CPU of the cache.
    wide: BTreeMap<Key, TaskId>,
    /// Waiting for some of its CPUs only.
    narrow: BTreeMap<Key, TaskId>,
    arrivals: u64,
    mean: Mean,
}

impl RunQueue {
    pub(super) fn mean(&self) -> &Mean {
        &self.mean
    }

    pub(super) fn waiting(&self) -> usize {
        self.wide.len() + self.narrow.len()
    }

    /// A task comes to compete; it does not wait yet. Lag beyond a slice either way is dropped.
    pub(super) fn activate(&mut self, entrant: &Entrant, now_ns: Ns) -> Standing {
        let entrant = &self.feasible(entrant, 0);
        self.mean.settle(now_ns);
        let (lag, left_at) = (entrant.lag, entrant.left_at);
        let vruntime = place(self.mean.v(), lag, left_at, entrant.slice_v());
        self.mean.add(vruntime, entrant.hweight);
        self.mean.settle(now_ns);
        let mut standing = Standing {
            vruntime,
            hweight: entrant.hweight,
            ..Standing::default()
        };
        self.order(&mut standing, entrant);
        standing
    }

    /// A member is put back in order, with the rest of its slice or, when that is over, a new one. What it weighs may have
    /// changed; what it is owed has not.
    pub(super) fn requeue(&mut self, standing: &mut Standing, entrant: &Entrant, now_ns: Ns) {
        let entrant = &self.feasible(entrant, standing.hweight);
        if entrant.hweight != standing.hweight {
            self.mean.settle(now_ns);
            let (v, was) = (self.mean.v(), standing.vruntime);
            self.mean.sub(was, standing.hweight);
            standing.vruntime = reweighed(v, was, standing.hweight, entrant.hweight);
            standing.hweight = entrant.hweight;
            self.mean.add(standing.vruntime, standing.hweight);
        }
        self.mean.settle(now_ns);
        self.order(standing, entrant);
    }

    fn feasible(&self, entrant: &Entrant, counted: u64) -> Entrant {
        Entrant {
            hweight: self.mean.feasible(entrant.hweight, counted, entrant.cpus),
            ..*entrant
        }
    }

    fn order(&self, standing: &mut Standing, entrant: &Entrant) {
        standing.end = standing.vruntime.wrapping_add(entrant.left_v());
        let task = Task {
            vruntime: standing.vruntime,
            end: standing.end,
            slice_v: entrant.slice_v(),
            hweight: standing.hweight,
            weight: entrant.weight,
            hint: entrant.hint,
            sync: 0,
        };
        standing.deadline = task.deadline(self.mean.v(), entrant.period_ns);
    }

    /// A member goes; what it is behind by.
    pub(super) fn deactivate(&mut self, standing: &mut Standing, now_ns: Ns) -> i64 {
        self.stop(standing);
        self.mean.settle(now_ns);
        let lag = self.mean.v().wrapping_sub(standing.vruntime) as i64;
        self.mean.sub(standing.vruntime, standing.hweight);
        self.mean.settle(now_ns);
        lag
    }

    /// A member begins to run.
    pub(super) fn set_running(&mut self, standing: &mut Standing, now_ns: Ns) {
        self.stop(standing);
        self.mean.starts(now_ns);
        standing.running_since_ns = Some(now_ns);
    }

    /// A member has been charged for what it ran, and runs no longer.
    pub(super) fn stop(&mut self, standing: &mut Standing) {
        if let Some(since_ns) = standing.running_since_ns.take() {
            self.mean.stops(since_ns);
        }
    }

    /// A member ran until now; true: its slice is over.
    pub(super) fn charge(&mut self, standing: &mut Standing, ran_ns: u64, now_ns: Ns) -> bool {
        let ran_v = virtual_ns(ran_ns, standing.hweight);
        standing.vruntime = standing.vruntime.wrapping_add(ran_v);
        self.mean.ran(ran_v, standing.hweight);
        if standing.running_since_ns.is_some() {
            self.set_running(standing, now_ns);
        }
        !latency::before(standing.vruntime, standing.end)
    }

    /// A member waits; the key is what [`RunQueue::unwait`] wants. At the front, if it has won against the running task and only
    /// waits for that to have run for a while.
    pub(super) fn wait(&mut self, task: TaskId, deadline: u64, narrow: bool, front: bool) -> Key {
        self.arrivals += 1;
        let deadline = if front {
            deadline - ENQUEUE_FRONT
        } else {
            deadline
        };
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
        let wide = self.wide.iter().find(|(_, task)| may(**task));
        let narrow = self.narrow.iter().find(|(_, task)| may(**task));
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

    /// The first in the order that may run on a CPU, or one that ran there last and comes soon after the first of its queue.
    pub(super) fn near(
        &self,
        (key, task): (Key, TaskId),
        slice_v: impl Fn(TaskId) -> u64,
        ran_here: impl Fn(TaskId) -> bool,
        is_free: impl Fn(TaskId) -> bool,
    ) -> (Key, TaskId) {
        let queue = match self.wide.contains_key(&key) {
            true => &self.wide,
            false => &self.narrow,
        };
        let mut queued = queue.iter().take(PICK_NEAR_SCAN_MAX as usize);
        let Some((head, _)) = queued.next().filter(|(_, head)| !ran_here(**head)) else {
            return (key, task);
        };
        let head_slice_v = slice_v(queue[head]);
        queued
            .find(|(_, other)| ran_here(**other))
            .filter(|(at, other)| {
                is_free(**other) && is_near(head.0, at.0, head_slice_v, slice_v(**other))
            })
            .map_or((key, task), |(key, task)| (*key, *task))
    }

    /// The first of those that may run anywhere, if it `may` go elsewhere.
    pub(super) fn first_wide(&self, may: impl FnOnce(TaskId) -> bool) -> Option<(Key, TaskId)> {
        let (key, task) = self.wide.first_key_value()?;
        may(*task).then_some((*key, *task))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_law::hweight::ONE;
    use tidegate_law::runqueue::V_START;

    const MS: u64 = 1_000_000;

    fn entrant(hweight: u64, hint: i32, lag: i64) -> Entrant {
        Entrant {
            hweight,
            cpus: 0,
            weight: 1024,
            slice_ns: 3 * MS,
            period_ns: 24 * MS,
            hint,
            lag,
            left_at: None,
            left_ns: 0,
        }
    }

    #[test]
    fn the_mean_is_by_weight_and_lag_survives_a_sleep() {
        let mut queue = RunQueue::default();
        let mut a = queue.activate(&entrant(ONE, 0, 0), 0);
        let mut b = queue.activate(&entrant(3 * ONE, 0, 0), 0);
        let start = queue.mean.v();
        assert!(!queue.charge(&mut a, 2 * MS, 0));
        let lag = queue.deactivate(&mut b, 0);
        assert_eq!(lag, (MS / 2) as i64);
        assert_eq!(queue.mean.v(), a.vruntime);
        assert_eq!(queue.mean.v() - start, 2 * MS);
        let again = queue.activate(&entrant(3 * ONE, 0, lag), 0);
        assert_eq!(queue.mean.v() - again.vruntime, MS / 2);
        assert!(queue.charge(&mut a, 2 * MS, 0), "the slice of 3 ms is over");
    }

    #[test]
    fn what_has_run_and_was_not_charged_counts() {
        let mut queue = RunQueue::default();
        let mut a = queue.activate(&entrant(ONE, 0, 0), 0);
        let start = queue.mean.v();
        queue.set_running(&mut a, 10 * MS);
        let plain = entrant(ONE, 0, 0);
        let mut b = queue.activate(&plain, 12 * MS);
        assert_eq!(b.vruntime - start, 2 * MS, "beside one that ran 2 ms");
        queue.charge(&mut a, 2 * MS, 12 * MS);
        queue.stop(&mut a);
        assert_eq!(queue.deactivate(&mut b, 20 * MS), 0, "and then no longer");
        assert_eq!(queue.mean.v(), a.vruntime);
    }

    #[test]
    fn one_that_left_ahead_pays_by_sleeping_and_no_longer() {
        let mut queue = RunQueue::default();
        let mut other = queue.activate(&entrant(ONE, 0, 0), 0);
        let mut a = queue.activate(&entrant(ONE, 0, 0), 0);
        queue.charge(&mut a, 2 * MS, 0);
        let lag = queue.deactivate(&mut a, 0);
        assert_eq!(lag, -(MS as i64));
        let left_at = Some(a.vruntime);
        let comes_back = |queue: &RunQueue| place(queue.mean.v(), lag, left_at, 3 * MS);
        assert_eq!(comes_back(&queue), a.vruntime, "V is behind");
        queue.charge(&mut other, 5 * MS, 0);
        queue.mean.settle(0);
        assert_eq!(comes_back(&queue), queue.mean.v(), "V has come");
        let elsewhere = place(queue.mean.v(), lag, None, 3 * MS);
        assert_eq!(elsewhere, queue.mean.v() + MS);
    }

    #[test]
    fn being_put_back_moves_no_other() {
        let mut queue = RunQueue::default();
        queue.activate(&entrant(ONE, 0, 0), 0);
        let mut behind = queue.activate(&entrant(ONE, 0, 2 * MS as i64), 0);
        let before = queue.mean.v();
        queue.requeue(&mut behind, &entrant(ONE, 0, 0), 0);
        assert_eq!(queue.mean.v(), before);
        queue.requeue(&mut behind, &entrant(2 * ONE, 0, 0), 0);
        assert_eq!(queue.mean.v(), before, "V never goes back");
    }

    #[test]
    fn a_hint_moves_the_owed_forward_and_the_paid_not() {
        let mut queue = RunQueue::default();
        queue.activate(&entrant(ONE, 0, 0), 0);
        let plain = queue.activate(&entrant(ONE, 0, 0), 0);
        let urgent = queue.activate(&entrant(ONE, -20, 0), 0);
        assert_eq!(plain.deadline - urgent.deadline, 24 * MS);
        let paid = queue.activate(&entrant(ONE, -20, -2 * MS as i64), 0);
        assert_eq!(paid.deadline, paid.end, "ahead of its share: no offset");
        let lax = queue.activate(&entrant(ONE, 10, 0), 0);
        assert_eq!(lax.deadline - lax.end, 12 * MS);
    }

    #[test]
    fn a_hint_counts_in_a_group_as_in_the_root() {
        let mut queue = RunQueue::default();
        // One of a hundred in a group: its slice is a hundred times as long in virtual time, and so is the offset.
        let plain = queue.activate(&entrant(ONE / 100, 0, 0), 0);
        let urgent = queue.activate(&entrant(ONE / 100, -20, 0), 0);
        let moved = plain.deadline - urgent.deadline;
        assert!(moved.abs_diff(2_400 * MS) < MS, "{moved}");
    }

    #[test]
    fn the_order_passes_over_those_that_may_not_run_here() {
        let mut queue = RunQueue::default();
        let at = |deadline: u64| V_START + deadline;
        queue.wait(TaskId(1), at(10), true, false);
        let key = queue.wait(TaskId(2), at(20), false, false);
        queue.wait(TaskId(3), at(5), false, false);
        assert_eq!(queue.first(|_| true).map(|found| found.1), Some(TaskId(3)));
        assert_eq!(
            queue.first(|task| task != TaskId(3)).map(|found| found.1),
            Some(TaskId(1))
        );
        let wide = queue.first_wide(|_| true).map(|found| found.1);
        assert_eq!(wide, Some(TaskId(3)));
        queue.unwait(key);
        assert_eq!(queue.waiting(), 2);
        queue.wait(TaskId(4), at(30), true, true);
        assert_eq!(queue.first(|_| true).map(|found| found.1), Some(TaskId(4)));
    }

    #[test]
    fn one_that_ran_here_goes_before_the_first_by_half_of_its_slice() {
        let mut queue = RunQueue::default();
        let at = |ms: u64| V_START + ms * MS;
        for (task, ms) in [(0, 10), (1, 11), (2, 12), (3, 40)] {
            queue.wait(TaskId(task), at(ms), false, false);
        }
        let near = |slice_v: u64, ran_here: &[u32], bound: &[u32]| {
            let first = queue.first(|_| true).expect("four wait");
            let is_in = |of: &[u32], task: TaskId| of.contains(&task.0);
            let ran_here = |task| is_in(ran_here, task);
            queue
                .near(first, |_| slice_v, ran_here, |task| !is_in(bound, task))
                .1
        };
        assert_eq!(near(4 * MS, &[2], &[]), TaskId(2));
        assert_eq!(near(4 * MS, &[1, 2], &[]), TaskId(1), "the first of them");
        assert_eq!(
            near(4 * MS, &[1, 2], &[1]),
            TaskId(0),
            "a limit is to be asked"
        );
        assert_eq!(near(4 * MS, &[0, 2], &[]), TaskId(0), "so did the first");
        assert_eq!(near(3 * MS, &[2], &[]), TaskId(0), "too late");
        assert_eq!(near(60 * MS, &[3], &[]), TaskId(3));
        assert_eq!(near(4 * MS, &[], &[]), TaskId(0));
    }
}
