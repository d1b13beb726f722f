//! Workloads against what theory says of them, on machines that take no time of their own.

use tidegate_sim::outcome::Outcome;
use tidegate_sim::workloads::arrivals::Curve;
use tidegate_sim::workloads::{
    Arrivals, Common, ForkStorm, Hackbench, Kind, Pattern, Request, Shape, Work,
};
use tidegate_sim::{GroupId, Histogram, Prng};

use super::support::{self, MS, SECOND};

const S: u64 = SECOND;

fn run(toml: &str) -> Outcome {
    support::run(&support::scenario(&support::text(toml), &[]))
}

fn values<'o>(outcome: &'o Outcome, what: &str) -> &'o Histogram {
    let series = outcome.series.iter().find(|one| one.what == what);
    &series.unwrap().values
}

fn near(got: u64, due: f64, percent: f64) {
    let off = (got as f64 / due - 1.0).abs() * 100.0;
    assert!(off <= percent, "{got} is {off:.2} % off {due}");
}

/// A machine without costs of its own, and one workload.
fn plain(cpus: u32, duration: &str, workload: &str) -> Outcome {
    run(&format!(
        "duration = \"{duration}\"\n[machine]\ncpus = {cpus}\ncosts = \"free\"\ncontention = \"none\"\n[workload.w]\n{workload}"
    ))
}

#[test]
fn one_server_waits_as_mm1_does() {
    let out = plain(
        1,
        "300s",
        "kind = \"open-loop\"\nworkers = 1\nrate = \"600/s\"\nwork = \"1ms\"\nwork_shape = \"exponential\"",
    );
    // 1/(μ − λ), and a sojourn time that is exponential: p50 is ln 2 of the mean, p99 ln 100.
    near(values(&out, "latency").mean_ns(), 2.5 * MS as f64, 4.0);
    near(
        values(&out, "latency").percentile_ns(500_000),
        2.5 * 0.693 * MS as f64,
        4.0,
    );
    near(
        values(&out, "latency").percentile_ns(990_000),
        2.5 * 4.605 * MS as f64,
        6.0,
    );
    near(out.groups[0].usage_ns, 180.0 * S as f64, 1.0);
}

#[test]
fn four_servers_wait_as_mm4_does() {
    let out = plain(
        4,
        "200s",
        "kind = \"open-loop\"\nworkers = 4\nload = \"70%\"\nwork = \"1ms\"\nwork_shape = \"exponential\"",
    );
    // Erlang C for 4 servers at 2.8 erlang is 0.4287; the mean wait is C/(4μ − λ) = 0.4287/1.2 ms.
    near(values(&out, "latency").mean_ns(), 1.3572 * MS as f64, 3.0);
}

#[test]
fn closed_loops_hogs_and_encoders_do_as_much_as_they_should() {
    let out = plain(
        4,
        "100s",
        "kind = \"closed-loop\"\nclients = 4\nwork = \"1ms\"\nthink = \"9ms\"\nthink_shape = \"fixed\"",
    );
    near(values(&out, "latency").count(), 40_000.0, 0.5);
    let out = plain(
        4,
        "10s",
        "kind = \"hog\"\ntasks = 4\nbusy = \"30%\"\nperiod = \"7ms\"",
    );
    near(out.groups[0].usage_ns, 12.0 * S as f64, 0.3);
    let out = plain(
        4,
        "10s",
        "kind = \"frames\"\nworkers = 4\nwork = \"8ms\"\nwork_shape = \"fixed\"\nserial = \"2ms\"",
    );
    near(values(&out, "frame").count(), 1_000.0, 0.2);
    near(
        values(&out, "frame").percentile_ns(990_000),
        10.0 * MS as f64,
        0.2,
    );
    let out = plain(
        4,
        "10s",
        "kind = \"frames\"\nworkers = 4\nwork = \"8ms\"\nserial = \"2ms\"\nrate = \"25/s\"",
    );
    near(values(&out, "frame").count(), 250.0, 1.0);
}

/// What a workload records on a machine without costs of its own, and what it used.
fn built(cpus: u32, kind: &Kind, duration_ns: u64) -> (Histogram, u64) {
    let mut machine = support::machine(cpus);
    let common = Common::new("w", GroupId::ROOT);
    let set = kind.build(&common, &mut machine).unwrap();
    machine.run_until(duration_ns).unwrap();
    let used_ns = machine.usage_ns(GroupId::ROOT);
    (machine.series(set.series[0].1).clone(), used_ns)
}

#[test]
fn messages_are_neither_lost_nor_made() {
    let hackbench = Kind::Hackbench(Hackbench {
        groups: 2,
        pairs: 5,
        loops: 200,
        message_ns: 10_000,
        capacity: 3,
    });
    let (finish, used_ns) = built(2, &hackbench, 60 * S);
    // Each task ends only when all its messages went through.
    assert_eq!(finish.count(), 20);
    // 2 groups · 25 pairs · 200 messages, each made and taken in 10 µs.
    near(used_ns, 2.0 * 25.0 * 200.0 * 20_000.0, 1.0);
    near(finish.max_ns(), 100.0 * MS as f64, 3.0);
}

#[test]
fn storms_raise_every_child() {
    let storm = Kind::ForkStorm(ForkStorm {
        parents: 2,
        interval_ns: 2 * MS,
        children: 1_000,
        work: Work {
            mean_ns: MS,
            shape: Shape::Exponential,
        },
    });
    assert_eq!(built(4, &storm, 60 * S).0.count(), 2 * 1_000);
}

#[test]
fn timers_on_an_idle_machine_are_late_by_the_kernels_costs_alone() {
    let out = plain(2, "5s", "kind = \"cyclictest\"\ninterval = \"1ms\"");
    assert_eq!(values(&out, "wakeup").max_ns(), 0);
    near(values(&out, "wakeup").count(), 5_000.0, 0.1);
    let out = run(
        "duration = \"5s\"\n[machine]\ncpus = 2\ncontention = \"none\"\n[workload.w]\nkind = \"cyclictest\"\n",
    );
    let wakeup = values(&out, "wakeup");
    let least = wakeup.min_ns();
    assert!(
        (1..10_000).contains(&least) && wakeup.max_ns() <= least + 10_000,
        "{wakeup:?}"
    );
}

#[test]
fn a_warm_up_is_not_recorded() {
    let toml = |warmup: &str| {
        format!(
            "duration = \"10s\"\nwarmup = \"{warmup}\"\n[machine]\ncpus = 1\n[workload.w]\nkind = \"closed-loop\"\nclients = 1\nwork_shape = \"fixed\"\nthink = \"9ms\"\nthink_shape = \"fixed\"\n"
        )
    };
    near(values(&run(&toml("0s")), "latency").count(), 1_000.0, 0.5);
    near(values(&run(&toml("4s")), "latency").count(), 600.0, 0.5);
    assert_eq!(run(&toml("4s")).measured_ns, 6 * S);
}

fn count(pattern: Pattern, from_ns: u64, to_ns: u64) -> u64 {
    let arrivals = Arrivals::new(pattern, Work::fixed(MS), 0, Prng::new(3));
    let times = arrivals.map(|request| request.due_ns);
    times
        .take_while(|at| *at < to_ns)
        .filter(|at| *at >= from_ns)
        .count() as u64
}

#[test]
fn patterns_have_their_rates() {
    near(
        count(Pattern::Poisson { gap_ns: MS }, 0, 100 * S),
        100_000.0,
        1.5,
    );
    let day = |from, to| {
        let points = vec![(0, 0), (50 * S, 1_000_000), (100 * S, 0)];
        let curve = Curve::new(points, Some(100 * S));
        let gap_ns = MS / 10;
        count(Pattern::Curve { gap_ns, curve }, from, to)
    };
    // The mean of a triangle is a half; its middle tenth has 95 % of the full rate.
    near(day(0, 100 * S), 500_000.0, 1.0);
    near(day(45 * S, 55 * S), 95_000.0, 1.5);
    near(day(100 * S, 200 * S), 500_000.0, 1.0);
    let curve = Curve::new(
        vec![(0, 200_000), (10 * S, 200_000), (20 * S, 800_000)],
        None,
    );
    assert_eq!(
        (curve.at(5 * S), curve.at(15 * S), curve.at(90 * S)),
        (200_000, 500_000, 800_000)
    );
    let zero = Curve::new(vec![(0, 0)], None);
    assert_eq!(
        count(
            Pattern::Curve {
                gap_ns: MS,
                curve: zero
            },
            0,
            S
        ),
        0
    );
}

#[test]
fn lists_end() {
    let requests: std::sync::Arc<[Request]> = [
        Request {
            due_ns: MS,
            work_ns: 5,
        },
        Request {
            due_ns: 3 * MS,
            work_ns: 7,
        },
    ]
    .into();
    let pattern = Pattern::Listed { requests };
    let arrivals = Arrivals::new(pattern, Work::fixed(9), S, Prng::new(1));
    let all: Vec<_> = arrivals.map(|r| (r.due_ns - S, r.work_ns)).collect();
    assert_eq!(all, [(MS, 5), (3 * MS, 7)]);
}

/// What the report says of quotas leaves the warm-up out, as all else in it does: one second has
/// ten periods.
#[test]
fn quotas_count_without_the_warm_up() {
    let quota = |duration: &str, warmup: &str| {
        let out = run(&format!(
            "duration = \"{duration}\"\nwarmup = \"{warmup}\"\n[machine]\ncpus = 2\n[group.a]\nquota = \"50ms\"\n\
             [workload.w]\nkind = \"hog\"\ngroup = \"a\"\n"
        ));
        let group = out.groups.iter().find(|group| group.name == "a").unwrap();
        let stat = group.stat;
        (stat.nr_periods, stat.nr_throttled, stat.throttled_ns)
    };
    let (periods, throttled, ns) = quota("3s", "2s");
    assert!((9..=11).contains(&periods), "{periods}");
    assert!((9..=11).contains(&throttled), "{throttled}");
    let (_, _, all_ns) = quota("1s", "0s");
    near(ns, all_ns as f64, 15.0);
}

/// Work that fills its period ends where the next period begins, or a little later.
#[test]
fn a_hog_that_is_always_busy_leaves_no_period_out() {
    let used_ns = |costs: &str, busy: &str, tasks: u32| {
        let out = run(&format!(
            "duration = \"1s\"\n[machine]\ncpus = 1\ncosts = \"{costs}\"\n\
             [workload.w]\nkind = \"hog\"\ntasks = {tasks}\nbusy = \"{busy}\"\nperiod = \"10ms\"\n"
        ));
        out.groups[0].usage_ns
    };
    for costs in ["free", "default"] {
        near(used_ns(costs, "100%", 1), S as f64, 1.1);
        near(used_ns(costs, "50%", 2), S as f64, 1.1);
        near(used_ns(costs, "30%", 1), 0.3 * S as f64, 4.0);
    }
}

/// What was begun is finished, and what would come later never comes.
#[test]
fn a_workload_ends_when_it_says() {
    let used_ms = |workload: &str| {
        let out = plain(1, "4s", workload);
        out.groups[0].usage_ns / MS
    };
    let hog = "kind = \"hog\"\ntasks = 1\nstart = \"500ms\"\nend = \"2s\"";
    assert!((1_500..=1_510).contains(&used_ms(hog)), "{}", used_ms(hog));
    let loops = |end: &str| {
        used_ms(&format!(
            "kind = \"open-loop\"\nrate = \"200/s\"\nwork = \"1ms\"\n{end}"
        ))
    };
    let (half, all) = (loops("end = \"2s\""), loops(""));
    near(half, all as f64 / 2.0, 5.0);
    let closed = "kind = \"closed-loop\"\nclients = 1\nthink = \"9ms\"\nthink_shape = \"fixed\"\nwork_shape = \"fixed\"\nend = \"2s\"";
    assert!(
        (198..=201).contains(&used_ms(closed)),
        "{}",
        used_ms(closed)
    );
}

/// A million draws at this rate are 10 seconds of nothing.
#[test]
fn a_long_time_without_requests_is_not_the_end() {
    let hour = 3_600 * S;
    let points = vec![
        (0, 1_000_000),
        (S, 1_000_000),
        (S + 1, 0),
        (hour, 0),
        (hour + 1, 1_000_000),
        (hour + S, 1_000_000),
        (hour + S + 1, 0),
    ];
    let pattern = |repeat_ns| Pattern::Curve {
        gap_ns: 10_000,
        curve: Curve::new(points.clone(), repeat_ns),
    };
    near(count(pattern(None), 0, hour), 100_000.0, 2.0);
    near(count(pattern(None), hour, 4 * hour), 100_000.0, 2.0);
    near(
        count(pattern(Some(2 * hour)), 2 * hour, 5 * hour),
        300_000.0,
        2.0,
    );
}

/// The terms of an objective reach the engine: side work that makes main wait loses headroom to it.
#[test]
fn an_objective_finds_a_headroom() {
    let idle = |objective: &str| {
        let out = run(&format!(
            "duration = \"20s\"\nwarmup = \"10s\"\n[machine]\ncpus = 2\n[engine]\nname = \"cgroup\"\n\
             [group.web]\nclass = \"main\"\nheadroom = \"0%\"\n{objective}\n[group.batch]\nclass = \"side\"\n\
             [workload.web]\nkind = \"open-loop\"\ngroup = \"web\"\nrate = \"400/s\"\nwork = \"1ms\"\n\
             [workload.batch]\nkind = \"hog\"\ngroup = \"batch\"\n"
        ));
        out.idle_ns as f64 / out.capacity_ns() as f64
    };
    let (without, with) = (idle(""), idle("objective = \"p99<1ms\""));
    assert!(without < 0.05 && with > without + 0.1, "{without} {with}");
}
