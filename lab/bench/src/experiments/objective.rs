//! Headroom that is asked for beside headroom that is found from main's run delay (law/delay.h).
//!
//! A headroom that is asked for is right for one load: it protects a busy main too little, or takes
//! from side work what an idle main does not need. Main is a server at five kinds of load. Every
//! arm of a load meets the same arrivals.

use tidegate_sim::workloads::{Curve, Pattern};

use super::SIM;
use crate::LabError;
use crate::experiment::{
    Arm, Ask, Bound, Case, Cell, Experiment, Figures, Metric, Part, Target, metric, scaled,
};
use crate::scene::{Group, Keeper, Kind, MS, Model, Outcome, Role, S, Scene, Slowdown, Terms};

pub static OBJECTIVE: Experiment = Experiment {
    name: "objective",
    question: "Headroom that is found from main's run delay",
    places: &[SIM],
    guest_programs: None,
    parts,
    notes: &[
        "The objective is p99 < 200 us of run delay; a run is late that waited longer. With nothing asked the search begins at \
         20 %. In the load of its own bursts main brings 3 ms of twice what the machine can do: it waits for itself, and what an \
         objective takes from side work there is its price. The window begins 4 s after the agent, so that the search is in the \
         figures. Mechanism: the agent's own control step with the law of run delay, and the kernel's quota, idle class and \
         placement. The model's: the arrivals, the contention between siblings (which is most of what side work does to main \
         here), and run delay told as the wait ends.",
    ],
};

const LATE_AFTER_US: u64 = 200;
/// Of all runs, for p99.
const LATE_PPM: u32 = 10_000;
/// Where the search begins if nothing is asked.
const START_PPM: u32 = 200_000;

const LATE: Metric = scaled("late_ratio", "late runs, %", 100.0, 2);
const WORK: Metric = metric("side_work_cpus", "side's work, CPUs", 2);
const METRICS: [Metric; 6] = [
    LATE,
    metric("latency_avg_us", "request avg, us", 0),
    metric("latency_p99_us", "p99, us", 0),
    metric("latency_p999_us", "p99.9, us", 0),
    WORK,
    scaled("extra_headroom_ratio", "headroom found, %", 100.0, 1),
];

/// Its key, its label, and arrivals by the gap at a percent of the machine.
type Load = (
    &'static str,
    &'static str,
    fn(&dyn Fn(u64) -> u64) -> Pattern,
);

const LOADS: [Load; 5] = [
    ("low", "steady 15 %", |gap| Pattern::Poisson {
        gap_ns: gap(15),
    }),
    ("middle", "steady 30 %", |gap| Pattern::Poisson {
        gap_ns: gap(30),
    }),
    ("stairs", "10 % and 30 % in turns", |gap| {
        let stair_ns = 15 * S;
        let points = vec![
            (0, 333_333),
            (stair_ns, 333_333),
            (stair_ns + MS, 1_000_000),
            (2 * stair_ns, 1_000_000),
        ];
        Pattern::Curve {
            gap_ns: gap(30),
            curve: Curve::new(points, Some(2 * stair_ns + MS)),
        }
    }),
    // On cores of two threads it waits for itself.
    ("high", "steady 50 %", |gap| Pattern::Poisson {
        gap_ns: gap(50),
    }),
    ("bursts", "its own bursts", |gap| Pattern::Bursts {
        gap_ns: gap(200),
        on_ns: 3 * MS,
        off_ns: 27 * MS,
        fixed_phases: true,
    }),
];

/// Headroom that is asked for, and whether there is an objective; nothing without Tidegate.
type Asked = Option<(u32, bool)>;

const ARMS: [(&str, &str, Asked); 4] = [
    ("cpu_idle", "cpu.idle", None),
    ("headroom_20", "headroom 20 %", Some((20, false))),
    ("objective_0", "objective", Some((0, true))),
    ("objective_20", "objective, headroom 20 %", Some((20, true))),
];

fn parts(ask: &Ask<'_>) -> Result<Vec<Part>, LabError> {
    let cpus = ask.sizes(&[16])[0];
    let mut cells = Vec::new();
    for round in 0..ask.rounds(1, 2) {
        for ((load, label, pattern), number) in LOADS.into_iter().zip(0..) {
            let case = Case::new("", label).with("cpus", cpus).with("load", load);
            let gap = |pct: u64| MS * 100 / (u64::from(cpus) * pct).max(1);
            for (key, label, asked) in ARMS {
                let seed = ask.seed(&[u64::from(cpus), number, u64::from(round)]);
                let scene = scene(ask, cpus, seed, pattern(&gap), asked);
                cells.push(Cell::new(&case, Arm::new(key, label), round, scene));
            }
        }
    }
    let late = |load| {
        let what = "late runs with the objective (a load that main alone keeps)";
        let target = Target::new(format!("{what}: {load}"), &["objective_0"], LATE, "%");
        target.cases("load", load).bound(Bound::Most(1.1))
    };
    let mut targets: Vec<Target> = ["low", "middle", "stairs"].map(late).into();
    for (load, ..) in LOADS {
        let what = format!("side's work, objective over headroom 20 %: {load}");
        let target = Target::new(what, &["objective_0"], WORK, "×").over("headroom_20");
        targets.push(target.cases("load", load));
    }
    let kept = "side's work kept if main waits for itself";
    let kept = Target::new(kept, &["objective_20"], WORK, "×").over("headroom_20");
    targets.push(kept.cases("load", "bursts").bound(Bound::Least(0.9)));
    Ok(vec![Part {
        over: &[("cpu_idle", &["latency_p99_us", "side_work_cpus"])],
        targets,
        ..Part::new(
            "loads",
            "Main's late runs and side's work",
            cells,
            figures,
            &METRICS,
        )
    }])
}

fn scene(
    ask: &Ask<'_>,
    cpus: u32,
    seed: u64,
    pattern: Pattern,
    asked: Option<(u32, bool)>,
) -> Scene {
    let model = Model::server(cpus, Slowdown::Shipped);
    let mut scene = Scene::new(model, 4 * S, ask.quick_or(30, 120) * S, seed);
    if asked.is_some() {
        scene.keeper = Keeper::TIDEGATE;
    }
    // Runs are counted under every arm.
    let objective = |(pct, finds): (u32, bool)| match finds {
        true => (
            LATE_AFTER_US,
            LATE_PPM,
            if pct == 0 { START_PPM } else { 0 },
        ),
        false => (LATE_AFTER_US, 0, 0),
    };
    let main = scene.group(Group {
        terms: Terms {
            headroom_pct: asked.map(|(pct, _)| pct),
            objective: Some(objective(asked.unwrap_or((0, false)))),
            ..Terms::role(Role::Main)
        },
        ..Group::new("main")
    });
    let side = scene.group(Group {
        idle: true,
        terms: Terms::role(Role::Side),
        ..Group::new("side")
    });
    scene.role(Role::Main, Some(main), Kind::Requests(pattern));
    scene.role(Role::Side, Some(side), Kind::hogs(cpus));
    scene
}

fn figures(cell: &Cell, o: &Outcome) -> Vec<Figures> {
    let latency = o.latency(0, "latency");
    let finds = cell.arm.key.starts_with("objective");
    let found = o.extra("extra_headroom_ratio");
    let figures = Figures::default()
        .with("late_ratio", o.extra("late_ratio"))
        .latency("latency", &latency, &["avg", "p50", "p99", "p999"])
        .with("requests", latency.completed as f64)
        .with("side_work_cpus", o.loads[1].work_per_second)
        .with("main_cpus", o.used_cpus(0))
        .with("extra_headroom_ratio", if finds { found } else { f64::NAN });
    vec![figures]
}
