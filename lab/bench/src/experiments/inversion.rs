//! `tidegate lab inversion --on sim`: main takes a lock that side work takes too.
//!
//! Side work that is throttled, or never picked, while it holds a lock makes main wait for as long: a priority inversion.
//! Main comes each 10 ms, takes the lock, works 0.2 ms and lets it go; one side task holds it for 2 ms of CPU
//! in each 4 ms, and side hogs want the rest of the machine. Measured is how long main waits for the lock: for several
//! ways to limit side work, on a machine that main leaves half free and on one that it fills.

use tidegate_sim::engines::cgroup::{Knobs, KnobsConfig, Sensing, compile};
use tidegate_sim::workloads::{Common, Hog, Kind, LockHolder, Work};
use tidegate_sim::{
    Bandwidth, Class, Controller, EevdfConfig, GroupId, GroupSpec, Machine, SeriesId, Simulation,
};

use crate::LabError;
use crate::beds::sim::{MS, S, Stage, advance, built, derive, latency, plain};
use crate::dist::Latency;
use crate::options::LabOptions;
use crate::report::{Headline, Met, Report, Sample, Samples, Table, plots};

const CPUS: u32 = 4;
const HOLD_NS: u64 = 2 * MS;

/// How side work is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arm {
    NoLimit,
    CpuIdle,
    /// The tolerance, standing: 1 % of the machine in periods of 100 ms.
    Standing,
    /// Tidegate's moving quota, with a headroom of 20 %.
    Knobs,
}

impl Arm {
    const ALL: [Arm; 4] = [Arm::NoLimit, Arm::CpuIdle, Arm::Standing, Arm::Knobs];

    fn label(self) -> &'static str {
        match self {
            Arm::NoLimit => "no limit",
            Arm::CpuIdle => "cpu.idle",
            Arm::Standing => "1 % in 100 ms",
            Arm::Knobs => "Tidegate knobs",
        }
    }

    fn key(self) -> &'static str {
        match self {
            Arm::NoLimit => "no_limit",
            Arm::CpuIdle => "cpu_idle",
            Arm::Standing => "standing",
            Arm::Knobs => "knobs",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Cell {
    arm: Arm,
    /// Main's other work, percent of the machine.
    busy_pct: u32,
    round: u32,
}

const BUSY: [u32; 3] = [40, 75, 100];

/// Runs the experiment.
pub fn run(options: &LabOptions) -> Result<Report, LabError> {
    let stage = Stage::new(options);
    let seconds = stage.quick_or(20, 60);
    let rounds = options.rounds.unwrap_or(stage.quick_or(1, 3)).max(1);
    let mut cells = Vec::new();
    for round in 0..rounds {
        for busy_pct in BUSY {
            cells.extend(Arm::ALL.map(|arm| Cell {
                arm,
                busy_pct,
                round,
            }));
        }
    }
    let samples = stage.cells(
        &cells,
        |_| 10 * seconds,
        |c| {
            format!(
                "{}, main {} %, round {}",
                c.arm.label(),
                c.busy_pct,
                c.round + 1
            )
        },
        |c| simulate(*c, seconds, options.seed),
    )?;
    report(&stage, &Samples(samples))
}

/// Main and side, as `arm` limits side work.
fn groups(arm: Arm) -> [GroupSpec; 2] {
    [
        GroupSpec {
            class: Class::Main,
            headroom_ppm: if arm == Arm::Knobs { 200_000 } else { 0 },
            ..GroupSpec::new("main", GroupId::ROOT)
        },
        GroupSpec {
            class: Class::Side,
            idle: arm != Arm::NoLimit,
            bandwidth: (arm == Arm::Standing).then_some(Bandwidth {
                quota_us: Some(u64::from(CPUS) * 1_000),
                period_us: 100_000,
                burst_us: 0,
            }),
            ..GroupSpec::new("side", GroupId::ROOT)
        },
    ]
}

/// The lock and those who take it, main's other work, and side's hogs; the series of main's waits.
fn load(
    m: &mut Machine,
    busy_pct: u32,
    [main, side]: [GroupId; 2],
    from_ns: u64,
    seed: u64,
) -> Result<Option<SeriesId>, LabError> {
    let common = |name: &str, group, seed| Common {
        record_from_ns: from_ns,
        seed,
        ..Common::new(name, group)
    };
    let locks = Kind::LockHolder(LockHolder {
        tasks: 1,
        interval_ns: 10 * MS,
        work: Work::fixed(MS / 5),
        side_group: side,
        side_tasks: 1,
        hold: Work::fixed(HOLD_NS),
        outside: Work::fixed(2 * MS),
    });
    let made = built(locks.build(&common("locks", main, seed), m))?;
    // Main's other work: a hog a CPU that is busy for its part of each 10 ms.
    let busy = (busy_pct < 100).then(|| (10 * MS * u64::from(busy_pct) / 100, 10 * MS));
    built(Kind::Hog(Hog { tasks: CPUS, busy }).build(&common("busy", main, seed + 1), m))?;
    let hogs = Hog {
        tasks: CPUS,
        busy: None,
    };
    built(Kind::Hog(hogs).build(&common("side", side, seed + 2), m))?;
    Ok(made.series.iter().find(|s| s.0 == "lock_wait").map(|s| s.1))
}

fn simulate(c: Cell, seconds: u64, seed: u64) -> Result<Sample<Cell>, LabError> {
    let seed = derive(seed, &[u64::from(c.busy_pct), u64::from(c.round)]);
    let config = plain(CPUS, seed);
    let mut specs = groups(c.arm);
    let mut controllers: Vec<Box<dyn Controller>> = Vec::new();
    if c.arm == Arm::Knobs {
        let base_slice_ns = EevdfConfig::for_cpus(CPUS).base_slice_ns;
        let compiled = compile(&mut specs, &mut [], base_slice_ns, config.tick_ns);
        let knobs = KnobsConfig {
            seed,
            ..KnobsConfig::new(Sensing::Bpf)
        };
        controllers.push(Box::new(Knobs::new(knobs, &compiled)));
    }
    let mut m = built(Machine::new(config))?;
    let [main, side] = specs.map(|spec| built(m.add_group(spec)));
    let (main, side) = (main?, side?);
    let (from_ns, to_ns) = (4 * S, (4 + seconds) * S);
    let wait = load(&mut m, c.busy_pct, [main, side], from_ns, seed)?;
    let mut sim = Simulation::new(m, controllers);
    advance(&mut sim, from_ns)?;
    let used = sim.machine.usage_ns(side);
    advance(&mut sim, to_ns)?;
    let m = &sim.machine;
    let wait = wait.map_or_else(Latency::default, |id| latency(m.series(id)));
    let side_cpus = (m.usage_ns(side) - used) as f64 / (seconds * S) as f64;
    Ok(Sample::new(c)
        .with("arm", c.arm.key())
        .with("main_busy_pct", c.busy_pct)
        .with("round", c.round + 1)
        .latency("wait", &wait, &["avg", "p99", "max"])
        .with("locks_taken", wait.completed)
        .with("side_cpus", side_cpus))
}

fn mean(samples: &Samples<Cell>, arm: Arm, busy_pct: u32, name: &str) -> f64 {
    samples.mean(name, |c| c.arm == arm && c.busy_pct == busy_pct)
}

fn table(samples: &Samples<Cell>, busy: u32) -> Table {
    let f = |arm: &Arm, name, scale: f64, digits: usize| {
        format!("{:.digits$}", mean(samples, *arm, busy, name) / scale)
    };
    Table::of(
        &format!("Main's other work {busy} % of the machine: how long main waits for the lock"),
        Arm::ALL,
        &[
            ("side work", &|a| a.label().into()),
            ("mean, ms", &|a| f(a, "wait_avg_us", 1e3, 2)),
            ("p99, ms", &|a| f(a, "wait_p99_us", 1e3, 1)),
            ("worst, ms", &|a| f(a, "wait_max_us", 1e3, 1)),
            ("locks taken", &|a| f(a, "locks_taken", 1.0, 0)),
            ("side, CPUs", &|a| f(a, "side_cpus", 1.0, 2)),
        ],
    )
}

fn report(stage: &Stage<'_>, samples: &Samples<Cell>) -> Result<Report, LabError> {
    let bed = stage.bed(&[CPUS], &plain(CPUS, stage.options.seed), "EEVDF");
    let mut report = Report::new("inversion", bed);
    report.rows = samples.rows();
    let ms = |arm, busy, name| mean(samples, arm, busy, name) / 1e3;
    for busy in BUSY {
        report.tables.push(table(samples, busy));
        let worst = ms(Arm::Knobs, busy, "wait_max_us");
        let standing = ms(Arm::Standing, busy, "wait_max_us");
        let name = format!("worst wait with Tidegate's knobs: main {busy} %");
        let target = format!("≤ {:.1}, half of a standing quota's", standing / 2.0);
        let met = Met::of(worst <= standing / 2.0);
        // Where nothing waits under a standing quota there is nothing to halve.
        let line = Headline::new(&name, worst, "ms");
        report
            .headline
            .push(line.when(standing >= 1.0, |h| h.target(&target, met)));
    }
    let mut plot = plots::Lines::new(
        "How long main waits for side's lock",
        "main's other work, % of the machine",
        "p99, ms",
    )
    .see("A quota that is large, or comes often, is what bounds the wait.")
    .range(40.0..100.0, 0.0..1.0)
    .dots()
    .log_y();
    for (at, arm) in Arm::ALL.into_iter().enumerate() {
        let point = |busy: &u32| (f64::from(*busy), ms(arm, *busy, "wait_p99_us").max(0.01));
        plot = plot.series(arm.label(), at, BUSY.iter().map(point).collect());
    }
    report.plots.push(plot.draw()?);
    report.notes.push(
        "Mechanism: throttling with a lock held (a lock of user space: the kernel's own are let go on 6.18, where a task is \
         throttled on its way to user space), quota, idle class, the agent's control step with its relief of side work that \
         starves at the tolerance. The model's: one lock, a holder that needs 2 ms of CPU, and hogs beside it. Where side \
         work gets nothing it takes no lock either: few waits, and the worst says what they were."
            .into(),
    );
    Ok(report)
}
