//! The rule in a cluster whose parts know of each other late: whatever comes late within
//! [`Constants::settle_s`], kubelet rejects no pod, neither when it comes nor when kubelet starts
//! again.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// How far each part is behind, in seconds.
#[derive(Clone, Copy, Debug)]
struct Lags {
    /// Kubelet takes over the capacity into what is allocatable this often.
    kubelet_s: u64,
    /// The scheduler places by what was allocatable then.
    scheduler_s: usize,
    /// From a pod that is placed to one that is bound.
    binding_s: u64,
    /// The rule sees the pods that were bound then.
    pods_s: usize,
}

struct World {
    rule: Rule,
    lags: Lags,
    time_s: u64,
    capacity_milli: Option<u64>,
    /// What was allocatable in each second, the newest at the front; likewise what was bound.
    allocatable_milli: VecDeque<Option<u64>>,
    bound_milli: VecDeque<u64>,
    placed: Vec<Placed>,
}

/// A pod on its way from the scheduler.
struct Placed {
    bound_s: u64,
    milli: u64,
}

impl World {
    fn new(lags: Lags) -> Self {
        World {
            rule: Rule::default(),
            lags,
            time_s: 0,
            capacity_milli: None,
            allocatable_milli: VecDeque::from([None]),
            bound_milli: VecDeque::from([0]),
            placed: Vec::new(),
        }
    }

    /// One second, in which a pod may be asked for, and a part of what is bound may end.
    fn second(&mut self, surplus_milli: u64, asked_milli: u64, ended_milli: u64) {
        self.time_s += 1;
        let mut bound_milli = self.bound_milli[0].saturating_sub(ended_milli);
        let now_s = self.time_s;
        let arrived = self.placed.iter().filter(|one| one.bound_s <= now_s);
        bound_milli += arrived.map(|one| one.milli).sum::<u64>();
        self.placed.retain(|one| one.bound_s > now_s);
        self.bound_milli.push_front(bound_milli);
        let allocatable_milli = match self.time_s.is_multiple_of(self.lags.kubelet_s) {
            true => self.capacity_milli,
            false => self.allocatable_milli[0],
        };
        self.allocatable_milli.push_front(allocatable_milli);
        self.place(asked_milli);

        let step = self.rule.step(&Observation {
            time_s: self.time_s,
            surplus_milli: Some(surplus_milli),
            bound_milli: *at(&self.bound_milli, self.lags.pods_s),
            standing_milli: self.capacity_milli,
            is_allocatable: allocatable_milli.is_some(),
            ..Observation::default()
        });
        match step.write {
            Write::Keep => {}
            // The pods are counted once more for it.
            Write::Set(milli) => self.capacity_milli = Some(milli.max(bound_milli)),
            Write::Delete => self.capacity_milli = None,
        }
    }

    /// The scheduler knows the pods that it has placed, and what was allocatable a while ago.
    fn place(&mut self, asked_milli: u64) {
        let on_its_way_milli: u64 = self.placed.iter().map(|one| one.milli).sum();
        let taken_milli = self.bound_milli[0] + on_its_way_milli + asked_milli;
        let known_milli = *at(&self.allocatable_milli, self.lags.scheduler_s);
        if asked_milli > 0 && known_milli.is_some_and(|milli| milli >= taken_milli) {
            self.placed.push(Placed {
                bound_s: self.time_s + self.lags.binding_s,
                milli: asked_milli,
            });
        }
    }

    fn is_well(&self) -> bool {
        self.allocatable_milli[0].is_none_or(|milli| milli >= self.bound_milli[0])
    }
}

/// What was so many seconds ago.
fn at<T>(past: &VecDeque<T>, ago_s: usize) -> &T {
    &past[ago_s.min(past.len() - 1)]
}

fn lags() -> impl Strategy<Value = Lags> {
    // Of the scheduler and the binding together less than settle_s; kubelet may be away for longer.
    (1_u64..200, 0_usize..61, 0_u64..25, 0_usize..400).prop_map(
        |(kubelet_s, scheduler_s, binding_s, pods_s)| Lags {
            kubelet_s,
            scheduler_s,
            binding_s,
            pods_s,
        },
    )
}

proptest! {
    #[test]
    fn no_pod_is_rejected_however_late_each_part_knows(
        lags in lags(),
        stretches in prop::collection::vec(
            (20_u64..300, 0_u64..12_000, prop_oneof![Just(0), 100_u64..3_000], prop_oneof![4 => Just(0), 1 => 1_u64..200]),
            4..25,
        ),
    ) {
        let mut world = World::new(lags);
        for (seconds, surplus_milli, asked_milli, ended_milli) in stretches {
            for second in 0..seconds {
                let asked_milli = if second % 5 == 0 { asked_milli } else { 0 };
                world.second(surplus_milli, asked_milli, ended_milli);
                prop_assert!(
                    world.is_well(),
                    "at {} s {} is bound and {:?} allocatable",
                    world.time_s, world.bound_milli[0], world.allocatable_milli[0]
                );
            }
        }
    }
}

#[test]
fn no_amount_is_written_for_a_while_after_a_failure_of_the_api_server() {
    let mut rule = Rule::default();
    let mut standing_milli = None;
    let mut written_s = Vec::new();
    for time_s in 0..2_000 {
        let surplus_milli = if time_s < 400 { 2_000 } else { 6_000 };
        let step = rule.step(&Observation {
            time_s,
            surplus_milli: Some(surplus_milli),
            standing_milli,
            is_allocatable: standing_milli.is_some(),
            has_failed: time_s == 150 || (390..1_200).contains(&time_s),
            ..Observation::default()
        });
        if let Write::Set(milli) = step.write {
            standing_milli = Some(milli);
            written_s.push(time_s);
        }
    }
    assert_eq!(written_s[0], 240, "{written_s:?}");
    assert_eq!(written_s[1], 1_289, "{written_s:?}");
}
