//! Any interleaving of operations keeps the bounds.

use super::machine::{Kind, MS, Machine, Op};
use proptest::prelude::*;
use tidegate_law::bandwidth::Terms;

const CPUS: usize = 3;
/// How long a CPU may run on after a silo is empty.
const GRANULARITY: u64 = 4 * MS;

fn terms() -> impl Strategy<Value = Terms> {
    let quota = prop_oneof![MS..4 * MS, MS..60 * MS, Just(20 * MS)];
    let period = prop_oneof![Just(10 * MS), Just(100 * MS), MS..40 * MS];
    let slice = prop_oneof![Just(5 * MS), MS..3 * MS, Just(20 * MS)];
    (quota, period, 0..=100u64, slice).prop_map(|(quota, period, burst, slice)| {
        Terms::new(quota, period)
            .burst(quota / 100 * burst)
            .slice(slice)
    })
}

fn op() -> impl Strategy<Value = Op> {
    let cpu = 0..CPUS;
    let wait = prop_oneof![0..MS, MS..12 * MS, Just(10 * MS), MS..400 * MS];
    let ran = prop_oneof![0..=GRANULARITY, Just(GRANULARITY)];
    prop_oneof![
        8 => wait.prop_map(|ns| Op::Wait { ns }),
        20 => (cpu.clone(), ran).prop_map(|(cpu, ns)| Op::Run { cpu, ns }),
        3 => cpu.clone().prop_map(|cpu| Op::Account { cpu }),
        6 => cpu.clone().prop_map(|cpu| Op::Idle { cpu }),
        6 => cpu.clone().prop_map(|first| Op::Timer { first }),
        4 => cpu.prop_map(|cpu| Op::Slack { cpu }),
    ]
}

fn started(kind: Kind, terms: Terms) -> Machine {
    let mut machine = Machine::new(kind, CPUS, 1_000 * MS, 3 * MS);
    machine.step(&Op::Set(terms));
    machine
}

/// A moment: from here on, what may be used?
struct Mark {
    now: u64,
    used: u64,
    held: u64,
    debt: u64,
    /// A turnover of the kernel's that is due and not handled yet: it comes on top, for the timer
    /// is the caller's.
    late: u64,
}

fn mark(machine: &Machine) -> Mark {
    let debts = machine.silos.iter().map(|silo| silo.remaining_ns().min(0));
    let is_late = machine.kind == Kind::Kernel && machine.now >= machine.pool.turnover_ns();
    Mark {
        now: machine.now,
        used: machine.used,
        held: machine.held(),
        debt: debts.map(i64::unsigned_abs).sum(),
        late: u64::from(is_late),
    }
}

/// What a group may have been given in one of its periods, whatever was changed in it.
struct Period {
    start: u64,
    end: u64,
    length: u64,
    most: u64,
}

fn advance(periods: &mut Vec<Period>, now: u64, terms: &Terms) {
    let mut last = periods.last().unwrap().end;
    while last <= now {
        let (length, most) = (terms.period_ns, terms.quota_ns);
        periods.push(Period {
            start: last,
            end: last + length,
            length,
            most,
        });
        last += length;
    }
    let current = periods.last_mut().unwrap();
    if current.length == terms.period_ns {
        current.most = current.most.max(terms.quota_ns);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// usage <= n * quota + held + CPUs * granularity, over any stretch; held <= quota + burst +
    /// CPUs * slice; what went idle holds 1 ms; and no more than the granularity is ever owed.
    #[test]
    fn between_changes_every_stretch_keeps_the_bound(
        kind in prop_oneof![4 => Just(Kind::Law), 1 => Just(Kind::Kernel)],
        terms in terms(),
        ops in prop::collection::vec(op(), 1..150),
    ) {
        let mut machine = started(kind, terms);
        let mut history = vec![mark(&machine)];
        for op in &ops {
            machine.step(op);
            history.push(mark(&machine));
            if let Op::Idle { cpu } = *op {
                prop_assert!(machine.silos[cpu].remaining_ns() <= 1_000_000);
            }
        }
        let (quota, period) = (terms.quota_ns, terms.period_ns);
        let silos = CPUS as u64 * terms.slice_ns;
        for (number, to) in history.iter().enumerate() {
            prop_assert!(to.held <= quota + terms.burst_ns + silos, "{}", to.held);
            prop_assert!(to.debt <= CPUS as u64 * GRANULARITY, "{}", to.debt);
            for from in &history[..number] {
                let periods = (to.now - from.now).div_ceil(period) + from.late;
                let most = periods * quota + from.held + CPUS as u64 * GRANULARITY;
                prop_assert!(to.used - from.used <= most, "{} over {most}", to.used - from.used);
                // What is owed at the start has to be paid, what is owed at the end has not been
                // yet.
                let exactly = periods * quota + from.held + to.debt - from.debt;
                prop_assert!(to.used - from.used <= exactly, "{} over {exactly}", to.used - from.used);
            }
        }
    }

    /// However often the terms change, a group gets in each period no more than the largest quota
    /// it was given.
    #[test]
    fn changing_the_terms_gains_nothing(
        first in terms(),
        choices in prop::collection::vec(terms(), 2..4),
        ops in prop::collection::vec((op(), any::<u8>()), 1..200),
    ) {
        let mut machine = started(Kind::Law, first);
        let (start, length, most) = (machine.now, first.period_ns, first.quota_ns);
        let mut periods = vec![Period { start, end: start + length, length, most }];
        let mut history = vec![mark(&machine)];
        for (op, change) in &ops {
            machine.step(op);
            if let Some(terms) = choices.get(usize::from(*change) / 8) {
                // The period that ends now ends under the old terms.
                advance(&mut periods, machine.now, &machine.pool.terms().clone());
                machine.step(&Op::Set(*terms));
            }
            advance(&mut periods, machine.now, machine.pool.terms());
            history.push(mark(&machine));
        }
        for (number, to) in history.iter().enumerate() {
            for from in &history[..number] {
                let given: u64 = periods.iter()
                    .filter(|period| period.end > from.now && period.start <= to.now)
                    .map(|period| period.most).sum();
                let most = given + from.held + CPUS as u64 * GRANULARITY;
                prop_assert!(to.used - from.used <= most, "{} over {most}", to.used - from.used);
            }
        }
    }

    /// Nothing overflows (this build of the C traps on it), and no invariant breaks.
    #[test]
    fn any_input_is_survived(
        quota in any::<u64>(), period in any::<u64>(), burst in any::<u64>(), slice in any::<u64>(),
        steps in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u8>()), 1..40),
    ) {
        use tidegate_law::bandwidth::{Pool, Silo};
        let mut pool = Pool::new();
        let mut silo = Silo::default();
        let terms = Terms { quota_ns: quota, period_ns: period, burst_ns: burst, slice_ns: slice };
        let mut now = 0u64;
        pool.set(&terms, now);
        for (wait, delta, what) in steps {
            now = (now + (wait >> 1 >> (what % 63))) & (u64::MAX >> 1);
            match what % 5 {
                0 => { pool.turnover(now); }
                1 => { pool.give_back(&mut silo); }
                2 => { pool.distribute(&mut silo, now); }
                3 => { pool.throttle(&mut silo, now); }
                _ => { pool.run(&mut silo, delta, now); }
            }
            if pool.is_limited() {
                let terms = pool.terms();
                prop_assert!(pool.runtime_ns() <= terms.quota_ns + terms.burst_ns + terms.slice_ns);
                prop_assert!(silo.remaining_ns() <= i64::try_from(terms.slice_ns).unwrap());
                prop_assert!(silo.remaining_ns() >= -(1 << 62));
            }
        }
    }
}
