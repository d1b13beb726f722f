//! A service whose load exceeds its quota in some periods and not on average: without a limit,
//! under the quota alone, and with burst.
//!
//! The burst series' run hands out 20 requests of 10 ms each 40 ms: at most 600 ms in any period of
//! 100, below the quota of 700. What throttled it was quota lying in silos. Here a third of the
//! batches is of 30 requests and the others of 15, with the same mean: about one period in eight
//! asks for 750 or 900 ms. Every arm meets the same batches.

use tidegate_sim::Bandwidth;

use crate::LabError;
use crate::experiment::{
    Arm, Ask, Bound, Case, Cell, Experiment, Figures, Metric, Of, Part, Target, metric, scaled,
};
use crate::options::On;
use crate::runners::sim;
use crate::scene::{Group, Keeper, Kind, Outcome, S, Scene, limit_words};

pub static BURST: Experiment = Experiment {
    name: "burst",
    question: "What burst gives a load that exceeds its quota now and then",
    places: &[On::Sim],
    parts,
    notes: &[
        "30 workers, a batch of requests each 40 ms over 20 ms: 15 requests, or 30 with odds of one in three. The quota is 7/5 of \
         the mean use, the fixed burst 4/7 of the quota, as in the burst series; `burst max` is Tidegate's, as much as the quota. \
         Waiting is a request's latency less its own work. The series' figures are wakeup latencies on a machine that it does \
         not name; here it is the request that waits, in its middle, since the CPU that a worker wakes on still holds 1 ms of \
         quota.",
        "Simulated. Mechanism: pool, silos, slices, burst and throttling as in the kernel. The model's: the arrivals, the costs of \
         a switch and a wakeup, and no contention between CPUs.",
    ],
};

const PERIOD_US: u64 = 100_000;
/// The key of Tidegate's arm.
pub const OURS: &str = "tidegate_max";
const REQUEST_P99: Metric = scaled("request_p99_us", "request p99, ms", 1e-3, 2);
const WAIT_P99: Metric = metric("wait_p99_us", "waiting p99, us", 0);
const USED: Metric = scaled("used_of_quota_ratio", "of the quota used, %", 100.0, 1);
const THROTTLED: Metric = metric("throttled_us_per_second", "throttled, us/s", 0);
pub const METRICS: [Metric; 9] = [
    REQUEST_P99,
    scaled("request_p50_us", "p50, ms", 1e-3, 2),
    scaled("request_max_us", "max, ms", 1e-3, 1),
    WAIT_P99,
    metric("wakeup_p99_us", "wakeup p99, us", 1),
    USED,
    scaled("throttled_periods_ratio", "periods throttled, %", 100.0, 1),
    THROTTLED,
    metric("bursts_per_second", "bursts a second", 2),
];

fn parts(ask: &Ask<'_>) -> Result<Vec<Part>, LabError> {
    let cpus = ask.sizes(&[64])[0];
    if cpus < 30 {
        return Err(LabError::asked(
            format!("--cpus {cpus}"),
            "30 workers run at once",
            "give at least 30",
        ));
    }
    let (quota_us, request_us) = (700_000, 10_000);
    let arms = [
        ("no_limit", "no limit", None),
        ("quota", "quota, no burst", Some(0)),
        ("burst_fixed", "quota, burst 4/7", Some(quota_us * 4 / 7)),
        (OURS, "Tidegate, burst max", Some(quota_us)),
    ];
    let mut cells = Vec::new();
    for round in 0..ask.rounds(1, 3) {
        for (key, label, burst_us) in arms {
            let seed = ask.seed(&[u64::from(round)]);
            let window_ns = ask.quick_or(10, 60) * S;
            let scene = Scene::new(sim::plain(cpus), 20 * S, window_ns, seed);
            let sizes = (cpus, quota_us, request_us);
            cells.push(cell(scene, Arm::new(key, label), round, sizes, burst_us));
        }
    }
    let part = Part::new("batches", title(quota_us), cells, figures, &METRICS).pooled();
    Ok(vec![part.targets(targets())])
}

pub fn title(quota_us: u64) -> String {
    format!("Quota {} ms in 100 ms", quota_us / 1000)
}

/// A run of the service on so many CPUs, with this quota and these requests, in a scene without
/// groups: without a limit, or with this burst.
pub fn cell(
    mut scene: Scene,
    arm: Arm,
    round: u32,
    (cpus, quota_us, request_us): (u32, u64, u64),
    burst_us: Option<u64>,
) -> Cell {
    let case = Case::new("", "batches")
        .with("cpus", cpus)
        .with("quota_us", quota_us)
        .with("period_us", PERIOD_US)
        .with("request_us", request_us);
    let limit = burst_us.map(|burst_us| Bandwidth {
        burst_us,
        ..Bandwidth::limit(quota_us, PERIOD_US)
    });
    let is_ours = arm.key == OURS;
    if is_ours {
        scene.keeper = Keeper::TIDEGATE;
    }
    let terms = limit.filter(|_| is_ours).map(limit_words);
    let group = scene.group(Group {
        max: limit.filter(|_| !is_ours),
        terms: terms.unwrap_or_default(),
        ..Group::new("limited")
    });
    scene.load("bench", Some(group), Kind::Bursty { request_us });
    Cell::new(&case, arm, round, scene)
}

fn targets() -> Vec<Target> {
    let p99 = |arms: &[&str], over| {
        let what = "p99 of a request over no limit: {arm}";
        Target::new(what, arms, REQUEST_P99, "×").over(over)
    };
    let promised = &["burst_fixed", OURS];
    let what = "p99 of a request over the kernel's burst of 4/7: {arm}";
    let fixed = Target::new(what, &[OURS], REQUEST_P99, "×").over("burst_fixed");
    let what = "p99 of a request's waiting, quota alone over burst 4/7";
    let gain = Target::new(what, &["quota"], WAIT_P99, "×").over("burst_fixed");
    let used = Target::new("mean use of the quota: {arm}", promised, USED, "%");
    let limited = &["quota", "burst_fixed", OURS];
    vec![
        p99(&["quota"], "no_limit"),
        p99(promised, "no_limit").bound(Bound::Most(1.2)),
        fixed.bound(Bound::Most(1.05)),
        // schbench's p99 in the series: 933 us without burst, 12 with 400 ms of it.
        gain.published(933.0 / 12.0),
        used.of(Of::Mean).bound(Bound::Most(100.0)),
        Target::new("throttled time: {arm}", limited, THROTTLED, "us/s"),
    ]
}

pub fn figures(cell: &Cell, o: &Outcome) -> Vec<Figures> {
    let request = o.latency(0, "latency");
    let (limit, seconds) = (o.limits[0], o.seconds());
    let shown = ["avg", "p50", "p99", "p999", "max"];
    let quota_ns = seconds * 1e9 * cell.given("quota_us") / cell.given("period_us");
    let wait_us = (request.p99_us - cell.given("request_us")).max(0.0);
    let mut figures = Figures::default()
        .latency("request", &request, &shown)
        .latency("wakeup", &o.latency(0, "wakeup"), &shown)
        .with("wait_p99_us", wait_us)
        .with("requests", request.completed as f64)
        .with("used_of_quota_ratio", o.used_ns(0) / quota_ns)
        .with("window_seconds", seconds);
    if cell.arm.key != "no_limit" && limit.nr_periods > 0 {
        let throttled_us = limit.throttled_ns as f64 / 1e3;
        let periods = limit.nr_periods as f64;
        figures = figures
            .with("periods", periods)
            .with(
                "throttled_periods_ratio",
                limit.nr_throttled as f64 / periods,
            )
            .with("throttled_us_per_second", throttled_us / seconds)
            .with("bursts_per_second", limit.nr_bursts as f64 / seconds);
    }
    vec![figures]
}
