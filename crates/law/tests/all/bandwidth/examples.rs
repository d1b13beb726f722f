//! What the kernel's documentation, the sources of the law and the measurements say, one by one.

use tidegate_law::bandwidth::{NONE, Pool, SLACK_WAIT_NS, Silo, Terms, Verdict};

const MS: u64 = 1_000_000;

fn pool(terms: Terms) -> Pool {
    let mut pool = Pool::new();
    pool.set(&terms, 0);
    pool
}

fn kernel(terms: Terms) -> Pool {
    let mut pool = Pool::kernel(0, false);
    pool.set_kernel(&terms, 0);
    pool
}

#[test]
fn a_late_timer_gives_one_quota_in_the_kernel_and_all_by_the_law() {
    let terms = Terms::new(10 * MS, 10 * MS).burst(10 * MS).slice(20 * MS);
    for (mut pool, after) in [(pool(terms), 20 * MS), (kernel(terms), 10 * MS)] {
        let mut silo = Silo::default();
        assert_eq!(
            pool.run(&mut silo, 0, 0),
            Verdict::Run,
            "takes all there is"
        );
        assert_eq!(pool.run(&mut silo, 20 * MS, 9 * MS), Verdict::Out);
        assert_eq!(
            (pool.runtime_ns(), silo.remaining_ns()),
            (0, -(10 * MS as i64))
        );
        assert!(pool.throttle(&mut silo, 9 * MS));
        assert_eq!(pool.turnover(35 * MS), 3);
        assert_eq!(pool.runtime_ns(), after);
        assert_eq!((pool.stat().nr_periods, pool.stat().nr_throttled), (3, 3));
    }
}

#[test]
fn a_write_refills_and_forgives_in_the_kernel_and_not_by_the_law() {
    let terms = Terms::new(2 * MS, 100 * MS);
    let spend = |pool: &mut Pool, silo: &mut Silo| {
        assert_eq!(pool.run(silo, 0, MS), Verdict::Run);
        assert_eq!(pool.run(silo, 4 * MS, 5 * MS), Verdict::Out);
        assert!(pool.throttle(silo, 5 * MS));
    };
    let (mut stock, mut silo) = (kernel(terms), Silo::default());
    spend(&mut stock, &mut silo);
    stock.set_kernel(&terms, 10 * MS);
    stock.forgive(&mut silo, 10 * MS);
    assert_eq!((stock.runtime_ns(), silo.remaining_ns()), (2 * MS, 1));
    assert!(!silo.is_throttled());
    assert_eq!(
        stock.turnover_ns(),
        100 * MS,
        "the timer that was due stays due"
    );

    let (mut ours, mut silo) = (pool(terms), Silo::default());
    spend(&mut ours, &mut silo);
    let more = Terms::new(3 * MS, 100 * MS);
    for (terms, held) in [(&terms, 0), (&more, MS), (&terms, MS), (&more, MS)] {
        ours.set(terms, 10 * MS);
        assert_eq!(
            ours.runtime_ns(),
            held,
            "only the difference, and only once"
        );
    }
    assert!(
        !ours.distribute(&mut silo, 10 * MS),
        "2 ms are owed, 1 was there"
    );
    assert_eq!((ours.runtime_ns(), silo.remaining_ns()), (0, -(MS as i64)));
    ours.set(&Terms::new(NONE, 100 * MS), 20 * MS);
    assert!(ours.distribute(&mut silo, 20 * MS), "no limit: it runs");
    ours.set(&terms, 30 * MS);
    assert_eq!(silo.remaining_ns(), -(MS as i64), "and owes what it owed");
    assert_eq!(ours.stat().throttled_ns, 15 * MS);
}

#[test]
fn an_idle_group_is_not_counted() {
    for mut pool in [
        pool(Terms::new(5 * MS, 10 * MS)),
        kernel(Terms::new(5 * MS, 10 * MS)),
    ] {
        let mut silo = Silo::default();
        pool.run(&mut silo, MS, 0);
        for turn in 1..=20 {
            pool.turnover(turn * 10 * MS);
        }
        assert_eq!(
            pool.stat().nr_periods,
            2,
            "the period of the take, and one to see that nothing came"
        );
        assert!(!pool.active());
    }
}

#[test]
fn bursts_are_counted_as_the_kernel_does() {
    let mut pool = pool(Terms::new(10 * MS, 10 * MS).burst(5 * MS));
    let mut silo = Silo::default();
    pool.turnover(10 * MS);
    assert_eq!(
        pool.runtime_ns(),
        15 * MS,
        "what was not used, as far as burst allows"
    );
    for _ in 0..3 {
        pool.run(&mut silo, 4 * MS, 11 * MS);
    }
    // 15 ms were taken by slices of 5, 12 of them used.
    pool.turnover(20 * MS);
    assert_eq!((pool.stat().nr_bursts, pool.stat().burst_ns), (1, 5 * MS));
}

#[test]
fn a_slice_outlives_the_period_unless_slices_expire() {
    let terms = Terms::new(10 * MS, 100 * MS);
    let mut expiring = Pool::kernel(0, true);
    expiring.set_kernel(&terms, 0);
    for (mut pool, left) in [(pool(terms), 4 * MS), (expiring, 0)] {
        let mut silo = Silo::default();
        assert_eq!(pool.run(&mut silo, 0, MS), Verdict::Run);
        assert!(pool.charge(&mut silo, MS));
        pool.turnover(100 * MS);
        // What it had left is charged first; a slice that expired is taken again.
        assert_eq!(pool.run(&mut silo, 0, 101 * MS), Verdict::Run);
        let taken = 10 * MS - pool.runtime_ns();
        assert_eq!(taken, if left == 0 { 5 * MS } else { 0 });
        assert_eq!(pool.stat().expired_ns, 4 * MS - left);
    }
}

#[test]
fn slack_reaches_those_who_are_throttled() {
    let mut pool = kernel(Terms::new(20 * MS, 100 * MS).slice(10 * MS));
    let (mut rich, mut poor) = (Silo::default(), Silo::default());
    assert_eq!(pool.run(&mut rich, 0, 0), Verdict::Run);
    assert_eq!(pool.run(&mut poor, 10 * MS, 0), Verdict::Out);
    assert!(pool.throttle(&mut poor, 10 * MS));
    assert!(!pool.slack_wanted(10 * MS), "nothing has come back");
    assert_eq!(pool.give_back(&mut rich), 9 * MS);
    assert!(!pool.slack_wanted(10 * MS), "less than a slice");
    pool.set_kernel(&Terms::new(20 * MS, 100 * MS), 10 * MS);
    assert!(pool.slack_wanted(10 * MS) && pool.slack_due(10 * MS + SLACK_WAIT_NS));
    assert!(
        !pool.slack_wanted(94 * MS) && !pool.slack_due(99 * MS),
        "the turnover is near"
    );
}

#[test]
fn burst_is_never_above_quota() {
    let mut pool = pool(Terms::new(10 * MS, 100 * MS).burst(25 * MS));
    assert_eq!(pool.terms().burst_ns, 10 * MS);
    pool.turnover(1_000 * MS);
    assert_eq!(pool.runtime_ns(), 20 * MS);
}

#[test]
fn a_return_before_the_throttle_is_found() {
    let mut pool = pool(Terms::new(10 * MS, 100 * MS));
    let (mut one, mut other) = (Silo::default(), Silo::default());
    assert_eq!(pool.run(&mut other, 0, 1), Verdict::Run);
    assert_eq!(pool.run(&mut one, 0, 1), Verdict::Run);
    assert_eq!(
        pool.run(&mut one, 5 * MS, 2),
        Verdict::Out,
        "both slices are taken"
    );
    assert_eq!(pool.give_back(&mut other), 4 * MS);
    assert!(!pool.throttle(&mut one, 3), "there is something again");
    assert!(one.remaining_ns() > 0 && !one.is_throttled());
    assert_eq!(pool.throttled(), 0);
}

#[test]
fn a_throttled_silo_takes_nothing() {
    let mut pool = pool(Terms::new(10 * MS, 100 * MS));
    let mut silo = Silo::default();
    assert_eq!(pool.run(&mut silo, 0, 1), Verdict::Run);
    pool.run(&mut silo, 12 * MS, 2);
    pool.run(&mut silo, 3 * MS, 3);
    assert!(pool.throttle(&mut silo, 4));
    // The turnover has come, the distribution has not: what still ran is charged, and that is all.
    pool.turnover(100 * MS);
    let (runtime, owed) = (pool.runtime_ns(), silo.remaining_ns());
    assert_eq!(pool.run(&mut silo, MS, 100 * MS + 1), Verdict::Out);
    assert_eq!(pool.runtime_ns(), runtime);
    assert_eq!(silo.remaining_ns(), owed - MS as i64);
    assert!(pool.distribute(&mut silo, 100 * MS + 2));
}
