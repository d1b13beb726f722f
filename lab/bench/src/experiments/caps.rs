//! Rate caps: how exactly a hard cap is kept, how smoothly and at what cost; how soon soft caps
//! yield; and what caps cost a build. What Tidegate does is the product's own rule, on the
//! simulator too.

use tidegate_sim::Bandwidth;

use crate::LabError;
use crate::experiment::{
    Arm, Ask, Bound, Case, Cell, Experiment, Figures, Metric, Of, Part, Target, elapsed, metric,
    scaled,
};
use crate::options::On;
use crate::runners::{host, sim};
use crate::scene::{Group, Keeper, Kind, Look, MS, Outcome, S, Scene};
use crate::settle::Trace;

pub static CAPS: Experiment = Experiment {
    name: "caps",
    question: "How exact rate caps are",
    places: &[On::Host, On::Vm, On::Sim],
    parts,
    notes: &[
        "Caps are in thousandths of one CPU. The group that forks is parents with children of 5 ms each; the task that sleeps \
         works 4 ms and sleeps 1 ms, so that it wants 800 ‰: under a higher cap that is what it is due. The longest stop is the \
         longest time for which a hog wanted to run and did not, seen by itself. The keeper's cost is the agent's CPU; what the \
         kernel's own accounting costs is not in it. Beside Tidegate: cpu.max by hand, 1 ms or more in 100 ms or more, which is \
         the strongest simple alternative, and the program cpulimit if it is installed.",
        "Soft caps: hogs under one soft cap for all of them, and a newcomer that wants every CPU; they have yielded when they are \
         within 5 points of what they may have, over the next 20 ms and over the next 200. The build is kernbench's shape in \
         small (8 jobs on two CPUs): what caps cost in scheduling.",
        "Simulated. Mechanism: the rule by which the product turns a cap into a limit, its soft caps' control step, and cpu.max \
         as the kernel does it. The model's: what a switch costs, and no contention.",
    ],
};

const OFF: Metric = scaled("off_cpus", "off in the worst window, ‰", 1e3, 3);
const STOP: Metric = scaled("longest_stop_us", "longest stop, ms", 1e-3, 1);
const HARD: [Metric; 5] = [
    OFF,
    scaled("used_cpus", "used, ‰", 1e3, 3),
    scaled("worst_window_cpus", "worst window, ‰", 1e3, 3),
    STOP,
    scaled("keeper_cpus", "keeper, ‰", 1e3, 2),
];
const YIELDS: Metric = scaled("yields_us", "yields, ms", 1e-3, 1);
const BESIDE: Metric = scaled("beside_cpus", "beside newcomers, ‰", 1e3, 1);
const SOFT: [Metric; 3] = [YIELDS, scaled("alone_cpus", "alone, CPUs", 1.0, 3), BESIDE];
const ELAPSED: Metric = metric("elapsed_seconds", "elapsed, s", 3);

pub fn parts(ask: &Ask<'_>) -> Result<Vec<Part>, LabError> {
    let mut parts = vec![hard(ask), soft(ask)];
    parts.extend(ask.is_simulated().then(|| build(ask)));
    Ok(parts)
}

/// The arm that keeps a cap by its term.
const OURS: &str = "tidegate";

fn ours() -> (Arm, Keeper) {
    (Arm::new(OURS, "Tidegate"), Keeper::TIDEGATE)
}

fn cap(kind: &str, ppt: Option<u32>) -> Vec<String> {
    let term = ppt.map(|ppt| format!("cap_{kind}={ppt}‰"));
    term.into_iter().collect()
}

/// A cap as a quota by hand: the kernel's least quota is 1 ms, and a period is 100 ms unless
/// somebody knows better.
fn by_hand(ppt: u32) -> Bandwidth {
    let period_us = (1_000_000 / u64::from(ppt)).clamp(100_000, 1_000_000);
    Bandwidth::limit(period_us * u64::from(ppt) / 1000, period_us)
}

/// What is capped: its key, what it is in words, its load, and the thousandths that it wants.
fn capped(ask: &Ask<'_>) -> [(&'static str, &'static str, Kind, u32); 3] {
    let parents = if ask.is_simulated() { 4 } else { 2 };
    let sleeper = Kind::Sleeper {
        work_ns: 4 * MS,
        sleep_ns: MS,
    };
    [
        ("hog", "a hog", Kind::hogs(1), 1000),
        ("forks", "a group that forks", Kind::Forks { parents }, 1000),
        ("sleeper", "a task that sleeps", sleeper, 800),
    ]
}

fn hard(ask: &Ask<'_>) -> Part {
    let (hogs, others): (&[u32], &[u32]) = match (ask.is_simulated(), ask.options.quick) {
        (true, _) => (
            &[1, 2, 5, 10, 20, 50, 100, 200, 350, 500, 700, 900, 1000],
            &[100, 500],
        ),
        (false, true) => (&[50, 500], &[50, 500]),
        (false, false) => (&[10, 50, 200, 500, 900], &[10, 50, 200, 500, 900]),
    };
    let (look_s, windows) = match ask.is_simulated() {
        true => (10, ask.rounds(1, 10)),
        false => (ask.quick_or(2, 10), ask.rounds(1, 2)),
    };
    let cpus = if ask.is_simulated() { 8 } else { ask.cpus };
    let (settle_ns, window_ns) = (ask.quick_or(1, 3) * S, u64::from(windows) * look_s * S);
    let has_cpulimit = !ask.is_simulated() && host::is_installed("cpulimit");
    let mut cells = Vec::new();
    for (key, label, kind, wants_ppt) in capped(ask) {
        for &ppt in if key == "hog" { hogs } else { others } {
            let case = Case::new("", format!("{label} at {ppt} ‰"))
                .with("load", key)
                .with("cap_cpus", f64::from(ppt) / 1e3)
                .with("due_cpus", f64::from(ppt.min(wants_ppt)) / 1e3);
            let cpu_max = Arm::new("cpu_max", "cpu.max by hand");
            let mut arms = vec![ours(), (cpu_max, Keeper::Nobody)];
            if has_cpulimit && ppt >= 10 {
                arms.push((Arm::new("cpulimit", "cpulimit"), Keeper::Cpulimit(ppt)));
            }
            for (arm, keeper) in arms {
                let model = sim::plain(cpus);
                let mut scene = Scene::new(model, settle_ns, window_ns, ask.seed(&[1]));
                scene.keeper = keeper;
                scene.look_ns = Some(look_s * S);
                let is_ours = arm.key == OURS;
                let group = scene.group(Group {
                    max: (keeper == Keeper::Nobody).then(|| by_hand(ppt)),
                    terms: cap("hard", is_ours.then_some(ppt)),
                    ..Group::new("capped")
                });
                scene.load("capped", Some(group), kind.clone());
                cells.push(Cell::new(&case, arm, 0, scene));
            }
        }
    }
    let title = format!("Hard caps, windows of {look_s} s");
    Part::new("hard", title, cells, hard_figures, &HARD).targets(hard_targets(ask))
}

fn hard_targets(ask: &Ask<'_>) -> Vec<Target> {
    // On a machine that others use; in virtual and in simulated time it is one part per thousand.
    let is_exact = ask.is_simulated() || ask.is_virtual();
    let limit = Bound::Most(if is_exact { 1.0 } else { 5.0 });
    let mut targets = Vec::new();
    for (load, what, ..) in capped(ask) {
        let what = format!("hard caps against use, {what}, worst window: {{arm}}");
        let off = |arms| Target::new(what.as_str(), arms, OFF, "‰").cases("load", load);
        targets.push(off(&[OURS]).of(Of::Most).bound(limit));
        targets.push(off(&["cpu_max"]).of(Of::Most));
    }
    if !ask.is_simulated() {
        let stop = Target::new(
            "longest stop of a hog capped at 200 ‰: {arm}",
            &[],
            STOP,
            "ms",
        );
        targets.push(stop.cases("cap_cpus", 0.2).of(Of::Most));
    }
    targets
}

fn hard_figures(cell: &Cell, o: &Outcome) -> Vec<Figures> {
    let used = |p: &[Look]| {
        (p[1].used_ns[0].0 - p[0].used_ns[0].0) as f64 / (p[1].at_ns - p[0].at_ns) as f64
    };
    let (cap, mut due) = (cell.given("cap_cpus"), cell.given("due_cpus"));
    let far = |used: &f64| (used - due).abs();
    let windows = o.looks.windows(2).map(used);
    let worst = windows.max_by(|a, b| far(a).total_cmp(&far(b)));
    let worst = worst.unwrap_or(f64::NAN);
    if due < cap {
        // A cap that does not bind is kept by whatever stays below it: its sleeps take longer than
        // they should.
        due = worst.min(cap);
    }
    let s = o.whole(&cell.scene.loads);
    let figures = Figures::default()
        .with("used_cpus", o.used_cpus(0))
        .with("worst_window_cpus", worst)
        .with("off_cpus", (worst - due).abs())
        .with("keeper_cpus", s.keeper_cpus)
        .with("other_ratio", s.other)
        .with("window_seconds", o.seconds());
    vec![match cell.scene.loads[0].kind {
        Kind::Hogs { .. } => figures.with("longest_stop_us", o.extra("longest_stop_us")),
        _ => figures,
    }]
}

const ALONE_NS: u64 = S;
const BESIDE_NS: u64 = 2 * S;

fn soft(ask: &Ask<'_>) -> Part {
    let cpus = if ask.is_simulated() { 2 } else { ask.cpus };
    let steps = ask.quick_or(2, 5);
    let mut orders = vec![(0, 0)];
    for step in 0..steps {
        let comes_ns = S + step * (ALONE_NS + BESIDE_NS) + ALONE_NS;
        orders.extend([(comes_ns, 1_000_000), (comes_ns + BESIDE_NS, 0)]);
    }
    let mut cells = Vec::new();
    for ppt in [0, 100, 300] {
        let case = Case::new("", format!("soft cap {ppt} ‰"));
        let case = case.with("cap_cpus", f64::from(ppt) / 1e3);
        let idle = Arm::new("cpu_idle", "cpu.idle by hand");
        for (arm, keeper) in [(idle, Keeper::Nobody), ours()] {
            let is_ours = keeper != Keeper::Nobody;
            let window_ns = steps * (ALONE_NS + BESIDE_NS);
            let mut scene = Scene::new(sim::plain(cpus), S, window_ns, ask.seed(&[3]));
            scene.keeper = keeper;
            scene.look_ns = Some(MS);
            let group = scene.group(Group {
                idle: !is_ours,
                terms: cap("soft", is_ours.then_some(ppt)),
                ..Group::new("capped")
            });
            let newcomers = scene.group(Group::new("newcomer"));
            let hogs = Kind::Hogs {
                tasks: cpus,
                pinned: true,
            };
            scene.load("capped", Some(group), hogs);
            scene.load("newcomer", Some(newcomers), Kind::Level(orders.clone()));
            let due = if is_ours { f64::from(ppt) / 1e3 } else { 0.0 };
            let cell = Cell::new(&case, arm, 0, scene);
            cells.push(cell.due("due_ratio", due / f64::from(cpus)));
        }
    }
    let what = "a soft cap yields to a newcomer, worst: {arm}";
    let yields = Target::new(what, &[OURS], YIELDS, "ms").of(Of::Most);
    let beside = |ppt: u32| {
        let what = format!("a soft cap of {ppt} ‰ beside newcomers gets: {{arm}}");
        let target = Target::new(what, &[OURS], BESIDE, "‰").of(Of::Mean);
        target.cases("cap_cpus", f64::from(ppt) / 1e3)
    };
    let mut targets = vec![yields.bound(Bound::Most(20.0))];
    targets.extend([0, 100, 300].map(beside));
    let title = "Soft caps beside newcomers";
    Part::new("soft", title, cells, soft_figures, &SOFT).targets(targets)
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
        ("none", "no cap", Vec::new()),
        // As many CPUs as there are: charged, and never binding.
        ("unused", "a cap that never binds", cap("hard", Some(2000))),
        ("soft_0", "a soft cap of 0", cap("soft", Some(0))),
    ] {
        let mut scene = Scene::new(sim::plain(2), 0, 600 * S, ask.seed(&[5]));
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
        let what = "a build over the same without caps: {arm}";
        let target = Target::new(what, &[arm], ELAPSED, "×").over("none");
        target.bound(Bound::Most(limit)).published(published)
    };
    // kernbench -j 8 on two CPUs in the series: 1056.1 s, 1048.2 with caps unused, 1064.1 with soft
    // caps of 0.
    let targets = [
        target("unused", 1.005, 1048.2 / 1056.1),
        target("soft_0", 1.01, 1064.1 / 1056.1),
    ];
    Part::new(
        "build",
        "What caps cost a build",
        cells,
        elapsed,
        &[ELAPSED],
    )
    .pooled()
    .targets(targets)
}
