//! The calls of a pool and of a bucket in their order.

#[test]
fn a_group_in_debt_waits_for_the_next_turnover() {
    use tidegate_law::bandwidth::{Pool, Silo, Terms, Verdict};
    let mut pool = Pool::new();
    let mut silo = Silo::default();
    pool.set(&Terms::new(20_000_000, 100_000_000), 0); // 20 ms of every 100 ms
    assert_eq!(pool.run(&mut silo, 0, 0), Verdict::Run); // takes a slice of 5 ms
    assert_eq!(pool.run(&mut silo, 24_000_000, 24_000_000), Verdict::Out); // 4 ms in debt
    assert!(pool.throttle(&mut silo, 24_000_000));
    assert_eq!(pool.turnover(100_000_000), 1);
    assert!(pool.distribute(&mut silo, 100_000_000));
    assert_eq!(pool.stat().throttled_ns, 76_000_000);
    assert_eq!(pool.runtime_ns(), 16_000_000 - 1); // the debt was paid first
}

#[test]
fn a_new_bucket_is_empty_and_is_charged_for_a_run() {
    use tidegate_law::cap::{Cap, Family, Loan, State, Terms};
    let mut gate = Cap::default(); // no cap
    let mut family = Family::default();
    gate.set(&Terms::group(Some(250), None, 4_000_000), 0);
    assert_eq!(gate.state(&mut family, 0, 0), State::Parked); // a new bucket is empty
    assert_eq!(gate.ready_at_ns(&family, 1), 4); // 1 ns at a quarter of a CPU
    assert_eq!(gate.state(&mut family, 4, 0), State::Run);
    let mut loan = Loan::default();
    let run_ns = gate.lend(&mut loan, 4, false, 1_000, 1_000_000); // at least 1 us, at most 1 ms where there is so much
    assert_eq!(run_ns, 1_000);
    gate.charge_run(&mut loan, 1_000, 1_004, false, 0);
    gate.repay(&mut loan);
    assert_eq!(gate.state(&mut family, 1_004, 0), State::Parked);
}
