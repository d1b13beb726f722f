//! The promises of rate caps one by one: accuracy, forks, scopes, exemption, soft caps, debt.

use tidegate_law::cap::{
    Bucket, Cap, Family, IS_EXITING, IS_KTHREAD, IS_NEW_PROCESS, IS_RT, Loan, NEVER_NS, Scope,
    State, Terms,
};

const MS: u64 = 1_000_000;
const TICK_NS: u64 = 4 * MS;

/// One CPU that runs what may, checked every `tick`: what it used and how often it was asked.
fn run_alone(cap: &mut Cap, family: &mut Family, from: u64, until: u64, tick: u64) -> u64 {
    let (mut now, mut used) = (from, 0);
    while now < until {
        if cap.state(family, now, 0) == State::Parked {
            let ready = cap.ready_at_ns(family, 1);
            assert!(ready > now, "parked, and to look again in the past");
            now = ready.min(until);
        } else {
            let span = tick.min(until - now);
            now += span;
            used += span;
            cap.charge(span, now, false, 0);
        }
    }
    used
}

#[test]
fn accurate_from_one_to_a_thousand_continuous_and_after_a_sleep() {
    for rate in [1, 2, 5, 10, 33, 100, 250, 333, 500, 750, 900, 999] {
        for tick in [MS / 20, MS, TICK_NS] {
            let (mut cap, mut family) = (Cap::default(), Family::default());
            cap.set(&Terms::group(Some(rate), None, tick), 0);
            let second = 1_000 * MS;
            let due = |time: u64| time * u64::from(rate) / 1000;
            let slack = cap.hard.depth_ns + tick;
            let used = run_alone(&mut cap, &mut family, 0, 10 * second, tick);
            assert!(used <= due(10 * second) + tick, "{rate} {tick}: {used}");
            assert!(used + tick >= due(10 * second), "{rate} {tick}: {used}");
            // An hour of sleep, and then a second: the depth more, never the hour.
            let wake = 3_610 * second;
            let used = run_alone(&mut cap, &mut family, wake, wake + second, tick);
            assert!(used <= due(second) + slack, "{rate} {tick}: {used}");
            assert!(used + tick >= due(second), "{rate} {tick}: {used}");
        }
    }
}

#[test]
fn a_storm_gets_what_its_tasks_get_and_a_group_what_one_gets() {
    let tick = MS;
    for (scope, tasks_allowed) in [(Scope::Task, 64), (Scope::Process, 64), (Scope::Group, 1)] {
        let mut root = Cap::default();
        root.set(&Terms::new(Some(10), None, scope, tick), 0);
        root.state(&mut Family::default(), 500 * MS, 0);
        let (mut family, mut children) = (Family::default(), Vec::new());
        for _ in 1..64 {
            children.extend(root.fork(500 * MS, IS_NEW_PROCESS));
        }
        assert_eq!(children.len(), tasks_allowed - 1);
        children.push(root);
        // All of them on as many CPUs, for one second.
        let mut used = 0;
        for task in &mut children {
            used += run_alone(task, &mut family, 500 * MS, 1_500 * MS, tick);
        }
        let due = 10 * MS * tasks_allowed as u64;
        let most = due + root.hard.depth_ns + tick * tasks_allowed as u64;
        assert!(
            used <= most && used >= due,
            "{scope:?}: {used} of {due}..{most}"
        );
    }
}

#[test]
fn threads_share_the_bucket_of_their_process() {
    let mut cap = Cap::default();
    cap.set(&Terms::new(Some(100), None, Scope::Process, TICK_NS), 0);
    assert_eq!(cap.scope(), Scope::Process);
    assert!(cap.fork(0, 0).is_none(), "a thread");
    assert!(cap.fork(0, IS_NEW_PROCESS).is_some(), "a process");
    cap.set(&Terms::new(Some(100), None, Scope::Group, TICK_NS), 0);
    assert!(cap.fork(0, IS_NEW_PROCESS).is_none(), "all of a group");
}

#[test]
fn exempt_tasks_are_left_alone() {
    let (mut cap, mut family) = (Cap::default(), Family::default());
    cap.set(&Terms::group(Some(10), None, TICK_NS), 0);
    for (is, charged) in [(IS_RT, 0), (IS_KTHREAD, 0), (IS_EXITING, 7 * MS)] {
        let before = cap.hard.level_ns;
        cap.charge(7 * MS, 0, false, is);
        assert_eq!(before - cap.hard.level_ns, charged as i64);
        assert_eq!(cap.state(&mut family, 0, is), State::Run);
        assert_eq!(cap.state(&mut family, 0, 0), State::Parked);
    }
}

#[test]
fn what_is_no_cap() {
    let none = Cap::default();
    let mut family = Family::default();
    let cases = [
        Terms::group(None, None, 0),
        Terms::new(Some(1000), Some(1000), Scope::Task, 0),
        Terms::new(Some(5000), None, Scope::Task, 0),
    ];
    for terms in cases {
        let mut cap = none;
        cap.set(&terms, 7);
        assert!(!cap.limits());
        let untouched = cap;
        cap.charge(1_000 * MS, 8, false, 0);
        assert_eq!(cap.state(&mut family, 9, 0), State::Run);
        assert_eq!(cap, untouched, "costs nothing, keeps nothing");
    }
    let mut cap = none;
    cap.set(&Terms::group(Some(1000), Some(1000), 0), 0);
    assert!(cap.limits(), "one CPU is a cap for a group");
    assert_eq!(cap.state(&mut family, 5 * MS, 0), State::Run);
    assert_eq!(cap.soft, Bucket::default(), "soft at hard never counts");
    cap.set(&Terms::group(Some(0), None, 0), 0);
    assert_eq!(cap.hard.rate_ppt, 1, "a hard cap is at least 1");
}

#[test]
fn soft_yields_and_returns_at_once() {
    let (mut cap, mut family) = (Cap::default(), Family::default());
    cap.set(&Terms::group(None, Some(200), TICK_NS), 0);
    let mut now = 1;
    // An hour in the background, on an idle machine.
    for _ in 0..3_600 {
        now += 1_000 * MS;
        cap.charge(1_000 * MS, now, true, 0);
        assert_eq!(cap.state(&mut family, now, 0), State::Background);
    }
    // Other work wants the CPU: back as soon as there is a nanosecond, whatever was used before.
    let back = cap.ready_at_ns(&family, 1);
    assert!(back - now <= 5, "{}", back - now);
    assert_eq!(cap.state(&mut family, back, 0), State::Run);
    // Of the second in which others want it too it gets its rate.
    let mut used = 0;
    let end = now + 1_000 * MS;
    while now < end {
        let step = MS;
        let runs = cap.state(&mut family, now, 0) == State::Run;
        now += step;
        if runs {
            used += step;
            cap.charge(step, now, false, 0);
        }
    }
    assert!((200 * MS..=200 * MS + 5 * MS).contains(&used), "{used}");
    let mut never = Cap::default();
    never.set(&Terms::group(None, Some(0), TICK_NS), 0);
    assert_eq!(never.state(&mut family, u64::MAX, 0), State::Background);
    assert_eq!(never.ready_at_ns(&family, 1), NEVER_NS);
}

#[test]
fn a_cap_that_was_removed_starts_at_zero_again() {
    for used in [0, 2 * MS, 100 * MS] {
        let mut cap = Cap::default();
        cap.set(&Terms::group(Some(500), None, TICK_NS), 0);
        cap.state(&mut Family::default(), 1_000 * MS, 0);
        assert_eq!(cap.hard.level_ns, 5 * MS as i64);
        cap.charge(used, 1_000 * MS, false, 0);
        cap.set(&Terms::group(None, None, TICK_NS), 1_000 * MS);
        cap.set(&Terms::group(Some(500), None, TICK_NS), 9_000 * MS);
        assert_eq!(cap.hard.level_ns, 0, "neither credit nor debt");
    }
    // What is lent at that moment is taken out: what a run still has of it comes from nowhere.
    let (mut cap, mut loan) = (Cap::default(), Loan::default());
    cap.set(&Terms::group(Some(500), None, TICK_NS), 0);
    cap.state(&mut Family::default(), 1_000 * MS, 0);
    assert_eq!(cap.lend(&mut loan, 1_000 * MS, false, 1, MS), MS);
    cap.set(&Terms::group(None, None, TICK_NS), 1_000 * MS);
    cap.set(&Terms::group(Some(500), None, TICK_NS), 1_000 * MS);
    assert_eq!(cap.hard.level_ns, -(MS as i64));
    cap.charge_run(&mut loan, MS / 4, 1_000 * MS, false, 0);
    cap.repay(&mut loan);
    assert_eq!(cap.hard.level_ns, -(MS as i64) / 4, "what it used");
    assert_eq!(cap.hard.lent_ns, 0);
}

#[test]
fn a_run_borrows_what_it_may_use() {
    let mut family = Family::default();
    let full = |rate: u32| {
        let mut cap = Cap::default();
        cap.set(&Terms::group(Some(rate), None, MS / 100), 0);
        cap.state(&mut Family::default(), 1_000 * MS, 0);
        cap
    };
    let lend = |cap: &mut Cap, loan: &mut Loan| cap.lend(loan, 1_000 * MS, false, MS / 100, MS);
    // Nine milliseconds, for nine CPUs.
    let mut cap = full(900);
    for _ in 0..9 {
        assert_eq!(lend(&mut cap, &mut Loan::default()), MS);
    }
    assert_eq!(lend(&mut cap, &mut Loan::default()), 0);
    assert_eq!(cap.state(&mut family, 1_000 * MS, 0), State::Parked);
    // Of 80 ms, a sixteenth.
    assert_eq!(lend(&mut full(8_000), &mut Loan::default()), 5 * MS);
    // What there is, with what comes in meanwhile; at least the least, at most 5 ms.
    let mut cap = full(950);
    cap.charge(9_000_000, 1_000 * MS, false, 0);
    assert_eq!(lend(&mut cap, &mut Loan::default()), 5 * MS);
    let mut cap = full(500);
    cap.charge(4_700_000, 1_000 * MS, false, 0);
    let mut loan = Loan::default();
    assert_eq!(lend(&mut cap, &mut loan), 600_000);
    assert_eq!(cap.hard.level_ns, -300_000);
    // It looks again after a third, and has what is left, and what came in.
    cap.charge_run(&mut loan, 200_000, 1_000 * MS + 200_000, false, 0);
    assert_eq!(
        cap.lend(&mut loan, 1_000 * MS + 200_000, false, MS / 100, MS),
        400_000
    );
    cap.charge_run(&mut loan, 400_000, 1_000 * MS + 600_000, false, 0);
    assert_eq!((cap.hard.level_ns, cap.hard.lent_ns), (0, 0));
    cap.charge(0, 1_000 * MS + 600_002, false, 0);
    assert_eq!(
        cap.lend(&mut loan, 1_000 * MS + 600_002, false, MS / 100, MS),
        MS / 100
    );
    // The background draws on the hard bucket alone; without one nothing bounds it.
    let mut soft = Cap::default();
    soft.set(&Terms::group(None, Some(200), MS / 100), 0);
    assert_eq!(soft.lend(&mut loan, 0, true, MS / 100, MS), NEVER_NS);
    assert_eq!(soft.lend(&mut loan, 0, false, MS / 100, MS), 0);
}
