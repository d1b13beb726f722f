//! Quotas by ext: the law's bound, and that what is due is given.

use tidegate_sim::{Bandwidth, GroupId, GroupSpec, Op, TaskSpec};

use super::bed::{MS, SECOND, hog, machine};

fn limited(quota_us: u64, period_us: u64, burst_us: u64) -> Option<Bandwidth> {
    Some(Bandwidth {
        quota_us: Some(quota_us),
        period_us,
        burst_us,
    })
}

#[test]
fn hogs_get_their_quota_and_no_more() {
    for (cpus, quota_us, period_us, hogs) in [
        (1, 10_000, 100_000, 1),
        (4, 25_000, 10_000, 8),
        (8, 10_000, 100_000, 8),
        (16, 150_000, 100_000, 40),
    ] {
        let mut machine = machine(cpus, 1, true, 3);
        let group = machine
            .add_group(GroupSpec {
                bandwidth: limited(quota_us, period_us, 0),
                ..GroupSpec::new("job", GroupId::ROOT)
            })
            .unwrap();
        for _ in 0..hogs {
            machine.spawn(TaskSpec::new("hog", group, hog())).unwrap();
        }
        let mut last = 0;
        for second in 1..=4 {
            machine.run_until(second * SECOND).unwrap();
            let used = machine.usage_ns(group);
            let due = quota_us * 1_000 * (SECOND / (period_us * 1_000));
            println!(
                "{cpus} CPUs {quota_us}/{period_us} us: {} of {due} ns",
                used - last
            );
            // What silos hold may move from one second to the next.
            let held = u64::from(cpus) * 5 * MS;
            assert!(used <= second * due + quota_us * 1_000, "{used}");
            assert!(used + held >= second * due, "{used}");
            last = used;
        }
        let stat = machine.bandwidth_stat(group);
        assert!(
            stat.nr_throttled > 0 && stat.nr_throttled <= stat.nr_periods,
            "{stat:?}"
        );
    }
}

/// A child may not exceed its parent, siblings may oversubscribe it.
#[test]
fn nested_quotas_hold_at_every_level() {
    let mut machine = machine(4, 1, true, 3);
    let mut add = |parent, quota_us| {
        let spec = GroupSpec {
            bandwidth: limited(quota_us, 20_000, 0),
            ..GroupSpec::new("g", parent)
        };
        machine.add_group(spec).unwrap()
    };
    let parent = add(GroupId::ROOT, 30_000);
    let (a, b) = (add(parent, 10_000), add(parent, 60_000));
    for group in [a, b] {
        for _ in 0..4 {
            machine.spawn(TaskSpec::new("hog", group, hog())).unwrap();
        }
    }
    machine.run_until(4 * SECOND).unwrap();
    let used = [parent, a, b].map(|group| machine.usage_ns(group) / MS);
    println!("of 6000, 2000 and 12000 ms: {used:?}");
    assert!((5_950..=6_032).contains(&used[0]), "{used:?}");
    assert!(used[1] <= 2_012, "{used:?}");
    // The child that is not limited by itself takes what the other leaves.
    assert!(used[1] + used[2] <= used[0] && used[2] >= 3_900, "{used:?}");
}

/// Burst: what was saved may be used, no more than that, and the mean stays at the quota.
#[test]
fn burst_carries_over_what_was_saved() {
    for (burst_us, least_ms, most_ms) in [(0, 18, 21), (20_000, 36, 41)] {
        let mut machine = machine(4, 1, true, 3);
        let group = machine
            .add_group(GroupSpec {
                bandwidth: limited(20_000, 100_000, burst_us),
                ..GroupSpec::new("job", GroupId::ROOT)
            })
            .unwrap();
        let mut sleeps = true;
        let program = move |_: &mut tidegate_sim::Ctx<'_>| {
            sleeps = !sleeps;
            if sleeps {
                Op::Sleep { for_ns: 700 * MS }
            } else {
                Op::Run { work_ns: 60 * MS }
            }
        };
        machine
            .spawn(TaskSpec::new("bursty", group, Box::new(program)))
            .unwrap();
        let (mut last, mut most) = (0, 0);
        for period in 1..=50 {
            machine.run_until(period * 100 * MS).unwrap();
            let used = machine.usage_ns(group);
            most = most.max((used - last) / MS);
            last = used;
        }
        println!("burst {burst_us} us: at most {most} ms in a period");
        assert!((least_ms..=most_ms).contains(&most), "{most}");
    }
}

/// Changing a quota to and fro gains nothing, for debts are kept (on a stock kernel each write is a refill).
#[test]
fn rewriting_a_quota_gains_nothing() {
    let mut machine = machine(2, 1, true, 3);
    let terms = limited(4_000, 100_000, 0);
    let group = machine
        .add_group(GroupSpec {
            bandwidth: terms,
            ..GroupSpec::new("job", GroupId::ROOT)
        })
        .unwrap();
    for _ in 0..2 {
        machine.spawn(TaskSpec::new("hog", group, hog())).unwrap();
    }
    for step in 1..=400 {
        machine.run_until(step * 10 * MS).unwrap();
        machine.set_bandwidth(group, terms.unwrap()).unwrap();
    }
    let used_ms = machine.usage_ns(group) / MS;
    println!("4 ms of 100 ms, rewritten every 10 ms: {used_ms} of 160 ms in 4 s");
    assert!(used_ms <= 165, "{used_ms}");
}
