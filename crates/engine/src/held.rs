//! Which limit holds a gate back, by what the kernel counted of it: throttled periods, runnable
//! tasks and their run delay. How much a gate uses of what it may use is no evidence: work that is
//! throttled in bursts uses less, and a hog of one task wants no more.

use std::collections::BTreeMap;
use std::path::Path;

use tidegate_api::Limit;
use tidegate_cgroup::KernelFs;
use tidegate_cgroup::target::{is_stopped, runs};

/// A task that waits for a CPU for a larger part of the time that it wants one is held back.
const DELAY_PART: u64 = 20;

/// So many of a gate's tasks are read, at some microseconds each.
pub const TASKS_MAX: usize = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub window_ns: u64,
    pub is_frozen: bool,
    pub is_above_soft_cap: bool,
    pub own_throttled: u64,
    /// Periods in which the quota that the loop moves throttled the group that it is in.
    pub root_throttled: u64,
    /// Periods in which a limit of another group around it throttled that.
    pub parent_throttled: u64,
    pub tasks: TaskCounts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskCounts {
    pub runnable: u64,
    /// By a signal.
    pub stopped: u64,
    pub run_ns: u64,
    pub delay_ns: u64,
    pub is_partial: bool,
    /// The same tasks as at the last poll, and all were read: `run_ns` is what they used.
    pub is_complete: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskPoll {
    known: BTreeMap<i32, Known>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SchedStat {
    run_ns: u64,
    delay_ns: u64,
    runs: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    stat: SchedStat,
    /// Of a wait that had not ended at the last poll: its part that was counted.
    counted_ns: u64,
}

impl SchedStat {
    fn read(fs: &dyn KernelFs, dir: &str) -> Option<Self> {
        let text = fs.read(Path::new(&format!("{dir}/schedstat"))).ok()?;
        let mut numbers = text.split_ascii_whitespace().map(str::parse::<u64>);
        let mut next = || numbers.next()?.ok();
        Some(Self {
            run_ns: next()?,
            delay_ns: next()?,
            runs: next()?,
        })
    }
}

impl TaskPoll {
    pub fn poll(&mut self, fs: &dyn KernelFs, tids: &[i32], window_ns: u64) -> TaskCounts {
        let mut counts = TaskCounts {
            is_partial: tids.len() > TASKS_MAX,
            ..TaskCounts::default()
        };
        let before = std::mem::take(&mut self.known);
        let mut again = 0;
        for tid in tids.iter().take(TASKS_MAX) {
            // The thread's own entry: /proc/PID adds up all threads of the process.
            let dir = format!("/proc/{tid}/task/{tid}");
            let stat = fs.read(Path::new(&format!("{dir}/stat")));
            let stat = stat.unwrap_or_default();
            let is_runnable = runs(&stat);
            counts.stopped += u64::from(is_stopped(&stat));
            counts.runnable += u64::from(is_runnable);
            let Some(now) = SchedStat::read(fs, &dir) else {
                continue;
            };
            let mut counted_ns = 0;
            if let Some(Known {
                stat: then,
                counted_ns: before_ns,
            }) = before.get(tid)
            {
                again += 1;
                counts.run_ns += now.run_ns.saturating_sub(then.run_ns);
                let delay_ns = now.delay_ns.saturating_sub(then.delay_ns);
                // The kernel counts a wait when it ends. A runnable task that has not run since
                // waited throughout.
                if is_runnable && now == *then {
                    counted_ns = before_ns + window_ns;
                    counts.delay_ns += window_ns;
                } else {
                    // Of a wait that began before the window, what was in it.
                    counts.delay_ns += delay_ns.saturating_sub(*before_ns).min(window_ns);
                }
            }
            self.known.insert(
                *tid,
                Known {
                    stat: now,
                    counted_ns,
                },
            );
        }
        counts.is_complete = again == tids.len() && again == before.len();
        counts
    }
}

/// What limits the gate, of which the kernel's counts say whether it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Its own limit: `quota`, `cap`, or `outside` for another program's on its group.
    pub own: Limit,
    /// What the moving quota is for, by the control step, where that quota throttles it.
    pub moving: Limit,
    /// What holds all side work back, by the control step; `none` for work that is not side work.
    pub side: Limit,
    pub is_shared: bool,
    /// It uses less than half of what its own limit gives it.
    pub is_far_from_own: bool,
}

impl Counted {
    pub fn limit(&self, limits: &Limits) -> Limit {
        let tasks = &self.tasks;
        let is_delayed =
            tasks.runnable > 0 && tasks.delay_ns > (tasks.run_ns + tasks.delay_ns) / DELAY_PART;
        // Side work that waits for main may use up one period of many.
        let yields = is_delayed && limits.is_far_from_own && limits.side != Limit::None;
        if self.is_frozen {
            Limit::Frozen
        } else if self.is_above_soft_cap {
            Limit::SoftCap
        } else if self.own_throttled > 0 && !yields {
            limits.own
        } else if self.parent_throttled > 0 {
            Limit::Parent
        } else if self.root_throttled > 0 {
            limits.shared(limits.moving)
        } else if is_delayed {
            // A quota that does not throttle is not what its tasks wait for.
            limits.shared(limits.side)
        } else if tasks.runnable > 0 || tasks.is_partial {
            Limit::None
        } else if tasks.stopped > 0 {
            Limit::Frozen
        } else {
            Limit::Demand
        }
    }
}

impl Limits {
    fn shared(&self, limit: Limit) -> Limit {
        match limit {
            Limit::Headroom | Limit::IdleClass | Limit::Root if self.is_shared => Limit::Weight,
            limit => limit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_cgroup::testkit::FakeFs;

    const SIDE: Limits = Limits {
        own: Limit::None,
        moving: Limit::Headroom,
        side: Limit::Headroom,
        is_shared: false,
        is_far_from_own: false,
    };

    fn awake(run_ns: u64, delay_ns: u64) -> Counted {
        Counted {
            window_ns: 1_000_000_000,
            tasks: TaskCounts {
                runnable: 1,
                run_ns,
                delay_ns,
                ..TaskCounts::default()
            },
            ..Counted::default()
        }
    }

    #[test]
    fn the_nearest_limit_is_named_and_waiting_is_not_throttling() {
        let throttled = Counted {
            own_throttled: 9,
            root_throttled: 9,
            ..awake(600_000_000, 0)
        };
        let throttled_with_others = Counted {
            own_throttled: 0,
            ..throttled
        };
        let waiting = awake(500_000_000, 500_000_000);
        let mut stopped = Counted::default();
        stopped.tasks.stopped = 1;
        let capped = Limits {
            own: Limit::Cap,
            ..SIDE
        };
        let stale = Limits {
            moving: Limit::Root,
            ..SIDE
        };
        let shared = Limits {
            is_shared: true,
            ..SIDE
        };
        let far = Limits {
            side: Limit::IdleClass,
            is_far_from_own: true,
            ..capped
        };
        let once = Counted {
            own_throttled: 1,
            ..awake(40_000_000, 960_000_000)
        };
        for (counted, limits, limit) in [
            (throttled, capped, Limit::Cap),
            (once, far, Limit::IdleClass),
            (
                once,
                Limits {
                    side: Limit::None,
                    ..far
                },
                Limit::Cap,
            ),
            (throttled_with_others, stale, Limit::Root),
            (waiting, stale, Limit::Headroom),
            (waiting, shared, Limit::Weight),
            (waiting, Limits::default(), Limit::None),
            (Counted::default(), SIDE, Limit::Demand),
            (stopped, SIDE, Limit::Frozen),
        ] {
            assert_eq!(counted.limit(&limits), limit, "{counted:?} {limits:?}");
        }
    }

    #[test]
    fn a_task_that_never_sleeps_is_never_called_idle() {
        let second_ns = 1_000_000_000;
        for run_ns in (0..=second_ns).step_by(10_000_000) {
            let counted = awake(run_ns, second_ns - run_ns);
            for side in [
                Limit::None,
                Limit::Headroom,
                Limit::Tolerance,
                Limit::IdleClass,
            ] {
                let limits = Limits { side, ..SIDE };
                assert_ne!(counted.limit(&limits), Limit::Demand, "{counted:?}");
            }
        }
        // Of very many tasks some are not read, and may be such a one.
        let mut partial = Counted::default();
        partial.tasks.is_partial = true;
        assert_eq!(partial.limit(&SIDE), Limit::None);
    }

    #[test]
    fn runnable_tasks_and_their_run_delay_are_the_kernels() {
        let fs = FakeFs::v2();
        let task = |tid: i32, state: &str, schedstat: &str| {
            let dir = format!("/proc/{tid}/task/{tid}");
            fs.set_file(&format!("{dir}/stat"), &format!("{tid} (a) b) {state} 1 1"));
            fs.set_file(&format!("{dir}/schedstat"), schedstat);
        };
        let mut poll = TaskPoll::default();
        let tids = [901, 902, 903, 904];
        task(901, "R", "1000 500 3");
        task(902, "S", "1000 500 3");
        task(903, "R", "70 80 9");
        let first = poll.poll(&fs, &tids, 0);
        assert_eq!((first.runnable, first.run_ns, first.delay_ns), (2, 0, 0));
        task(901, "R", "1600 900 4");
        task(902, "R", "1500 600 4");
        let second = poll.poll(&fs, &tids, 1_000);
        // 903 has waited throughout, and 904 is gone.
        assert_eq!(second.runnable, 3);
        assert_eq!((second.run_ns, second.delay_ns), (1_100, 1_500));
        task(902, "T", "1700 600 5");
        task(903, "S", "100 1380 10");
        let third = poll.poll(&fs, &tids, 1_000);
        // The kernel counts 1300 when the wait of 903 ends, of which 1000 were counted before.
        assert_eq!((third.runnable, third.stopped), (1, 1));
        assert_eq!((third.run_ns, third.delay_ns), (230, 1_300));
        assert!(!second.is_partial);
        let many: Vec<i32> = (901..901 + TASKS_MAX as i32 + 1).collect();
        assert!(poll.poll(&fs, &many, 1_000).is_partial);
    }
}
