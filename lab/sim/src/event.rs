//! What happens next: one heap for timers, one tournament for the CPUs.
//!
//! A CPU has two things ahead of it: the end of what its task is doing and
//! its next tick. Both move often, so they have fixed slots in a tournament
//! tree, and moving one costs log2(2·CPUs) comparisons and leaves no stale
//! entry behind. Everything else (sleeps, periods of quotas) is set once and
//! waits in a 4-ary heap, in the order (time, order of setting).
//!
//! At one instant: ends of runs first (a task that is done by then has not
//! used the next slice), then timers, then ticks; each in the order of CPUs
//! or of setting.

use crate::Ns;
use crate::ids::{CpuId, GroupId, TaskId};

pub(crate) const NEVER: Ns = Ns::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// A sleep ends, or a task starts.
    Wake(TaskId),
    /// A period of a group's quota is over.
    Period(GroupId),
    /// A group's returned quota is handed out.
    Slack(GroupId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// What the CPU's task is doing is done.
    End(CpuId),
    Timer(Timer),
    /// The CPU's tick.
    Tick(CpuId),
}

#[derive(Clone, Copy)]
struct Entry {
    at: Ns,
    order: u64,
    timer: Timer,
}

impl Entry {
    fn before(&self, other: &Entry) -> bool {
        (self.at, self.order) < (other.at, other.order)
    }
}

pub(crate) struct EventQueue {
    heap: Vec<Entry>,
    order: u64,
    ends: Tournament,
    ticks: Tournament,
    /// New ends, and whether the tree is behind.
    moved: Vec<(Ns, bool)>,
    dirty: Vec<u32>,
}

impl EventQueue {
    pub(crate) fn new(cpus: usize) -> EventQueue {
        EventQueue {
            heap: Vec::new(),
            order: 0,
            ends: Tournament::new(cpus),
            ticks: Tournament::new(cpus),
            moved: vec![(NEVER, false); cpus],
            dirty: Vec::new(),
        }
    }

    pub(crate) fn set_timer(&mut self, at: Ns, timer: Timer) {
        self.order += 1;
        let entry = Entry {
            at,
            order: self.order,
            timer,
        };
        let mut i = self.heap.len();
        self.heap.push(entry);
        while i > 0 {
            let parent = (i - 1) / 4;
            if !entry.before(&self.heap[parent]) {
                break;
            }
            self.heap[i] = self.heap[parent];
            i = parent;
        }
        self.heap[i] = entry;
    }

    /// The end of a CPU's run moves several times within one event: only the
    /// last counts, so the tree follows at the next pop.
    pub(crate) fn set_end(&mut self, cpu: CpuId, at: Ns) {
        let moved = &mut self.moved[cpu.index()];
        if moved.1 {
            moved.0 = at;
        } else {
            *moved = (at, true);
            self.dirty.push(cpu.0);
        }
    }

    fn settle_ends(&mut self) {
        while let Some(cpu) = self.dirty.pop() {
            let moved = &mut self.moved[cpu as usize];
            moved.1 = false;
            self.ends.set(cpu as usize, moved.0);
        }
    }

    pub(crate) fn set_tick(&mut self, cpu: CpuId, at: Ns) {
        self.ticks.set(cpu.index(), at);
    }

    /// Takes what comes next, if it comes by `until`. The slot of an end or a tick
    /// keeps its time: its handler sets the next before the next pop.
    pub(crate) fn pop(&mut self, until: Ns) -> Option<(Ns, Next)> {
        self.settle_ends();
        let end = self.ends.first();
        let timer = self.heap.first().map_or(NEVER, |entry| entry.at);
        let tick = self.ticks.first();
        let at = end.min(timer).min(tick);
        if at > until || at == NEVER {
            return None;
        }
        if end == at {
            let cpu = self.ends.winner();
            return Some((at, Next::End(CpuId(cpu as u32))));
        }
        if timer == at {
            return Some((at, Next::Timer(self.pop_timer())));
        }
        let cpu = self.ticks.winner();
        Some((at, Next::Tick(CpuId(cpu as u32))))
    }

    fn pop_timer(&mut self) -> Timer {
        let top = self.heap[0].timer;
        let last = self.heap.len() - 1;
        let moved = self.heap[last];
        self.heap.truncate(last);
        let mut i = 0;
        loop {
            let first = 4 * i + 1;
            if first >= last {
                break;
            }
            let end = (first + 4).min(last);
            let mut best = first;
            for child in first + 1..end {
                if self.heap[child].before(&self.heap[best]) {
                    best = child;
                }
            }
            if !self.heap[best].before(&moved) {
                break;
            }
            self.heap[i] = self.heap[best];
            i = best;
        }
        if last > 0 {
            self.heap[i] = moved;
        }
        top
    }
}

/// The least of a fixed number of slots: a tree of minima. The lowest slot
/// wins a tie.
struct Tournament {
    /// 1 is the root; slot `i` is leaf `leaves + i`.
    least: Vec<Ns>,
    leaves: usize,
}

impl Tournament {
    fn new(slots: usize) -> Tournament {
        let leaves = slots.next_power_of_two().max(2);
        Tournament {
            least: vec![NEVER; 2 * leaves],
            leaves,
        }
    }

    fn first(&self) -> Ns {
        self.least[1]
    }

    fn set(&mut self, slot: usize, at: Ns) {
        let mut i = self.leaves + slot;
        if self.least[i] == at {
            return;
        }
        self.least[i] = at;
        while i > 1 {
            i /= 2;
            let least = self.least[2 * i].min(self.least[2 * i + 1]);
            if self.least[i] == least {
                break;
            }
            self.least[i] = least;
        }
    }

    fn winner(&self) -> usize {
        let mut i = 1;
        while i < self.leaves {
            i *= 2;
            if self.least[i] != self.least[i / 2] {
                i += 1;
            }
        }
        i - self.leaves
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;

    #[test]
    fn things_come_in_order_of_time_then_kind_then_number() {
        let mut queue = EventQueue::new(3);
        queue.set_timer(10, Timer::Wake(TaskId(1)));
        queue.set_timer(5, Timer::Slack(GroupId(1)));
        queue.set_tick(CpuId(2), 10);
        queue.set_tick(CpuId(1), 10);
        queue.set_end(CpuId(2), 10);
        queue.set_timer(10, Timer::Wake(TaskId(0)));
        let mut seen = Vec::new();
        while let Some(next) = queue.pop(100) {
            match next.1 {
                Next::End(cpu) => queue.set_end(cpu, NEVER),
                Next::Tick(cpu) => queue.set_tick(cpu, NEVER),
                Next::Timer(_) => {}
            }
            seen.push(next);
        }
        assert_eq!(
            seen,
            [
                (5, Next::Timer(Timer::Slack(GroupId(1)))),
                (10, Next::End(CpuId(2))),
                (10, Next::Timer(Timer::Wake(TaskId(1)))),
                (10, Next::Timer(Timer::Wake(TaskId(0)))),
                (10, Next::Tick(CpuId(1))),
                (10, Next::Tick(CpuId(2))),
            ]
        );
    }

    #[test]
    fn random_timers_and_slots_come_out_sorted() {
        let mut rng = Prng::new(7);
        let mut queue = EventQueue::new(37);
        let mut now = 0;
        let mut set = 0u32;
        let mut got = 0u32;
        for round in 0..20_000 {
            match rng.below(3) {
                0 => {
                    queue.set_timer(now + rng.below(1000), Timer::Wake(TaskId(round)));
                    set += 1;
                }
                1 => queue.set_end(CpuId(rng.below(37) as u32), now + rng.below(1000)),
                _ => {
                    if let Some((at, next)) = queue.pop(NEVER - 1) {
                        assert!(at >= now);
                        now = at;
                        got += u32::from(matches!(next, Next::Timer(_)));
                        if let Next::End(cpu) = next {
                            queue.set_end(cpu, NEVER);
                        }
                    }
                }
            }
        }
        while let Some((at, next)) = queue.pop(NEVER - 1) {
            assert!(at >= now);
            now = at;
            got += u32::from(matches!(next, Next::Timer(_)));
            if let Next::End(cpu) = next {
                queue.set_end(cpu, NEVER);
            }
        }
        assert_eq!(set, got);
    }
}
