//! Main's latency at several loads, beside side work that is placed in several ways.

use tidegate_sim::{Class, Contention};

use super::placing::{Placing, TOLERANCE};
use crate::LabError;
use crate::experiment::{
    Ask, Bound, Case, Cell, Experiment, Figures, Metric, Of, Part, Target, metric, scaled,
};
use crate::options::On;
use crate::runners::sim;
use crate::scene::{Kind, LATENCIES, Law, MS, Outcome, Scene};

pub static HEADROOM: Experiment = Experiment {
    name: "headroom",
    question: "What side work costs main",
    places: &[On::Sim],
    parts,
    notes: &[
        "Main is a server: Poisson arrivals, requests of 0.5 to 1.5 ms, two workers a CPU, latency from the scheduled arrival; \
         load 1.0 is 25 % of the machine. Side work is one thread a CPU that always wants more. All arms of a \
         comparison get the same arrivals. The published figures are of the cpu.headroom patches (2019), which ran ffmpeg \
         at weight 1 as side work.",
        "Simulated. Mechanism: who runs where and when, by the kernel's rules for wakeup placement, preemption, weights, idle \
         groups and quotas, and Tidegate's own control step with its sensing and its writes, or the published laws. The \
         model's: how much a busy neighbour slows a CPU (one function, the same for every pair of programs), what switches and \
         wakeups cost, and the server. Without contention what is left is scheduling alone.",
    ],
};

/// Load level 1.0, of the machine.
pub const LEVEL_ONE: f64 = 0.25;
const LOADS: [f64; 7] = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6];

const AVG: Metric = scaled("avg_us", "average, ms", 1e-3, 3);
const P99: Metric = scaled("p99_us", "p99, ms", 1e-3, 3);
const RECLAIM: Metric = scaled("reclaim_ratio", "reclaim, %", 100.0, 1);
const METRICS: [Metric; 8] = [
    P99,
    AVG,
    scaled("main_ratio", "main, %", 100.0, 1),
    scaled("side_ratio", "side, %", 100.0, 1),
    scaled("idle_ratio", "idle, %", 100.0, 1),
    RECLAIM,
    metric("side_work_per_second", "side work a second", 2),
    scaled("keeper_cpus", "keeper, % of a CPU", 100.0, 2),
];

const ARMS: [Placing; 8] = [
    Placing::NoSide,
    Placing::WeightOne,
    Placing::CpuIdle,
    Placing::tidegate(30),
    Placing::Tidegate(30, None, true),
    Placing::Law(Law::Sideloader),
    Placing::Law(Law::Koordlet),
    Placing::Law(Law::Katalyst),
];
const SWEPT: [Placing; 4] = [
    Placing::NoSide,
    Placing::CpuIdle,
    Placing::tidegate(30),
    Placing::Tidegate(30, None, true),
];

fn parts(ask: &Ask<'_>) -> Result<Vec<Part>, LabError> {
    let loads = ask.quick_or(&[1.0, 1.4][..], &LOADS[..]);
    let sizes = ask.sizes(ask.quick_or(&[16][..], &[16, 64, 256][..]));
    let case = |cpus: u32, label: String, load| {
        let case = Case::new(format!("{cpus} CPUs"), label);
        case.with("cpus", cpus).with("load", load)
    };
    let mut cells = Vec::new();
    for &cpus in &sizes {
        for round in 0..ask.rounds(1, (128 / cpus).clamp(1, 3)) {
            for &load in loads {
                let case = case(cpus, format!("load {load:.1}"), load);
                for arm in ARMS {
                    let scene = scene(ask, arm, (cpus, load, round), Contention::MEASURED);
                    cells.push(cell(&case, arm, round, scene));
                }
            }
        }
    }
    let cpus = if sizes.contains(&64) { 64 } else { sizes[0] };
    let mut swept = Vec::new();
    for (contention, label) in [
        (Contention::NONE, "none"),
        (Contention::LOW, "least plausible"),
        (Contention::HIGH, "most plausible"),
    ] {
        let case = case(cpus, label.into(), loads[0]).with("contention", label);
        for arm in SWEPT {
            let scene = scene(ask, arm, (cpus, loads[0], 0), contention);
            swept.push(cell(&case, arm, 0, scene));
        }
    }
    Ok(vec![
        part("loads", "Main beside side work", cells, targets()),
        part("contention", "Contention swept", swept, Vec::new()),
    ])
}

/// A cell of this experiment, and of the demonstration.
pub fn cell(case: &Case, arm: Placing, round: u32, scene: Scene) -> Cell {
    Cell::new(case, arm.arm(), round, scene).due("headroom_ratio", arm.headroom())
}

fn part(key: &'static str, title: &str, cells: Vec<Cell>, targets: Vec<Target>) -> Part {
    let part = Part::new(key, title, cells, figures, &METRICS);
    part.pooled().targets(targets)
}

/// Main at this load beside side work, on a machine of this size.
pub fn scene(
    ask: &Ask<'_>,
    arm: Placing,
    (cpus, load, round): (u32, f64, u32),
    contention: Contention,
) -> Scene {
    let seed = ask.seed(&[u64::from(cpus), (load * 1000.0) as u64, u64::from(round)]);
    let (warm_ms, window_ms) = lengths(ask, arm, cpus);
    let model = sim::server(cpus, contention);
    let mut scene = Scene::new(model, warm_ms * MS, window_ms * MS, seed);
    let share = load * LEVEL_ONE;
    let (main, side) = arm.groups(&mut scene, share);
    scene.of_class(Class::Main, Some(main), Kind::server(share));
    if arm != Placing::NoSide {
        scene.of_class(Class::Side, Some(side), Kind::hogs(cpus));
    }
    scene
}

/// Before the window, and the window, ms. Small simulated machines run longer, so that each has
/// about as many requests. The agent begins at the tolerance and gives slowly, on large machines
/// most of all.
fn lengths(ask: &Ask<'_>, arm: Placing, cpus: u32) -> (u64, u64) {
    let warm_ms = match arm {
        Placing::Tidegate(..) if cpus >= 64 => ask.quick_or(3_000, 16_000),
        Placing::Tidegate(..) => ask.quick_or(3_000, 4_000),
        _ => ask.quick_or(1_000, 1_500),
    };
    (
        warm_ms,
        ask.quick_or(1_000, 2_000 * 64 / u64::from(cpus.clamp(16, 64))),
    )
}

/// A run's figures. A main that was never served has no latency to show: the worst there is, not a
/// run to leave out.
pub fn figures(cell: &Cell, o: &Outcome) -> Vec<Figures> {
    let loads = &cell.scene.loads;
    let latency = o.latency(0, "latency");
    let s = o.whole(loads);
    let mut figures = Figures::default();
    for name in LATENCIES {
        let us = match latency.completed {
            0 => f64::INFINITY,
            _ => latency.statistic(name),
        };
        figures = figures.with(&format!("{name}_us"), us);
    }
    figures = figures
        .with("main_ratio", s.main)
        .with("idle_ratio", s.idle)
        .with("other_ratio", s.other)
        .with("steal_ratio", s.steal)
        .with("keeper_cpus", s.keeper_cpus)
        .with("window_seconds", s.seconds);
    if let Some(us) = o.loads[0].run_delay_us {
        figures = figures.with("run_delay_us", us);
    }
    if let Some(side) = o.loads.get(1) {
        let left = 1.0 - cell.given("headroom_ratio") - s.main - s.other;
        figures = figures
            .with("side_ratio", s.side)
            .with("reclaim_ratio", s.side / left.max(TOLERANCE))
            .with("side_work_per_second", side.work_per_second);
    }
    vec![figures]
}

fn targets() -> Vec<Target> {
    let ours = &["tidegate_30", "tidegate_cores_30"];
    let worst = |metric: Metric, arms: &[&str], over| {
        let name = if metric.name == "avg_us" {
            "average"
        } else {
            "p99"
        };
        let alternative = if over == "no_side" {
            "no side work"
        } else {
            "cpu.idle"
        };
        let what = format!("main's {name} over {alternative}, worst load: {{arm}}");
        Target::new(what, arms, metric, "×").over(over).of(Of::Most)
    };
    let average = worst(AVG, ours, "no_side").bound(Bound::Most(1.05));
    let mut targets = vec![
        // What the cpu.headroom patches have at most, over no side work at the same load.
        worst(AVG, &["weight_1"], "no_side").published(2.74 / 1.10),
        worst(AVG, &["cpu_idle"], "no_side"),
        worst(P99, &["cpu_idle"], "no_side"),
        average.published(1.26),
        worst(P99, ours, "no_side").bound(Bound::Most(1.15)),
        worst(AVG, ours, "cpu_idle").bound(Bound::Most(1.0)),
        worst(P99, ours, "cpu_idle").bound(Bound::Most(1.0)),
    ];
    let reclaim = Target::new("reclaim, worst run: {arm}", ours, RECLAIM, "%");
    targets.push(reclaim.of(Of::Least).bound(Bound::Least(95.0)));
    targets
}
