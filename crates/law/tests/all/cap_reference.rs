//! Rate caps against a slow reference model: any interleaving of what can be done to four tasks of one gate.

use proptest::prelude::*;
use tidegate_law::cap::{
    Bucket, Cap, Family, IS_EXITING, IS_KTHREAD, IS_NEW_PROCESS, IS_RT, NEVER_NS, Scope, State,
    Terms,
};

const MS: u64 = 1_000_000;
const TICK_NS: u64 = 4 * MS;

/// The same in thousandths of a nanosecond, in numbers so wide that nothing needs care.
#[derive(Clone, Copy, Debug, Default)]
struct RefBucket {
    on: bool,
    level: i128,
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

impl RefBucket {
    fn fill(&mut self, now: i128) {
        if self.on && now > self.last {
            self.level = self.depth.min(self.level + (now - self.last) * self.rate);
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
        self.level = self.level.min(if was_on { self.depth } else { 0 });
    }

    fn split(&mut self, now: i128) -> Self {
        self.fill(now);
        let half = self.above_zero_ns() / 2 * 1000;
        self.level -= half;
        Self {
            level: half,
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

    fn charge(&mut self, used: i128, now: i128, background: bool, is: u32) {
        self.hard.fill(now);
        self.soft.fill(now);
        if is & (IS_RT | IS_KTHREAD) != 0 {
            return;
        }
        if self.hard.on {
            self.hard.level -= used * 1000;
        }
        if self.soft.on && background {
            self.soft.level -= used.min(self.soft.above_zero_ns()) * 1000;
        } else if self.soft.on {
            self.soft.level -= used * 1000;
        }
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
        1 => (0..4usize, terms()).prop_map(|(task, terms)| Op::Set(task, terms)),
        2 => (0..4usize, is).prop_map(|(task, is)| Op::Fork(task, is)),
        1 => (0..4usize).prop_map(Op::Leave),
    ]
}

fn same(ours: &Bucket, reference: &RefBucket) -> Result<(), TestCaseError> {
    let level = i128::from(ours.level_ns) * 1000 + i128::from(ours.carry_ppt);
    prop_assert_eq!(level, reference.level);
    prop_assert!(ours.carry_ppt < 1000);
    if reference.on {
        prop_assert_eq!(i128::from(ours.depth_ns) * 1000, reference.depth);
        prop_assert!(level <= reference.depth);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    /// Up to four tasks of one gate, any interleaving.
    #[test]
    fn agrees_with_the_reference(first in terms(), ops in prop::collection::vec(op(), 1..60)) {
        let (mut now, mut family, mut family_ref) = (1_000 * MS, Family::default(), RefFamily::default());
        let mut tasks = vec![(Cap::default(), RefCap::default())];
        tasks[0].0.set(&first.terms(), now);
        tasks[0].1.set(&first, i128::from(now));
        for op in ops {
            let wide = i128::from(now);
            let count = tasks.len();
            match op {
                Op::Advance(by) => now += by,
                Op::Back(by) => now -= by.min(now),
                Op::Charge(task, used, background, is) => {
                    let (cap, reference) = &mut tasks[task % count];
                    cap.charge(used, now, background, is);
                    reference.charge(i128::from(used), wide, background, is);
                }
                Op::State(task, is) => {
                    let (cap, reference) = &mut tasks[task % count];
                    let expected = reference.state(&mut family_ref, wide, is);
                    prop_assert_eq!(cap.state(&mut family, now, is), expected);
                }
                Op::Set(task, terms) => {
                    let (cap, reference) = &mut tasks[task % count];
                    cap.set(&terms.terms(), now);
                    reference.set(&terms, wide);
                }
                Op::Fork(task, is) => {
                    let (cap, reference) = &mut tasks[task % count];
                    let (child, expected) = (cap.fork(now, is), reference.fork(wide, is));
                    prop_assert_eq!(child.is_some(), expected.is_some());
                    if let (Some(child), Some(expected)) = (child, expected) {
                        same(&child.hard, &expected.hard)?;
                        if count < 4 {
                            tasks.push((child, expected));
                        }
                    }
                }
                Op::Leave(task) => {
                    let (cap, reference) = &mut tasks[task % count];
                    cap.leave(&mut family, now);
                    reference.leave(&mut family_ref, wide);
                }
            }
            for (cap, reference) in &tasks {
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

    /// A task that runs for the slice it is given ends at zero, or overruns by the least slice.
    #[test]
    fn a_slice_empties_the_bucket(
        rate in 1..8000u32,
        runners in 1..32u64,
        slept in 0..20 * MS,
        least in 1..MS,
    ) {
        let (mut cap, mut family) = (Cap::default(), Family::default());
        cap.set(&Terms::group(Some(rate), None, 0), 0);
        if cap.state(&mut family, slept, 0) == State::Run {
            let most = 1_000 * MS;
            let slice = cap.slice_ns(runners, least, most);
            prop_assert!((least..=most).contains(&slice));
            let filled = i128::from(slice) * i128::from(rate) / 1000;
            let left = i128::from(cap.hard.level_ns) + filled - i128::from(slice * runners);
            prop_assert!(left >= -i128::from(runners) || slice == least);
            prop_assert!(left <= i128::from(runners) + 1 || slice == most || slice == least);
        }
    }

    #[test]
    fn any_input_is_survived(
        words in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u32>(), any::<u32>()), 1..50),
    ) {
        let (mut cap, mut family) = (Cap::default(), Family::default());
        for (a, b, c, d) in words {
            cap.set(&Terms::new(Some(c), Some(d), Scope::Task, b), a);
            cap.set(&Terms::group(Some(c), Some(d), b), b);
            cap.charge(a, b, c & 1 == 0, d);
            cap.state(&mut family, b.wrapping_add(a), c);
            cap.ready_at_ns(&family, a);
            cap.slice_ns(a, b, u64::from(d));
            if let Some(mut child) = cap.fork(a, c) {
                child.leave(&mut family, b);
            }
            for bucket in [cap.hard, cap.soft] {
                prop_assert!(bucket.level_ns >= -(1 << 50));
                prop_assert!(bucket.level_ns <= bucket.depth_ns as i64 && bucket.depth_ns < 1 << 37);
            }
        }
    }
}
