//! Rate caps against a slow reference model: any interleaving of what can be done to four tasks of one gate.

use proptest::prelude::*;
use tidegate_law::cap::{
    Bucket, Cap, Family, IS_EXITING, IS_KTHREAD, IS_NEW_PROCESS, IS_RT, Loan, NEVER_NS, Scope,
    State, Terms,
};

const MS: u64 = 1_000_000;
const TICK_NS: u64 = 4 * MS;
const LEAST_NS: u64 = 10_000;
const LEND_NS: u64 = MS;

/// The same in thousandths of a nanosecond, in numbers so wide that nothing needs care.
#[derive(Clone, Copy, Debug, Default)]
struct RefBucket {
    on: bool,
    level: i128,
    lent: i128,
    depth: i128,
    rate: i128,
    last: i128,
}

#[derive(Clone, Copy, Debug, Default)]
struct RefCap {
    hard: RefBucket,
    soft: RefBucket,
    scope: Scope,
}

#[derive(Clone, Copy, Debug, Default)]
struct RefFamily {
    hard: i128,
    soft: i128,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RefLoan {
    hard: u64,
    soft: u64,
}

impl RefBucket {
    fn fill(&mut self, now: i128) {
        if self.on && now > self.last {
            self.level = (self.depth - self.lent).min(self.level + (now - self.last) * self.rate);
            self.last = now;
        }
    }

    fn above_zero_ns(&self) -> i128 {
        self.level.div_euclid(1000).max(0)
    }

    fn pay(&mut self, debt: &mut i128) {
        let paid = self.above_zero_ns().min(*debt);
        self.level -= paid * 1000;
        *debt -= paid;
    }

    fn set(&mut self, on: bool, rate: u32, granularity: u64, now: i128) {
        self.fill(now);
        let was_on = std::mem::replace(&mut self.on, on);
        if !on {
            return;
        }
        self.last = self.last.max(now);
        self.rate = i128::from(rate);
        self.depth = (self.rate * 10_000).max(i128::from(granularity)) * 1000;
        if rate == 0 {
            self.depth = 0;
        }
        let most = if was_on { self.depth } else { 0 } - self.lent;
        self.level = if was_on { self.level.min(most) } else { most };
    }

    fn borrow(&mut self, ns: u64) {
        self.level -= i128::from(ns) * 1000;
        self.lent += i128::from(ns) * 1000;
    }

    fn use_loan(&mut self, loan: &mut u64, used: i128) {
        let paid = used.min(i128::from(*loan));
        *loan -= u64::try_from(paid).unwrap();
        self.lent -= paid * 1000;
        self.level -= (used - paid) * 1000;
    }

    /// How much one run borrows of it; it is above zero.
    fn lend_ns(&self) -> u64 {
        let level = self.above_zero_ns();
        let lend = i128::from(LEND_NS);
        let most = match (level >= lend, self.rate < 1000) {
            (true, _) => lend.max(level / 16),
            (false, true) => (5 * lend).min(level * 1000 / (1000 - self.rate)),
            (false, false) => 5 * lend,
        };
        u64::try_from(most.max(i128::from(LEAST_NS)).min(5 * i128::from(MS))).unwrap()
    }

    fn split(&mut self, now: i128) -> Self {
        self.fill(now);
        let half = self.above_zero_ns() / 2 * 1000;
        self.level -= half;
        Self {
            level: half,
            lent: 0,
            ..*self
        }
    }

    fn leave(&mut self, debt: &mut i128, now: i128) {
        self.fill(now);
        *debt += -self.level.div_euclid(1000).min(0);
        self.level = 0;
    }
}

impl RefCap {
    fn set(&mut self, terms: &RefTerms, now: i128) {
        let limit = if terms.scope == Scope::Task {
            1000
        } else {
            u32::MAX
        };
        let hard = terms.hard.filter(|rate| *rate < limit);
        let soft = terms
            .soft
            .filter(|rate| *rate < limit && hard.is_none_or(|hard| *rate < hard));
        // A bucket that goes off stops where it is, unfilled since it was last looked at.
        let switch = |bucket: &mut RefBucket, rate: Option<u32>| match rate {
            Some(rate) => bucket.set(true, rate, terms.granularity, now),
            None => bucket.on = false,
        };
        switch(&mut self.hard, hard);
        switch(&mut self.soft, soft);
        self.scope = terms.scope;
    }

    fn charge(&mut self, loan: &mut RefLoan, used: i128, now: i128, background: bool, is: u32) {
        self.hard.fill(now);
        self.soft.fill(now);
        if is & (IS_RT | IS_KTHREAD) != 0 {
            return;
        }
        if self.hard.on {
            self.hard.use_loan(&mut loan.hard, used);
        }
        if self.soft.on && background {
            let used = used.min(self.soft.above_zero_ns());
            self.soft.use_loan(&mut loan.soft, used);
        } else if self.soft.on {
            self.soft.use_loan(&mut loan.soft, used);
        }
    }

    fn repay(&mut self, loan: &mut RefLoan) {
        let RefLoan { hard, soft } = std::mem::take(loan);
        self.hard.level += i128::from(hard) * 1000;
        self.hard.lent -= i128::from(hard) * 1000;
        self.soft.level += i128::from(soft) * 1000;
        self.soft.lent -= i128::from(soft) * 1000;
    }

    fn lend(&mut self, loan: &mut RefLoan, now: i128, background: bool) -> u64 {
        self.repay(loan);
        let mut run = NEVER_NS;
        for (bucket, counts) in [(&mut self.hard, true), (&mut self.soft, !background)] {
            if bucket.on && counts {
                bucket.fill(now);
                if bucket.above_zero_ns() == 0 {
                    return 0;
                }
                run = run.min(bucket.lend_ns());
            }
        }
        if self.hard.on {
            self.hard.borrow(run);
            loan.hard = run;
        }
        if self.soft.on && !background {
            self.soft.borrow(run);
            loan.soft = run;
        }
        run
    }

    fn state(&mut self, family: &mut RefFamily, now: i128, is: u32) -> State {
        if is & (IS_RT | IS_KTHREAD | IS_EXITING) != 0 {
            return State::Run;
        }
        if self.hard.on {
            self.hard.fill(now);
            self.hard.pay(&mut family.hard);
            if self.hard.above_zero_ns() == 0 {
                return State::Parked;
            }
        }
        if self.soft.on {
            self.soft.fill(now);
            self.soft.pay(&mut family.soft);
            if self.soft.above_zero_ns() == 0 {
                return State::Background;
            }
        }
        State::Run
    }

    fn fork(&mut self, now: i128, is: u32) -> Option<Self> {
        match self.scope {
            Scope::Group => return None,
            Scope::Process if is & IS_NEW_PROCESS == 0 => return None,
            _ => {}
        }
        let mut child = Self {
            scope: self.scope,
            ..Self::default()
        };
        if self.hard.on {
            child.hard = self.hard.split(now);
        }
        if self.soft.on {
            child.soft = self.soft.split(now);
        }
        Some(child)
    }

    fn leave(&mut self, family: &mut RefFamily, now: i128) {
        if self.scope == Scope::Group {
            return;
        }
        if self.hard.on {
            self.hard.leave(&mut family.hard, now);
        }
        if self.soft.on {
            self.soft.leave(&mut family.soft, now);
        }
        (self.hard.on, self.soft.on) = (false, false);
    }
}

#[derive(Clone, Copy, Debug)]
struct RefTerms {
    hard: Option<u32>,
    soft: Option<u32>,
    scope: Scope,
    granularity: u64,
}

impl RefTerms {
    fn terms(&self) -> Terms {
        Terms::new(self.hard, self.soft, self.scope, self.granularity)
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Advance(u64),
    Back(u64),
    Charge(usize, u64, bool, u32),
    Lend(usize, bool),
    Repay(usize),
    State(usize, u32),
    Set(usize, RefTerms),
    Fork(usize, u32),
    Leave(usize),
}

fn terms() -> impl Strategy<Value = RefTerms> {
    let hard = prop_oneof![
        Just(None),
        (1..=1000u32).prop_map(Some),
        (1..=64_000u32).prop_map(Some)
    ];
    let soft = prop_oneof![Just(None), Just(Some(0)), (0..=1200u32).prop_map(Some)];
    let scope = prop_oneof![Just(Scope::Group), Just(Scope::Process), Just(Scope::Task)];
    let granularity = prop_oneof![Just(0), Just(TICK_NS), 0..20 * MS];
    (hard, soft, scope, granularity).prop_map(|(hard, soft, scope, granularity)| RefTerms {
        hard,
        soft,
        scope,
        granularity,
    })
}

fn op() -> impl Strategy<Value = Op> {
    let is = prop_oneof![6 => Just(0u32), 1 => 0..16u32];
    let time = prop_oneof![0..5u64, 0..5 * MS, 0..200 * MS, 0..100_000 * MS];
    let used = prop_oneof![0..5u64, 0..5 * MS, 0..50 * MS];
    prop_oneof![
        6 => time.prop_map(Op::Advance),
        1 => (0..3 * MS).prop_map(Op::Back),
        6 => (0..4usize, used, any::<bool>(), is.clone())
            .prop_map(|(task, used, background, is)| Op::Charge(task, used, background, is)),
        6 => (0..4usize, is.clone()).prop_map(|(task, is)| Op::State(task, is)),
        6 => (0..4usize, any::<bool>()).prop_map(|(task, background)| Op::Lend(task, background)),
        3 => (0..4usize).prop_map(Op::Repay),
        1 => (0..4usize, terms()).prop_map(|(task, terms)| Op::Set(task, terms)),
        2 => (0..4usize, is).prop_map(|(task, is)| Op::Fork(task, is)),
        1 => (0..4usize).prop_map(Op::Leave),
    ]
}

fn same(ours: &Bucket, reference: &RefBucket) -> Result<(), TestCaseError> {
    let level = i128::from(ours.level_ns) * 1000 + i128::from(ours.carry_ppt);
    prop_assert_eq!(level, reference.level);
    prop_assert!(ours.carry_ppt < 1000);
    prop_assert_eq!(i128::from(ours.lent_ns) * 1000, reference.lent);
    if reference.on {
        prop_assert_eq!(i128::from(ours.depth_ns) * 1000, reference.depth);
        prop_assert!(level <= reference.depth - reference.lent);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    /// Up to four tasks of one gate, any interleaving.
    #[test]
    fn agrees_with_the_reference(first in terms(), ops in prop::collection::vec(op(), 1..60)) {
        let (mut now, mut family, mut family_ref) = (1_000 * MS, Family::default(), RefFamily::default());
        let mut tasks = vec![(Cap::default(), RefCap::default(), Loan::default(), RefLoan::default())];
        tasks[0].0.set(&first.terms(), now);
        tasks[0].1.set(&first, i128::from(now));
        for op in ops {
            let wide = i128::from(now);
            let count = tasks.len();
            match op {
                Op::Advance(by) => now += by,
                Op::Back(by) => now -= by.min(now),
                Op::Charge(task, used, background, is) => {
                    let (cap, reference, loan, loan_ref) = &mut tasks[task % count];
                    cap.charge_run(loan, used, now, background, is);
                    reference.charge(loan_ref, i128::from(used), wide, background, is);
                }
                Op::Lend(task, background) => {
                    let (cap, reference, loan, loan_ref) = &mut tasks[task % count];
                    let run = cap.lend(loan, now, background, LEAST_NS, LEND_NS);
                    prop_assert_eq!(run, reference.lend(loan_ref, wide, background));
                }
                Op::Repay(task) => {
                    let (cap, reference, loan, loan_ref) = &mut tasks[task % count];
                    cap.repay(loan);
                    reference.repay(loan_ref);
                }
                Op::State(task, is) => {
                    let (cap, reference, ..) = &mut tasks[task % count];
                    let expected = reference.state(&mut family_ref, wide, is);
                    prop_assert_eq!(cap.state(&mut family, now, is), expected);
                }
                Op::Set(task, terms) => {
                    let (cap, reference, ..) = &mut tasks[task % count];
                    cap.set(&terms.terms(), now);
                    reference.set(&terms, wide);
                }
                Op::Fork(task, is) => {
                    let (cap, reference, ..) = &mut tasks[task % count];
                    let (child, expected) = (cap.fork(now, is), reference.fork(wide, is));
                    prop_assert_eq!(child.is_some(), expected.is_some());
                    if let (Some(child), Some(expected)) = (child, expected) {
                        same(&child.hard, &expected.hard)?;
                        if count < 4 {
                            tasks.push((child, expected, Loan::default(), RefLoan::default()));
                        }
                    }
                }
                Op::Leave(task) => {
                    let (cap, reference, loan, loan_ref) = &mut tasks[task % count];
                    cap.repay(loan);
                    reference.repay(loan_ref);
                    cap.leave(&mut family, now);
                    reference.leave(&mut family_ref, wide);
                }
            }
            for (cap, reference, loan, loan_ref) in &tasks {
                prop_assert_eq!(u64::from(loan.hard_ns), loan_ref.hard);
                prop_assert_eq!(u64::from(loan.soft_ns), loan_ref.soft);
                same(&cap.hard, &reference.hard)?;
                same(&cap.soft, &reference.soft)?;
                prop_assert_eq!(cap.limits(), reference.hard.on || reference.soft.on);
            }
            prop_assert_eq!(i128::from(family.hard_debt_ns), family_ref.hard);
            prop_assert_eq!(i128::from(family.soft_debt_ns), family_ref.soft);
        }
    }

    /// At ready_at a held task is held no more, and a nanosecond before it still is.
    #[test]
    fn ready_when_it_says(
        hard in prop::option::of(1..3000u32),
        soft in prop::option::of(0..3000u32),
        debt in 0..100 * MS,
        owed in 0..3 * MS,
        carry in 0..1000u32,
    ) {
        let mut cap = Cap::default();
        cap.set(&Terms::group(hard, soft, TICK_NS), 5);
        (cap.hard.carry_ppt, cap.soft.carry_ppt) = (carry, carry);
        cap.charge(debt, 5, false, 0);
        let mut family = Family { hard_debt_ns: owed, soft_debt_ns: owed };
        let held = cap.state(&mut family, 5, 0);
        let at = cap.ready_at_ns(&family, 1);
        prop_assert_eq!(at == 0, held == State::Run);
        if at == NEVER_NS {
            prop_assert_eq!(held, State::Background);
            prop_assert_eq!(soft, Some(0));
        } else if at > 0 {
            let (mut before, mut then) = (cap, cap);
            prop_assert_eq!(before.state(&mut family.clone(), at - 1, 0), held);
            prop_assert!(then.state(&mut family, at, 0) < held);
        }
    }

    /// A task that runs for what it is lent ends at zero, or a little below or above.
    #[test]
    fn a_loan_leaves_nothing_or_a_least_loan_of_debt(
        rate in 1..8000u32,
        slept in 0..20 * MS,
        least in 1..MS,
        lend in 1..20 * MS,
    ) {
        let (mut cap, mut family, mut loan) = (Cap::default(), Family::default(), Loan::default());
        cap.set(&Terms::group(Some(rate), None, least), 0);
        if cap.state(&mut family, slept, 0) == State::Run {
            let before = cap.hard.level_ns + cap.hard.lent_ns as i64;
            let run = cap.lend(&mut loan, slept, false, least, lend);
            prop_assert_eq!(u64::from(loan.hard_ns), run);
            prop_assert_eq!(cap.hard.level_ns + cap.hard.lent_ns as i64, before);
            prop_assert!(run >= least.min(5 * MS));
            cap.charge_run(&mut loan, run, slept + run, false, 0);
            prop_assert_eq!((loan, cap.hard.lent_ns), (Loan::default(), 0));
            // A loan of so much that the rest of the bucket is full meanwhile loses what comes in.
            let full = before as u64 >= cap.hard.depth_ns * 15 / 16 || run > cap.hard.depth_ns / 2;
            prop_assert!(full || cap.hard.level_ns >= -(least as i64), "{}", cap.hard.level_ns);
        }
    }
}
