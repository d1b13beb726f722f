//! Every state of small queues whose tasks have hints, in search of one that breaks a bound of
//! law/latency.md.
//!
//! One CPU, four tasks, weights, slices, hints. The adversary decides at every instant who wakes
//! and who sleeps (at a lag of zero, as the bound demands), how much of its slice each request asks
//! for, and when the scheduler looks again before a slice is over. Virtual time is kept in parts of
//! 1 / SCALE, so that nothing is rounded.

use std::cell::Cell;

use crate::support::walk;
use tidegate_law::latency::{Rank, deadline, offset_ns};

/// Divisible by every weight here.
const SCALE: u64 = 2;
const TASKS: usize = 4;
/// Twenty steps of hint are so many units of time; an offset is `hint` units.
const PERIOD: u64 = 20 * SCALE;
/// Virtual times are told from here, so that they wrap in the middle of a walk.
const WRAPS: u64 = u64::MAX - 3;

#[derive(Clone, Copy, Debug)]
struct Terms {
    weight: u64,
    slice: u64,
    hint: i32,
}

/// A task in the queue: virtual run time and deadline above the least run time of all, and what is
/// left of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Queued {
    vruntime: u64,
    deadline: i64,
    left: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Queue {
    tasks: [Option<Queued>; TASKS],
    running: Option<usize>,
}

struct Bed {
    terms: Vec<Terms>,
}

impl Bed {
    fn sums(&self, queue: &Queue) -> (i64, i64) {
        let (mut weights, mut run) = (0, 0);
        for (task, terms) in queue.tasks.iter().zip(&self.terms) {
            if let Some(task) = task {
                weights += terms.weight as i64;
                run += (terms.weight * task.vruntime) as i64;
            }
        }
        (weights, run)
    }

    /// Lag, times the sum of weights, times SCALE: w_i * (V - v_i) * W.
    fn lag(&self, queue: &Queue, which: usize) -> i64 {
        let (weights, run) = self.sums(queue);
        let vruntime = queue.tasks[which].unwrap().vruntime as i64;
        self.terms[which].weight as i64 * (run - weights * vruntime)
    }

    /// Every hint is told in the law's own terms: the deadline is the law's, from a clock about to
    /// wrap.
    fn request(&self, which: usize, vruntime: u64, slice: u64) -> Queued {
        let terms = self.terms[which];
        let from = WRAPS.wrapping_add(vruntime);
        let at = deadline(from, slice * SCALE / terms.weight, terms.hint, PERIOD);
        Queued {
            vruntime,
            deadline: at.wrapping_sub(WRAPS) as i64,
            left: slice,
        }
    }

    fn rank(&self, queue: &Queue, which: usize) -> Rank {
        let at = WRAPS.wrapping_add(queue.tasks[which].unwrap().deadline as u64);
        Rank::new(at, self.terms[which].hint, self.lag(queue, which) >= 0)
    }

    fn pick(&self, queue: &mut Queue) {
        let queued = (0..self.terms.len()).filter(|which| queue.tasks[*which].is_some());
        queue.running = queued.reduce(|best, next| {
            if self.rank(queue, next).first(&self.rank(queue, best)) {
                next
            } else {
                best
            }
        });
    }

    /// A task wakes at a lag of zero, if virtual time stands on a whole part now.
    fn wake(&self, queue: &Queue, which: usize, slice: u64) -> Option<Queue> {
        let (weights, run) = self.sums(queue);
        if weights > 0 && run % weights != 0 {
            return None;
        }
        let mut next = queue.clone();
        let now = if weights > 0 {
            (run / weights) as u64
        } else {
            0
        };
        next.tasks[which] = Some(self.request(which, now, slice));
        let displaces = next
            .running
            .is_none_or(|running| self.rank(&next, which).first(&self.rank(&next, running)));
        if displaces {
            next.running = Some(which);
        }
        Some(next)
    }

    fn sleep(&self, queue: &Queue) -> Option<Queue> {
        let running = queue.running?;
        if self.lag(queue, running) != 0 {
            return None;
        }
        let mut next = queue.clone();
        next.tasks[running] = None;
        self.pick(&mut next);
        Some(next)
    }

    /// One unit of time runs. At the end of a request the task makes another, of any length, and
    /// the next is picked; the scheduler may also look again before (`looks`).
    fn advance(&self, queue: &Queue, looks: bool, found: &mut Vec<Queue>) {
        let mut next = queue.clone();
        let Some(running) = next.running else {
            found.push(next);
            return;
        };
        let terms = self.terms[running];
        let task = next.tasks[running].as_mut().unwrap();
        task.vruntime += SCALE / terms.weight;
        task.left -= 1;
        let (left, vruntime) = (task.left, task.vruntime);
        if left > 0 {
            if looks {
                self.pick(&mut next);
            }
            found.push(Self::from_least(next));
            return;
        }
        for slice in 1..=terms.slice {
            let mut next = next.clone();
            next.tasks[running] = Some(self.request(running, vruntime, slice));
            self.pick(&mut next);
            found.push(Self::from_least(next));
        }
    }

    fn from_least(mut queue: Queue) -> Queue {
        let least = queue.tasks.iter().flatten().map(|task| task.vruntime).min();
        for task in queue.tasks.iter_mut().flatten() {
            task.vruntime -= least.unwrap();
            task.deadline -= least.unwrap() as i64;
        }
        queue
    }

    /// The bounds of law/latency.md on this state, each times W * SCALE; how near it comes to the
    /// upper one.
    fn judge(&self, queue: &Queue) -> Result<i64, String> {
        let (weights, _) = self.sums(queue);
        let scale = SCALE as i64;
        let longest = self
            .terms
            .iter()
            .map(|terms| terms.slice as i64)
            .max()
            .unwrap();
        let lightest = self
            .terms
            .iter()
            .map(|terms| terms.weight as i64)
            .min()
            .unwrap();
        let earliest = self
            .terms
            .iter()
            .map(|terms| -offset_ns(terms.hint, PERIOD))
            .max()
            .unwrap()
            .max(0);
        let mut near = i64::MAX;
        for (which, terms) in self.terms.iter().enumerate() {
            if queue.tasks[which].is_none() {
                continue;
            }
            let lag = self.lag(queue, which);
            let (slice, weight) = (terms.slice as i64, terms.weight as i64);
            // q * w / W for the least W there can have been: the task and the lightest other.
            let delay = longest * scale * weight * weights / (weight + lightest);
            let moved = weight * (offset_ns(terms.hint, PERIOD) + earliest) * weights;
            let behind = slice * scale * weights + delay + moved;
            if lag < -slice * scale * weights {
                return Err(format!(
                    "task {which} is ahead of its share by {lag}, more than a slice"
                ));
            }
            if lag > behind {
                return Err(format!("task {which} is behind by {lag}, bound {behind}"));
            }
            near = near.min(behind - lag);
        }
        Ok(near)
    }

    fn run(&self, name: &str) -> (usize, i64) {
        let start = Queue {
            tasks: [None; TASKS],
            running: None,
        };
        let near = Cell::new(i64::MAX);
        let states = walk(name, start, |queue, found| {
            near.set(near.get().min(self.judge(queue)?));
            self.advance(queue, false, found);
            self.advance(queue, true, found);
            found.extend(self.sleep(queue));
            for which in 0..self.terms.len() {
                if queue.tasks[which].is_none() {
                    let slices = 1..=self.terms[which].slice;
                    found.extend(slices.filter_map(|slice| self.wake(queue, which, slice)));
                }
            }
            Ok(())
        });
        (states, near.get())
    }
}

#[test]
fn no_hint_moves_anybody_out_of_the_bounds() {
    let hints = [
        [0; TASKS],
        [-6, 0, 0, 0],
        [-6, -6, 0, 3],
        [-4, -2, 0, 2],
        [3, 3, -6, 0],
    ];
    let shapes = [
        [(1, 2), (1, 2), (1, 2), (1, 2)],
        [(1, 1), (1, 3), (2, 2), (1, 2)],
        [(2, 3), (2, 1), (1, 1), (1, 2)],
    ];
    let mut states = 0;
    for shape in shapes {
        for hints in hints {
            let terms = shape
                .iter()
                .zip(hints)
                .map(|((weight, slice), hint)| Terms {
                    weight: *weight,
                    slice: *slice,
                    hint,
                });
            let name = format!("weights and slices {shape:?}, hints {hints:?}");
            let bed = Bed {
                terms: terms.collect(),
            };
            let (count, near) = bed.run(&name);
            println!("{name}: {count} states, all of them; {near} short of a bound");
            states += count;
        }
    }
    assert!(states > 10_000, "{states}");
}
