//! One bucket under CPUs that start and stop at different moments, in real time: the bound of
//! law/cap.md, and what the rate still gives.

use proptest::prelude::*;
use tidegate_law::cap::{Cap, Family, Loan, State, Terms};
use tidegate_law::tuning::{CAP_LEND_NS, CAP_RESERVE_NS, CAP_RUN_MIN_NS};

const MS: u64 = 1_000_000;

/// A CPU of a task that works and sleeps in turn.
#[derive(Clone, Copy, Debug)]
struct Worker {
    joins_ns: u64,
    /// Runs so long, then sleeps so long.
    works_ns: u64,
    sleeps_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Cpu {
    at_ns: u64,
    since_ns: Option<u64>,
    loan: Loan,
    left_ns: u64,
}

struct Seen {
    /// The worst window: use beyond rate * time.
    over_ns: u64,
    used_ns: u64,
}

/// Runs them until `end_ns`; each loan's end is noticed up to `late_ns` too late, in turn.
fn run(rate_ppt: u32, workers: &[Worker], late_ns: u64, end_ns: u64) -> Seen {
    let (mut cap, mut family) = (Cap::default(), Family::default());
    cap.set(&Terms::group(Some(rate_ppt), None, CAP_RUN_MIN_NS), 0);
    let mut cpus: Vec<_> = workers
        .iter()
        .map(|worker| Cpu {
            at_ns: worker.joins_ns,
            since_ns: None,
            loan: Loan::default(),
            left_ns: worker.works_ns,
        })
        .collect();
    let (mut now, mut over, mut worst, mut used, mut turn) = (0, 0i128, 0i128, 0, 0u64);
    loop {
        let which = (0..cpus.len()).min_by_key(|at| cpus[*at].at_ns).unwrap();
        let then = cpus[which].at_ns.min(end_ns);
        let runners = cpus.iter().filter(|cpu| cpu.since_ns.is_some()).count() as u64;
        let drawn = i128::from(runners) * 1000 - i128::from(rate_ppt);
        over = (over + i128::from(then - now) * drawn).max(0);
        worst = worst.max(over);
        used += (then - now) * runners;
        now = then;
        if now == end_ns {
            break;
        }
        let (cpu, worker) = (&mut cpus[which], &workers[which]);
        if let Some(since) = cpu.since_ns.take() {
            cap.charge_run(&mut cpu.loan, now - since, now, false, 0);
            cap.repay(&mut cpu.loan);
            cpu.left_ns = cpu.left_ns.saturating_sub(now - since);
            if cpu.left_ns == 0 {
                cpu.left_ns = worker.works_ns;
                cpu.at_ns = now + worker.sleeps_ns;
                continue;
            }
        }
        if cap.state(&mut family, now, 0) == State::Parked {
            let want = CAP_RESERVE_NS.min(cap.hard.depth_ns / 4);
            cpu.at_ns = cap.ready_at_ns(&family, want).max(now + 1);
            continue;
        }
        let run_ns = cap.lend(&mut cpu.loan, now, false, CAP_RUN_MIN_NS, CAP_LEND_NS);
        turn += 1;
        cpu.since_ns = Some(now);
        cpu.at_ns = now + cpu.left_ns.min(run_ns + late_ns * (turn % 3) / 2);
    }
    Seen {
        over_ns: u64::try_from(worst / 1000).unwrap(),
        used_ns: used,
    }
}

fn bound_ns(rate_ppt: u32, cpus: usize, late_ns: u64) -> u64 {
    let depth = (u64::from(rate_ppt) * 10_000).max(CAP_RUN_MIN_NS);
    depth + CAP_RUN_MIN_NS + cpus as u64 * late_ns
}

fn hog(joins_ns: u64) -> Worker {
    Worker {
        joins_ns,
        works_ns: u64::MAX,
        sleeps_ns: 1,
    }
}

fn worker() -> impl Strategy<Value = Worker> {
    let works = prop_oneof![Just(u64::MAX), 1..300_000u64, 1..20 * MS];
    (0..60 * MS, works, 1..30 * MS).prop_map(|(joins_ns, works_ns, sleeps_ns)| Worker {
        joins_ns,
        works_ns,
        sleeps_ns,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_bound_holds_whenever_runs_join(
        rate in prop_oneof![1..1000u32, 900..=1000u32, 1000..8000u32],
        workers in prop::collection::vec(worker(), 1..9),
        late in prop_oneof![Just(0), 0..200_000u64],
    ) {
        let seen = run(rate, &workers, late, 300 * MS);
        let bound = bound_ns(rate, workers.len(), late);
        prop_assert!(seen.over_ns <= bound, "{} of {}", seen.over_ns, bound);
    }

    /// What is lent is not lost: a group that wants more than its rate all the time has it.
    #[test]
    fn a_group_that_wants_its_rate_has_it(
        rate in 5..1900u32,
        joins in prop::collection::vec(0..60 * MS, 2..9),
    ) {
        let workers: Vec<_> = joins.iter().map(|at| hog(*at)).collect();
        let seen = run(rate, &workers, 0, 1_060 * MS);
        let due = u64::from(rate) * MS;
        prop_assert!(seen.used_ns + MS >= due, "{} of {}", seen.used_ns, due);
    }
}
