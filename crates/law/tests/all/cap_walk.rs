//! Every state of small machines under a cap, in search of one that breaks a bound of law/cap.md.
//!
//! The adversary decides at every instant who starts, who is checked, who stops, who forks, exits or enters, and when terms
//! change; only the law and the granularity (a running CPU is checked at the latest after so long) bind it. A monitor in each
//! state keeps the worst window that ends here: `max over a of use(a, now) - due(a, now)`.

use std::cell::Cell;

use crate::support::walk;
use tidegate_law::cap::{Bucket, Cap, Family, State, Terms};

/// "Now" in every state: the buckets say how far behind it they are.
const NOW: u64 = 1_000_000;
/// Longer than any bucket here takes to fill.
const FULL_NS: u64 = 48;

/// A CPU: idle, or running for so many unit times since its last check, in the background or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Cpu {
    Idle,
    Runs { unchecked: u64, background: bool },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Level {
    level_ns: i64,
    carry_ppt: u32,
    behind_ns: u64,
}

impl Level {
    /// As it is one instant from now. A bucket that was not looked at for so long that it fills looks like one of any age.
    fn of(bucket: &Bucket) -> Self {
        Self {
            level_ns: bucket.level_ns,
            carry_ppt: bucket.carry_ppt,
            behind_ns: (NOW + 1 - bucket.last_ns).min(FULL_NS),
        }
    }

    fn into(self, bucket: &mut Bucket) {
        bucket.level_ns = self.level_ns;
        bucket.carry_ppt = self.carry_ppt;
        bucket.last_ns = NOW - self.behind_ns;
    }
}

/// One shared bucket (or a hard and a soft one) on a few CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Shared {
    hard: Level,
    soft: Level,
    cpus: [Cpu; 2],
    /// Worst window so far, in thousandths of a ns: all use, and use that is not background.
    all_over: i64,
    fore_over: i64,
}

struct SharedBed {
    hard_ppt: Option<u32>,
    soft_ppt: Option<u32>,
    depth_ns: u64,
    granularity_ns: u64,
    cpus: usize,
    /// Clock of the last CPU, behind the others'.
    clock_behind_ns: u64,
}

impl SharedBed {
    fn cap(&self, state: &Shared) -> Cap {
        let mut cap = Cap::default();
        cap.set(&Terms::group(self.hard_ppt, self.soft_ppt, 0), 0);
        // Real depths have millions of levels; a few show the same.
        (cap.hard.depth_ns, cap.soft.depth_ns) = (self.depth_ns, self.depth_ns);
        state.hard.into(&mut cap.hard);
        state.soft.into(&mut cap.soft);
        cap
    }

    fn clock(&self, cpu: usize) -> u64 {
        if cpu + 1 == self.cpus {
            NOW - self.clock_behind_ns
        } else {
            NOW
        }
    }

    /// What one CPU can do at this instant: each way it can go, with the cap after it.
    fn choices(&self, cap: Cap, cpu: usize, at: Cpu) -> Vec<(Cap, Cpu)> {
        let (now, mut family) = (self.clock(cpu), Family::default());
        let mut asked = cap;
        let mut ways = Vec::new();
        match at {
            Cpu::Idle => ways.push((cap, Cpu::Idle)),
            Cpu::Runs {
                unchecked,
                background,
            } => {
                if unchecked < self.granularity_ns {
                    ways.push((cap, at));
                }
                asked.charge(unchecked, now, background, 0);
                ways.push((asked, Cpu::Idle));
            }
        }
        let state = asked.state(&mut family, now, 0);
        if state != State::Parked {
            ways.push((
                asked,
                Cpu::Runs {
                    unchecked: 0,
                    background: state == State::Background,
                },
            ));
        } else {
            ways.push((asked, Cpu::Idle));
        }
        ways
    }

    fn advance(&self, cap: &Cap, cpus: [Cpu; 2], before: &Shared) -> Shared {
        let (mut all, mut fore) = (0, 0);
        let mut next = cpus;
        for cpu in &mut next {
            if let Cpu::Runs {
                unchecked,
                background,
            } = cpu
            {
                *unchecked += 1;
                all += 1000;
                fore += if *background { 0 } else { 1000 };
            }
        }
        let worst = |ppt: Option<u32>, before: i64, used: i64| {
            ppt.map_or(0, |ppt| (before + used - i64::from(ppt)).max(0))
        };
        Shared {
            hard: self
                .hard_ppt
                .map_or(Level::default(), |_| Level::of(&cap.hard)),
            soft: self
                .soft_ppt
                .map_or(Level::default(), |_| Level::of(&cap.soft)),
            cpus: next,
            all_over: worst(self.hard_ppt, before.all_over, all),
            fore_over: worst(self.soft_ppt, before.fore_over, fore),
        }
    }

    fn run(&self, name: &str) -> usize {
        let zero = Level {
            level_ns: 0,
            carry_ppt: 0,
            behind_ns: self.clock_behind_ns + 1,
        };
        let start = Shared {
            hard: zero,
            soft: zero,
            cpus: [Cpu::Idle; 2],
            all_over: 0,
            fore_over: 0,
        };
        let (depth, cpus) = (self.depth_ns as i64, self.cpus as i64);
        let granularity = self.granularity_ns as i64;
        // depth + (n - r) * g: cap.md's bound, less what is filled during the last g.
        let bound = |ppt: Option<u32>| {
            1000 * depth + granularity * (1000 * cpus - i64::from(ppt.unwrap_or(0)))
        };
        let bounds = [bound(self.hard_ppt), bound(self.soft_ppt)];
        let worst = Cell::new([0; 2]);
        let count = walk(name, start, |state, found| {
            let over = [state.all_over, state.fore_over];
            let so_far = worst.get();
            worst.set([so_far[0].max(over[0]), so_far[1].max(over[1])]);
            if over[0] > bounds[0] || over[1] > bounds[1] {
                return Err(format!("{over:?} thousandths over, bounds {bounds:?}"));
            }
            for (first, one) in self.choices(self.cap(state), 0, state.cpus[0]) {
                if self.cpus == 1 {
                    found.push(self.advance(&first, [one, Cpu::Idle], state));
                    continue;
                }
                for (second, two) in self.choices(first, 1, state.cpus[1]) {
                    found.push(self.advance(&second, [one, two], state));
                }
            }
            Ok(())
        });
        let worst = worst.get();
        println!(
            "{name}: {count} states, all of them; worst windows {worst:?} of {bounds:?} thousandths of a ns over the rate"
        );
        // A bound that the adversary comes nowhere near to was not tested.
        for (which, ppt) in [self.hard_ppt, self.soft_ppt].into_iter().enumerate() {
            let near = worst[which] + 1000 * (cpus + 1) > bounds[which];
            assert!(ppt.is_none() || near, "{name}: {worst:?} of {bounds:?}");
        }
        count
    }
}

#[test]
fn one_bucket_on_two_cpus_keeps_its_bound() {
    let mut states = 0;
    for hard_ppt in [400, 1000, 1500] {
        let bed = SharedBed {
            hard_ppt: Some(hard_ppt),
            soft_ppt: None,
            depth_ns: 8,
            granularity_ns: 4,
            cpus: 2,
            clock_behind_ns: 0,
        };
        states += bed.run(&format!("hard {hard_ppt}, two CPUs"));
    }
    assert!(states > 10_000, "{states}");
}

#[test]
fn a_clock_behind_gains_nothing() {
    let bed = SharedBed {
        hard_ppt: Some(600),
        soft_ppt: None,
        depth_ns: 3,
        granularity_ns: 2,
        cpus: 2,
        clock_behind_ns: 2,
    };
    assert!(bed.run("hard 600, one of two clocks behind") > 1_000);
}

#[test]
fn hard_and_soft_together_keep_both_bounds() {
    for (hard, soft) in [(Some(600), Some(200)), (None, Some(400))] {
        let bed = SharedBed {
            hard_ppt: hard,
            soft_ppt: soft,
            depth_ns: 6,
            granularity_ns: 4,
            cpus: 1,
            clock_behind_ns: 0,
        };
        assert!(bed.run(&format!("hard {hard:?}, soft {soft:?}")) > 100);
    }
}
