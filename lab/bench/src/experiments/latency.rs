//! Latency hints: cyclictest alone and beside hackbench, hackbench itself, and what three hogs keep
//! beside a task that hints. On a real kernel the ways of hinting are compared, simulated the
//! schedulers.

use super::{HOST, HOST_EXT, SIM, VM, VM_EXT};
use crate::LabError;
use crate::experiment::{
    Arm, Ask, Bound, Case, Cell, Experiment, Figures, Metric, Of, Part, Target, metric, scaled,
};
use crate::scene::{FairClass, Group, Hint, Keeper, Kind, MS, Model, Outcome, S, Scene};

pub static LATENCY: Experiment = Experiment {
    name: "latency",
    question: "What a latency hint gives, and what it costs others",
    places: &[HOST, HOST_EXT, VM, VM_EXT, SIM],
    guest_programs: None,
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

/// A way of hinting: its arm, who keeps it, and the fair class (simulated).
#[derive(Clone)]
struct Way {
    arm: Arm,
    keeper: Keeper,
    class: FairClass,
    hints: bool,
}

fn ways(ask: &Ask<'_>) -> Vec<Way> {
    let way = |key, label, keeper, class, hints| Way {
        arm: Arm::new(key, label),
        keeper,
        class,
        hints,
    };
    let (nobody, eevdf) = (Keeper::Nobody, FairClass::Eevdf);
    if ask.is_simulated() {
        let series = "CFS with the latency-nice series";
        return vec![
            way("cfs", "CFS", nobody, FairClass::Cfs, false),
            way("cfs_series", series, nobody, FairClass::CfsHinted, false),
            way(
                "cfs_series_hint",
                "... with a hint",
                nobody,
                FairClass::CfsHinted,
                true,
            ),
            way("eevdf", "EEVDF", nobody, eevdf, false),
            way(
                "eevdf_hint",
                "EEVDF, hint as slice",
                Keeper::TIDEGATE,
                eevdf,
                true,
            ),
        ];
    }
    let mut ways = vec![
        way("nothing", "nothing", nobody, eevdf, false),
        way("slice", "slice by hand", nobody, eevdf, true),
    ];
    if ask.is_sched_ext() {
        let sched_ext = Keeper::SchedExt;
        ways.push(way(
            "sched_ext_nothing",
            "sched_ext engine, nothing",
            sched_ext,
            eevdf,
            false,
        ));
        ways.push(way("sched_ext", "sched_ext engine", sched_ext, eevdf, true));
    } else {
        ways.push(way("tidegate", "Tidegate", Keeper::TIDEGATE, eevdf, true));
    }
    ways
}

impl Way {
    fn hint(&self, hint: i8, simulated: bool) -> Hint {
        match (self.hints, self.keeper) {
            (false, _) => Hint::None,
            (true, Keeper::Nobody) if !simulated => {
                Hint::SliceUs(if hint < 0 { 100 } else { 100_000 })
            }
            (true, _) => Hint::Latency(hint),
        }
    }

    /// A scene with a group for what hints and one for the others; on the simulator, and without
    /// sched_ext, the same.
    fn scene(
        &self,
        ask: &Ask<'_>,
        cpus: u32,
        seed: u64,
        weights: (u32, u32),
    ) -> (Scene, Option<usize>, Option<usize>) {
        let model = Model {
            class: self.class,
            check: ask.options.quick,
            ..Model::plain(cpus)
        };
        let mut scene = Scene::new(model, 0, 0, ask.seed(&[seed]));
        if ask.is_simulated() {
            return (scene, None, None);
        }
        scene.keeper = self.keeper;
        let is_sched_ext = self.keeper == Keeper::SchedExt;
        let both = scene.group(Group {
            weight: if is_sched_ext { weights.0 } else { 0 },
            ..Group::new("both")
        });
        if !is_sched_ext {
            return (scene, Some(both), Some(both));
        }
        let hinted = scene.group(Group {
            weight: weights.1,
            ..Group::new("hinted")
        });
        (scene, Some(both), Some(hinted))
    }
}

fn parts(ask: &Ask<'_>) -> Result<Vec<Part>, LabError> {
    let ways = ways(ask);
    let cpus = ask.sizes(&[8])[0];
    Ok(vec![
        timers(ask, &ways, cpus),
        messages(ask, &ways, cpus),
        shares(ask, &ways),
    ])
}

/// What is promised, and its own kind without a hint.
fn ours(ask: &Ask<'_>) -> (&'static str, &'static str) {
    match (ask.is_simulated(), ask.is_sched_ext()) {
        (true, _) => ("eevdf_hint", "eevdf"),
        (_, true) => ("sched_ext", "sched_ext_nothing"),
        _ => ("tidegate", "nothing"),
    }
}

fn rounds(ask: &Ask<'_>) -> u32 {
    if ask.is_simulated() {
        1
    } else {
        ask.rounds(1, 1)
    }
}

fn timers(ask: &Ask<'_>, ways: &[Way], cpus: u32) -> Part {
    let window_ns = match ask.is_virtual() && !ask.is_simulated() {
        true => ask.quick_or(S, 5 * S / 2),
        false => ask.quick_or(S, 5 * S),
    };
    let mut cells = Vec::new();
    for beside in ["nothing", "hackbench", "hackbench apart"] {
        if beside == "hackbench apart" && ask.is_simulated() {
            continue;
        }
        let case = Case::new("", format!("beside {beside}"))
            .with("cpus", cpus)
            .with("beside", beside);
        for way in ways {
            for round in 0..rounds(ask) {
                let weights = if beside == "hackbench" {
                    (10_000, 15)
                } else {
                    (100, 100)
                };
                let (mut scene, group, own) = way.scene(ask, cpus, 1, weights);
                scene.warm_ns = if ask.is_simulated() {
                    S / 2
                } else {
                    ask.quick_or(S / 2, S)
                };
                scene.window_ns = window_ns;
                if beside != "nothing" {
                    let apart = beside == "hackbench apart";
                    let apart = apart.then(|| scene.group(Group::new("apart")));
                    let kind = Kind::Hackbench {
                        groups: BESIDE_GROUPS,
                        loops: 0,
                    };
                    scene.load("hackbench", apart.or(group), kind);
                }
                let timer = scene.load("cyclictest", own, Kind::Cyclictest);
                scene.loads[timer].hint = way.hint(SENSITIVE, ask.is_simulated());
                cells.push(Cell::new(&case, way.arm.clone(), round, scene));
            }
        }
    }
    let (ours, without) = ours(ask);
    let over_idle = |arms: &[&str]| {
        let what = "cyclictest p99 beside hackbench over an idle machine: {arm}";
        let target = Target::new(what, arms, P99, "×").over_case("beside nothing");
        target.cases("beside", "hackbench")
    };
    let by_hand = if ask.is_simulated() { "eevdf" } else { "slice" };
    let what = "the p99 beside hackbench over the strongest of a stock kernel: {arm}";
    let against = Target::new(what, &[ours], P99, "×")
        .over(by_hand)
        .cases("beside", "hackbench");
    // The series' second run: 19044 us without a hint, 110 with −20.
    let gain = "cyclictest p99 beside hackbench, without a hint over with one";
    let gain = |arm, hinted: &'static str| {
        Target::new(gain, &[arm], P99, "×")
            .over(hinted)
            .cases("beside", "hackbench")
    };
    let mut targets = vec![
        over_idle(&[ours]).bound(Bound::Most(2.0)),
        against.bound(Bound::Most(1.05)),
        gain(without, ours),
    ];
    if ask.is_simulated() {
        targets.push(gain("cfs_series", "cfs_series_hint").published(19044.0 / 110.0));
        targets.push(over_idle(&["cfs_series_hint"]));
    }
    Part {
        targets,
        ..Part::new("cyclictest", "cyclictest", cells, timer_figures, &TIMER)
    }
}

fn timer_figures(cell: &Cell, o: &Outcome) -> Vec<Figures> {
    let timer = cell.scene.loads.len() - 1;
    let named = o.latency(timer, "wakeup");
    let wakeup = if named.completed > 0 {
        named
    } else {
        o.latency(timer, "latency")
    };
    let own = o.used_cpus(timer);
    let busy = o.extra("busy_cpus");
    let others = if busy.is_nan() {
        o.used_cpus(0)
    } else {
        busy - own
    };
    let beside = timer > 0;
    let figures = Figures::default()
        .latency("", &wakeup, &["avg", "p50", "p90", "p99", "p999", "max"])
        .with("wakeups", wakeup.completed as f64)
        .with("kept_ratio", wakeup.completed as f64 / (o.seconds() * 1e3))
        .with("own_cpus", own)
        .with(
            "others_ratio",
            if beside { others / o.cpus } else { f64::NAN },
        )
        .with(
            "messages_per_second",
            if beside {
                o.loads[0].work_per_second
            } else {
                f64::NAN
            },
        );
    vec![figures]
}

fn messages(ask: &Ask<'_>, ways: &[Way], cpus: u32) -> Part {
    let loops = match (ask.is_simulated(), ask.is_virtual()) {
        (true, _) => PUBLISHED_LOOPS / ask.quick_or(16, 4),
        (_, true) => ask.quick_or(160, 320),
        _ => ask.quick_or(160, PUBLISHED_LOOPS),
    };
    let mut cells = Vec::new();
    for (groups, _) in GROUPS
        .into_iter()
        .filter(|g| !ask.options.quick || g.0 <= 4)
    {
        let case = Case::new("", format!("{groups} groups"))
            .with("cpus", cpus)
            .with("groups", groups);
        for way in ways {
            for round in 0..rounds(ask) {
                let (mut scene, _, own) = way.scene(ask, cpus, 2, (100, 100));
                scene.window_ns = 600 * S;
                scene.look_ns = Some(50 * MS);
                let kind = Kind::Hackbench {
                    groups,
                    loops: (loops / groups).max(1),
                };
                let load = scene.load("hackbench", own, kind);
                scene.loads[load].hint = way.hint(YIELDING, ask.is_simulated());
                scene.until_done = Some(load);
                cells.push(Cell::new(&case, way.arm.clone(), round, scene));
            }
        }
    }
    let (ours, without) = ours(ask);
    let pairs = [(without, ours), ("cfs_series", "cfs_series_hint")];
    let pairs = pairs
        .into_iter()
        .take(if ask.is_simulated() { 2 } else { 1 });
    let targets = pairs.flat_map(|(without, hinted)| {
        let groups = GROUPS
            .into_iter()
            .filter(|g| !ask.options.quick || g.0 <= 4);
        groups.map(move |(groups, published)| {
            let what = format!("hackbench, {groups} groups, time without hints over with");
            let target = Target::new(what, &[without], ELAPSED, "×").over(hinted);
            target.cases("groups", groups).published(published)
        })
    });
    Part {
        targets: targets.collect(),
        ..Part::new(
            "hackbench",
            "hackbench alone",
            cells,
            |_, o| vec![Figures::default().with("elapsed_seconds", o.extra("elapsed_seconds"))],
            &[ELAPSED],
        )
    }
}

fn shares(ask: &Ask<'_>, ways: &[Way]) -> Part {
    let seconds = ask.quick_or(if ask.is_simulated() { 5 } else { 3 }, 20);
    let mut cells = Vec::new();
    for hog in [true, false] {
        let label = if hog {
            "a hog hints"
        } else {
            "a task that asks for 44 % hints"
        };
        let case = Case::new("", label).with("hinting_is_hog", hog);
        for way in ways {
            for round in 0..rounds(ask) {
                let (mut scene, group, own) = way.scene(ask, 1, 3, (300, 100));
                (scene.warm_ns, scene.window_ns) = (S, seconds * S);
                let pinned = Kind::Hogs {
                    tasks: 1,
                    pinned: true,
                };
                for _ in 0..3 {
                    scene.load("hog", group, pinned.clone());
                }
                let asks = Kind::Periodic {
                    tasks: 1,
                    work_ns: 1_760_000,
                    period_ns: 4 * MS,
                    pinned: true,
                };
                let load = scene.load("hinting", own, if hog { pinned } else { asks });
                scene.loads[load].hint = way.hint(SENSITIVE, ask.is_simulated());
                cells.push(Cell::new(&case, way.arm.clone(), round, scene));
            }
        }
    }
    let target = Target::new(
        "worst share against its fair one: {arm}",
        &[ours(ask).0],
        UNFAIR,
        "%",
    );
    Part {
        targets: vec![target.of(Of::Most).bound(Bound::Most(1.0))],
        ..Part::new(
            "fairness",
            "Three hogs and a hinting task on one CPU",
            cells,
            share_figures,
            &[UNFAIR],
        )
    }
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
