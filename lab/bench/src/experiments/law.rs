//! What side work gets and what stays idle while main holds a level, and the worst second while
//! main varies.
//!
//! The contract: with constant main, idle is within one point of what was asked, or of what main
//! and the tolerance leave if that is less. With varying main, idle over any second is not more
//! than one point below that.

use tidegate_sim::Class;
use tidegate_sim::engines::cgroup::Sensing;

use super::placing::{HEADROOM_PCT, Placing, TOLERANCE};
use crate::LabError;
use crate::experiment::{
    Ask, Bound, Case, Cell, Experiment, Figures, Metric, Of, Part, Target, metric, scaled,
};
use crate::options::On;
use crate::runners::sim;
use crate::scene::{Kind, MS, Outcome, S, Scene, Shares};

pub static LAW: Experiment = Experiment {
    name: "law",
    question: "Headroom against the table of the cpu.headroom patches (2019)",
    places: &[On::Host, On::Vm, On::Sim],
    parts,
    notes: &[
        "Headroom 30 %; side work has one thread a CPU that always wants more (one in all where it says so); main has a thread \
         on each CPU that holds its level over each 2 ms. Due is what the terms ask: the headroom, or what main, the rest and \
         the tolerance (1 %) leave. Other programs count as main, as in the law. Read from the threads' own clocks.",
        "Simulated. Mechanism: Tidegate's own control step with its sensing and its writes, against cpu.max as the kernel does \
         it (a write refills, debts are forgiven, enforcement waits for a tick). The model's: no other programs, no steal, exact \
         clocks, and no contention.",
    ],
};

const IDLE: Metric = scaled("idle_ratio", "idle, %", 100.0, 2);
const OFF: Metric = scaled("off_ratio", "off by, points", 100.0, 2);
const OFF_ABS: Metric = scaled("off_abs_ratio", "", 100.0, 2);
const RECLAIM: Metric = scaled("reclaim_ratio", "reclaim, %", 100.0, 1);
const SIDE: Metric = scaled("side_ratio", "side, %", 100.0, 2);
const WRITES: Metric = metric("writes_per_second", "writes a second", 1);
const KEEPER: Metric = scaled("keeper_cpus", "keeper, % of a CPU", 100.0, 2);
const CONSTANT: [Metric; 8] = [
    IDLE,
    scaled("main_ratio", "main, %", 100.0, 2),
    SIDE,
    scaled("due_idle_ratio", "due, %", 100.0, 2),
    OFF,
    RECLAIM,
    WRITES,
    KEEPER,
];
const WORST: Metric = scaled("worst_second_ratio", "against due, points", 100.0, 2);
const VARYING: [Metric; 5] = [
    scaled(
        "worst_second_idle_ratio",
        "idle in the worst second, %",
        100.0,
        1,
    ),
    WORST,
    scaled("main_ratio", "mean main, %", 100.0, 1),
    scaled("side_ratio", "mean side, %", 100.0, 1),
    scaled("idle_ratio", "mean idle, %", 100.0, 1),
];

/// A level of main, the kind of row, and whether side work is one hog: the table of the patches.
const ROWS: [(u32, &str, bool); 9] = [
    (0, "quiet", true),
    (0, "quiet", false),
    (1, "quiet", false),
    (30, "published", false),
    (40, "published", false),
    (50, "published", false),
    (60, "published", false),
    (70, "floor", false),
    (80, "floor", false),
];

/// How main varies: its name, the kind of row, and seconds between two levels with the level at a
/// time; a server without them.
#[derive(Clone, Copy)]
struct Pattern(&'static str, &'static str, Option<Levels>);

type Levels = (f64, fn(f64) -> u32);

const PATTERNS: [Pattern; 4] = [
    Pattern("pulses, 10 ms of each 50", "pulses", Some((0.01, pulses))),
    Pattern(
        "square wave, 20 and 60 % for 1 s each",
        "varying",
        Some((1.0, square)),
    ),
    Pattern(
        "ramp, 10 to 80 % and back in 6 s",
        "varying",
        Some((0.02, ramp)),
    ),
    Pattern("server, Poisson arrivals, 40 %", "varying", None),
];

fn pulses(t: f64) -> u32 {
    match (t * 100.0).round() as u64 % 5 {
        0 => 1_000_000,
        _ => 0,
    }
}

fn square(t: f64) -> u32 {
    match t as u64 % 2 {
        0 => 200_000,
        _ => 600_000,
    }
}

fn ramp(t: f64) -> u32 {
    let phase = (t % 6.0) / 3.0;
    let up = if phase < 1.0 { phase } else { 2.0 - phase };
    100_000 + (700_000.0 * up) as u32
}

fn arms(ask: &Ask<'_>) -> Vec<Placing> {
    let sensed = |sense| Placing::Tidegate(HEADROOM_PCT, sense, false);
    match ask.is_simulated() {
        true => vec![sensed(Some(Sensing::Bpf)), sensed(Some(Sensing::Usage))],
        false => vec![Placing::tidegate(HEADROOM_PCT)],
    }
}

fn parts(ask: &Ask<'_>) -> Result<Vec<Part>, LabError> {
    let sizes = ask.sizes(ask.quick_or(&[16][..], &[2, 16, 64][..]));
    let wide = if sizes.contains(&16) { 16 } else { sizes[0] };
    let arms = arms(ask);
    let (mut constant, mut varying) = (Vec::new(), Vec::new());
    for round in 0..ask.rounds(1, 1) {
        for &arm in &arms {
            for &cpus in &sizes {
                for row in ROWS {
                    constant.push(level(ask, arm, cpus, row, round));
                }
            }
            for pattern in PATTERNS {
                varying.push(moving(ask, arm, wide, pattern, round));
            }
        }
    }
    let keys: Vec<String> = arms.iter().map(|arm| arm.arm().key).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let what = "idle against due, varying main, worst second";
    let worst = Target::new(what, &keys, WORST, "points").of(Of::Least);
    let worst = worst.cases("kind", "varying").bound(Bound::Least(-1.0));
    let titles = [
        "Constant main, headroom 30 %",
        "Varying main, headroom 30 %",
    ];
    Ok(vec![
        Part::new("constant", titles[0], constant, constant_figures, &CONSTANT)
            .targets(targets(ask, &keys)),
        Part::new("varying", titles[1], varying, varying_figures, &VARYING).targets([worst]),
    ])
}

fn targets(ask: &Ask<'_>, keys: &[&str]) -> Vec<Target> {
    let least = |what, kind: &'static str, metric, least| {
        let target = Target::new(what, keys, metric, "%").cases("kind", kind);
        target.of(Of::Least).bound(Bound::Least(least))
    };
    let what = "idle against due, constant main, worst row";
    let off = Target::new(what, keys, OFF_ABS, "points").of(Of::Most);
    let what = "side at 70 and 80 % main (tolerance 1 %), most";
    let side = Target::new(what, keys, SIDE, "%").cases("kind", "floor");
    let what = "quota writes in steady state, worst row";
    let writes = Target::new(what, keys, WRITES, "per second").of(Of::Most);
    let what = "side at 70 and 80 % main (tolerance 1 %), least";
    let mut targets = vec![
        off.bound(Bound::Most(1.0)),
        least(
            "reclaim at 30–60 % main, worst row",
            "published",
            RECLAIM,
            95.0,
        ),
        least(
            "reclaim at 0 and 1 % main, worst row",
            "quiet",
            RECLAIM,
            98.0,
        ),
        least(what, "floor", SIDE, 0.95),
        side.of(Of::Most).bound(Bound::Most(2.0)),
        writes.bound(Bound::Most(5.0)),
    ];
    if !ask.is_simulated() {
        let cost = Target::new("agent's cost", keys, KEEPER, "% of one CPU").of(Of::Mean);
        targets.push(cost.bound(Bound::Most(0.5)));
    }
    targets
}

/// Main and hogs in the groups of an arm.
fn scene(
    ask: &Ask<'_>,
    arm: Placing,
    cpus: u32,
    (warm_ns, window_ns): (u64, u64),
    (main, hogs): (Kind, u32),
) -> Scene {
    let seed = ask.seed(&[u64::from(cpus)]);
    let mut scene = Scene::new(sim::plain(cpus), warm_ns, window_ns, seed);
    let (main_group, side) = arm.groups(&mut scene, 0.4);
    scene.of_class(Class::Main, Some(main_group), main);
    scene.of_class(Class::Side, Some(side), Kind::hogs(hogs));
    scene
}

fn level(
    ask: &Ask<'_>,
    arm: Placing,
    cpus: u32,
    (main_pct, kind, one): (u32, &'static str, bool),
    round: u32,
) -> Cell {
    let (settle_ms, window_ms) = match ask.is_simulated() {
        true => ask.quick_or((1_500, 2_000), (3_000, 10_000)),
        false => ask.quick_or((1_500, 3_000), (3_000, 12_000)),
    };
    let (label, hogs) = match one {
        true => (format!("main {main_pct}, one hog %"), 1),
        false => (format!("main {main_pct} %"), cpus),
    };
    let case = Case::new(format!("{cpus} CPUs"), label)
        .with("cpus", cpus)
        .with("kind", kind)
        .with("main_asked_ratio", f64::from(main_pct) / 100.0)
        .with("side_threads", hogs);
    let main = Kind::Level(vec![(0, main_pct * 10_000)]);
    let scene = scene(
        ask,
        arm,
        cpus,
        (settle_ms * MS, window_ms * MS),
        (main, hogs),
    );
    Cell::new(&case, arm.arm(), round, scene).due("headroom_ratio", arm.headroom())
}

fn moving(
    ask: &Ask<'_>,
    arm: Placing,
    cpus: u32,
    Pattern(label, kind, levels): Pattern,
    round: u32,
) -> Cell {
    let seconds = ask.quick_or(6, 30);
    let main = match levels {
        None => Kind::server(0.4),
        Some((hold_s, level_ppm)) => {
            // A second in which the controller finds the pattern, and the pattern.
            let steps = ((seconds + 1) as f64 / hold_s) as u32;
            let order = |step: u32| {
                let t = f64::from(step) * hold_s;
                ((t * S as f64) as u64, level_ppm(t))
            };
            Kind::Level((0..=steps).map(order).collect())
        }
    };
    let case = Case::new(format!("{cpus} CPUs"), label)
        .with("cpus", cpus)
        .with("kind", kind)
        .with("pattern", label);
    let mut scene = scene(ask, arm, cpus, (S, seconds * S), (main, cpus));
    scene.look_ns = Some(100 * MS);
    Cell::new(&case, arm.arm(), round, scene).due("headroom_ratio", arm.headroom())
}

/// Idle that the terms ask for while main and the rest use this much.
fn due_idle(headroom: f64, busy: f64) -> f64 {
    let allowance = (1.0 - headroom - busy).max(TOLERANCE);
    (1.0 - busy - allowance).max(0.0)
}

/// Who had the machine.
fn shares(s: &Shares) -> Figures {
    Figures::default()
        .with("main_ratio", s.main)
        .with("side_ratio", s.side)
        .with("idle_ratio", s.idle)
        .with("other_ratio", s.other)
        .with("steal_ratio", s.steal)
        .with("window_seconds", s.seconds)
}

fn constant_figures(cell: &Cell, o: &Outcome) -> Vec<Figures> {
    let s = o.whole(&cell.scene.loads);
    let (busy, headroom) = (s.main + s.other, cell.given("headroom_ratio"));
    // One hog is due one CPU and no more.
    let most = cell.given("side_threads") / o.cpus;
    let due_side = (1.0 - headroom - busy).max(TOLERANCE).min(most);
    let due = due_idle(headroom, busy).max(1.0 - busy - most);
    let figures = shares(&s)
        .with("due_idle_ratio", due)
        .with("off_ratio", s.idle - due)
        .with("off_abs_ratio", (s.idle - due).abs())
        .with("reclaim_ratio", s.side / due_side)
        .with("writes_per_second", o.extra("writes_per_second"))
        .with("keeper_cpus", s.keeper_cpus);
    vec![figures]
}

/// Every second, each 100 ms. What is due in a second is the mean of what is due in its tenths:
/// while main alone takes more than the headroom leaves, idle cannot be kept.
fn varying_figures(cell: &Cell, o: &Outcome) -> Vec<Figures> {
    let (loads, headroom) = (&cell.scene.loads, cell.given("headroom_ratio"));
    let (mut worst, mut worst_idle) = (f64::INFINITY, 1.0);
    for looks in o.looks.windows(11) {
        let s = o.shares(loads, &looks[0], &looks[10]);
        let tenths = looks
            .windows(2)
            .map(|p| o.shares(loads, &p[0], &p[1]).main + s.other);
        let due = tenths.map(|busy| due_idle(headroom, busy)).sum::<f64>() / 10.0;
        if s.idle - due < worst {
            (worst, worst_idle) = (s.idle - due, s.idle);
        }
    }
    let figures = shares(&o.whole(loads))
        .with("worst_second_idle_ratio", worst_idle)
        .with("worst_second_ratio", worst);
    vec![figures]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::Look;
    use crate::{LabOptions, On};

    /// The table of the patches: main, side (the rest is "minimal"), idle.
    #[test]
    fn what_is_due_follows_the_published_table() {
        let rows = [
            (0.3, 0.3),
            (0.4, 0.3),
            (0.5, 0.3),
            (0.6, 0.3),
            (0.7, 0.3),
            (0.8, 0.2),
        ];
        for (main, idle) in rows {
            let tolerance = if main > 0.65 { TOLERANCE } else { 0.0 };
            let due = due_idle(0.3, main);
            assert!((due - (idle - tolerance)).abs() < 1e-9, "{main}: {due}");
        }
        assert_eq!(due_idle(0.3, 0.995), 0.0);
    }

    #[test]
    fn the_worst_second_is_found() {
        let mut options = LabOptions::new(&LAW);
        options.on = On::Sim;
        let (options, cpus) = (&options, 2);
        let ask = Ask { options, cpus };
        let cell = moving(&ask, Placing::tidegate(30), 2, PATTERNS[3], 0);
        // Two CPUs; in the second from 2.0 to 3.0 s side work takes 10 points too much.
        let look = |i: u64| Look {
            at_ns: i * 100 * MS,
            used_ns: vec![
                (i * 80 * MS, 0),
                (i * 60 * MS + 20 * MS * i.saturating_sub(20).min(10), 0),
            ],
            ..Look::default()
        };
        let o = Outcome {
            cpus: 2.0,
            looks: (0..=60).map(look).collect(),
            ..Outcome::default()
        };
        let figures = &varying_figures(&cell, &o)[0];
        assert!((figures.get("worst_second_ratio") + 0.1).abs() < 1e-8);
        assert!((figures.get("worst_second_idle_ratio") - 0.2).abs() < 1e-8);
    }
}
