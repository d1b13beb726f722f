//! The fair class: who gets how much, measured in whole machines.

use tidegate_sim::{
    Bandwidth, Costs, CpuId, CpuSet, Ctx, GroupId, Machine, MachineConfig, Op, Policy, TaskId,
    TaskSpec,
};

use super::support::{MS, SECOND, group, hog, limited, machine, napper, near, spawn};

/// A group's part of all CPU time so far, in thousandths.
fn part_ppt(m: &Machine, group: GroupId) -> u64 {
    m.usage_ns(group) * 1000 / (m.now_ns() * u64::from(m.cpus()))
}

/// EEVDF's bound: no task that always wants to run is ever further from its share than
/// the longest request, here a slice and the tick that notices its end.
#[test]
fn lag_stays_within_a_slice_and_a_tick() {
    let weights = [1024, 820, 655, 526, 423, 335, 272, 215, 172, 137];
    for seed in 0..40 {
        let mut rng = tidegate_sim::Prng::new(seed);
        let mut m = machine(1);
        let tasks: Vec<(TaskId, u64)> = (0..rng.between(2, 12))
            .map(|_| {
                let nice = rng.below(weights.len() as u64);
                let mut spec = TaskSpec::new("hog", GroupId::ROOT, hog());
                spec.nice = nice as i8;
                spec.slice_ns = rng
                    .chance_ppm(300_000)
                    .then(|| rng.between(200_000, 10 * MS));
                (m.spawn(spec).unwrap(), weights[nice as usize])
            })
            .collect();
        let all: u64 = tasks.iter().map(|&(_, weight)| weight).sum();
        let bound = 10 * MS + 4 * MS;
        let mut at = 0;
        while at < 5 * SECOND {
            at += rng.between(MS, 50 * MS);
            m.run_until(at).unwrap();
            for &(task, weight) in &tasks {
                let (got, fair) = (m.task_usage_ns(task), at * weight / all);
                assert!(
                    got.abs_diff(fair) <= bound,
                    "seed {seed} at {at}: {got} of {fair}"
                );
            }
        }
    }
}

#[test]
fn groups_share_by_weight_over_several_cpus_too() {
    for cpus in [2, 4, 8] {
        let mut m = machine(cpus);
        let mut groups = Vec::new();
        for weight in [100, 200, 500] {
            let group = group(&mut m, GroupId::ROOT, weight);
            for cpu in 0..cpus {
                let mut hog = TaskSpec::new("hog", group, hog());
                hog.cpus = Some(CpuSet::single(CpuId(cpu)));
                m.spawn(hog).unwrap();
            }
            groups.push(group);
        }
        m.run_until(10 * SECOND).unwrap();
        for (&group, weight) in groups.iter().zip([100, 200, 500]) {
            near(part_ppt(&m, group), weight * 1000 / 800, 10);
        }
    }
}

#[test]
fn idle_groups_and_tasks_get_almost_nothing_beside_others() {
    let mut m = machine(1);
    let main = group(&mut m, GroupId::ROOT, 100);
    let side = group(&mut m, GroupId::ROOT, 100);
    m.set_idle(side, true).unwrap();
    spawn(&mut m, main, hog());
    for _ in 0..4 {
        spawn(&mut m, side, hog());
    }
    m.run_until(20 * SECOND).unwrap();
    // 3 of 1027.
    near(part_ppt(&m, side), 3, 2);
    m.set_idle(side, false).unwrap();
    let before = m.usage_ns(side);
    m.run_until(40 * SECOND).unwrap();
    near((m.usage_ns(side) - before) / (20 * MS), 500, 5);
}

#[test]
fn a_quota_holds_on_every_machine() {
    for (cpus, hogs) in [(1, 1), (1, 3), (4, 2), (4, 8), (16, 32)] {
        for (quota_us, period_us) in [(20_000, 100_000), (5_000, 10_000), (1_000, 100_000)] {
            let mut m = machine(cpus);
            let group = limited(&mut m, GroupId::ROOT, quota_us, period_us);
            for _ in 0..hogs {
                spawn(&mut m, group, hog());
            }
            m.run_until(20 * SECOND).unwrap();
            let want = 20 * SECOND / period_us * quota_us;
            let used = m.usage_ns(group);
            assert!(
                used * 1000 >= want * 970,
                "{cpus} {hogs} {quota_us}: {used} of {want}"
            );
            assert!(
                used <= want + u64::from(cpus) * 14 * MS,
                "{cpus} {hogs}: {used} of {want}"
            );
            let stat = m.cpu_stat(group);
            near(stat.nr_periods, 20 * SECOND / (period_us * 1000), 2);
            assert!(stat.nr_throttled * 10 >= stat.nr_periods * 9, "{stat:?}");
        }
    }
}

#[test]
fn nested_quotas_both_hold() {
    let mut m = machine(4);
    let outer = limited(&mut m, GroupId::ROOT, 100_000, 100_000);
    let inner = limited(&mut m, outer, 40_000, 100_000);
    let other = group(&mut m, outer, 100);
    for _ in 0..4 {
        spawn(&mut m, inner, hog());
        spawn(&mut m, other, hog());
    }
    m.run_until(20 * SECOND).unwrap();
    near(part_ppt(&m, outer), 250, 6);
    assert!(part_ppt(&m, inner) <= 102, "{}", part_ppt(&m, inner));
    // The outer limit strikes first, and what the inner group was owed is forgotten: on the host,
    // two CPUs at 50 and 20 ms gave it 16.8 of its 20.
    assert!(part_ppt(&m, inner) >= 70, "{}", part_ppt(&m, inner));
}

/// facts.md's host: two hogs on two CPUs, HZ=250; the quota rewritten as it is
/// each 10 ms. Measured there, in percent of one CPU: 2/100 ms 2.0 → 50.7,
/// 1/10 ms 9.9 → 56.8 (each 5 ms: 95.5), 4/10 ms 39.6 → 88.8.
#[test]
fn a_rewritten_quota_leaks_half_a_tick_a_cpu_as_on_the_host() {
    let run = |quota_us: u64, period_us: u64, every: Option<u64>| {
        let mut cfg = MachineConfig::new(2);
        cfg.costs = Costs::default();
        let mut m = Machine::new(cfg).unwrap();
        let bandwidth = Bandwidth::limit(quota_us, period_us);
        let group = limited(&mut m, GroupId::ROOT, quota_us, period_us);
        spawn(&mut m, group, hog());
        spawn(&mut m, group, hog());
        let end = 20 * SECOND;
        let mut at = 0;
        while let Some(every) = every
            && at + every < end
        {
            // A process that sleeps 10 ms wakes a little late each time.
            at += every + 57_000;
            m.run_until(at).unwrap();
            m.set_bandwidth(group, bandwidth).unwrap();
        }
        m.run_until(end).unwrap();
        m.usage_ns(group) * 1000 / end
    };
    let ms10 = Some(10 * MS);
    for (quota, period, every, host) in [
        (2_000, 100_000, None, 20),
        (2_000, 100_000, ms10, 507),
        (1_000, 10_000, None, 99),
        (1_000, 10_000, ms10, 568),
        (1_000, 10_000, Some(5 * MS), 955),
        (4_000, 10_000, None, 396),
        (4_000, 10_000, ms10, 888),
    ] {
        let got = run(quota, period, every);
        // The host's vCPUs also take a while to leave idle; here they do not. The test is
        // for the mechanism: most of what runs comes from the writes.
        assert!(
            got * 100 >= host * 95 && got * 100 <= host * 125,
            "{quota}/{period} every {every:?}: {got} (host {host})"
        );
    }
}

#[test]
fn a_nap_does_not_lose_or_win_time() {
    // Its lag comes along: running 4 ms, alone 6 ms between, it gets its half whenever it
    // is there (4 ms in 8, then 6 ms of sleep: 29 %) and a little more for what it missed.
    let mut m = machine(1);
    let nap = spawn(&mut m, GroupId::ROOT, napper(4 * MS, 6 * MS));
    let hog = spawn(&mut m, GroupId::ROOT, hog());
    m.run_until(20 * SECOND).unwrap();
    let (nap, hog) = (m.task_usage_ns(nap), m.task_usage_ns(hog));
    assert_eq!(nap + hog, 20 * SECOND);
    assert!(
        (20 * SECOND * 4 / 14..=20 * SECOND * 4 / 11).contains(&nap),
        "{nap}"
    );
}

/// facts.md's host (6.18, HZ=250), pinned to one CPU beside 3 hogs, a task that runs 0.88 ms each 4
/// ms: p99 of its lateness 2.8–4.0 ms with a slice of 0.1 ms, 11.0 with 3 ms, 15 with 100 ms; with
/// the hogs at SCHED_IDLE the median is 0.06–0.13 ms.
#[test]
fn a_short_slice_shortens_the_wait_as_on_the_host() {
    let run = |slice_ns: u64, hogs: Policy| {
        let mut cfg = MachineConfig::new(2);
        cfg.check = true;
        let mut m = Machine::new(cfg).unwrap();
        let series = m.add_series();
        for _ in 0..3 {
            let mut spec = TaskSpec::new("hog", GroupId::ROOT, hog());
            spec.policy = hogs;
            spec.cpus = Some(CpuSet::single(CpuId(0)));
            m.spawn(spec).unwrap();
        }
        let (mut due, mut runs) = (0, false);
        let main = move |ctx: &mut Ctx<'_>| {
            runs = !runs;
            if runs {
                if due > 0 {
                    ctx.record(series, ctx.now_ns - due);
                }
                return Op::Run { work_ns: 880_000 };
            }
            due = (ctx.now_ns / 4_057_000 + 1) * 4_057_000;
            Op::SleepUntil { at_ns: due }
        };
        let mut spec = TaskSpec::new("main", GroupId::ROOT, Box::new(main));
        spec.slice_ns = Some(slice_ns);
        spec.cpus = Some(CpuSet::single(CpuId(0)));
        m.spawn(spec).unwrap();
        m.run_until(60 * SECOND).unwrap();
        let late = m.series(series);
        (
            late.percentile_ns(500_000) / 1000,
            late.percentile_ns(990_000) / 1000,
        )
    };
    for (slice_ns, host_p99_us) in [(100_000, 3_400), (3 * MS, 11_000), (100 * MS, 15_000)] {
        let (_, p99_us) = run(slice_ns, Policy::Normal);
        assert!(
            p99_us * 100 >= host_p99_us * 60 && p99_us * 100 <= host_p99_us * 160,
            "slice {slice_ns}: p99 {p99_us} us, the host's {host_p99_us}"
        );
    }
    // The host adds a virtual machine's interrupt to the switch.
    assert!(run(3 * MS, Policy::Idle).1 < 130);
}
