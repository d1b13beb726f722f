//! Every state of a gate whose tasks have a bucket each, in search of a way round it by fork, exit,
//! moves or new terms.
//!
//! The bound (law/cap.md): over any window, use <= rate * time alive, summed over tasks, + a depth
//! for each task alive at its start + the least loan and a lateness for each task that can be alive
//! at once. The monitor keeps the worst window that ends here.

use std::cell::Cell;

use crate::support::walk;
use tidegate_law::cap::{Bucket, Cap, Family, IS_EXITING, Loan, Scope, State, Terms};

/// "Now" in every state; every bucket is filled up to it. (When a bucket is filled makes no
/// difference: cap_walk.rs tests that.)
const NOW: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Task {
    level_ns: i64,
    carry_ppt: u32,
    runs: Option<Run>,
}

/// On a CPU, so long since its last check, of so long as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Run {
    unchecked: u64,
    run_ns: u64,
    loan_ns: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Gate {
    tasks: Vec<Task>,
    debt_ns: u64,
    /// The worst window so far, in thousandths of a ns, less a depth for each task at its start.
    over: i64,
}

struct Bed {
    rate_ppt: u32,
    depth_ns: u64,
    least_ns: u64,
    lend_ns: u64,
    late_ns: u64,
    cpus: usize,
    tasks_max: usize,
}

/// What has been chosen at this instant, task by task.
#[derive(Clone)]
struct Way {
    tasks: Vec<Task>,
    family: Family,
}

impl Bed {
    fn cap(&self, task: &Task) -> Cap {
        let mut cap = Cap::default();
        cap.set(&Terms::new(Some(self.rate_ppt), None, Scope::Task, 0), NOW);
        cap.hard = Bucket {
            last_ns: NOW,
            level_ns: task.level_ns,
            carry_ppt: task.carry_ppt,
            depth_ns: self.depth_ns,
            lent_ns: task.runs.map_or(0, |run| u64::from(run.loan_ns)),
            ..cap.hard
        };
        cap
    }

    fn task(cap: &Cap, runs: Option<Run>) -> Task {
        Task {
            level_ns: cap.hard.level_ns,
            carry_ppt: cap.hard.carry_ppt,
            runs,
        }
    }

    /// A run begins, if its bucket lets it.
    fn start(&self, cap: &mut Cap, family: &mut Family) -> Option<Run> {
        if cap.state(family, NOW, 0) != State::Run {
            return None;
        }
        let mut loan = Loan::default();
        let run_ns = cap.lend(&mut loan, NOW, false, self.least_ns, self.lend_ns);
        Some(Run {
            unchecked: 0,
            run_ns,
            loan_ns: loan.hard_ns,
        })
    }

    fn running(tasks: &[Task]) -> usize {
        tasks.iter().filter(|task| task.runs.is_some()).count()
    }

    /// All that one task can do at this instant, after what is in `way`.
    fn choose(&self, way: &Way, task: &Task, others: &[Task], found: &mut Vec<Way>) {
        let room = way.tasks.len() + others.len() < self.tasks_max - 1;
        let idle_cpu = Self::running(&way.tasks) + Self::running(others) < self.cpus;
        let mut push = |family: Family, tasks: &[Task]| {
            let mut next = way.clone();
            next.tasks.extend_from_slice(tasks);
            next.family = family;
            found.push(next);
        };
        let mut cap = self.cap(task);
        let mut family = way.family;
        let Some(run) = task.runs else {
            push(family, std::slice::from_ref(task));
            let mut killed = cap;
            killed.leave(&mut family, NOW);
            push(family, &[]);
            let mut family = way.family;
            let runs = if idle_cpu {
                self.start(&mut cap, &mut family)
            } else {
                cap.state(&mut family, NOW, 0);
                None
            };
            push(family, &[Self::task(&cap, runs)]);
            return;
        };
        if run.unchecked < run.run_ns + self.late_ns {
            push(family, std::slice::from_ref(task));
            if room {
                let child = cap.fork(NOW, 0).unwrap();
                push(
                    family,
                    &[Self::task(&cap, task.runs), Self::task(&child, None)],
                );
                cap = self.cap(task);
            }
        }
        let mut loan = Loan {
            hard_ns: run.loan_ns,
            soft_ns: 0,
        };
        cap.charge_run(&mut loan, run.unchecked, NOW, false, 0);
        cap.repay(&mut loan);
        push(family, &[Self::task(&cap, None)]);
        let mut checked = cap;
        let runs = self.start(&mut checked, &mut family);
        push(family, &[Self::task(&checked, runs)]);
        let mut family = way.family;
        cap.charge(0, NOW, false, IS_EXITING);
        cap.leave(&mut family, NOW);
        push(family, &[]);
    }

    fn advance(&self, way: &Way, over: i64) -> Gate {
        let alive = way.tasks.len() as i64;
        let running = Self::running(&way.tasks) as i64;
        let start = -alive * 1000 * self.depth_ns as i64;
        let over = over.max(start) + 1000 * running - i64::from(self.rate_ppt) * alive;
        let mut tasks: Vec<Task> = way
            .tasks
            .iter()
            .map(|task| {
                let mut cap = self.cap(task);
                cap.charge(0, NOW + 1, false, 0);
                let runs = task.runs.map(|run| Run {
                    unchecked: run.unchecked + 1,
                    ..run
                });
                Self::task(&cap, runs)
            })
            .collect();
        tasks.sort_unstable();
        Gate {
            tasks,
            debt_ns: way.family.hard_debt_ns,
            over: over.max(start),
        }
    }

    fn run(&self, name: &str) -> usize {
        let start = Gate {
            tasks: Vec::new(),
            debt_ns: 0,
            over: 0,
        };
        let bound = 1000 * (self.tasks_max as u64 * (self.least_ns + self.late_ns)) as i64;
        let worst = Cell::new(i64::MIN);
        let mut ways = Vec::new();
        let count = walk(name, start, |state, found| {
            worst.set(worst.get().max(state.over));
            if state.over > bound {
                return Err(format!("{} thousandths over, bound {bound}", state.over));
            }
            let family = Family {
                hard_debt_ns: state.debt_ns,
                soft_debt_ns: 0,
            };
            ways.clear();
            ways.push(Way {
                tasks: Vec::new(),
                family,
            });
            for (at, task) in state.tasks.iter().enumerate() {
                let mut more = Vec::new();
                for way in &ways {
                    self.choose(way, task, &state.tasks[at + 1..], &mut more);
                }
                ways = more;
            }
            for way in &ways {
                found.push(self.advance(way, state.over));
                // One more enters the gate, from outside or for the first time.
                if way.tasks.len() < self.tasks_max {
                    let mut cap = Cap::default();
                    cap.set(&Terms::new(Some(self.rate_ppt), None, Scope::Task, 0), NOW);
                    let mut entered = way.clone();
                    entered.tasks.push(Self::task(&cap, None));
                    found.push(self.advance(&entered, state.over));
                }
            }
            Ok(())
        });
        println!(
            "{name}: {count} states, all of them; worst window {} of {bound} thousandths of a ns",
            worst.get()
        );
        assert!(worst.get() > 0, "{name}: nothing came near the bound");
        count
    }
}

#[test]
fn no_fork_exit_or_move_gets_round_the_bound() {
    let mut states = 0;
    for (rate_ppt, cpus, tasks_max) in [(200, 2, 2), (500, 1, 3), (500, 2, 3)] {
        let bed = Bed {
            rate_ppt,
            depth_ns: 2,
            least_ns: 1,
            lend_ns: 3,
            late_ns: 1,
            cpus,
            tasks_max,
        };
        states += bed.run(&format!("{tasks_max} tasks of {rate_ppt} on {cpus} CPUs"));
    }
    assert!(states > 10_000, "{states}");
}
