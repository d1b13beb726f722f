//! Main takes a lock that side work takes too.
//!
//! Side work that is throttled, or never picked, while it holds a lock makes main wait for as long:
//! a priority inversion. Main comes each 10 ms, takes the lock, works 0.2 ms and lets it go; one
//! side task holds it for 2 ms of CPU in each 4 ms, and side hogs want the rest of the machine.

use super::SIM;
use crate::LabError;
use crate::experiment::{
    Arm, Ask, Bound, Case, Cell, Experiment, Figures, Metric, Of, Part, Target, metric, scaled,
};
use crate::scene::{Group, Keeper, Kind, MS, Max, Model, Role, S, Scene, Terms};

pub static INVERSION: Experiment = Experiment {
    name: "inversion",
    question: "How long main waits for a lock that side work holds",
    places: &[SIM],
    guest_programs: None,
    parts,
    notes: &[
        "Mechanism: throttling with a lock held (a lock of user space: the kernel's own are let go on 6.18, where a task is \
         throttled on its way to user space), quota, idle class, the agent's control step with its relief of side work that \
         starves at the tolerance. The model's: one lock, a holder that needs 2 ms of CPU, and hogs beside it. If side work gets \
         nothing it takes no lock either: few waits, and the worst says what they were.",
    ],
};

const CPUS: u32 = 4;
const WORST: Metric = scaled("wait_max_us", "worst wait, ms", 1e-3, 1);
const METRICS: [Metric; 5] = [
    WORST,
    scaled("wait_avg_us", "mean, ms", 1e-3, 2),
    scaled("wait_p99_us", "p99, ms", 1e-3, 1),
    metric("locks_taken", "locks taken", 0),
    metric("side_cpus", "side, CPUs", 2),
];

fn parts(ask: &Ask<'_>) -> Result<Vec<Part>, LabError> {
    let mut cells = Vec::new();
    for round in 0..ask.rounds(1, 3) {
        for busy_pct in [40, 75, 100] {
            let case = Case::new("", format!("main {busy_pct} %"));
            let case = case.with("main_busy_ratio", f64::from(busy_pct) / 100.0);
            for (key, label) in [
                ("no_limit", "no limit"),
                ("cpu_idle", "cpu.idle"),
                ("standing", "1 % in 100 ms"),
                ("tidegate", "Tidegate"),
            ] {
                let scene = scene(ask, key, busy_pct, round);
                cells.push(Cell::new(&case, Arm::new(key, label), round, scene));
            }
        }
    }
    // If nothing waits under a standing quota there is nothing to halve.
    let halves = |busy: f64| {
        let what = format!(
            "worst wait over a standing quota's, main {} %",
            busy * 100.0
        );
        let target = Target::new(what, &["tidegate"], WORST, "×")
            .over("standing")
            .of(Of::Most);
        target
            .cases("main_busy_ratio", busy)
            .bound(Bound::Most(0.5))
    };
    Ok(vec![Part {
        over: &[("cpu_idle", &["wait_p99_us"])],
        targets: vec![halves(0.75), halves(1.0)],
        ..Part::new(
            "waits",
            "Main waits for side's lock",
            cells,
            |_, o| {
                let wait = o.latency(0, "lock_wait");
                let figures = Figures::default().latency("wait", &wait, &["avg", "p99", "max"]);
                let figures = figures.with("locks_taken", wait.completed as f64);
                vec![figures.with("side_cpus", o.used_cpus(2))]
            },
            &METRICS,
        )
    }])
}

fn scene(ask: &Ask<'_>, key: &str, busy_pct: u32, round: u32) -> Scene {
    let seed = ask.seed(&[u64::from(busy_pct), u64::from(round)]);
    let mut scene = Scene::new(Model::plain(CPUS), 4 * S, ask.quick_or(20, 60) * S, seed);
    let is_tidegate = key == "tidegate";
    if is_tidegate {
        scene.keeper = Keeper::TIDEGATE;
    }
    let main = scene.group(Group {
        terms: Terms {
            headroom_pct: is_tidegate.then_some(20),
            ..Terms::role(Role::Main)
        },
        ..Group::new("main")
    });
    let side = scene.group(Group {
        idle: key != "no_limit",
        // The tolerance, standing: 1 % of the machine.
        max: (key == "standing").then_some(Max::new(u64::from(CPUS) * 1_000, 100_000, 0)),
        terms: Terms::role(Role::Side),
        ..Group::new("side")
    });
    scene.load("locks", Some(main), Kind::Lock { side });
    // Main's other work: a hog a CPU that is busy for its part of each 10 ms.
    let work_ns = 10 * MS * u64::from(busy_pct) / 100;
    let busy = match busy_pct {
        100 => Kind::hogs(CPUS),
        _ => Kind::Periodic {
            tasks: CPUS,
            work_ns,
            period_ns: 10 * MS,
            pinned: false,
        },
    };
    let busy = scene.load("busy", Some(main), busy);
    scene.loads[busy].seed_plus = 1;
    let hogs = Kind::hogs(CPUS);
    let hogs = scene.role(Role::Side, Some(side), hogs);
    scene.loads[hogs].seed_plus = 2;
    scene
}
