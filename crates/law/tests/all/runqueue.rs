//! The order of a run queue against exact sums.

use proptest::prelude::*;
use tidegate_law::hweight::{MIN, ONE, virtual_ns};
use tidegate_law::latency;
use tidegate_law::runqueue::{Mean, Task, V_START, is_eligible, load, place, pulls, weight};

const MS: u64 = 1_000_000;

#[derive(Clone, Copy, Debug)]
struct Member {
    vruntime: u64,
    hweight: u64,
    since_ns: Option<u64>,
}

/// The mean of the members as an exact fraction, rounded down; what they ran and were not charged for counts in it.
fn exact(members: &[Member], now_ns: u64) -> i128 {
    let weights: i128 = members.iter().map(|m| i128::from(weight(m.hweight))).sum();
    let charged: i128 = members
        .iter()
        .map(|m| i128::from(m.vruntime) * i128::from(weight(m.hweight)))
        .sum();
    let open_ns: i128 = members
        .iter()
        .filter_map(|m| m.since_ns)
        .map(|since_ns| i128::from(now_ns - since_ns))
        .sum();
    (charged + (open_ns << 16)).div_euclid(weights)
}

/// What happens to a run queue: to which member, with what, and how much later.
fn steps() -> impl Strategy<Value = Vec<(u8, usize, u64, i64, u64)>> {
    // Weights at which no distance from the mean is cut.
    let hweight = prop_oneof![Just(ONE), Just(ONE / 64), ONE / 64..1u64 << 37];
    let lag = -50_000_000i64..50_000_000;
    prop::collection::vec((0u8..5, 0usize..8, hweight, lag, 0u64..4 * MS), 1..80)
}

proptest! {
    #[test]
    fn virtual_time_is_the_exact_mean_and_never_goes_back(steps in steps()) {
        let (mut mean, mut members, mut now_ns) = (Mean::default(), Vec::<Member>::new(), 0);
        let mut reached = i128::from(V_START);
        for (what, which, hweight, lag, later_ns) in steps {
            now_ns += later_ns;
            mean.settle(now_ns);
            if !members.is_empty() {
                reached = reached.max(exact(&members, now_ns));
            }
            let at = which % members.len().max(1);
            match what {
                0 => {
                    let vruntime = place(mean.v(), lag, None, 1 << 39);
                    mean.add(vruntime, hweight);
                    members.push(Member { vruntime, hweight, since_ns: None });
                }
                _ if members.is_empty() => {}
                1 => {
                    let gone = members.swap_remove(at);
                    if let Some(since_ns) = gone.since_ns {
                        mean.stops(since_ns);
                    }
                    mean.sub(gone.vruntime, gone.hweight);
                }
                2 => {
                    let member = &mut members[at];
                    if member.since_ns.is_none() {
                        member.since_ns = Some(now_ns);
                        mean.starts(now_ns);
                    }
                }
                3 => {
                    let member = &mut members[at];
                    if let Some(since_ns) = member.since_ns.take() {
                        let ran_v = virtual_ns(now_ns - since_ns, member.hweight);
                        member.vruntime += ran_v;
                        mean.ran(ran_v, member.hweight);
                        mean.stops(since_ns);
                    }
                }
                _ => {
                    let member = &mut members[at];
                    mean.sub(member.vruntime, member.hweight);
                    mean.add(member.vruntime, hweight);
                    member.hweight = hweight;
                }
            }
            mean.settle(now_ns);
            if !members.is_empty() {
                reached = reached.max(exact(&members, now_ns));
            }
            prop_assert_eq!(i128::from(mean.v()), reached);
            prop_assert_eq!(mean.members(), members.len() as u64);
            let weights: u64 = members.iter().map(|m| weight(m.hweight)).sum();
            prop_assert_eq!(mean.weights(), weights);
        }
    }

    #[test]
    fn a_task_comes_back_within_a_slice_of_its_lag(
        v in V_START..1 << 60,
        lag in any::<i64>(),
        slice_v in 0u64..1 << 50,
        ahead in -(1i64 << 50)..1 << 50,
    ) {
        let most = i64::try_from(slice_v.min(1 << 39)).unwrap();
        let behind = |vruntime: u64| v.wrapping_sub(vruntime).cast_signed();
        prop_assert_eq!(behind(place(v, lag, None, slice_v)), lag.clamp(-most, most));
        let left_at = v.wrapping_add_signed(ahead);
        let same = behind(place(v, lag, Some(left_at), slice_v));
        if lag >= 0 {
            prop_assert_eq!(same, lag.min(most));
        } else {
            // It pays by sleeping: V has come nearer to where it left, or past it.
            prop_assert_eq!(same, -ahead.clamp(0, most));
        }
    }

    #[test]
    fn a_hint_moves_the_deadline_of_a_task_that_is_not_ahead(
        slice_ns in 100_000u64..100_000_000,
        hweight in MIN..1 << 37,
        own in 1u32..=102_400,
        hint in -20i32..=19,
        ahead in -(1i64 << 40)..1 << 40,
    ) {
        let v: u64 = 1 << 55;
        let slice_v = virtual_ns(slice_ns, hweight);
        let vruntime = v.wrapping_add_signed(ahead);
        let task = Task {
            vruntime,
            end: vruntime + slice_v,
            slice_v,
            hweight,
            weight: own,
            hint,
        };
        let period_ns = 24 * MS;
        let moved = task.deadline(v, period_ns).wrapping_sub(task.end).cast_signed();
        let eligible = is_eligible(v, vruntime, slice_v);
        prop_assert_eq!(eligible, ahead <= (slice_v / 4).cast_signed());
        let scaled = u128::from(virtual_ns(period_ns, hweight).min(1 << 40)) * u128::from(own) / 1024;
        let offset = latency::offset_ns(hint, u64::try_from(scaled).unwrap());
        prop_assert_eq!(moved, if hint < 0 && !eligible { 0 } else { offset });
    }
}

#[test]
fn an_empty_queue_keeps_its_time() {
    let mut mean = Mean::default();
    assert_eq!(mean.v(), V_START);
    mean.add(V_START, ONE);
    mean.ran(5 * MS, ONE);
    mean.settle(0);
    assert_eq!(mean.v(), V_START + 5 * MS);
    mean.sub(V_START + 5 * MS, ONE);
    mean.settle(1);
    assert_eq!((mean.v(), mean.members()), (V_START + 5 * MS, 0));
    mean.add(V_START + 4 * MS, ONE);
    mean.settle(2);
    assert_eq!(
        mean.v(),
        V_START + 5 * MS,
        "one that is owed something moves no other"
    );
}

/// CPUs' clocks differ by a hair: a member may begin to run after the time at which the mean is asked for.
#[test]
fn a_start_in_the_future_counts_for_nothing() {
    let mut mean = Mean::default();
    mean.add(V_START, ONE);
    mean.starts(1_000);
    mean.settle(500);
    assert_eq!(mean.v(), V_START);
}

/// Nine minutes at nice 0: what keeps the products within 64 bits.
#[test]
fn a_member_far_from_the_mean_moves_it_by_the_distance_that_is_counted() {
    for far in [1u64 << 39, 1 << 45] {
        let mut mean = Mean::default();
        mean.add(V_START, ONE);
        mean.add(V_START + far, ONE);
        mean.settle(0);
        assert_eq!(mean.v(), V_START + (1 << 38));
    }
}

proptest! {
    /// Tasks of one weight: what is pulled is not pulled back, and the run queue that pulls has no more to do for each of its CPUs
    /// than the other had.
    #[test]
    fn a_pull_evens_out_and_is_final(
        // Below the number of CPUs, a weight for each of them rounds to nothing.
        weight in 64_u64..1 << 23,
        own in 0_u64..1_000,
        other in 0_u64..1_000,
        own_cpus in 1_u64..64,
        cpus in 0_u64..64,
    ) {
        let pulled = pulls((weight * own, own_cpus), (weight * other, cpus, other));
        if pulled {
            prop_assert!(other > 0);
            let back = pulls((weight * (other - 1), cpus), (weight * (own + 1), own_cpus, own + 1));
            prop_assert!(!back || cpus == 0, "pulled back");
            prop_assert!(load(weight * (own + 1), own_cpus) <= load(weight * other, cpus));
        }
        // Members that no CPU runs, beside one that has work for each of its CPUs, are pulled until none is left.
        if other > 0 {
            prop_assert!(pulls((weight * own, own_cpus), (weight * other, 0, other)));
        }
    }
}
