//! What happens next: a heap for timers, and two slots for each CPU.
//!
//! A CPU has two things ahead of it: the end of what its task is doing and
//! its next tick. Both move often, so they have fixed slots. Everything else
//! (sleeps, periods of quotas) is set once, and comes in the order (time, order
//! of setting).
//!
//! At one instant: ends of runs first (a task that is done by then has not
//! used the next slice), then timers, then ticks; each in the order of CPUs
//! or of setting.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use crate::Ns;
use crate::ids::{CpuId, GroupId, TaskId};

pub(crate) const NEVER: Ns = Ns::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
    Tick(CpuId),
}

pub(crate) struct EventQueue {
    /// By time and order of setting.
    timers: BinaryHeap<Reverse<(Ns, u64, Timer)>>,
    order: u64,
    ends: Slots,
    ticks: Slots,
}

impl EventQueue {
    pub(crate) fn new(cpus: usize) -> EventQueue {
        EventQueue {
            timers: BinaryHeap::new(),
            order: 0,
            ends: Slots::new(cpus),
            ticks: Slots::new(cpus),
        }
    }

    pub(crate) fn set_timer(&mut self, at: Ns, timer: Timer) {
        self.order += 1;
        self.timers.push(Reverse((at, self.order, timer)));
    }

    pub(crate) fn set_end(&mut self, cpu: CpuId, at: Ns) {
        self.ends.set(cpu, at);
    }

    pub(crate) fn set_tick(&mut self, cpu: CpuId, at: Ns) {
        self.ticks.set(cpu, at);
    }

    /// Takes what comes next, if it comes by `until`. The slot of an end or a tick
    /// keeps its time: its handler sets the next before the next pop.
    pub(crate) fn pop(&mut self, until: Ns) -> Option<(Ns, Next)> {
        let (end, end_cpu) = self.ends.first();
        let timer = self.timers.peek().map_or(NEVER, |Reverse(timer)| timer.0);
        let (tick, tick_cpu) = self.ticks.first();
        let at = end.min(timer).min(tick);
        if at > until || at == NEVER {
            return None;
        }
        let next = if end == at {
            Next::End(end_cpu)
        } else if timer == at {
            let Reverse((_, _, timer)) = self.timers.pop()?;
            Next::Timer(timer)
        } else {
            Next::Tick(tick_cpu)
        };
        Some((at, next))
    }
}

/// A time for each CPU.
struct Slots {
    at: Vec<Ns>,
    by_time: BTreeSet<(Ns, CpuId)>,
}

impl Slots {
    fn new(cpus: usize) -> Slots {
        Slots {
            at: vec![NEVER; cpus],
            by_time: BTreeSet::new(),
        }
    }

    fn set(&mut self, cpu: CpuId, at: Ns) {
        let before = std::mem::replace(&mut self.at[cpu.index()], at);
        if before != at {
            self.by_time.remove(&(before, cpu));
            self.by_time.insert((at, cpu));
        }
    }

    /// The earliest, of equals the lowest CPU.
    fn first(&self) -> (Ns, CpuId) {
        self.by_time.first().copied().unwrap_or((NEVER, CpuId(0)))
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
