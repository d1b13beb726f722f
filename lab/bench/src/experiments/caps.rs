//! Rate caps: how exactly a hard cap is kept, how smoothly and at what cost; what a task may do
//! after a sleep; how soon soft caps yield; and what caps cost a build. What Tidegate does is the
//! product's own rule, on the simulator too.

use super::{HOST, HOST_EXT, SIM, VM, VM_EXT};
use crate::LabError;
use crate::experiment::{
    Arm, Ask, Bound, Case, Cell, Experiment, Figures, Metric, Of, Part, Target, metric, scaled,
};
use crate::runners::host;
use crate::scene::{Group, Keeper, Kind, MS, Max, Model, Outcome, S, Scene, Terms};
use crate::settle::Trace;

pub static CAPS: Experiment = Experiment {
    name: "caps",
    question: "How exact rate caps are",
    places: &[HOST, HOST_EXT, VM, VM_EXT, SIM],
    guest_programs: None,
    parts,
    notes: &[
        "Caps are in thousandths of one CPU. The group that forks is parents with children of 5 ms each; the task that sleeps \
         works 4 ms and sleeps 1 ms, so that it wants 800 ‰: under a higher cap that is what it is due. The longest stop is the \
         longest time for which a hog wanted to run and did not, seen by itself. The keeper's cost is the agent's CPU; what the \
         kernel's own accounting costs is not in it. Beside Tidegate: cpu.max by hand, 1 ms or more in 100 ms or more, which is \
         the strongest simple alternative, and the program cpulimit if it is installed.",
        "After a sleep: the most above the rate over any time since a hog began after five idle seconds. Soft caps: hogs under \
         one soft cap for all of them, and a newcomer that wants every CPU; they have yielded when they are within 5 points of \
         what they may have, over the next 20 ms and over the next 200. The build is kernbench's shape in small (8 jobs on two \
         CPUs): what caps cost in scheduling.",
        "Simulated. Mechanism: the rule by which the product turns a cap into a limit, its soft caps' control step, and cpu.max \
         as the kernel does it. The model's: what a switch costs, and no contention.",
    ],
};

const OFF: Metric = scaled("off_cpus", "off in the worst window, ‰", 1e3, 3);
const HARD: [Metric; 5] = [
    OFF,
    scaled("used_cpus", "used, ‰", 1e3, 3),
    scaled("worst_window_cpus", "worst window, ‰", 1e3, 3),
    scaled("longest_stop_us", "longest stop, ms", 1e-3, 1),
    scaled("keeper_cpus", "keeper, ‰", 1e3, 2),
];
const ABOVE: Metric = scaled("above_us", "above the rate, ms", 1e-3, 2);
const YIELDS: Metric = scaled("yields_us", "yields, ms", 1e-3, 1);
const SOFT: [Metric; 3] = [
    YIELDS,
    scaled("alone_cpus", "alone, CPUs", 1.0, 3),
    scaled("beside_cpus", "beside newcomers, ‰", 1e3, 1),
];
const ELAPSED: Metric = metric("elapsed_seconds", "elapsed, s", 3);

fn parts(ask: &Ask<'_>) -> Result<Vec<Part>, LabError> {
    let mut parts = vec![hard(ask), soft(ask)];
    if ask.is_simulated() {
        parts.extend([after_sleep(ask), build(ask)]);
    }
    Ok(parts)
}

/// A cap as a quota by hand: the kernel's least quota is 1 ms, and a period is 100 ms unless
/// somebody knows better.
fn by_hand(ppt: u32) -> Max {
    let period_us = (1_000_000 / u64::from(ppt)).clamp(100_000, 1_000_000);
    Max {
        quota_us: period_us * u64::from(ppt) / 1000,
        period_us,
        burst_us: 0,
    }
}

fn keepers(ask: &Ask<'_>, ppt: u32) -> Vec<(Arm, Keeper)> {
    let mut keepers = vec![
        (Arm::new("tidegate", "Tidegate"), Keeper::TIDEGATE),
        (Arm::new("cpu_max", "cpu.max by hand"), Keeper::Nobody),
    ];
    if ask.is_sched_ext() {
        keepers.insert(
            0,
            (Arm::new("sched_ext", "sched_ext engine"), Keeper::SchedExt),
        );
    } else if !ask.is_simulated() && ppt >= 10 && host::is_installed("cpulimit") {
        keepers.push((Arm::new("cpulimit", "cpulimit"), Keeper::Cpulimit(ppt)));
    }
    keepers
}

fn capped(keeper: Keeper, ppt: u32) -> Group {
    let by_keeper = matches!(keeper, Keeper::Tidegate { .. } | Keeper::SchedExt);
    Group {
        max: (keeper == Keeper::Nobody).then(|| by_hand(ppt)),
        terms: Terms {
            cap_hard_ppt: by_keeper.then_some(ppt),
            ..Terms::default()
        },
        ..Group::new("capped")
    }
}

fn hard(ask: &Ask<'_>) -> Part {
    let sleeper = Kind::Sleeper {
        work_ns: 4 * MS,
        sleep_ns: MS,
    };
    let forks = Kind::Forks {
        parents: if ask.is_simulated() { 4 } else { 2 },
    };
    let hog = Kind::hogs(1);
    let (hogs, others): (&[u32], &[u32]) = match (ask.is_simulated(), ask.options.quick) {
        (true, _) => (
            &[1, 2, 5, 10, 20, 50, 100, 200, 350, 500, 700, 900, 1000],
            &[100, 500],
        ),
        (false, true) => (&[50, 500], &[50, 500]),
        (false, false) => (&[10, 50, 200, 500, 900], &[10, 50, 200, 500, 900]),
    };
    // What sched_ext promises it promises for a second, the cgroup engine for ten.
    let look_s = match ask.is_sched_ext() {
        true => 1,
        false => ask.quick_or(if ask.is_simulated() { 10 } else { 2 }, 10),
    };
    let windows = u64::from(ask.rounds(
        if ask.is_sched_ext() { 2 } else { 1 },
        if ask.is_simulated() { 10 } else { 2 },
    ));
    let cpus = if ask.is_simulated() { 8 } else { ask.cpus };
    let mut cells = Vec::new();
    for (key, label, kind, caps) in [
        ("hog", "a hog", hog, hogs),
        ("forks", "a group that forks", forks, others),
        ("sleeper", "a task that sleeps", sleeper, others),
    ] {
        for &ppt in caps {
            let wants_ppt = if key == "sleeper" { 800 } else { 1000 };
            let case = Case::new("", format!("{label} at {ppt} ‰"))
                .with("load", key)
                .with("cap_cpus", f64::from(ppt) / 1e3)
                .with("due_cpus", f64::from(ppt.min(wants_ppt)) / 1e3);
            for (arm, keeper) in keepers(ask, ppt) {
                let settle_s = ask.quick_or(1, 3);
                let mut scene = Scene::new(
                    Model::plain(cpus),
                    settle_s * S,
                    windows * look_s * S,
                    ask.seed(&[1]),
                );
                scene.keeper = keeper;
                scene.look_ns = Some(look_s * S);
                let group = scene.group(capped(keeper, ppt));
                scene.load("capped", Some(group), kind.clone());
                cells.push(Cell::new(&case, arm, 0, scene));
            }
        }
    }
    Part {
        over: &[("cpu_max", &["off_cpus", "longest_stop_us"])],
        targets: hard_targets(ask),
        ..Part::new(
            "hard",
            format!("Hard caps, windows of {look_s} s"),
            cells,
            hard_figures,
            &HARD,
        )
    }
}

fn hard_targets(ask: &Ask<'_>) -> Vec<Target> {
    // On a machine that others use; in virtual and in simulated time it is one part per thousand.
    let limit = if ask.is_simulated() || ask.is_virtual() {
        1.0
    } else {
        5.0
    };
    let ours: &[&str] = if ask.is_sched_ext() {
        &["tidegate", "sched_ext"]
    } else {
        &["tidegate"]
    };
    let of = |load: &'static str, what: &str, arms: &[&str]| {
        let what = format!("hard caps against use, {what}, worst window: {{arm}}");
        Target::new(what, arms, OFF, "‰")
            .cases("load", load)
            .of(Of::Most)
    };
    let mut targets = Vec::new();
    for (load, what) in [
        ("hog", "a hog"),
        ("forks", "a group that forks"),
        ("sleeper", "a task that sleeps"),
    ] {
        targets.push(of(load, what, ours).bound(Bound::Most(limit)));
        targets.push(of(load, what, &["cpu_max"]));
    }
    if !ask.is_simulated() {
        let stop = scaled("longest_stop_us", "", 1e-3, 1);
        let stop = Target::new("longest stop of a hog at any cap: {arm}", &[], stop, "ms");
        targets.push(stop.cases("load", "hog").of(Of::Most));
    }
    targets
}

fn hard_figures(cell: &Cell, o: &Outcome) -> Vec<Figures> {
    let used = |p: &[crate::scene::Look]| {
        (p[1].used_ns[0].0 - p[0].used_ns[0].0) as f64 / (p[1].at_ns - p[0].at_ns) as f64
    };
    let windows: Vec<f64> = o.looks.windows(2).map(used).collect();
    let (cap, mut due) = (cell.given("cap_cpus"), cell.given("due_cpus"));
    let far = |u: &f64| (u - due).abs();
    let worst = windows
        .iter()
        .copied()
        .max_by(|a, b| far(a).total_cmp(&far(b)));
    let worst = worst.unwrap_or(f64::NAN);
    if due < cap {
        // A cap that does not bind is kept by whatever stays below it: its sleeps take longer than
        // they should.
        due = worst.min(cap);
    }
    let s = o.whole(&cell.scene.loads);
    let is_hog = matches!(cell.scene.loads[0].kind, Kind::Hogs { .. });
    let figures = Figures::default()
        .with("used_cpus", o.used_cpus(0))
        .with("worst_window_cpus", worst)
        .with("off_cpus", (worst - due).abs())
        .with(
            "longest_stop_us",
            if is_hog {
                o.extra("longest_stop_us")
            } else {
                f64::NAN
            },
        )
        .with("keeper_cpus", s.keeper_cpus)
        .with("other_ratio", s.other)
        .with("window_seconds", o.seconds());
    vec![figures]
}

fn after_sleep(ask: &Ask<'_>) -> Part {
    let mut cells = Vec::new();
    for ppt in [1, 100, 500] {
        let case = Case::new("", format!("{ppt} ‰"));
        let case = case.with("cap_cpus", f64::from(ppt) / 1e3);
        for (arm, keeper) in keepers(ask, ppt) {
            let mut scene = Scene::new(Model::plain(2), 5 * S, 3 * S, ask.seed(&[2]));
            scene.keeper = keeper;
            scene.look_ns = Some(MS);
            let group = scene.group(capped(keeper, ppt));
            let hog = Kind::hogs(1);
            let load = scene.load("sleeper", Some(group), hog);
            scene.loads[load].start_ns = 5 * S;
            cells.push(Cell::new(&case, arm, 0, scene));
        }
    }
    // The bucket's depth is 10 ms of the rate, but no less than the 1 ms that the kernel can hold,
    // and a tick enforces it.
    let bound = |ppt: u32| (f64::from(ppt) / 100.0).max(1.0) + 4.0;
    let target = |ppt: u32| {
        let what = format!("above a cap of {ppt} ‰ after a sleep: {{arm}}");
        let target = Target::new(what, &["tidegate"], ABOVE, "ms").of(Of::Most);
        target
            .cases("cap_cpus", f64::from(ppt) / 1e3)
            .bound(Bound::Most(bound(ppt)))
    };
    Part {
        over: &[("cpu_max", &["above_us"])],
        targets: [1, 100, 500].map(target).into(),
        ..Part::new(
            "after_sleep",
            "Above the rate after five idle seconds",
            cells,
            |cell, o| {
                let (from, cap) = (&o.looks[0], cell.given("cap_cpus"));
                let above = |look: &crate::scene::Look| {
                    let used_ns = (look.used_ns[0].0 - from.used_ns[0].0) as f64;
                    (used_ns - cap * (look.at_ns - from.at_ns) as f64) / 1e3
                };
                let most = o.looks.iter().map(above).fold(0.0, f64::max);
                vec![Figures::default().with("above_us", most)]
            },
            &[ABOVE],
        )
    }
}

const ALONE_NS: u64 = S;
const BESIDE_NS: u64 = 2 * S;

fn soft(ask: &Ask<'_>) -> Part {
    let cpus = if ask.is_simulated() { 2 } else { ask.cpus };
    let steps = ask.quick_or(2, 5);
    let mut cells = Vec::new();
    for ppt in [0, 100, 300] {
        let case =
            Case::new("", format!("soft cap {ppt} ‰")).with("cap_cpus", f64::from(ppt) / 1e3);
        let share = f64::from(ppt) / 1e3 / f64::from(cpus);
        let mut arms = vec![
            (
                Arm::new("cpu_idle", "cpu.idle by hand"),
                Keeper::Nobody,
                0.0,
            ),
            (Arm::new("tidegate", "Tidegate"), Keeper::TIDEGATE, share),
        ];
        if ask.is_sched_ext() {
            arms.push((
                Arm::new("sched_ext", "sched_ext engine"),
                Keeper::SchedExt,
                share,
            ));
        }
        for (arm, keeper, due) in arms {
            let window_ns = steps * (ALONE_NS + BESIDE_NS);
            let mut scene = Scene::new(Model::plain(cpus), S, window_ns, ask.seed(&[3]));
            scene.keeper = keeper;
            scene.look_ns = Some(MS);
            let group = scene.group(Group {
                idle: arm.key == "cpu_idle",
                terms: Terms {
                    cap_soft_ppt: (keeper != Keeper::Nobody).then_some(ppt),
                    ..Terms::default()
                },
                ..Group::new("capped")
            });
            let newcomers = scene.group(Group::new("newcomer"));
            let hogs = Kind::Hogs {
                tasks: cpus,
                pinned: true,
            };
            scene.load("capped", Some(group), hogs);
            let mut orders = vec![(0, 0)];
            for step in 0..steps {
                let from_ns = S + step * (ALONE_NS + BESIDE_NS);
                orders.push((from_ns + ALONE_NS, 1_000_000));
                orders.push((from_ns + ALONE_NS + BESIDE_NS, 0));
            }
            scene.load("newcomer", Some(newcomers), Kind::Level(orders));
            cells.push(Cell::new(&case, arm, 0, scene).due("due_ratio", due));
        }
    }
    let ours: &[&str] = if ask.is_sched_ext() {
        &["tidegate", "sched_ext"]
    } else {
        &["tidegate"]
    };
    let yields = Target::new(
        "a soft cap yields to a newcomer, worst: {arm}",
        ours,
        YIELDS,
        "ms",
    );
    let beside = |ppt: u32| {
        let what = format!("a soft cap of {ppt} ‰ beside newcomers gets: {{arm}}");
        let target = Target::new(what, ours, SOFT[2], "‰").of(Of::Mean);
        target.cases("cap_cpus", f64::from(ppt) / 1e3)
    };
    let mut targets = vec![yields.of(Of::Most).bound(Bound::Most(20.0))];
    targets.extend([0, 100, 300].map(beside));
    Part {
        over: &[("cpu_idle", &["yields_us"])],
        targets,
        ..Part::new(
            "soft",
            "Soft caps beside newcomers",
            cells,
            soft_figures,
            &SOFT,
        )
    }
}

fn soft_figures(cell: &Cell, o: &Outcome) -> Vec<Figures> {
    let Kind::Level(orders) = &cell.scene.loads[1].kind else {
        return Vec::new();
    };
    let (trace, due) = (Trace::of(o, 0), cell.given("due_ratio"));
    let came = orders.windows(2).filter(|pair| pair[0].1 > pair[1].1);
    let step = |pair: &[(u64, u32)]| {
        let (comes, goes) = (pair[0].0, pair[1].0);
        let down = trace.step_down(comes, due, goes)?;
        let beside = trace.rate(comes + S, goes - 5 * MS)?;
        let figures = Figures::default()
            .with("yields_us", down.settle_us)
            .with("alone_cpus", down.old * o.cpus)
            .with("beside_cpus", beside * o.cpus);
        Some(figures)
    };
    came.filter_map(step).collect()
}

fn build(ask: &Ask<'_>) -> Part {
    let kind = Kind::Build {
        jobs: 8,
        each: ask.quick_or(10, 100),
    };
    let case = Case::new("", "8 jobs on two CPUs");
    let mut cells = Vec::new();
    for (key, label, terms) in [
        ("none", "no cap", Terms::default()),
        // As many CPUs as there are: charged, and never binding.
        (
            "unused",
            "a cap that never binds",
            Terms {
                cap_hard_ppt: Some(2000),
                ..Terms::default()
            },
        ),
        (
            "soft_0",
            "a soft cap of 0",
            Terms {
                cap_soft_ppt: Some(0),
                ..Terms::default()
            },
        ),
    ] {
        let mut scene = Scene::new(Model::plain(2), 0, 600 * S, ask.seed(&[5]));
        scene.keeper = Keeper::TIDEGATE;
        scene.look_ns = Some(100 * MS);
        let group = scene.group(Group {
            terms,
            ..Group::new("build")
        });
        scene.until_done = Some(scene.load("build", Some(group), kind.clone()));
        cells.push(Cell::new(&case, Arm::new(key, label), 0, scene));
    }
    let target = |arm, limit, published: f64| {
        let target = Target::new(
            "a build over the same without caps: {arm}",
            &[arm],
            ELAPSED,
            "×",
        );
        target
            .over("none")
            .bound(Bound::Most(limit))
            .published(published)
    };
    Part {
        key: "build",
        title: "What caps cost a build".into(),
        cells,
        figures: |_, o| {
            vec![Figures::default().with("elapsed_seconds", o.extra("elapsed_seconds"))]
        },
        metrics: &[ELAPSED],
        pooled: true,
        over: &[("none", &["elapsed_seconds"])],
        // kernbench -j 8 on two CPUs in the series: 1056.1 s, 1048.2 with caps unused, 1064.1 with
        // soft caps of 0.
        targets: vec![
            target("unused", 1.005, 1048.2 / 1056.1),
            target("soft_0", 1.01, 1064.1 / 1056.1),
        ],
    }
}
