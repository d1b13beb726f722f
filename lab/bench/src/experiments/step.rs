//! Main steps from 10 to 80 % of the machine and back: how soon side's CPU follows. Each step comes
//! at a random moment, so no controller's period is favoured.

use rand::RngExt as _;
use tidegate_sim::engines::cgroup::Sensing;
use tidegate_sim::{Class, MachineConfig, Prng};

use super::placing::{HEADROOM_PCT, Placing};
use crate::experiment::{
    Ask, Bound, Case, Cell, Experiment, Figures, Metric, Part, Target, scaled,
};
use crate::options::On;
use crate::scene::{Kind, Law, MS, Outcome, S, Scene};
use crate::settle::Trace;
use crate::{LabError, seeded};

pub static STEP: Experiment = Experiment {
    name: "step",
    question: "How soon side work gives way",
    places: &[On::Host, On::Sim],
    parts,
    notes: &[
        "Settled: the least t for which side's mean rate over [t, t + 20 ms] and over [t, t + 200 ms] is within 5 points of its \
         new allowance by that controller's own law. Reaction: side's CPU above the new allowance over the first second, over \
         the drop. Went on: the most that side had beyond its new allowance by any moment of the next half second, as a length \
         of time in which it took all that main left free. Above and below: the greatest difference of any 200 ms mean after \
         settling. Given back: the least t after main's step down for which the mean over [t, t + 200 ms] is within 5 points. A \
         step does not count if side was more than 10 points off its allowance before it.",
        "Simulated, the published laws start in their steady state. Mechanism: when each controller looks, what it decides and \
         writes, and what cpu.max makes of the write. The model's: the step itself (every CPU's thread within 2 ms), exact \
         counters for the published laws (kinder than the ticks that they read), and no contention.",
    ],
};

pub const LOW: f64 = 0.1;
pub const HIGH: f64 = 0.8;
/// Before a simulated step, so that who starts at the tolerance has ramped up.
const SETTLE_NS: u64 = 3 * S;

const SETTLE: Metric = scaled("settle_us", "settled, ms", 1e-3, 1);
pub const METRICS: [Metric; 6] = [
    SETTLE,
    scaled("reaction_us", "reaction, ms", 1e-3, 1),
    scaled("went_on_us", "went on for, ms", 1e-3, 1),
    scaled("above_ratio", "above after, points", 100.0, 1),
    scaled("below_ratio", "below after, points", 100.0, 1),
    scaled("give_back_us", "given back, ms", 1e-3, 0),
];

fn parts(ask: &Ask<'_>) -> Result<Vec<Part>, LabError> {
    let sensed = |sense| Placing::Tidegate(HEADROOM_PCT, Some(sense), false);
    let mut arms = vec![sensed(Sensing::Bpf), sensed(Sensing::Usage)];
    if ask.is_simulated() {
        arms.extend([Law::Sideloader, Law::Koordlet, Law::Katalyst].map(Placing::Law));
    } else {
        arms.push(Placing::Law(Law::Sideloader));
    }
    let mut cells = Vec::new();
    for cpus in ask.sizes(ask.quick_or(&[16][..], &[16, 64][..])) {
        for &arm in &arms {
            let full = if cpus <= 16 { 20 } else { 8 };
            let rounds = match (ask.is_simulated(), arm) {
                (false, _) => ask.rounds(1, 4),
                // A published law's steps are ten times as long, and spread over seconds anyway.
                (true, Placing::Law(_)) => (ask.rounds(4, full) / 4).max(1),
                (true, _) => ask.rounds(4, full),
            };
            for round in 0..rounds {
                let case = Case::new(format!("{cpus} CPUs"), "10 to 80 %").with("cpus", cpus);
                let scene = match ask.is_simulated() {
                    true => simulated(ask, arm, cpus, round),
                    false => measured(ask, arm, cpus, round),
                };
                cells.push(cell(&case, arm, cpus, round, scene));
            }
        }
    }
    let targets = arms.iter().map(|arm| {
        let (what, key) = ("main's step to side settled: {arm}", arm.arm().key);
        let target = Target::new(what, &[&key], SETTLE, "ms");
        match arm {
            Placing::Tidegate(_, Some(Sensing::Usage), _) => target.bound(Bound::Most(60.0)),
            Placing::Tidegate(..) => target.bound(Bound::Most(20.0)),
            _ => target,
        }
    });
    let title = "Main steps from 10 to 80 % and back, headroom 30 %";
    let part = Part::new("steps", title, cells, figures, &METRICS).pooled();
    Ok(vec![part.targets(targets)])
}

/// Main holds these levels, each from a time on, beside side work that always wants more.
pub fn scene(arm: Placing, cpus: u32, seed: u64, orders: Vec<(u64, u32)>) -> Scene {
    let mut scene = Scene::new(MachineConfig::new(cpus), 0, 0, seed);
    let (main, side) = arm.groups(&mut scene, LOW);
    scene.of_class(Class::Main, Some(main), Kind::Level(orders));
    let hogs = Kind::hogs(cpus);
    scene.of_class(Class::Side, Some(side), hogs);
    scene.look_ns = Some(MS);
    scene
}

/// A run of this arm, which is due an allowance at each level.
pub fn cell(case: &Case, arm: Placing, cpus: u32, round: u32, scene: Scene) -> Cell {
    let cell = Cell::new(case, arm.arm(), round, scene);
    let cell = cell.due("low_ratio", arm.allowance(cpus, LOW));
    cell.due("high_ratio", arm.allowance(cpus, HIGH))
}

pub fn ppm(ratio: f64) -> u32 {
    (ratio * 1e6) as u32
}

fn simulated(ask: &Ask<'_>, arm: Placing, cpus: u32, round: u32) -> Scene {
    let seed = ask.seed(&[u64::from(cpus), u64::from(round)]);
    let (high_ns, back_ns) = match arm {
        Placing::Law(Law::Katalyst) => (30 * S, S),
        Placing::Law(_) => (5 * S, 12 * S),
        _ => (2 * S, 3 * S),
    };
    let up_ns = SETTLE_NS + Prng::new(seed).below(S);
    let down_ns = up_ns + high_ns;
    let orders = vec![(0, ppm(LOW)), (up_ns, ppm(HIGH)), (down_ns, ppm(LOW))];
    let mut scene = scene(arm, cpus, seed, orders);
    scene.warm_ns = up_ns - S;
    scene.window_ns = S + high_ns + back_ns;
    scene
}

fn measured(ask: &Ask<'_>, arm: Placing, cpus: u32, round: u32) -> Scene {
    let seed = ask.seed(&[u64::from(round)]);
    let mut rng = seeded(seed);
    let (low_s, high_s, back_s) = ask.quick_or((0.7, 1.05, 0.8), (1.0, 1.5, 2.0));
    let ns = |seconds: f64| (seconds * S as f64) as u64;
    let mut orders = vec![(0, ppm(LOW))];
    let mut at_ns = ns(1.2);
    for _ in 0..5 {
        let up_ns = at_ns + ns(low_s * rng.random_range(0.85..1.15));
        let down_ns = up_ns + ns(high_s);
        orders.extend([(up_ns, ppm(HIGH)), (down_ns, ppm(LOW))]);
        at_ns = down_ns + ns(back_s);
    }
    let mut scene = scene(arm, cpus, seed, orders);
    scene.warm_ns = ns(1.0);
    scene.window_ns = at_ns + ns(0.3) - scene.warm_ns;
    scene
}

pub fn figures(cell: &Cell, o: &Outcome) -> Vec<Figures> {
    let Kind::Level(orders) = &cell.scene.loads[0].kind else {
        return Vec::new();
    };
    let trace = Trace::of(o, 1);
    let (low, high) = (cell.given("low_ratio"), cell.given("high_ratio"));
    let s = o.whole(&cell.scene.loads);
    let ups = (1..orders.len()).filter(|&at| orders[at - 1].1 < orders[at].1);
    let step = |at: usize| {
        let (up_ns, down_ns) = (orders[at].0, orders.get(at + 1)?.0);
        let end_ns = orders.get(at + 2).map_or(cell.scene.end_ns(), |o| o.0);
        let step = trace.step_down(up_ns, high, down_ns)?;
        let figures = Figures::default().with("other_ratio", s.other);
        if (step.old - low).abs() > 0.1 {
            return Some(figures.with("valid", 0.0));
        }
        let went_on_us = trace.went_on_us(up_ns, high, 1.0 - HIGH);
        let figures = figures
            .with("settle_us", step.settle_us)
            .with("reaction_us", step.reaction_us)
            .with("went_on_us", went_on_us.unwrap_or(f64::NAN))
            .with("above_ratio", step.over)
            .with("below_ratio", step.under)
            .with("side_before_ratio", step.old)
            .with("give_back_us", trace.give_back_us(down_ns, low, end_ns))
            .with("valid", 1.0);
        Some(figures)
    };
    ups.filter_map(step).collect()
}
