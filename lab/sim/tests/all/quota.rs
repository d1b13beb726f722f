//! Quotas with burst, slices that expire, what files show, and slow neighbours.

use tidegate_sim::{
    Bandwidth, Contention, CpuId, CpuSet, CpuStat, Ctx, GroupId, Machine, Op, SeriesId, TaskSpec,
    Topology,
};

use super::support::{MS, SECOND, config, group, hog, limited, machine, spawn};

/// Runs `long_ns` in every tenth period of 100 ms and `short_ns` in the others.
fn bursty(short_ns: u64, long_ns: u64, series: SeriesId) -> impl FnMut(&mut Ctx<'_>) -> Op {
    let (mut period, mut runs) = (0, false);
    move |ctx| {
        runs = !runs;
        if runs {
            return Op::Run {
                work_ns: if period % 10 == 9 { long_ns } else { short_ns },
            };
        }
        if period > 0 {
            ctx.record(series, ctx.now_ns.saturating_sub(period * 100 * MS));
        }
        period += 1;
        Op::SleepUntil {
            at_ns: period * 100 * MS,
        }
    }
}

fn worst_with_burst(burst_us: u64) -> (u64, CpuStat, u64) {
    let mut m = machine(1);
    let group = limited(&mut m, GroupId::ROOT, 20_000, 100_000);
    let burst = Bandwidth {
        burst_us,
        ..Bandwidth::limit(20_000, 100_000)
    };
    m.set_bandwidth(group, burst).unwrap();
    let series = m.add_series();
    spawn(&mut m, group, Box::new(bursty(10 * MS, 35 * MS, series)));
    m.run_until(60 * SECOND).unwrap();
    (
        m.series(series).max_ns(),
        m.cpu_stat(group),
        m.usage_ns(group),
    )
}

#[test]
fn burst_lets_saved_quota_through() {
    let (worst, stat, usage) = worst_with_burst(0);
    assert!(
        worst > 90 * MS,
        "without burst the long period is throttled: {worst}"
    );
    assert!(stat.nr_throttled > 50 && stat.nr_bursts == 0, "{stat:?}");
    assert!(stat.throttled_ns > 60 * 60 * MS, "{stat:?}");
    let (worst, stat, with) = worst_with_burst(20_000);
    assert!(worst < 50 * MS, "with burst it is not: {worst}");
    assert!(stat.nr_throttled <= 1 && stat.nr_bursts > 50, "{stat:?}");
    // 60 long periods of 35 ms with a quota of 20, less what the last period's end cuts off.
    assert!((700 * MS..=900 * MS).contains(&stat.burst_ns), "{stat:?}");
    assert!(
        with.abs_diff(usage) <= 60 * MS,
        "both do the same work: {usage} {with}"
    );
}

/// Many threads that each run a little: slices that expire are lost at every turnover, so
/// that the group is throttled before it has had its quota; slices that stay are not.
#[test]
fn slices_that_expire_waste_quota() {
    let run = |expire: bool| {
        let mut cfg = config(Topology::new(16, 1, 16));
        cfg.slices_expire = expire;
        let mut m = Machine::new(cfg).unwrap();
        let group = limited(&mut m, GroupId::ROOT, 20_000, 100_000);
        for cpu in 0..16 {
            let mut runs = false;
            // 1.2 ms in each 100 ms on each CPU: 19.2 ms of a quota of 20.
            let light = move |ctx: &mut Ctx<'_>| {
                runs = !runs;
                if runs {
                    return Op::Run { work_ns: 1_200_000 };
                }
                Op::SleepUntil {
                    at_ns: (ctx.now_ns / (100 * MS) + 1) * 100 * MS + u64::from(cpu) * 5 * MS,
                }
            };
            let mut spec = TaskSpec::new("light", group, Box::new(light));
            spec.cpus = Some(CpuSet::single(CpuId(cpu)));
            m.spawn(spec).unwrap();
        }
        m.run_until(20 * SECOND).unwrap();
        (m.usage_ns(group), m.cpu_stat(group))
    };
    let (stays, stat) = run(false);
    assert!(stays >= 19 * 200 * MS, "{stays}");
    assert!(stat.nr_throttled * 20 <= stat.nr_periods, "{stat:?}");
    let (expires, stat) = run(true);
    assert!(stat.nr_throttled * 2 >= stat.nr_periods, "{stat:?}");
    assert!(expires < stays, "{expires} {stays}");
}

#[test]
fn files_lag_behind_by_at_most_a_tick_a_cpu() {
    let mut m = machine(4);
    let group = group(&mut m, GroupId::ROOT, 100);
    for _ in 0..4 {
        spawn(&mut m, group, hog());
    }
    let mut behind = 0;
    for step in 1..500u64 {
        m.run_until(step * 1_300_000).unwrap();
        assert_eq!(m.usage_ns(group), m.now_ns() * 4, "exact is exact");
        let lag = m.usage_ns(group) - m.usage_accounted_ns(group);
        assert!(lag <= 4 * 4 * MS, "{lag}");
        behind = behind.max(lag);
    }
    assert!(behind > 12 * MS, "files do lag: {behind}");
}

#[test]
fn a_busy_sibling_slows_work_and_not_time() {
    let mut cfg = config(Topology::new(2, 2, 2));
    cfg.contention = Contention {
        sibling_ppm: 400_000,
        ..Contention::NONE
    };
    let mut m = Machine::new(cfg).unwrap();
    let group = group(&mut m, GroupId::ROOT, 100);
    spawn(&mut m, group, hog());
    // The neighbour runs for one second of work, at 0.6 of full speed, and ends.
    let mut done = false;
    let short = move |_: &mut Ctx<'_>| {
        if std::mem::replace(&mut done, true) {
            Op::Exit
        } else {
            Op::Run { work_ns: SECOND }
        }
    };
    let short = spawn(&mut m, group, Box::new(short));
    m.run_until(3 * SECOND).unwrap();
    assert_eq!(
        m.task_usage_ns(short).div_ceil(1000),
        SECOND * 10 / 6 / 1000 + 1
    );
    assert_eq!(m.task_work_done_ns(short), SECOND);
    // Beside it 0.6, then full speed.
    let together = m.task_usage_ns(short);
    let long = m.work_done_ns(group) - SECOND;
    let expected = together * 6 / 10 + (m.usage_ns(group) - 2 * together);
    assert!(long.abs_diff(expected) < 5 * MS, "{long} {expected}");
}
