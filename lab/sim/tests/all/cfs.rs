//! The fair class of kernels before 6.6: shares, sleepers, preemption, and the latency hints of
//! 2022.

use tidegate_sim::{
    CfsConfig, Ctx, GroupId, Machine, Op, Policy, Program, Scheduler, SeriesId, TaskId, TaskSpec,
    Topology,
};

use super::support::{MS, SECOND, config, group, hog, near};

fn machine(cpus: u32, latency_nice: bool) -> Machine {
    let mut config = config(Topology::new(cpus, 1, cpus));
    config.scheduler = Scheduler::Cfs(CfsConfig {
        latency_nice,
        ..CfsConfig::for_cpus(cpus)
    });
    Machine::new(config).unwrap()
}

/// Runs a while, sleeps a while, and records how long it waited for the CPU.
fn napper(run_ns: u64, sleep_ns: u64, series: SeriesId) -> Box<dyn Program> {
    let mut runs = false;
    Box::new(move |ctx: &mut Ctx<'_>| {
        runs = !runs;
        if runs {
            ctx.record(series, ctx.now_ns - ctx.woken_ns());
            Op::Run { work_ns: run_ns }
        } else {
            // Not in step with the tick.
            Op::Sleep {
                for_ns: sleep_ns / 2 + ctx.rng.below(sleep_ns),
            }
        }
    })
}

fn spawn(m: &mut Machine, group: GroupId, latency: i8, program: Box<dyn Program>) -> TaskId {
    let mut spec = TaskSpec::new("task", group, program);
    spec.latency = latency;
    m.spawn(spec).unwrap()
}

#[test]
fn nice_levels_and_groups_share_by_weight() {
    let mut m = machine(1, false);
    let mut tasks = Vec::new();
    for nice in [0, 5, -5] {
        let mut spec = TaskSpec::new("hog", GroupId::ROOT, hog());
        spec.nice = nice;
        tasks.push(m.spawn(spec).unwrap());
    }
    let group = group(&mut m, GroupId::ROOT, 200);
    for _ in 0..3 {
        spawn(&mut m, group, 0, hog());
    }
    m.run_until(40 * SECOND).unwrap();
    let all = 1024 + 335 + 3121 + 2048;
    for (&task, weight) in tasks.iter().zip([1024, 335, 3121]) {
        near(m.task_usage_ns(task), 40 * SECOND * weight / all, 40 * MS);
    }
    near(m.usage_ns(group), 40 * SECOND * 2048 / all, 40 * MS);
}

#[test]
fn hogs_on_many_cpus_get_their_share_wherever_they_are() {
    let mut m = machine(4, false);
    let tasks: Vec<TaskId> = (0..6)
        .map(|_| spawn(&mut m, GroupId::ROOT, 0, hog()))
        .collect();
    m.run_until(20 * SECOND).unwrap();
    // Two CPUs hold two each at any time; balance moves them, so no task is stuck with a half for
    // good.
    for task in tasks {
        let part = m.task_usage_ns(task) * 100 / (20 * SECOND);
        assert!((45..=100).contains(&part), "{part} %");
    }
    assert_eq!(m.busy_ns(), 80 * SECOND);
}

#[test]
fn a_sleepers_credit_is_half_a_period_however_long_it_slept() {
    for sleep_ns in [50 * MS, 5 * SECOND] {
        let mut m = machine(1, false);
        spawn(&mut m, GroupId::ROOT, 0, hog());
        let mut step = 0;
        let sleeper = Box::new(move |_: &mut Ctx<'_>| {
            step += 1;
            if step == 1 {
                Op::Sleep { for_ns: sleep_ns }
            } else {
                Op::Run { work_ns: SECOND }
            }
        });
        let sleeper = spawn(&mut m, GroupId::ROOT, 0, sleeper);
        m.run_until(sleep_ns + 100 * MS).unwrap();
        // Half of the 100 ms since, 3 ms of credit halved between the two, and at most a tick and a
        // slice.
        let usage = m.task_usage_ns(sleeper);
        assert!(usage >= 50 * MS - 4 * MS, "{usage}");
        assert!(
            usage <= 50 * MS + 3 * MS + 4 * MS,
            "{usage}: after {sleep_ns} ns of sleep"
        );
    }
}

#[test]
fn a_sleeper_preempts_and_an_idle_task_never_does() {
    let mut m = machine(1, false);
    let (woken, patient) = (m.add_series(), m.add_series());
    spawn(&mut m, GroupId::ROOT, 0, hog());
    spawn(&mut m, GroupId::ROOT, 0, napper(200_000, 20 * MS, woken));
    let mut spec = TaskSpec::new("idle", GroupId::ROOT, napper(200_000, 20 * MS, patient));
    spec.policy = Policy::Idle;
    m.spawn(spec).unwrap();
    m.run_until(10 * SECOND).unwrap();
    assert_eq!(
        m.series(woken).percentile_ns(990_000),
        0,
        "3 ms of credit against 1 ms of granularity"
    );
    assert!(
        m.series(patient).percentile_ns(500_000) > MS,
        "its weight is 3 of 1024"
    );
}

/// The wakeup latency (median, p99) of a timer task among crowding nappers, its share in ppm, and
/// theirs.
fn timer_task(latency_nice: bool, latency: i8) -> (u64, u64, u64) {
    let mut m = machine(1, latency_nice);
    let (mine, theirs) = (m.add_series(), m.add_series());
    for _ in 0..60 {
        spawn(&mut m, GroupId::ROOT, 0, napper(300_000, 10 * MS, theirs));
    }
    let timer = spawn(&mut m, GroupId::ROOT, latency, napper(20_000, MS, mine));
    m.run_until(20 * SECOND).unwrap();
    let series = m.series(mine);
    (
        series.percentile_ns(500_000),
        series.percentile_ns(990_000),
        m.task_usage_ns(timer) / 20_000,
    )
}

/// The median wakeup latency of a task that runs a twentieth of the time beside a hog.
fn beside_a_hog(latency: i8) -> u64 {
    let mut m = machine(1, true);
    let mine = m.add_series();
    spawn(&mut m, GroupId::ROOT, 0, hog());
    spawn(
        &mut m,
        GroupId::ROOT,
        latency,
        napper(200_000, 4 * MS, mine),
    );
    m.run_until(10 * SECOND).unwrap();
    m.series(mine).percentile_ns(500_000)
}

#[test]
fn a_hint_moves_preemption_and_not_the_share() {
    let (eager_p50, eager_p99, _) = timer_task(true, -20);
    let (plain_p50, plain_p99, _) = timer_task(true, 0);
    assert!(
        eager_p99 * 4 < plain_p99,
        "-20: {eager_p50}/{eager_p99}, 0: {plain_p50}/{plain_p99}"
    );
    // Beside a hog a sleeper's credit lets it preempt; with the mildest hint it waits for a tick.
    assert_eq!(beside_a_hog(0), 0);
    assert!(beside_a_hog(19) > MS / 2, "{}", beside_a_hog(19));
    // Without the patches the hint is nothing.
    assert_eq!(timer_task(false, -20), timer_task(false, 0));
    // Two hogs share evenly whatever their hints.
    let mut m = machine(1, true);
    let (a, b) = (
        spawn(&mut m, GroupId::ROOT, -20, hog()),
        spawn(&mut m, GroupId::ROOT, 19, hog()),
    );
    m.run_until(10 * SECOND).unwrap();
    near(m.task_usage_ns(a), 5 * SECOND, 20 * MS);
    near(m.task_usage_ns(b), 5 * SECOND, 20 * MS);
}
