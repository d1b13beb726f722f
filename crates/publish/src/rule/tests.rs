use proptest::prelude::*;

use super::*;

/// A node whose status takes what the rule writes.
struct Node {
    rule: Rule,
    time_s: u64,
    standing_milli: Option<u64>,
    /// When the key was written, and whether what was bound demanded it.
    writes: Vec<(u64, bool)>,
    evictions_s: Vec<u64>,
}

impl Node {
    fn with(standing_milli: Option<u64>) -> Self {
        Node {
            rule: Rule::default(),
            time_s: 0,
            standing_milli,
            writes: Vec::new(),
            evictions_s: Vec::new(),
        }
    }

    fn second(&mut self, seen: Observation) -> Step {
        self.time_s += 1;
        let seen = Observation {
            time_s: self.time_s,
            standing_milli: self.standing_milli,
            is_allocatable: self.standing_milli.is_some(),
            ..seen
        };
        let step = self.rule.step(&seen);
        let was_below = self
            .standing_milli
            .is_some_and(|milli| milli < seen.bound_milli);
        match step.write {
            Write::Keep => return self.note_eviction(step),
            Write::Set(milli) => self.standing_milli = Some(milli),
            Write::Delete => self.standing_milli = None,
        }
        self.writes.push((self.time_s, was_below));
        self.note_eviction(step)
    }

    fn note_eviction(&mut self, step: Step) -> Step {
        if step.must_evict {
            self.evictions_s.push(self.time_s);
        }
        step
    }

    fn seconds(&mut self, count: u64, seen: Observation) {
        for _ in 0..count {
            self.second(seen);
        }
    }
}

fn surplus(milli: u64) -> Observation {
    Observation {
        surplus_milli: Some(milli),
        ..Observation::default()
    }
}

fn bound(surplus_milli: u64, bound_milli: u64) -> Observation {
    Observation {
        bound_milli,
        ..surplus(surplus_milli)
    }
}

#[test]
fn a_fresh_node_publishes_nothing_before_it_has_three_minutes_of_samples() {
    let mut node = Node::with(None);
    node.seconds(180, surplus(6_000));
    assert_eq!(node.standing_milli, None);
    node.seconds(1, surplus(6_000));
    assert_eq!(node.standing_milli, Some(6_000));
}

#[test]
fn a_restart_keeps_what_stands() {
    let mut node = Node::with(Some(3_000));
    node.seconds(180, surplus(6_000));
    assert_eq!((node.standing_milli, node.writes.len()), (Some(3_000), 0));
}

#[test]
fn pods_beyond_what_stands_delete_the_key_at_once_even_within_the_gap() {
    let mut node = Node::with(None);
    node.seconds(181, surplus(1_000));
    node.second(bound(1_000, 2_500));
    assert_eq!(node.standing_milli, None);
}

#[test]
fn a_lower_amount_comes_ninety_seconds_after_the_key_is_deleted_and_counts_the_pods_of_the_higher_one()
 {
    let mut node = Node::with(None);
    node.seconds(300, surplus(6_000));
    while node.standing_milli.is_some() {
        let step = node.second(surplus(3_000));
        assert!(
            !matches!(step.write, Write::Set(milli) if milli < 6_000),
            "{step:?}"
        );
    }
    // Placed by what stood before.
    let placed = bound(3_800, 4_000);
    // The first of them sees that the key is gone.
    node.seconds(90, placed);
    assert_eq!(node.standing_milli, None);
    node.seconds(1, placed);
    assert!(
        node.standing_milli.is_some_and(|milli| milli >= 4_000),
        "{:?}",
        node.standing_milli
    );
}

#[test]
fn a_node_that_is_short_takes_no_more_until_enough_pods_have_ended() {
    let mut node = Node::with(None);
    node.seconds(300, bound(4_000, 4_000));
    node.seconds(120, bound(2_000, 4_000));
    assert_eq!(node.standing_milli, None);
    assert!(node.second(bound(2_000, 4_000)).is_short);
    node.seconds(300, bound(2_000, 1_000));
    let stands = node.standing_milli;
    assert!(
        stands.is_some_and(|milli| (2_000..2_250).contains(&milli)),
        "{stands:?}"
    );
    assert!(!node.second(bound(2_000, 1_000)).is_short);
}

#[test]
fn nothing_to_give_deletes_the_key_and_never_writes_zero() {
    let mut node = Node::with(Some(2_000));
    node.seconds(400, surplus(0));
    assert_eq!(node.standing_milli, None);
}

#[test]
fn without_samples_the_key_stands_three_minutes_and_is_then_deleted() {
    let mut node = Node::with(None);
    let seen = bound(4_000, 1_500);
    node.seconds(300, seen);
    let unseen = Observation {
        surplus_milli: None,
        ..seen
    };
    node.seconds(179, unseen);
    assert_eq!(node.standing_milli, Some(4_000));
    node.second(unseen);
    assert_eq!(node.standing_milli, None);
    node.seconds(181, seen);
    assert_eq!(node.standing_milli, Some(4_000), "samples are back");
}

#[test]
fn ten_starved_minutes_move_one_pod_a_minute_and_no_sample_none() {
    let mut node = Node::with(None);
    node.seconds(300, bound(4_000, 4_000));
    let starved = Observation {
        is_starved: true,
        ..bound(500, 4_000)
    };
    node.seconds(600, starved);
    assert!(node.evictions_s.is_empty(), "{:?}", node.evictions_s);
    node.seconds(230, starved);
    let gaps: Vec<u64> = node
        .evictions_s
        .windows(2)
        .map(|two| two[1] - two[0])
        .collect();
    assert!(
        (2..=4).contains(&node.evictions_s.len()),
        "{:?}",
        node.evictions_s
    );
    assert!(gaps.iter().all(|gap_s| *gap_s >= 60), "{gaps:?}");
    let before = node.evictions_s.len();
    node.seconds(
        170,
        Observation {
            surplus_milli: None,
            ..starved
        },
    );
    node.seconds(590, starved);
    assert_eq!(
        node.evictions_s.len(),
        before,
        "the ten minutes began again"
    );
}

#[test]
fn pods_that_are_leaving_count_as_moved() {
    let mut node = Node::with(None);
    node.seconds(300, bound(4_000, 4_000));
    let leaving = Observation {
        leaving_milli: 3_200,
        is_starved: true,
        ..bound(500, 4_000)
    };
    node.seconds(1_200, leaving);
    assert!(node.evictions_s.is_empty(), "{:?}", node.evictions_s);
}

#[test]
fn after_an_eviction_nothing_rises_for_a_quarter_of_an_hour() {
    let mut node = Node::with(None);
    node.seconds(300, bound(4_000, 4_000));
    while node.evictions_s.is_empty() {
        node.second(Observation {
            is_starved: true,
            ..bound(500, 4_000)
        });
    }
    node.seconds(890, surplus(8_000));
    assert!(
        node.standing_milli <= Some(700),
        "{:?}",
        node.standing_milli
    );
    node.seconds(1_800, surplus(8_000));
    assert_eq!(node.standing_milli, Some(8_000));
}

#[test]
fn both_tolerances_may_add_up() {
    let mut node = Node::with(None);
    node.seconds(168, surplus(8_877));
    node.seconds(3_600, bound(6_427, 7_501));
    // The promise is within a tenth of 6,427, and the pods within a tenth of the promise: the key
    // stays.
    assert_eq!(node.standing_milli, Some(7_501));
}

/// A stretch of seconds that are alike.
fn stretch() -> impl Strategy<Value = (u64, Observation)> {
    let surplus_milli = prop::option::weighted(0.9, 0_u64..16_000);
    let bound_milli = prop_oneof![Just(0_u64), 0_u64..12_000];
    (1_u64..200, surplus_milli, bound_milli, any::<bool>()).prop_map(
        |(count, surplus_milli, bound_milli, is_starved)| {
            let seen = Observation {
                surplus_milli,
                bound_milli,
                is_starved,
                ..Observation::default()
            };
            (count, seen)
        },
    )
}

proptest! {
    #[test]
    fn what_stands_is_never_below_what_is_bound_nor_zero(
        start in prop::option::of(1_u64..9_000),
        stretches in prop::collection::vec(stretch(), 1..30),
    ) {
        let mut node = Node::with(start);
        for (count, seen) in stretches {
            for _ in 0..count {
                node.second(seen);
                let stands = node.standing_milli;
                prop_assert!(stands.is_none_or(|milli| milli >= seen.bound_milli), "{stands:?} {seen:?}");
                prop_assert!(stands != Some(0));
            }
        }
    }

    #[test]
    fn writes_are_thirty_seconds_apart_but_for_those_that_what_is_bound_demands(
        stretches in prop::collection::vec(stretch(), 1..30),
    ) {
        let mut node = Node::with(None);
        for (count, seen) in stretches {
            node.seconds(count, seen);
        }
        for two in node.writes.windows(2) {
            prop_assert!(two[1].1 || two[1].0 - two[0].0 >= 30, "{:?}", node.writes);
        }
    }

    #[test]
    fn a_steady_surplus_is_reached_and_then_written_no_more(
        stretches in prop::collection::vec(stretch(), 0..20),
        surplus_milli in 0_u64..16_000,
        bound_milli in 0_u64..12_000,
    ) {
        let mut node = Node::with(None);
        for (count, seen) in stretches {
            node.seconds(count, seen);
        }
        let steady = bound(surplus_milli, bound_milli);
        // Fifteen minutes after an eviction, fifteen more of the window, and a minute for each CPU.
        node.seconds(900 + 900 + 60 * 20, steady);
        let writes = node.writes.len();
        let target_milli = surplus_milli / 100 * 100;
        let Some(stands_milli) = node.standing_milli else {
            prop_assert!(target_milli <= bound_milli.max(100), "nothing for {target_milli}");
            return Ok(());
        };
        // A mean within 250 (or a tenth) below does not lower the promise, and a change below 250
        // is not written. Pods that request as much more than the promise do not delete the key.
        let slack_milli = (stands_milli / 10).max(250);
        let beyond_milli = if stands_milli < bound_milli + 250 { slack_milli } else { 0 };
        let slack_milli = slack_milli + beyond_milli + 250 + 100;
        prop_assert!(stands_milli.abs_diff(target_milli) <= slack_milli, "{stands_milli} for {target_milli}");
        prop_assert!(stands_milli >= bound_milli);
        node.seconds(600, steady);
        prop_assert_eq!(node.writes.len(), writes);
    }
}
