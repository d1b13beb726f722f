//! `tidegate lab objective --on sim`: headroom that is asked for beside headroom that is found from main's run delay.
//!
//! A headroom that is asked for is right for one load: it protects a busy main too little, or takes from side work what
//! an idle main does not need. With an objective the headroom is what keeps main's run delay (law/delay.h). Main is the
//! lab's server (requests of 0.5 to 1.5 ms, two workers a CPU) at four kinds of load: a low and a high one, one that
//! changes between the two, and one in bursts of more requests than there are CPUs, for which side work is not to
//! blame. Every arm of a load meets the same arrivals.

mod report;

use tidegate_sim::engines::cgroup::{Knobs, KnobsConfig, KnobsLog, Sensing, compile};
use tidegate_sim::workloads::{Common, Curve, Hog, Kind, OpenLoop, Pattern, Shape, Work};
use tidegate_sim::{
    Class, Controller, DelayObjective, EevdfConfig, GroupId, GroupSpec, Machine, MachineConfig,
    Simulation,
};

use crate::LabError;
use crate::beds::sim::{MS, S, Stage, advance, built, derive, latency, server};
use crate::dist::Latency;
use crate::options::LabOptions;
use crate::report::{Report, Sample, Samples};

/// A longer wait to run is a late one.
pub const LATE_AFTER_US: u64 = 200;
/// Of all runs, for p99.
pub const LATE_PPM: u32 = 10_000;
/// Where the search begins: the default headroom.
pub const START_PPM: u32 = 200_000;
const CPUS: u32 = 16;
const REQUEST_NS: u64 = MS;
/// A stair of the load that changes.
const STAIR_S: u64 = 15;

/// How main comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// 15 % of the machine.
    Low,
    /// 30 %.
    Middle,
    /// 10 % and 30 %, in turns.
    Stairs,
    /// 50 %: on cores of two threads it waits for itself.
    High,
    /// 3 ms of twice what the machine can do, then quiet: 20 % on average.
    Bursts,
}

impl Load {
    /// In the tables' order.
    pub const ALL: [Load; 5] = [
        Load::Low,
        Load::Middle,
        Load::Stairs,
        Load::High,
        Load::Bursts,
    ];

    /// In tables.
    pub fn label(self) -> &'static str {
        match self {
            Load::Low => "steady 15 %",
            Load::Middle => "steady 30 %",
            Load::Stairs => "10 % and 30 % in turns",
            Load::High => "steady 50 %",
            Load::Bursts => "its own bursts",
        }
    }

    /// In JSON and CSV.
    pub fn key(self) -> &'static str {
        match self {
            Load::Low => "low",
            Load::Middle => "middle",
            Load::High => "high",
            Load::Stairs => "stairs",
            Load::Bursts => "bursts",
        }
    }

    fn pattern(self, cpus: u32) -> Pattern {
        let gap_ns = |pct: u64| REQUEST_NS * 100 / (u64::from(cpus) * pct).max(1);
        let stair_ns = STAIR_S * S;
        match self {
            Load::Low => Pattern::Poisson { gap_ns: gap_ns(15) },
            Load::Middle => Pattern::Poisson { gap_ns: gap_ns(30) },
            Load::High => Pattern::Poisson { gap_ns: gap_ns(50) },
            Load::Stairs => Pattern::Curve {
                gap_ns: gap_ns(30),
                curve: Curve::new(
                    vec![
                        (0, 333_333),
                        (stair_ns, 333_333),
                        (stair_ns + MS, 1_000_000),
                        (2 * stair_ns, 1_000_000),
                    ],
                    Some(2 * stair_ns + MS),
                ),
            },
            Load::Bursts => Pattern::Bursts {
                gap_ns: gap_ns(200),
                on_ns: 3 * MS,
                off_ns: 27 * MS,
                fixed_phases: true,
            },
        }
    }
}

/// Who keeps what headroom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    /// There is no side work.
    NoSide,
    /// cpu.idle and nothing else.
    CpuIdle,
    /// Tidegate with this headroom, percent, and no objective.
    Asked(u32),
    /// Tidegate with an objective on top of this headroom.
    Found(u32),
}

impl Arm {
    /// In the tables' order.
    pub const ALL: [Arm; 7] = [
        Arm::NoSide,
        Arm::CpuIdle,
        Arm::Asked(0),
        Arm::Asked(20),
        Arm::Asked(40),
        Arm::Found(0),
        Arm::Found(20),
    ];

    /// In tables.
    pub fn label(self) -> String {
        match self {
            Arm::NoSide => "no side work".into(),
            Arm::CpuIdle => "cpu.idle".into(),
            Arm::Asked(pct) => format!("headroom {pct} %"),
            Arm::Found(0) => "objective".into(),
            Arm::Found(pct) => format!("objective, headroom {pct} %"),
        }
    }

    /// In JSON and CSV.
    pub fn key(self) -> String {
        match self {
            Arm::NoSide => "no_side".into(),
            Arm::CpuIdle => "cpu_idle".into(),
            Arm::Asked(pct) => format!("headroom_{pct}"),
            Arm::Found(pct) => format!("objective_{pct}"),
        }
    }

    fn headroom_ppm(self) -> Option<u32> {
        match self {
            Arm::NoSide | Arm::CpuIdle => None,
            Arm::Asked(pct) | Arm::Found(pct) => Some(pct * 10_000),
        }
    }

    fn objective(self) -> Option<DelayObjective> {
        let Arm::Found(pct) = self else { return None };
        Some(DelayObjective {
            late_after_ns: LATE_AFTER_US * 1_000,
            share_ppm: LATE_PPM,
            // Who asks for none has the default to begin with, as in the agent.
            start_ppm: if pct == 0 { START_PPM } else { 0 },
        })
    }
}

/// One simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Size of the machine.
    pub cpus: u32,
    /// How main comes.
    pub load: Load,
    /// Who keeps what.
    pub arm: Arm,
    /// From 0.
    pub round: u32,
}

/// Runs the experiment.
pub fn run(options: &LabOptions) -> Result<Report, LabError> {
    let stage = Stage::new(options);
    let cpus = stage.sizes(&[CPUS])[0];
    let rounds = options.rounds.unwrap_or(stage.quick_or(1, 2)).max(1);
    let seconds = stage.quick_or(30, 120);
    let mut cells = Vec::new();
    for round in 0..rounds {
        for load in Load::ALL {
            cells.extend(Arm::ALL.map(|arm| Cell {
                cpus,
                load,
                arm,
                round,
            }));
        }
    }
    let samples = stage.cells(
        &cells,
        |_| 60 * seconds,
        |c| {
            format!(
                "{}, {}, round {}",
                c.load.label(),
                c.arm.label(),
                c.round + 1
            )
        },
        |c| simulate(*c, seconds, options.seed),
    )?;
    report::report(&stage, cpus, Samples(samples))
}

/// The machine of a cell.
pub fn config(cpus: u32, seed: u64) -> Result<MachineConfig, LabError> {
    let mut config = server(cpus, seed)?;
    // Millions of events each; the tests check.
    config.check = false;
    Ok(config)
}

struct Bed {
    sim: Simulation,
    main: GroupId,
    side: GroupId,
    log: Option<std::sync::Arc<std::sync::Mutex<KnobsLog>>>,
}

fn bed(c: Cell, seed: u64) -> Result<Bed, LabError> {
    let config = config(c.cpus, seed)?;
    let mut specs = [
        GroupSpec {
            class: Class::Main,
            headroom_ppm: c.arm.headroom_ppm().unwrap_or(0),
            objective: c.arm.objective(),
            ..GroupSpec::new("main", GroupId::ROOT)
        },
        GroupSpec {
            class: Class::Side,
            idle: true,
            ..GroupSpec::new("side", GroupId::ROOT)
        },
    ];
    let (mut controllers, mut log): (Vec<Box<dyn Controller>>, _) = (Vec::new(), None);
    if c.arm.headroom_ppm().is_some() {
        let base_slice_ns = EevdfConfig::for_cpus(c.cpus).base_slice_ns;
        let compiled = compile(&mut specs, &mut [], base_slice_ns, config.tick_ns);
        let knobs = KnobsConfig {
            seed,
            ..KnobsConfig::new(Sensing::Bpf)
        };
        let knobs = Knobs::new(knobs, &compiled);
        log = Some(knobs.log());
        controllers.push(Box::new(knobs));
    }
    let mut m = built(Machine::new(config))?;
    let [main, side] = specs.map(|spec| built(m.add_group(spec)));
    let (main, side) = (main?, side?);
    built(m.count_runs(main, LATE_AFTER_US * 1_000))?;
    Ok(Bed {
        sim: Simulation::new(m, controllers),
        main,
        side,
        log,
    })
}

fn simulate(c: Cell, seconds: u64, seed: u64) -> Result<Sample<Cell>, LabError> {
    // The same for every arm.
    let seed = derive(
        seed,
        &[u64::from(c.cpus), c.load as u64, u64::from(c.round)],
    );
    let mut bed = bed(c, seed)?;
    // The search is part of what is measured, but not the agent's own start.
    let from_ns = 4 * S;
    let to_ns = from_ns + seconds * S;
    let common = Common {
        record_from_ns: from_ns,
        seed,
        ..Common::new("main", bed.main)
    };
    let kind = Kind::OpenLoop(OpenLoop {
        workers: 2 * c.cpus,
        work: Work {
            mean_ns: REQUEST_NS,
            shape: Shape::Uniform,
        },
        pattern: c.load.pattern(c.cpus),
    });
    let made = built(kind.build(&common, &mut bed.sim.machine))?;
    if c.arm != Arm::NoSide {
        let common = Common {
            seed,
            ..Common::new("side", bed.side)
        };
        let hogs = Kind::Hog(Hog {
            tasks: c.cpus,
            busy: None,
        });
        built(hogs.build(&common, &mut bed.sim.machine))?;
    }
    let seen = |bed: &Bed| {
        let m = &bed.sim.machine;
        (
            m.runs(bed.main),
            m.work_done_ns(bed.side),
            m.usage_ns(bed.main),
        )
    };
    advance(&mut bed.sim, from_ns)?;
    let (runs, work, used) = seen(&bed);
    let extra = |bed: &Bed| {
        let log = bed.log.as_ref()?.lock().ok()?;
        Some((log.extra_sum_ppm, log.steps, log.raises))
    };
    let before = extra(&bed).unwrap_or_default();
    advance(&mut bed.sim, to_ns)?;
    let (runs_end, work_end, used_end) = seen(&bed);
    let after = extra(&bed).unwrap_or_default();
    let series = made.series.iter().find(|s| s.0 == "latency").map(|s| s.1);
    let m = &bed.sim.machine;
    let wall_ns = (seconds * S) as f64;
    let latency = series.map_or_else(Latency::default, |id| latency(m.series(id)));
    let late_pct = 100.0 * (runs_end.1 - runs.1) as f64 / (runs_end.0 - runs.0).max(1) as f64;
    let extra_pct = (after.0 - before.0) as f64 / (after.1 - before.1).max(1) as f64 / 1e4;
    Ok(Sample::new(c)
        .with("load", c.load.key())
        .with("arm", c.arm.key())
        .with("round", c.round + 1)
        .with("cpus", c.cpus)
        .with("late_pct", late_pct)
        .latency("latency", &latency, &["avg", "p50", "p99", "p999"])
        .with("requests", latency.completed)
        .with("side_work_cpus", (work_end - work) as f64 / wall_ns)
        .with("main_cpus", (used_end - used) as f64 / wall_ns)
        .with("extra_headroom_pct", extra_pct)
        .with("raises", after.2.0)
        .with("raises_in_vain", after.2.1))
}
