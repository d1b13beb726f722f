//! The five stations: cells of the experiments in short windows, and what the table says of them.

use rand::RngExt as _;
use tidegate_cgroup::{RealFs, sched};
use tidegate_sim::Contention;

use crate::experiment::{
    Arm, Ask, Case, Cell, Figures, LabOptions, Metric, Part, Sample, metric, scaled,
};
use crate::experiments::placing::{HEADROOM_PCT, Placing};
use crate::experiments::{burst, caps, headroom, step};
use crate::report::text::short;
use crate::runners::sim;
use crate::scene::{Group, Hint, Keeper, Kind, LATENCIES, Law, MS, Outcome, S, Scene};
use crate::stats::median;
use crate::{LabError, seeded};

pub struct Station {
    pub name: &'static str,
    pub about: &'static str,
    pub parts: fn(&Ask<'_>) -> Result<Vec<Part>, LabError>,
    /// Its lines of the table. The first is told as soon as the station ends.
    pub rows: fn(&Found<'_>) -> Vec<Row>,
}

/// A figure: as people do without Tidegate, by hand with the strongest simple alternative, and
/// Tidegate's.
pub type Row = [String; 4];

pub static STATIONS: [Station; 5] = [
    Station {
        name: "side work",
        about: "A server takes 25 % of the machine, 5 ms a request. As many threads as CPUs want all the rest.",
        parts: side_work,
        rows: side_work_rows,
    },
    Station {
        name: "headroom",
        about: "Main steps from 10 to 80 % of the machine and back. Side work keeps 30 % idle.",
        parts: follow,
        rows: follow_rows,
    },
    Station {
        name: "burst",
        about: "A service with a quota gets its requests in bursts. The quota covers the mean.",
        parts: burst,
        rows: burst_rows,
    },
    Station {
        name: "caps",
        about: "A group that forks may use 200 ‰ of a CPU. Then hogs meet a newcomer.",
        parts: caps,
        rows: caps_rows,
    },
    Station {
        name: "hints",
        about: "A task wakes each millisecond, in one group with two hogs for each CPU.",
        parts: hints,
        rows: hints_rows,
    },
];

/// What a station has measured.
pub struct Found<'a>(pub &'a [Sample]);

impl Found<'_> {
    /// The median of a figure over the rounds, in the unit that is shown.
    fn shown(&self, part: &str, arm: &str, name: &str, scale: f64) -> String {
        let own = self.0.iter().filter(|s| s.part == part && s.arm.key == arm);
        let values = own.map(|s| scale * s.figures.get(name));
        let values: Vec<f64> = values.filter(|v| !v.is_nan()).collect();
        match median(&values) {
            None => "-".into(),
            Some(value) if value.is_infinite() => "never".into(),
            Some(value) => short(value, None),
        }
    }
}

const SIDE_WORK: &str = "side_work";
const LOAD: f64 = 1.0;
/// As of a page that a program puts together. Requests of one slice of the kernel and less hardly
/// tell what a turn of the idle class costs.
const REQUEST_US: u64 = 5_000;
/// Keys of the arms.
const WAYS: [&str; 6] = [
    "no_side",
    "as_started",
    "own_group",
    "cpu_idle",
    "tidegate",
    "tidegate_30",
];
const PLACINGS: [Placing; 6] = [
    Placing::NoSide,
    Placing::AsStarted,
    Placing::OwnGroup,
    Placing::CpuIdle,
    Placing::tidegate(0),
    Placing::tidegate(HEADROOM_PCT),
];
const SIDE_WORK_METRICS: [Metric; 6] = [
    scaled("p99_us", "p99, ms", 1e-3, 2),
    scaled("p50_us", "p50, ms", 1e-3, 2),
    metric("run_delay_us", "run delay, us", 0),
    scaled("side_ratio", "side, %", 100.0, 1),
    scaled("main_ratio", "main, %", 100.0, 1),
    scaled("idle_ratio", "idle, %", 100.0, 1),
];

fn side_work(ask: &Ask<'_>) -> Result<Vec<Part>, LabError> {
    let case = Case::new("", "load 1.0").with("load", LOAD);
    let mut cells = Vec::new();
    for round in 0..ask.rounds(1, 3) {
        for placing in PLACINGS {
            let at = (ask.cpus, LOAD, round);
            let mut scene = headroom::scene(ask, placing, at, Contention::MEASURED);
            if let Kind::Server { request_us, .. } = &mut scene.loads[0].kind {
                *request_us = REQUEST_US;
            }
            scene.window_ns = ask.quick_or(200, 500) * MS;
            // Tidegate's allowance is at its place within a second.
            scene.warm_ns = match placing.headroom() > 0.0 {
                true => ask.quick_or(200, 900) * MS,
                false => 200 * MS,
            };
            cells.push(headroom::cell(&case, placing, round, scene));
        }
    }
    let title = "A server beside side work";
    let metrics = &SIDE_WORK_METRICS;
    let part = Part::new(SIDE_WORK, title, cells, headroom::figures, metrics);
    Ok(vec![part.pooled()])
}

fn side_work_rows(found: &Found<'_>) -> Vec<Row> {
    let of = |name: &str, scale| WAYS.map(|arm| found.shown(SIDE_WORK, arm, name, scale));
    let row = |what: &str, [alone, same, own, idle, default, thirty]: [String; 6]| {
        [
            what.replace("{alone}", &alone),
            format!("same group {same}, own {own}"),
            format!("cpu.idle {idle}"),
            format!("{default}, 30 %: {thirty}"),
        ]
    };
    vec![
        row("server's p99, ms (alone {alone})", of("p99_us", 1e-3)),
        row("its run delay, us (alone {alone})", of("run_delay_us", 1.0)),
        row("side work, % of the machine", of("side_ratio", 100.0)),
    ]
}

const FOLLOW_TITLE: &str = "Main steps from 10 to 80 % and back, headroom 30 %";

fn follow(ask: &Ask<'_>) -> Result<Vec<Part>, LabError> {
    let seed = ask.seed(&[2]);
    let (high_ns, back_ns) = (1_200 * MS, ask.quick_or(600 * MS, 1_200 * MS));
    let mut at_ns = 1_600 * MS + (seeded(seed).random_range(0.0..0.5) * S as f64) as u64;
    let mut orders = vec![(0, step::ppm(step::LOW))];
    // A step before which another program's burst held side work down does not count.
    for _ in 0..ask.quick_or(1, 2) {
        let down_ns = at_ns + high_ns;
        orders.extend([
            (at_ns, step::ppm(step::HIGH)),
            (down_ns, step::ppm(step::LOW)),
        ]);
        at_ns = down_ns + back_ns;
    }
    let case = Case::new("", "10 to 80 %").with("cpus", ask.cpus);
    let mut cells = Vec::new();
    for arm in [
        Placing::tidegate(HEADROOM_PCT),
        Placing::Law(Law::Sideloader),
    ] {
        let mut scene = step::scene(arm, ask.cpus, seed, orders.clone());
        scene.warm_ns = S;
        scene.window_ns = at_ns - scene.warm_ns;
        cells.push(step::cell(&case, arm, ask.cpus, 0, scene));
    }
    let part = Part::new("steps", FOLLOW_TITLE, cells, step::figures, &step::METRICS);
    Ok(vec![part.pooled()])
}

fn follow_rows(found: &Found<'_>) -> Vec<Row> {
    let of = |arm: &str| {
        let [down, back] =
            ["settle_us", "give_back_us"].map(|n| found.shown("steps", arm, n, 1e-3));
        format!("{down} / {back}")
    };
    vec![[
        "step of main: yields / is back, ms".into(),
        "-".into(),
        format!("1 s loop {}", of("sideloader")),
        of("tidegate_30"),
    ]]
}

fn burst(ask: &Ask<'_>) -> Result<Vec<Part>, LabError> {
    let quota_us = 40_000 * u64::from(ask.cpus);
    let sizes = (ask.cpus, quota_us, 571 * u64::from(ask.cpus));
    let arms = [
        ("quota", "quota, no burst", 0),
        ("burst_by_hand", "cpu.max.burst by hand", quota_us),
        (burst::OURS, "Tidegate, burst max", quota_us),
    ];
    let mut cells = Vec::new();
    for round in 0..ask.rounds(1, 2) {
        for (key, label, burst_us) in arms {
            let seed = ask.seed(&[u64::from(round)]);
            let (warm_ns, window_ns) = (400 * MS, ask.quick_or(400, 1_700) * MS);
            let scene = Scene::new(sim::plain(ask.cpus), warm_ns, window_ns, seed);
            let arm = Arm::new(key, label);
            cells.push(burst::cell(scene, arm, round, sizes, Some(burst_us)));
        }
    }
    let (title, figures) = (burst::title(quota_us), burst::figures);
    let part = Part::new("batches", title, cells, figures, &burst::METRICS);
    Ok(vec![part.pooled()])
}

fn burst_rows(found: &Found<'_>) -> Vec<Row> {
    let of = |arm: &str, name: &str| found.shown("batches", arm, name, 1e-3);
    let row = |what: &str, name: &str| {
        [
            what.into(),
            of("quota", name),
            format!("cpu.max.burst {}", of("burst_by_hand", name)),
            of("tidegate_max", name),
        ]
    };
    vec![row(
        "quota throttles, ms a second",
        "throttled_us_per_second",
    )]
}

const CAP_CPUS: f64 = 0.2;
const SOFT_CPUS: f64 = 0.3;
const CAP_METRICS: [Metric; 2] = [
    scaled("longest_stop_us", "longest stop, ms", 1e-3, 0),
    scaled("used_cpus", "used, ‰", 1e3, 1),
];

fn caps(ask: &Ask<'_>) -> Result<Vec<Part>, LabError> {
    let options = LabOptions {
        quick: false,
        rounds: Some(1),
        ..ask.options.clone()
    };
    let mut parts = caps::parts(&Ask {
        options: &options,
        cpus: ask.cpus,
    })?;
    for part in &mut parts {
        part.pooled = true;
        part.targets.clear();
        let is_hard = part.key == "hard";
        let cap_cpus = if is_hard { CAP_CPUS } else { SOFT_CPUS };
        part.cells.retain(|cell| {
            let is_chosen = !is_hard || matches!(cell.scene.loads[0].kind, Kind::Forks { .. });
            is_chosen && cell.case.given("cap_cpus") == cap_cpus
        });
        if is_hard {
            part.title = "A group that forks, under a cap of 200 ‰".into();
            (part.figures, part.metrics) = (cap_figures, &CAP_METRICS);
        }
        for cell in &mut part.cells {
            let scene = &mut cell.scene;
            scene.look_ns = Some(MS);
            if let Some(Kind::Level(orders)) = scene.loads.get_mut(1).map(|l| &mut l.kind) {
                *orders = vec![(0, 0), (S, 1_000_000), (2_400 * MS, 0)];
            }
            (scene.warm_ns, scene.window_ns) = match is_hard {
                true => (ask.quick_or(200, 500) * MS, ask.quick_or(300, 1_800) * MS),
                false => (300 * MS, 2_100 * MS),
            };
        }
    }
    Ok(parts)
}

fn cap_figures(_: &Cell, o: &Outcome) -> Vec<Figures> {
    let (mut longest_ns, mut last) = (0, o.looks.first());
    for look in &o.looks {
        let since = last.unwrap_or(look);
        if look.used_ns[0].0 > since.used_ns[0].0 {
            last = Some(look);
        }
        longest_ns = longest_ns.max(look.at_ns - since.at_ns);
    }
    let figures = Figures::default().with("used_cpus", o.used_cpus(0));
    vec![figures.with("longest_stop_us", longest_ns as f64 / 1e3)]
}

fn caps_rows(found: &Found<'_>) -> Vec<Row> {
    let hard = |arm: &str| {
        let used = found.shown("hard", arm, "used_cpus", 1e3);
        let stop = found.shown("hard", arm, "longest_stop_us", 1e-3);
        format!("{used} / {stop}")
    };
    let soft = |arm: &str| found.shown("soft", arm, "beside_cpus", 1e3);
    vec![
        [
            "cap 200 ‰: used / longest stop, ms".into(),
            format!("cpulimit {}", hard("cpulimit")),
            format!("cpu.max {}", hard("cpu_max")),
            hard("tidegate"),
        ],
        [
            "soft cap 300 ‰ beside others: used".into(),
            "-".into(),
            format!("cpu.idle {}", soft("cpu_idle")),
            soft("tidegate"),
        ],
    ]
}

/// Arms: how the task hints, and who does it.
const HINTS: [(&str, &str, Hint, Keeper); 4] = [
    ("nothing", "hint 0", Hint::None, Keeper::Nobody),
    ("nice", "nice −20", Hint::Nice(-20), Keeper::Nobody),
    ("slice", "slice by hand", Hint::SliceUs(100), Keeper::Nobody),
    (
        "tidegate",
        "Tidegate, hint −20",
        Hint::Latency(-20),
        Keeper::TIDEGATE,
    ),
];

const HINT_METRICS: [Metric; 3] = [
    metric("run_delay_us", "run delay, us", 0),
    metric("p99_us", "wakeup p99, us", 0),
    metric("max_us", "max, us", 0),
];

fn hints(ask: &Ask<'_>) -> Result<Vec<Part>, LabError> {
    let support = sched::probe(&RealFs::new());
    if !support.is_ok_and(|support| support.slices) {
        return Err(LabError::needs(
            "hints below 0",
            "this kernel has no slices for single tasks",
            format!("boot a kernel from {}", sched::SLICES_SINCE),
        ));
    }
    let case = Case::new("", "beside hogs").with("beside", "hogs");
    let mut cells = Vec::new();
    for round in 0..ask.rounds(1, 2) {
        for (key, label, hint, keeper) in HINTS {
            let seed = ask.seed(&[5, u64::from(round)]);
            let (warm_ns, window_ns) = (200 * MS, ask.quick_or(300, 1_000) * MS);
            let mut scene = Scene::new(sim::plain(ask.cpus), warm_ns, window_ns, seed);
            scene.keeper = keeper;
            let both = Some(scene.group(Group::new("both")));
            scene.load("hogs", both, Kind::hogs(2 * ask.cpus));
            let task = scene.load("task", both, Kind::Cyclictest);
            scene.loads[task].hint = hint;
            cells.push(Cell::new(&case, Arm::new(key, label), round, scene));
        }
    }
    let title = "A task that wakes beside hogs";
    let part = Part::new("hints", title, cells, hint_figures, &HINT_METRICS);
    Ok(vec![part.pooled()])
}

fn hint_figures(_: &Cell, o: &Outcome) -> Vec<Figures> {
    let figures = Figures::default().latency("", &o.latency(1, "wakeup"), &LATENCIES);
    let run_delay_us = o.loads[1].run_delay_us;
    vec![figures.with("run_delay_us", run_delay_us.unwrap_or(f64::NAN))]
}

fn hints_rows(found: &Found<'_>) -> Vec<Row> {
    let of = |arm: &str| found.shown("hints", arm, "run_delay_us", 1.0);
    vec![[
        "woken task's run delay, us".into(),
        format!("hint 0 {}, nice {}", of("nothing"), of("nice")),
        format!("slice {}", of("slice")),
        of("tidegate"),
    ]]
}
