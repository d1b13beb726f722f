//! Latency hints on a simulated machine: cyclictest alone and beside hackbench, hackbench
//! itself, and what three hogs keep beside a task that hints.

use crate::LabError;
use crate::experiment::{
    Arm, Ask, Bound, Case, Cell, Experiment, Figures, Metric, Of, Part, Target, elapsed, metric,
    scaled,
};
use crate::options::On;
use crate::runners::sim;
use crate::scene::{Hint, Kind, LATENCIES, MS, Outcome, S, Scene};

pub static LATENCY: Experiment = Experiment {
    name: "latency",
    question: "What a latency hint gives, and what it costs others",
    places: &[On::Sim],
    parts,
    notes: &[
        "cyclictest is one thread with a timer each millisecond; beside it runs hackbench -p -g 16 (640 tasks) without end. \
         hackbench alone has a hint of 19 for all its tasks, so that it yields. Fairness: three hogs and the hinting \
         task on one CPU, worst share against its fair one: an equal part if a hog hints; if a task hints that sleeps in \
         between and asks for 44 % of 4 ms, each hog's against \
         their mean, and against a quarter if it has less.",
        "What a hint cannot do on a stock kernel: a fair class lets nobody run who has had more than a fair share. Beside 640 \
         tasks in one group a timer task has, so that it waits until the others have caught up, however short its slice is \
         (EEVDF's eligibility). In a group of its own its share is half of the machine, and it runs at once.",
        "Published: the latency-nice series on CFS. Simulated: EEVDF, where a hint is a slice. Mechanism: which task runs \
         next and which it preempts, by the class's rules. The model's: the machine (the series does not name its own), what \
         a switch, a wakeup and a message cost, no interrupts and no sections with preemption off (the series' cyclictest \
         takes 60 us at the least): compare ratios and shapes, not microseconds.",
    ],
};

const SENSITIVE: i8 = -20;
/// hackbench's: it yields most, and does not preempt.
const YIELDING: i8 = 19;
const BESIDE_GROUPS: u32 = 16;
/// Messages of the series' hackbench from a sender to a receiver, over its groups.
const PUBLISHED_LOOPS: u32 = 2560;
const GROUPS: [(u32, f64); 4] = [
    (1, 1.768 / 0.805),
    (4, 1.634 / 0.765),
    (8, 1.305 / 0.745),
    (16, 0.786 / 0.705),
];

const P99: Metric = metric("p99_us", "p99, us", 1);
const TIMER: [Metric; 7] = [
    P99,
    metric("avg_us", "avg, us", 1),
    metric("p50_us", "p50, us", 1),
    metric("max_us", "max, us", 0),
    scaled("others_ratio", "others, % of the machine", 100.0, 1),
    scaled("kept_ratio", "moments kept, %", 100.0, 1),
    metric("messages_per_second", "messages a second", 0),
];
const ELAPSED: Metric = metric("elapsed_seconds", "seconds", 3);
const UNFAIR: Metric = scaled("worst_share_off_ratio", "worst share off by, %", 100.0, 3);

const ARMS: [(&str, &str); 2] = [(WITHOUT, "EEVDF"), (OURS, "EEVDF, hint as slice")];
/// What is promised, and its own kind without a hint.
const OURS: &str = "eevdf_hint";
const WITHOUT: &str = "eevdf";

/// A cell for each case and arm. The scene is without what hints, which is a name, a kind and a
/// hint.
fn cells(
    ask: &Ask<'_>,
    cases: &[Case],
    (cpus, seed): (u32, u64),
    scene: impl Fn(&Case, &mut Scene) -> (&'static str, Kind, i8),
) -> Vec<Cell> {
    let mut cells = Vec::new();
    for case in cases {
        for (key, label) in ARMS {
            let mut model = sim::plain(cpus);
            model.check = ask.options.quick;
            let mut own = Scene::new(model, 0, 0, ask.seed(&[seed]));
            let (name, kind, hint) = scene(case, &mut own);
            let load = own.load(name, None, kind);
            if key == OURS {
                own.loads[load].hint = Hint::Latency(hint);
            }
            cells.push(Cell::new(case, Arm::new(key, label), 0, own));
        }
    }
    cells
}

fn parts(ask: &Ask<'_>) -> Result<Vec<Part>, LabError> {
    let cpus = ask.sizes(&[8])[0];
    Ok(vec![timers(ask, cpus), messages(ask, cpus), shares(ask)])
}

fn timers(ask: &Ask<'_>, cpus: u32) -> Part {
    let case = |beside| Case::new("", format!("beside {beside}")).with("beside", beside);
    let cases = ["nothing", "hackbench"].map(|beside| case(beside).with("cpus", cpus));
    let cells = cells(ask, &cases, (cpus, 1), |case, scene| {
        scene.warm_ns = S / 2;
        scene.window_ns = ask.quick_or(S, 5 * S);
        if case.label != "beside nothing" {
            let (groups, loops) = (BESIDE_GROUPS, 0);
            scene.load("hackbench", None, Kind::Hackbench { groups, loops });
        }
        ("cyclictest", Kind::Cyclictest, SENSITIVE)
    });
    let p99 = |what, arm| Target::new(what, &[arm], P99, "×").cases("beside", "hackbench");
    let what = "cyclictest p99 beside hackbench over an idle machine: {arm}";
    let over_idle = p99(what, OURS).over_case("beside nothing");
    let what = "the p99 beside hackbench over the strongest of a stock kernel: {arm}";
    let against = p99(what, OURS).over(WITHOUT);
    let what = "cyclictest p99 beside hackbench, without a hint over with one";
    let gain = p99(what, WITHOUT).over(OURS);
    let targets = [
        over_idle.bound(Bound::Most(2.0)),
        against.bound(Bound::Most(1.05)),
        // The series' second run: 19044 us without a hint, 110 with −20.
        gain.published(19044.0 / 110.0),
    ];
    Part::new("cyclictest", "cyclictest", cells, timer_figures, &TIMER).targets(targets)
}

fn timer_figures(cell: &Cell, o: &Outcome) -> Vec<Figures> {
    let timer = cell.scene.loads.len() - 1;
    let wakeup = o.latency(timer, "wakeup");
    let own = o.used_cpus(timer);
    let figures = Figures::default()
        .latency("", &wakeup, &LATENCIES)
        .with("wakeups", wakeup.completed as f64)
        .with("kept_ratio", wakeup.completed as f64 / (o.seconds() * 1e3))
        .with("own_cpus", own);
    if timer == 0 {
        return vec![figures];
    }
    let others = o.extra("busy_cpus") - own;
    let figures = figures.with("others_ratio", others / o.cpus);
    vec![figures.with("messages_per_second", o.loads[0].work_per_second)]
}

fn messages(ask: &Ask<'_>, cpus: u32) -> Part {
    let loops = PUBLISHED_LOOPS / ask.quick_or(16, 4);
    let sizes = &GROUPS[..ask.quick_or(2, 4)];
    let case = |&(groups, _): &(u32, f64)| {
        let case = Case::new("", format!("{groups} groups"));
        case.with("cpus", cpus).with("groups", groups)
    };
    let cases: Vec<Case> = sizes.iter().map(case).collect();
    let cells = cells(ask, &cases, (cpus, 2), |case, scene| {
        scene.window_ns = 600 * S;
        scene.look_ns = Some(50 * MS);
        scene.until_done = Some(0);
        let groups = case.given("groups") as u32;
        let loops = (loops / groups).max(1);
        ("hackbench", Kind::Hackbench { groups, loops }, YIELDING)
    });
    let targets = sizes.iter().map(|&(groups, published)| {
        let what = format!("hackbench, {groups} groups, time without hints over with");
        let target = Target::new(what, &[WITHOUT], ELAPSED, "×").over(OURS);
        target.cases("groups", groups).published(published)
    });
    Part::new("hackbench", "hackbench alone", cells, elapsed, &[ELAPSED]).targets(targets)
}

fn shares(ask: &Ask<'_>) -> Part {
    let case = |label, is_hog| Case::new("", label).with("hinting_is_hog", is_hog);
    let cases = [
        case("a hog hints", true),
        case("a task that asks for 44 % hints", false),
    ];
    let cells = cells(ask, &cases, (1, 3), |case, scene| {
        (scene.warm_ns, scene.window_ns) = (S, ask.quick_or(5, 20) * S);
        for _ in 0..3 {
            scene.load("hog", None, Kind::hogs(1));
        }
        let hinting = match case.label.as_str() {
            "a hog hints" => Kind::hogs(1),
            _ => Kind::Periodic {
                work_ns: 1_760_000,
                period_ns: 4 * MS,
            },
        };
        ("hinting", hinting, SENSITIVE)
    });
    let what = "worst share against its fair one: {arm}";
    let target = Target::new(what, &[OURS], UNFAIR, "%").of(Of::Most);
    let title = "Three hogs and a hinting task on one CPU";
    Part::new("fairness", title, cells, share_figures, &[UNFAIR])
        .targets([target.bound(Bound::Most(1.0))])
}

/// How far these are from each other's mean, or below what each is due at least.
///
/// A hinting hog is due as much as each of the others. A task that sleeps in between asks for more
/// than its quarter too, so that a hint could give it more: the hogs are due equal parts, and no
/// less than a quarter of the CPU each.
fn worst_off(used: &[f64], least: f64) -> f64 {
    let mean = used.iter().sum::<f64>() / used.len() as f64;
    let off = |u: &f64| (u / mean - 1.0).abs().max(1.0 - u / least);
    crate::stats::most(used.iter().map(off))
}

fn share_figures(cell: &Cell, o: &Outcome) -> Vec<Figures> {
    let used: Vec<f64> = (0..4).map(|load| o.used_ns(load)).collect();
    let hog = matches!(cell.scene.loads[3].kind, Kind::Hogs { .. });
    // What nobody could have (interrupts, the lab itself) is no hog's loss: a quarter of what all
    // had.
    let quarter = used.iter().sum::<f64>().min(o.seconds() * 1e9) / 4.0;
    let off = worst_off(&used[..if hog { 4 } else { 3 }], quarter);
    vec![Figures::default().with("worst_share_off_ratio", off)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_from_all_alike_is_unfair_too() {
        let equal = [24.0; 3];
        assert!(worst_off(&equal, 20.0) < 1e-9);
        assert!((worst_off(&equal, 25.0) - 0.04).abs() < 1e-9);
        assert!((worst_off(&[27.0, 30.0, 33.0], 25.0) - 0.1).abs() < 1e-9);
    }
}
