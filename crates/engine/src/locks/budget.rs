//! How much of going first there is: a process, and all of them together, may spend what runs into
//! a budget.
//!
//! What is spent is paid before it is given and the kernel bounds what is given, so in any stretch
//! `t` a process gets at most [`DEPTH_NS`] `+ t / 10`, and all together at most as much at once and
//! the machine's part of `t`: whoever takes locks in order to go first gains that and no more.

use std::collections::BTreeMap;

use super::boost::PERIOD_NS;
use tidegate_cgroup::sched::tasks::TaskId;

/// What a budget holds at most: one long turn.
pub const DEPTH_NS: u64 = 10_000_000;

/// A shorter turn is not worth its cost.
pub const TURN_MIN_NS: u64 = 1_000_000;

/// What runs into a process's budget: a tenth of one CPU.
pub const PROCESS_PPM: u64 = 100_000;

/// What runs into the machine's: a twentieth of all CPUs, and at least a tenth of one.
pub const MACHINE_PPM: u64 = 50_000;

#[derive(Clone, Copy, Debug)]
struct BoostBudget {
    level_ns: u64,
    at_ns: u64,
    /// The kernel gives no new turn before this.
    not_before_ns: u64,
}

impl BoostBudget {
    fn full(at_ns: u64, depth_ns: u64) -> Self {
        Self {
            level_ns: depth_ns,
            at_ns,
            not_before_ns: 0,
        }
    }

    /// Part of a CPU that runs in is in ppm of one: 1e6 of it for 584 years still fit in 128 bits.
    fn fill(&mut self, now_ns: u64, ppm: u64, depth_ns: u64) -> u64 {
        let dt_ns = now_ns.saturating_sub(self.at_ns);
        let comes_ns = u128::from(dt_ns) * u128::from(ppm) / 1_000_000;
        let level_ns = u128::from(self.level_ns) + comes_ns;
        self.level_ns = level_ns.min(u128::from(depth_ns)) as u64;
        self.at_ns = self.at_ns.max(now_ns);
        self.level_ns
    }
}

#[derive(Clone, Debug)]
pub struct BoostBudgets {
    machine: BoostBudget,
    machine_ppm: u64,
    each: BTreeMap<TaskId, BoostBudget>,
}

impl BoostBudgets {
    /// For a machine of so many CPUs; all are full.
    pub fn new(now_ns: u64, cpus: u32) -> Self {
        Self {
            machine: BoostBudget::full(now_ns, DEPTH_NS),
            machine_ppm: (MACHINE_PPM * u64::from(cpus)).max(PROCESS_PPM),
            each: BTreeMap::new(),
        }
    }

    /// Takes all that there is for a turn of each of `threads` of `process`; says how long each is,
    /// where that is worth it.
    pub fn pay(&mut self, now_ns: u64, process: TaskId, threads: usize) -> Option<u64> {
        // A full budget is as good as none.
        self.each.retain(|_, budget| {
            budget.fill(now_ns, PROCESS_PPM, DEPTH_NS) < DEPTH_NS || budget.not_before_ns > now_ns
        });
        let machine_ns = self.machine.fill(now_ns, self.machine_ppm, DEPTH_NS);
        let budget = self
            .each
            .entry(process)
            .or_insert_with(|| BoostBudget::full(now_ns, DEPTH_NS));
        if now_ns < budget.not_before_ns {
            return None;
        }
        let turn_ns = machine_ns
            .min(budget.level_ns)
            .checked_div(threads as u64)?;
        if turn_ns < TURN_MIN_NS {
            return None;
        }
        budget.level_ns -= turn_ns * threads as u64;
        self.machine.level_ns -= turn_ns * threads as u64;
        Some(turn_ns)
    }

    /// A turn that began at `began_ns` was used up: the kernel has the next one when its period is
    /// over, and until then the task is better off without one.
    pub fn used_up(&mut self, process: TaskId, began_ns: u64) {
        if let Some(budget) = self.each.get_mut(&process) {
            budget.not_before_ns = began_ns.saturating_add(PERIOD_NS);
        }
    }

    pub fn give_back(&mut self, process: TaskId, rest_ns: u64) {
        let into =
            |budget: &mut BoostBudget| budget.level_ns = (budget.level_ns + rest_ns).min(DEPTH_NS);
        into(&mut self.machine);
        if let Some(budget) = self.each.get_mut(&process) {
            into(budget);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn task(tid: i32) -> TaskId {
        TaskId {
            tid,
            start_ticks: 7,
        }
    }

    /// What processes get that want to go first at each millisecond, and hold on or let go after
    /// half.
    fn greedy(cpus: u32, processes: i32, threads: usize, hold_on: bool) -> Vec<(u64, u64)> {
        let mut budgets = BoostBudgets::new(0, cpus);
        let mut given = Vec::new();
        for ms in 0..1_500_u64 {
            for tid in 1..=processes {
                let Some(turn_ns) = budgets.pay(ms * MS, task(tid), threads) else {
                    continue;
                };
                let got_ns = turn_ns * threads as u64;
                if hold_on {
                    budgets.used_up(task(tid), ms * MS);
                    given.push((ms * MS, got_ns));
                } else {
                    budgets.give_back(task(tid), got_ns / 2);
                    given.push((ms * MS, got_ns - got_ns / 2));
                }
            }
        }
        given
    }

    fn most_in(given: &[(u64, u64)], span_ns: u64) -> u64 {
        let sum = |from: u64| -> u64 {
            let within = |at_ns: u64| (from..from + span_ns).contains(&at_ns);
            given
                .iter()
                .filter(|one| within(one.0))
                .map(|one| one.1)
                .sum()
        };
        given
            .iter()
            .step_by(7)
            .map(|one| sum(one.0))
            .max()
            .unwrap_or(0)
    }

    #[test]
    fn taking_locks_on_purpose_gains_the_bound_and_no_more() {
        for (cpus, processes, threads, ppm) in [
            (1, 1, 1, PROCESS_PPM),
            (2, 50, 1, PROCESS_PPM),
            (2, 3, 4, PROCESS_PPM),
            (64, 1, 2, PROCESS_PPM),
            (64, 60, 1, 64 * MACHINE_PPM),
        ] {
            for hold_on in [true, false] {
                let given = greedy(cpus, processes, threads, hold_on);
                let all_ns: u64 = given.iter().map(|one| one.1).sum();
                assert!(all_ns > 100 * MS, "{cpus} {processes}: {all_ns}");
                for span_ns in [MS, 20 * MS, 100 * MS, 1_000 * MS] {
                    let bound_ns = DEPTH_NS + span_ns * ppm / 1_000_000;
                    let most_ns = most_in(&given, span_ns);
                    assert!(
                        most_ns <= bound_ns,
                        "{cpus} {processes} {span_ns}: {most_ns}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_was_not_used_comes_back_and_never_more() {
        let mut budgets = BoostBudgets::new(0, 2);
        assert_eq!(budgets.pay(0, task(1), 4), Some(DEPTH_NS / 4));
        assert_eq!(budgets.pay(0, task(1), 1), None, "nothing is left");
        budgets.give_back(task(1), 6 * MS);
        assert_eq!(budgets.pay(0, task(1), 2), Some(3 * MS));
        budgets.give_back(task(1), 100 * MS);
        budgets.give_back(task(9), 100 * MS);
        assert_eq!(
            budgets.pay(0, task(1), 1),
            Some(DEPTH_NS),
            "no budget is deeper than it is"
        );
        assert_eq!(budgets.pay(5 * MS, task(2), 1), None, "the machine's");
        assert_eq!(budgets.pay(20 * MS, task(2), 1), Some(2 * MS));
        assert_eq!(
            budgets.pay(20 * MS, task(2), 0),
            None,
            "nobody wants to run"
        );
    }

    #[test]
    fn a_turn_that_was_used_up_is_followed_by_none_before_the_kernels_period() {
        let mut budgets = BoostBudgets::new(0, 2);
        assert!(budgets.pay(0, task(1), 1).is_some());
        budgets.used_up(task(1), 0);
        assert_eq!(budgets.pay(PERIOD_NS - 1, task(1), 1), None);
        assert!(budgets.pay(PERIOD_NS, task(1), 1) >= Some(DEPTH_NS - 1));
    }
}
