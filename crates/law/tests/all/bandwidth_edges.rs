//! What only a caller on the edge of its duty sees of the bandwidth law: terms out of range, a
//! throttle that comes late, a throttled silo that is charged.

use tidegate_law::bandwidth::{Pool, Silo, Terms, Verdict};

const MS: u64 = 1_000_000;

fn pool(quota: u64, burst: u64) -> Pool {
    let mut pool = Pool::new();
    pool.set(&Terms::new(quota, 100 * MS).burst(burst), 0);
    pool
}

#[test]
fn burst_is_never_above_quota() {
    let mut pool = pool(10 * MS, 25 * MS);
    assert_eq!(pool.terms().burst_ns, 10 * MS);
    pool.turnover(1_000 * MS);
    assert_eq!(pool.runtime_ns(), 20 * MS);
}

#[test]
fn a_return_before_the_throttle_is_found() {
    let mut pool = pool(10 * MS, 0);
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
    let mut pool = pool(10 * MS, 0);
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
