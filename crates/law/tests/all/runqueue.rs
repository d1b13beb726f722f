//! The order of a run queue against exact sums.

use proptest::prelude::*;
use tidegate_law::hweight::{MIN, ONE, virtual_ns};
use tidegate_law::latency;
use tidegate_law::runqueue::{
    Displaces, Mean, Task, V_START, is_eligible, is_near, load, place, pulls, reweighed, reweighs,
    undisturbed_ns, weight,
};
use tidegate_law::tuning::UNDISTURBED_MAX_NS;

const MS: u64 = 1_000_000;

#[derive(Clone, Copy, Debug)]
struct Member {
    vruntime: u64,
    hweight: u64,
    since_ns: Option<u64>,
}

/// The mean of the members as an exact fraction, rounded down; what they ran and were not charged
/// for counts in it.
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
            sync: 0,
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

/// A task that waits, or runs, at a distance ahead of V.
fn ranked(slice_v: u64, ahead: i64, hint: i32) -> Task {
    Task {
        vruntime: V.wrapping_add_signed(ahead),
        slice_v,
        hint,
        ..Task::default()
    }
}

const V: u64 = 1 << 55;
const SLICE_NS: u64 = 700_000;

proptest! {
    #[test]
    fn a_task_displaces_whom_its_slice_ends_before(
        (waits_v, runs_v) in (100_000u64..1 << 40, 100_000u64..1 << 40),
        (waits_ahead, runs_ahead) in (-(1i64 << 40)..1 << 40, -(1i64 << 40)..1 << 40),
        (hint, later) in (-20i32..=19, -1i32..=1),
        (ran_ns, sync) in (0..2 * SLICE_NS, 0u64..2),
    ) {
        let waits = Task { sync, ..ranked(waits_v, waits_ahead, hint + later) };
        let runs = ranked(runs_v, runs_ahead, hint);
        let found = waits.displaces(&runs, V, ran_ns, SLICE_NS);
        let eligible = waits_ahead <= (waits_v / 4).cast_signed();
        let ends_later = i128::from(waits_ahead) + i128::from(waits_v)
            > i128::from(runs_ahead.max(0)) + i128::from(runs_v);
        let expected = match later {
            _ if !eligible || later > 0 => Displaces::Not,
            -1 => Displaces::Now,
            _ if sync == 1 || waits_ahead > 0 || ends_later => Displaces::Later,
            _ if ran_ns < undisturbed_ns(SLICE_NS) => Displaces::Soon,
            _ => Displaces::Now,
        };
        prop_assert_eq!(found, expected);
    }

    /// A task that ran there last goes before the first by half of the shorter slice at most.
    #[test]
    fn near_is_half_a_slice(
        first in V_START..V_START << 1,
        later in 0u64..1 << 40,
        (first_slice_v, slice_v) in (0u64..1 << 40, 0u64..1 << 40),
    ) {
        let near = later <= first_slice_v.min(slice_v) / 2;
        prop_assert_eq!(is_near(first, first + later, first_slice_v, slice_v), near);
    }

    #[test]
    fn a_light_member_is_below_half_the_mean(weights in prop::collection::vec(MIN..1u64 << 37, 1..40)) {
        let mut mean = Mean::default();
        for hweight in &weights {
            mean.add(V_START, *hweight);
        }
        let sum: u64 = weights.iter().map(|hweight| weight(*hweight)).sum();
        for hweight in &weights {
            let light = 2 * u128::from(weight(*hweight)) * (weights.len() as u128) < u128::from(sum);
            prop_assert_eq!(mean.is_light(*hweight), light);
        }
        prop_assert!(weights.iter().any(|hweight| !mean.is_light(*hweight)), "not all are");
    }
}

#[test]
fn half_of_a_slice_is_undisturbed_up_to_the_most() {
    assert_eq!(undisturbed_ns(SLICE_NS), 350_000);
    assert_eq!(undisturbed_ns(2_100_000), UNDISTURBED_MAX_NS);
}

/// The largest weights of which none is more than one CPU of `cpus`, exactly: the k heaviest share
/// with `cpus` - k CPUs' worth of the rest.
fn feasible(weights: &[u64], cpus: usize) -> Vec<f64> {
    let mut sorted: Vec<u64> = weights.to_vec();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    let rest = |k: usize| sorted[k..].iter().map(|w| *w as f64).sum::<f64>() / (cpus - k) as f64;
    let heavy = (0..cpus)
        .find(|k| sorted[*k] as f64 <= rest(*k))
        .unwrap_or(cpus - 1);
    weights
        .iter()
        .map(|w| (*w as f64).min(rest(heavy)))
        .collect()
}

proptest! {
    /// Members that are looked at in turn settle at the feasible weights, whatever they are.
    #[test]
    fn weights_settle_where_none_is_more_than_one_cpu(
        cpus in 2usize..=16,
        more in 1usize..8,
        seed in prop::collection::vec(ONE / 64..1u64 << 37, 24),
    ) {
        let own = &seed[..cpus + more];
        let mut counted = own.to_vec();
        let mut mean = Mean::default();
        for hweight in &counted {
            mean.add(V_START, *hweight);
        }
        for _ in 0..400 {
            for at in 0..own.len() {
                let now = mean.feasible(own[at], counted[at], cpus as u64);
                mean.sub(V_START, counted[at]);
                mean.add(V_START, now);
                counted[at] = now;
            }
        }
        for (found, exact) in counted.iter().zip(feasible(own, cpus)) {
            let found = *found as f64;
            prop_assert!((found / exact - 1.0).abs() < 0.01, "{found} for {exact}");
        }
    }

    #[test]
    fn one_cpu_and_fewer_members_than_cpus_take_any_weight(
        cpus in 1u64..16,
        hweight in MIN..1u64 << 37,
        others in prop::collection::vec(MIN..1u64 << 37, 0..14),
    ) {
        let mut mean = Mean::default();
        for other in others.iter().take((cpus - 1).saturating_sub(1) as usize) {
            mean.add(V_START, *other);
        }
        prop_assert_eq!(mean.feasible(hweight, 0, cpus), hweight);
        mean.add(V_START, hweight);
        prop_assert_eq!(mean.feasible(hweight, hweight, cpus), hweight);
    }
}

proptest! {
    #[test]
    fn what_is_owed_is_the_same_time_by_the_new_weight(
        v in 1u64 << 50..1 << 60,
        owed_ns in -1_000_000_000i64..1_000_000_000,
        was in ONE / 1024..1u64 << 37,
        now in ONE / 1024..1u64 << 37,
    ) {
        let owed = |vruntime: u64, hweight: u64| {
            i128::from(v.wrapping_sub(vruntime).cast_signed()) * i128::from(hweight) / i128::from(ONE)
        };
        let distance = virtual_ns(owed_ns.unsigned_abs(), was);
        let vruntime = if owed_ns < 0 { v + distance } else { v - distance };
        let new = reweighed(v, vruntime, was, now);
        // Rounded by a ns and by a unit of virtual time, which are hweight/ONE ns.
        let rounded = i128::from((was + now) / ONE + 2);
        prop_assert!((owed(new, now) - i128::from(owed_ns)).abs() <= rounded);
    }

    #[test]
    fn any_distance_is_reweighed_to_one_on_the_same_side(
        v in any::<u64>(),
        distance in 0i64..i64::MAX,
        was in MIN..1u64 << 47,
        now in MIN..1u64 << 47,
    ) {
        let ahead = reweighed(v, v.wrapping_add_signed(distance), was, now);
        let behind = reweighed(v, v.wrapping_add_signed(-distance), was, now);
        prop_assert!(ahead.wrapping_sub(v).cast_signed() >= 0);
        prop_assert!(v.wrapping_sub(behind).cast_signed() >= 0);
    }
}

#[test]
fn a_task_is_put_in_order_again_when_its_weight_has_doubled_or_halved() {
    assert!(!reweighs(1000, 1000) && !reweighs(1000, 2000) && !reweighs(1000, 500));
    assert!(reweighs(1000, 2001) && reweighs(1000, 499));
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

/// CPUs' clocks differ by a hair: a member may begin to run after the time at which the mean is
/// asked for.
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

/// Members of one weight, and the CPUs that serve them: what is pulled is not pulled back, and the
/// run queue that pulls has no more to do for each of its CPUs than the other had.
fn check_pull(weight: u64, (own, own_cpus): (u64, u64), (other, cpus): (u64, u64)) {
    // Without members there is none to ask about.
    if other == 0 || !pulls((weight * own, own_cpus), (weight * other, cpus), weight) {
        return;
    }
    let case = format!("{own} on {own_cpus} CPUs pull from {other} on {cpus}");
    let back = pulls(
        (weight * (other - 1), cpus),
        (weight * (own + 1), own_cpus),
        weight,
    );
    assert!(!back || cpus == 0, "pulled back: {case}");
    assert!(
        load(weight * (own + 1), own_cpus) <= load(weight * other, cpus),
        "{case}"
    );
}

/// Where the two have nearly the same to do, which numbers at random seldom are.
#[test]
fn a_pull_between_small_run_queues_is_final() {
    for (own, other) in (0..12).flat_map(|own| (0..12).map(move |other| (own, other))) {
        for (own_cpus, cpus) in (1..5).flat_map(|own| (0..5).map(move |cpus| (own, cpus))) {
            check_pull(1 << 16, (own, own_cpus), (other, cpus));
        }
    }
}

/// Hogs of weight 300 and 100 that begin in one of two caches: asked with the mean weight of 200,
/// the last pull left 1,300 beside 1,100.
#[test]
fn pulls_of_unequal_members_end_even() {
    let weigh = |queue: &Vec<u64>| queue.iter().sum::<u64>();
    let mut busy: Vec<u64> = [300, 100].repeat(6);
    let mut idle = Vec::new();
    // The heavier come first more often; here each is looked at in turn, as one that ran goes to
    // the end.
    for _ in 0..100 {
        let first = busy.remove(0);
        if pulls((weigh(&idle), 4), (weigh(&busy) + first, 4), first) {
            idle.push(first);
        } else {
            busy.push(first);
        }
    }
    assert_eq!((weigh(&busy), weigh(&idle)), (1_200, 1_200));
}

proptest! {
    #[test]
    fn a_pull_evens_out_and_is_final(
        // Below the number of CPUs, a weight for each of them rounds to nothing.
        weight in 64_u64..1 << 23,
        own in 0_u64..1_000,
        other in 0_u64..1_000,
        own_cpus in 1_u64..64,
        cpus in 0_u64..64,
    ) {
        check_pull(weight, (own, own_cpus), (other, cpus));
        // Members that no CPU runs, beside one that has work for each of its CPUs, are pulled until
        // none is left.
        if other > 0 {
            prop_assert!(pulls((weight * own, own_cpus), (weight * other, 0), weight));
        }
    }
}
