//! Every state of a small group whose terms are changed again and again, in every order with
//! everything else. A ledger of the walk's own, kept by its own clock, says what each period was
//! given: never more than the largest quota it had.

use std::collections::HashMap;
use tidegate_law::bandwidth::{Pool, Silo, Terms, Verdict};

const CPUS: usize = 2;
const KEEP: u32 = 1;
const RUN_MOST: u64 = 2;

#[derive(Clone)]
struct State {
    now: u64,
    pool: Pool,
    silos: [Silo; CPUS],
    ledger: Ledger,
}

/// The period that runs.
#[derive(Clone)]
struct Ledger {
    end: u64,
    period: u64,
    /// What was put in during it.
    given: u64,
    /// The largest quota that was in force in it, at this length.
    most: u64,
}

#[derive(Clone, Copy)]
enum Move<'a> {
    Tick,
    Run(usize, u64),
    Idle(usize),
    Timer,
    Set(&'a Terms),
}

impl State {
    fn key(&self) -> Vec<i64> {
        let signed = |ns: u64| i64::try_from(ns.min(99)).unwrap();
        let period = i64::try_from(self.pool.terms().period_ns).unwrap();
        let mut left = signed(self.pool.turnover_ns() - self.now.min(self.pool.turnover_ns()))
            - signed(self.now - self.pool.turnover_ns().min(self.now));
        while left <= -2 * period {
            left += period;
        }
        let terms = self.pool.terms();
        let mut key = vec![
            left,
            signed(terms.quota_ns),
            period,
            signed(terms.burst_ns),
            signed(terms.slice_ns),
        ];
        key.extend([
            signed(self.pool.runtime_ns()),
            signed(self.pool.granted_ns()),
        ]);
        key.extend([
            signed(self.ledger.period),
            signed(self.ledger.given),
            signed(self.ledger.most),
        ]);
        for silo in &self.silos {
            key.extend([silo.remaining_ns(), i64::from(silo.is_throttled())]);
        }
        key
    }

    fn total(&self) -> i64 {
        let silos: i64 = self.silos.iter().map(Silo::remaining_ns).sum();
        silos + i64::try_from(self.pool.runtime_ns()).unwrap()
    }

    fn distribute(&mut self) {
        self.pool.turnover(self.now);
        for silo in &mut self.silos {
            if silo.is_throttled() {
                self.pool.distribute(silo, self.now);
            }
        }
    }

    fn go(&mut self, step: Move) -> u64 {
        let mut used = 0;
        match step {
            Move::Tick => self.now += 1,
            Move::Idle(cpu) => {
                self.pool.give_back(&mut self.silos[cpu]);
            }
            Move::Timer => self.distribute(),
            Move::Set(terms) => {
                self.pool.set(terms, self.now);
                self.distribute();
            }
            Move::Run(cpu, ns) => {
                let silo = &mut self.silos[cpu];
                for ran in [0, ns] {
                    if silo.is_throttled() {
                        break;
                    }
                    used += ran;
                    if self.pool.run(silo, ran, self.now) == Verdict::Out {
                        self.pool.throttle(silo, self.now);
                    }
                }
            }
        }
        used
    }

    /// Books what came in, in the period that runs. The terms before the move are those that its
    /// turnovers begin with.
    fn book(&mut self, before: &State, used: u64, step: Move) {
        let gained = self.total() - before.total() + i64::try_from(used).unwrap();
        let terms = before.pool.terms();
        let mut allowed = 0;
        let looked =
            self.pool.turnover_ns() != before.pool.turnover_ns() || matches!(step, Move::Set(_));
        while looked && self.ledger.end <= self.now {
            self.ledger = Ledger {
                end: self.ledger.end + terms.period_ns,
                period: terms.period_ns,
                given: terms.quota_ns,
                most: terms.quota_ns,
            };
            allowed += terms.quota_ns;
        }
        assert_eq!(
            self.ledger.end,
            self.pool.turnover_ns(),
            "a period was cut short or drawn out"
        );
        if let Move::Set(terms) = step {
            if terms.period_ns == self.ledger.period {
                self.ledger.most = self.ledger.most.max(terms.quota_ns);
            }
            // A raise, at most.
            let raised = u64::try_from(gained).unwrap_or(0).saturating_sub(allowed);
            self.ledger.given += raised;
            allowed += raised;
        }
        assert!(
            gained <= i64::try_from(allowed).unwrap(),
            "{gained} gained, {allowed} allowed"
        );
        assert!(
            self.ledger.given <= self.ledger.most,
            "{} given, {} asked",
            self.ledger.given,
            self.ledger.most
        );
        for (silo, old) in self.silos.iter().zip(&before.silos) {
            assert!(
                silo.remaining_ns() >= old.remaining_ns().min(0) - i64::try_from(used).unwrap(),
                "more debt than use"
            );
            assert!(silo.remaining_ns() > -i64::try_from(RUN_MOST).unwrap());
        }
    }
}

fn walk(choices: &[Terms]) -> usize {
    let mut pool = Pool::new().keeping(KEEP);
    pool.set(&choices[0], 0);
    let (period, quota) = (choices[0].period_ns, choices[0].quota_ns);
    let ledger = Ledger {
        end: period,
        period,
        given: quota,
        most: quota,
    };
    let start = State {
        now: 0,
        pool,
        silos: [Silo::default(); CPUS],
        ledger,
    };
    let mut moves = vec![Move::Tick, Move::Timer];
    for cpu in 0..CPUS {
        moves.extend([Move::Run(cpu, 1), Move::Run(cpu, RUN_MOST), Move::Idle(cpu)]);
    }
    moves.extend(choices.iter().map(Move::Set));
    let mut seen = HashMap::from([(start.key(), ())]);
    let mut open = vec![start];
    while let Some(state) = open.pop() {
        for step in &moves {
            let mut next = state.clone();
            let used = next.go(*step);
            next.book(&state, used, *step);
            if seen.insert(next.key(), ()).is_none() {
                open.push(next);
            }
        }
        assert!(seen.len() < 600_000, "no end of states");
    }
    seen.len()
}

#[test]
fn every_state_of_a_group_whose_terms_change() {
    let ns = |quota, period, burst, slice| Terms::new(quota, period).burst(burst).slice(slice);
    let sets = [
        vec![ns(1, 2, 0, 1), ns(3, 2, 0, 2)],
        vec![ns(1, 2, 1, 1), ns(2, 2, 2, 1), ns(3, 2, 0, 3)],
        vec![ns(1, 1, 0, 1), ns(2, 3, 0, 1), ns(3, 3, 1, 2)],
        vec![
            ns(3, 3, 0, 1),
            ns(1, 1, 1, 1),
            ns(2, 2, 0, 2),
            ns(4, 3, 0, 1),
        ],
    ];
    let mut states = 0;
    for choices in &sets {
        states += walk(choices);
    }
    println!(
        "terms that change: {} machines, {states} states",
        sets.len()
    );
    assert!(states > 1_000, "a walk that went nowhere");
}
