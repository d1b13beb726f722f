//! Every state of small machines under a cap, in search of one that breaks a bound of law/cap.md.
//!
//! The adversary decides at every instant who starts, who is checked, who stops, who forks, exits
//! or enters, and when terms change; only the law and the lateness (a CPU is checked at the latest
//! so long after its loan is used up) bind it. A monitor in each state keeps the worst window that
//! ends here: `max over a of use(a, now) - due(a, now)`.

use std::cell::Cell;

use crate::support::walk;
use tidegate_law::cap::{Bucket, Cap, Family, Loan, NEVER_NS, State, Terms};

/// "Now" in every state: the buckets say how far behind it they are.
const NOW: u64 = 1_000_000;
/// Longer than any bucket here takes to fill.
const FULL_NS: u64 = 48;

/// A CPU: idle, or running on a loan for so many unit times since its last check, in the background
/// or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Cpu {
    #[default]
    Idle,
    Runs {
        unchecked: u64,
        run_ns: u64,
        loan: (u32, u32),
        background: bool,
    },
}

const CPUS_MAX: usize = 3;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Level {
    level_ns: i64,
    carry_ppt: u32,
    behind_ns: u64,
}

impl Level {
    /// As it is one instant from now. A bucket that was not looked at for so long that it fills
    /// looks like one of any age.
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
    cpus: [Cpu; CPUS_MAX],
    /// Worst window so far, in thousandths of a ns: all use, and use that is not background.
    all_over: i64,
    fore_over: i64,
}

struct SharedBed {
    hard_ppt: Option<u32>,
    soft_ppt: Option<u32>,
    depth_ns: u64,
    least_ns: u64,
    lend_ns: u64,
    late_ns: u64,
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
        for cpu in state.cpus {
            if let Cpu::Runs { loan, .. } = cpu {
                cap.hard.lent_ns += u64::from(loan.0);
                cap.soft.lent_ns += u64::from(loan.1);
            }
        }
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
                run_ns,
                loan,
                background,
            } => {
                if unchecked < run_ns + self.late_ns {
                    ways.push((cap, at));
                }
                let mut loan = Loan {
                    hard_ns: loan.0,
                    soft_ns: loan.1,
                };
                asked.charge_run(&mut loan, unchecked, now, background, 0);
                asked.repay(&mut loan);
                ways.push((asked, Cpu::Idle));
            }
        }
        let background = match asked.state(&mut family, now, 0) {
            State::Parked => {
                ways.push((asked, Cpu::Idle));
                return ways;
            }
            state => state == State::Background,
        };
        let mut loan = Loan::default();
        let run_ns = asked.lend(&mut loan, now, background, self.least_ns, self.lend_ns);
        // The background is bound by nothing, so by how long the walk lets a CPU run.
        let run_ns = if run_ns == NEVER_NS { 0 } else { run_ns };
        let start = Cpu::Runs {
            unchecked: 0,
            run_ns,
            loan: (loan.hard_ns, loan.soft_ns),
            background,
        };
        ways.push((asked, start));
        ways
    }

    fn advance(&self, cap: &Cap, cpus: [Cpu; CPUS_MAX], before: &Shared) -> Shared {
        let (mut all, mut fore) = (0, 0);
        let mut next = cpus;
        for cpu in &mut next {
            if let Cpu::Runs {
                unchecked,
                background,
                ..
            } = cpu
            {
                *unchecked += 1;
                all += 1000;
                fore += if *background { 0 } else { 1000 };
            }
        }
        if self.clock_behind_ns == 0 {
            // CPUs with the same clock are alike.
            next.sort_unstable();
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

    /// All that the CPUs from `cpu` on can do at this instant.
    fn each(
        &self,
        cap: Cap,
        cpu: usize,
        cpus: [Cpu; CPUS_MAX],
        state: &Shared,
        found: &mut Vec<Shared>,
    ) {
        if cpu == self.cpus {
            found.push(self.advance(&cap, cpus, state));
            return;
        }
        // The last places are the busy ones: they are sorted.
        let place = CPUS_MAX - self.cpus + cpu;
        for (next, way) in self.choices(cap, cpu, state.cpus[place]) {
            let mut cpus = cpus;
            cpus[place] = way;
            self.each(next, cpu + 1, cpus, state, found);
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
            cpus: [Cpu::Idle; CPUS_MAX],
            all_over: 0,
            fore_over: 0,
        };
        let (depth, cpus) = (self.depth_ns as i64, self.cpus as i64);
        let (least, late) = (self.least_ns as i64, self.late_ns as i64);
        // depth + least + n * g: cap.md's bound.
        let bound = 1000 * (depth + least + cpus * late);
        let worst = Cell::new([0; 2]);
        let count = walk(name, start, |state, found| {
            let over = [state.all_over, state.fore_over];
            let so_far = worst.get();
            worst.set([so_far[0].max(over[0]), so_far[1].max(over[1])]);
            if over[0] > bound || over[1] > bound {
                return Err(format!("{over:?} thousandths over, bound {bound}"));
            }
            self.each(self.cap(state), 0, [Cpu::Idle; CPUS_MAX], state, found);
            Ok(())
        });
        let worst = worst.get();
        println!(
            "{name}: {count} states, all of them; worst windows {worst:?} of {bound} thousandths of a ns over the rate"
        );
        // A bound that the adversary comes nowhere near to was not tested. What is filled during
        // the last loan and lateness and the resolution of time are what it cannot have.
        for (which, ppt) in [self.hard_ppt, self.soft_ppt].into_iter().enumerate() {
            let filled = i64::from(ppt.unwrap_or(0)) * (least + late);
            let near = worst[which] + 1000 * (cpus + 1) + filled > bound;
            assert!(ppt.is_none() || near, "{name}: {worst:?} of {bound}");
        }
        count
    }
}

/// A row's bed, but for what it changes.
const BED: SharedBed = SharedBed {
    hard_ppt: None,
    soft_ppt: None,
    depth_ns: 8,
    least_ns: 1,
    lend_ns: 2,
    late_ns: 1,
    cpus: 2,
    clock_behind_ns: 0,
};

#[test]
fn one_bucket_on_two_cpus_keeps_its_bound() {
    let mut states = 0;
    for hard_ppt in [400, 900, 1000, 1500] {
        let bed = SharedBed {
            hard_ppt: Some(hard_ppt),
            least_ns: 2,
            ..BED
        };
        states += bed.run(&format!("hard {hard_ppt}, two CPUs"));
    }
    assert!(states > 10_000, "{states}");
}

#[test]
fn one_bucket_on_three_cpus_keeps_its_bound() {
    let mut states = 0;
    for hard_ppt in [500, 900, 1500, 2500] {
        let bed = SharedBed {
            hard_ppt: Some(hard_ppt),
            depth_ns: 6,
            lend_ns: 1,
            cpus: 3,
            ..BED
        };
        states += bed.run(&format!("hard {hard_ppt}, three CPUs"));
    }
    assert!(states > 10_000, "{states}");
}

#[test]
fn a_clock_behind_gains_nothing() {
    let bed = SharedBed {
        hard_ppt: Some(600),
        depth_ns: 3,
        clock_behind_ns: 2,
        ..BED
    };
    assert!(bed.run("hard 600, one of two clocks behind") > 1_000);
}

#[test]
fn hard_and_soft_together_keep_both_bounds() {
    for (hard_ppt, soft_ppt) in [(Some(600), Some(200)), (None, Some(400))] {
        let bed = SharedBed {
            hard_ppt,
            soft_ppt,
            depth_ns: 4,
            lend_ns: 3,
            late_ns: 2,
            cpus: 1,
            ..BED
        };
        assert!(bed.run(&format!("hard {hard_ppt:?}, soft {soft_ppt:?}")) > 100);
    }
}
