//! Latency hints: cyclictest alone and beside hackbench, hackbench itself, and what three hogs keep
//! beside a task that hints. On a real kernel the ways of hinting are compared, simulated the
//! schedulers.

use tidegate_sim::{CfsConfig, Scheduler};

use super::{HOST, HOST_EXT, SIM, VM, VM_EXT};
use crate::LabError;
use crate::experiment::{
    Arm, Ask, Bound, Case, Cell, Experiment, Figures, Metric, Of, Part, Target, elapsed, metric,
    scaled,
};
use crate::runners::sim;
use crate::scene::{Group, Hint, Keeper, Kind, MS, Outcome, S, Scene};

pub static LATENCY: Experiment = Experiment {
    name: "latency",
    question: "What a latency hint gives, and what it costs others",
    places: &[HOST, HOST_EXT, VM, VM_EXT, SIM],
    parts,
    notes: &[
        "cyclictest is one thread with a timer each millisecond; beside it runs hackbench -p -g 16 (640 tasks) without end, in the \
         same group, or apart in another of the same weight. hackbench alone has a hint of 19 for all its tasks, so that it \
         yields. By hand: sched_setattr with the kernel's shortest slice (100 us), or to yield its longest (100 ms), which is the \
         most that a stock kernel offers. Fairness: three hogs and the hinting task on one CPU, worst share against its fair \
         one: an equal part if a hog hints; if a task hints that sleeps in between and asks for 44 % of 4 ms, each hog's against \
         their mean, and against a quarter if it has less.",
        "What a hint cannot do on a stock kernel: a fair class lets nobody run who has had more than a fair share. Beside 640 \
         tasks in one group a timer task has, so that it waits until the others have caught up, however short its slice is \
         (EEVDF's eligibility). In a group of its own its share is half of the machine, and it runs at once. Under the sched_ext \
         engine a hint is a group's: what hints is in a group whose weight makes it one of as many equals.",
        "Simulated. Mechanism: which task runs next and which it preempts, by each class's rules; under EEVDF a hint is a slice, \
         under CFS with the latency-nice series an offset in the wakeup comparison. The model's: the machine (the series does \
         not name its own), what a switch, a wakeup and a message cost, no interrupts and no sections with preemption off (the \
         series' cyclictest takes 60 us at the least): compare ratios and shapes, not microseconds.",
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

/// A way of hinting: its arm, who keeps it, the fair class (simulated), and whether it hints.
#[derive(Clone, Copy)]
struct Way(&'static str, &'static str, Keeper, FairClass, bool);

#[derive(Clone, Copy, PartialEq)]
enum FairClass {
    Eevdf,
    Cfs,
    /// With the latency-nice series.
    CfsHinted,
}

fn ways(ask: &Ask<'_>) -> Vec<Way> {
    use FairClass::{Cfs, CfsHinted, Eevdf};
    let (nobody, sched_ext) = (Keeper::Nobody, Keeper::SchedExt);
    if ask.is_simulated() {
        let series = "CFS with the latency-nice series";
        let ours = Keeper::TIDEGATE;
        return vec![
            Way("cfs", "CFS", nobody, Cfs, false),
            Way("cfs_series", series, nobody, CfsHinted, false),
            Way(
                "cfs_series_hint",
                "... with a hint",
                nobody,
                CfsHinted,
                true,
            ),
            Way("eevdf", "EEVDF", nobody, Eevdf, false),
            Way("eevdf_hint", "EEVDF, hint as slice", ours, Eevdf, true),
        ];
    }
    let mut ways = vec![
        Way("nothing", "nothing", nobody, Eevdf, false),
        Way("slice", "slice by hand", nobody, Eevdf, true),
    ];
    match ask.is_sched_ext() {
        true => ways.extend([
            Way(
                "sched_ext_nothing",
                "sched_ext engine, nothing",
                sched_ext,
                Eevdf,
                false,
            ),
            Way("sched_ext", "sched_ext engine", sched_ext, Eevdf, true),
        ]),
        false => ways.push(Way("tidegate", "Tidegate", Keeper::TIDEGATE, Eevdf, true)),
    }
    ways
}

/// A scene with a group for what hints and one for the others: on the simulator the root, and
/// without sched_ext the same one. Of the groups of sched_ext these are the weights.
struct Stage {
    scene: Scene,
    others: Option<usize>,
    hinting: Option<usize>,
    way: Way,
    is_simulated: bool,
}

impl Stage {
    fn new(ask: &Ask<'_>, way: Way, cpus: u32, seed: u64, weights: (u32, u32)) -> Self {
        let Way(_, _, keeper, class, _) = way;
        let mut model = sim::plain(cpus);
        model.check = ask.options.quick;
        if class != FairClass::Eevdf {
            model.scheduler = Scheduler::Cfs(CfsConfig {
                latency_nice: class == FairClass::CfsHinted,
                ..CfsConfig::for_cpus(cpus)
            });
        }
        let mut stage = Stage {
            scene: Scene::new(model, 0, 0, ask.seed(&[seed])),
            others: None,
            hinting: None,
            way,
            is_simulated: ask.is_simulated(),
        };
        if stage.is_simulated {
            return stage;
        }
        stage.scene.keeper = keeper;
        let is_sched_ext = keeper == Keeper::SchedExt;
        let mut group = |name, weight| {
            let weight = if is_sched_ext { weight } else { 0 };
            let group = Group::new(name);
            Some(stage.scene.group(Group { weight, ..group }))
        };
        stage.others = group("both", weights.0);
        stage.hinting = match is_sched_ext {
            true => group("hinted", weights.1),
            false => stage.others,
        };
        stage
    }

    /// Adds the load that hints.
    fn hint(mut self, name: &'static str, kind: Kind, hint: i8) -> Scene {
        let load = self.scene.load(name, self.hinting, kind);
        self.scene.loads[load].hint = match (self.way.4, self.way.2) {
            (false, _) => Hint::None,
            (true, Keeper::Nobody) if !self.is_simulated => {
                Hint::SliceUs(if hint < 0 { 100 } else { 100_000 })
            }
            (true, _) => Hint::Latency(hint),
        };
        self.scene
    }
}

/// A cell for each case, way and round.
fn cells(ask: &Ask<'_>, cases: &[Case], scene: impl Fn(&Case, Way) -> Scene) -> Vec<Cell> {
    let rounds = if ask.is_simulated() {
        1
    } else {
        ask.rounds(1, 1)
    };
    let mut cells = Vec::new();
    for case in cases {
        for way in ways(ask) {
            for round in 0..rounds {
                let arm = Arm::new(way.0, way.1);
                cells.push(Cell::new(case, arm, round, scene(case, way)));
            }
        }
    }
    cells
}

fn parts(ask: &Ask<'_>) -> Result<Vec<Part>, LabError> {
    let cpus = ask.sizes(&[8])[0];
    Ok(vec![timers(ask, cpus), messages(ask, cpus), shares(ask)])
}

/// What is promised, and its own kind without a hint.
fn ours(ask: &Ask<'_>) -> (&'static str, &'static str) {
    match (ask.is_simulated(), ask.is_sched_ext()) {
        (true, _) => ("eevdf_hint", "eevdf"),
        (_, true) => ("sched_ext", "sched_ext_nothing"),
        _ => ("tidegate", "nothing"),
    }
}

fn timers(ask: &Ask<'_>, cpus: u32) -> Part {
    let (warm_ns, full_ns) = match (ask.is_simulated(), ask.is_virtual()) {
        (true, _) => (S / 2, 5 * S),
        (_, true) => (ask.quick_or(S / 2, S), 5 * S / 2),
        _ => (ask.quick_or(S / 2, S), 5 * S),
    };
    let apart = (!ask.is_simulated()).then_some("hackbench apart");
    let beside = ["nothing", "hackbench"].into_iter().chain(apart);
    let case = |beside| Case::new("", format!("beside {beside}")).with("beside", beside);
    let cases: Vec<Case> = beside
        .map(|beside| case(beside).with("cpus", cpus))
        .collect();
    let cells = cells(ask, &cases, |case, way| {
        let weights = match case.label.as_str() {
            "beside hackbench" => (10_000, 15),
            _ => (100, 100),
        };
        let mut stage = Stage::new(ask, way, cpus, 1, weights);
        stage.scene.warm_ns = warm_ns;
        stage.scene.window_ns = ask.quick_or(S, full_ns);
        let kind = Kind::Hackbench {
            groups: BESIDE_GROUPS,
            loops: 0,
        };
        let group = match case.label.as_str() {
            "beside hackbench apart" => Some(stage.scene.group(Group::new("apart"))),
            _ => stage.others,
        };
        if case.label != "beside nothing" {
            stage.scene.load("hackbench", group, kind);
        }
        stage.hint("cyclictest", Kind::Cyclictest, SENSITIVE)
    });
    let (ours, without) = ours(ask);
    let p99 = |what, arm| Target::new(what, &[arm], P99, "×").cases("beside", "hackbench");
    let over_idle = |arm| {
        let what = "cyclictest p99 beside hackbench over an idle machine: {arm}";
        p99(what, arm).over_case("beside nothing")
    };
    let by_hand = if ask.is_simulated() { "eevdf" } else { "slice" };
    let what = "the p99 beside hackbench over the strongest of a stock kernel: {arm}";
    let against = p99(what, ours).over(by_hand);
    let gain = |arm, hinted: &'static str| {
        let what = "cyclictest p99 beside hackbench, without a hint over with one";
        p99(what, arm).over(hinted)
    };
    let mut targets = vec![
        over_idle(ours).bound(Bound::Most(2.0)),
        against.bound(Bound::Most(1.05)),
        gain(without, ours),
    ];
    if ask.is_simulated() {
        // The series' second run: 19044 us without a hint, 110 with −20.
        targets.push(gain("cfs_series", "cfs_series_hint").published(19044.0 / 110.0));
        targets.push(over_idle("cfs_series_hint"));
    }
    Part::new("cyclictest", "cyclictest", cells, timer_figures, &TIMER).targets(targets)
}

pub fn timer_figures(cell: &Cell, o: &Outcome) -> Vec<Figures> {
    let timer = cell.scene.loads.len() - 1;
    // The simulator tells waking apart from the end of the work.
    let simulated = o.latency(timer, "wakeup");
    let wakeup = match simulated.completed {
        0 => o.latency(timer, "latency"),
        _ => simulated,
    };
    let own = o.used_cpus(timer);
    let figures = Figures::default()
        .latency("", &wakeup, &["avg", "p50", "p90", "p99", "p999", "max"])
        .with("wakeups", wakeup.completed as f64)
        .with("kept_ratio", wakeup.completed as f64 / (o.seconds() * 1e3))
        .with("own_cpus", own);
    let figures = match o.loads[timer].run_delay_us {
        Some(us) => figures.with("run_delay_us", us),
        None => figures,
    };
    if timer == 0 {
        return vec![figures];
    }
    let busy = o.extra("busy_cpus");
    let others = if busy.is_nan() {
        o.used_cpus(0)
    } else {
        busy - own
    };
    let figures = figures.with("others_ratio", others / o.cpus);
    vec![figures.with("messages_per_second", o.loads[0].work_per_second)]
}

fn messages(ask: &Ask<'_>, cpus: u32) -> Part {
    let loops = match (ask.is_simulated(), ask.is_virtual()) {
        (true, _) => PUBLISHED_LOOPS / ask.quick_or(16, 4),
        (_, true) => ask.quick_or(160, 320),
        _ => ask.quick_or(160, PUBLISHED_LOOPS),
    };
    let sizes = &GROUPS[..ask.quick_or(2, 4)];
    let case = |&(groups, _): &(u32, f64)| {
        let case = Case::new("", format!("{groups} groups"));
        case.with("cpus", cpus).with("groups", groups)
    };
    let cases: Vec<Case> = sizes.iter().map(case).collect();
    let cells = cells(ask, &cases, |case, way| {
        let mut stage = Stage::new(ask, way, cpus, 2, (100, 100));
        stage.scene.window_ns = 600 * S;
        stage.scene.look_ns = Some(50 * MS);
        stage.scene.until_done = Some(0);
        let groups = case.given("groups") as u32;
        let loops = (loops / groups).max(1);
        stage.hint("hackbench", Kind::Hackbench { groups, loops }, YIELDING)
    });
    let (ours, without) = ours(ask);
    let series = ask
        .is_simulated()
        .then_some(("cfs_series", "cfs_series_hint"));
    let mut targets = Vec::new();
    for (without, hinted) in std::iter::once((without, ours)).chain(series) {
        for &(groups, published) in sizes {
            let what = format!("hackbench, {groups} groups, time without hints over with");
            let target = Target::new(what, &[without], ELAPSED, "×").over(hinted);
            targets.push(target.cases("groups", groups).published(published));
        }
    }
    Part::new("hackbench", "hackbench alone", cells, elapsed, &[ELAPSED]).targets(targets)
}

fn shares(ask: &Ask<'_>) -> Part {
    let seconds = ask.quick_or(if ask.is_simulated() { 5 } else { 3 }, 20);
    let case = |label, is_hog| Case::new("", label).with("hinting_is_hog", is_hog);
    let cases = [
        case("a hog hints", true),
        case("a task that asks for 44 % hints", false),
    ];
    let cells = cells(ask, &cases, |case, way| {
        let mut stage = Stage::new(ask, way, 1, 3, (300, 100));
        (stage.scene.warm_ns, stage.scene.window_ns) = (S, seconds * S);
        let pinned = Kind::Hogs {
            tasks: 1,
            pinned: true,
        };
        for _ in 0..3 {
            stage.scene.load("hog", stage.others, pinned.clone());
        }
        let hinting = match case.label.as_str() {
            "a hog hints" => pinned,
            _ => Kind::Periodic {
                tasks: 1,
                work_ns: 1_760_000,
                period_ns: 4 * MS,
                pinned: true,
            },
        };
        stage.hint("hinting", hinting, SENSITIVE)
    });
    let what = "worst share against its fair one: {arm}";
    let target = Target::new(what, &[ours(ask).0], UNFAIR, "%").of(Of::Most);
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
