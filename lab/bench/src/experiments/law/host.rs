//! On a real kernel: read from the threads' own clocks and the root group.

use std::thread;

use super::patterns::{Pattern, RAMP, SQUARE, Varying, judge};
use super::report::{Form, LawRuns, Visit, Who};
use super::rows::{Constant, Hogs, Row};
use crate::beds::HEADROOM_PCT;
use crate::beds::host::arms::{Arm, Placement, Stage, number};
use crate::beds::host::proc::Worker;
use crate::beds::host::samplers::{Sampler, Snapshot, Source, shares};
use crate::beds::host::tidegate::Tidegate;
use crate::beds::host::{LOUD_PCT, Setup, start_burner, start_constant, start_server};
use crate::loads::work::Work;
use crate::options::LabOptions;
use crate::progress::Progress;
use crate::report::Report;
use crate::rng::Rng;
use crate::{Engine, LabError, clock, stop};

const NS: f64 = 1e9;

/// Seconds of each part.
struct Plan {
    settle: f64,
    window: f64,
    varying: f64,
}

impl Plan {
    fn new(quick: bool) -> Self {
        let (settle, window, varying) = if quick {
            (1.5, 3.0, 6.0)
        } else {
            (3.0, 12.0, 30.0)
        };
        Plan {
            settle,
            window,
            varying,
        }
    }
}

/// The arms of the engine that is asked for.
fn arms(engine: Engine) -> Vec<Arm> {
    let headroom_pct = HEADROOM_PCT as u32;
    let knobs = Arm::Tidegate { headroom_pct };
    match engine {
        Engine::Knobs => vec![knobs],
        Engine::Ext => vec![Arm::CpuIdle, knobs, Arm::Ext { headroom_pct }],
    }
}

fn who(arm: Arm, engine: Engine) -> Who {
    Who {
        key: arm.key(),
        label: arm.label(),
        keeps: arm.headroom_pct().is_some(),
        bound: match (engine, arm) {
            (Engine::Knobs, _) => Some(1.0),
            (Engine::Ext, Arm::Ext { .. }) => Some(0.5),
            _ => None,
        },
        writes: engine == Engine::Knobs,
    }
}

/// Runs the experiment: the knobs alone, or under the kernel's own scheduler with cpu.idle, under the knobs and under the
/// ext engine, one after the other in one boot.
pub fn run(options: &LabOptions) -> Result<Report, LabError> {
    let mut setup = Setup::new(options)?;
    setup.need_hierarchy()?;
    let plan = Plan::new(options.quick);
    let engine = options.engine;
    let rounds = match engine {
        Engine::Knobs => 1,
        Engine::Ext => options.rounds.unwrap_or(1).max(1),
    };
    let mut order = arms(engine);
    let varying_s = |arm: &Arm| match arm.headroom_pct() {
        Some(_) => 3.0 * (1.0 + plan.varying),
        None => 0.0,
    };
    let constant_s = Row::count() * (plan.settle + plan.window);
    let each = order.iter().map(|arm| constant_s + varying_s(arm));
    let total = f64::from(rounds) * each.sum::<f64>();
    let progress = Progress::new("law", total, options.quiet);
    let mut rng = Rng::new(options.seed);
    let (mut visits, mut sensing) = (Vec::new(), None);
    for _ in 0..rounds {
        rng.shuffle(&mut order);
        for &arm in &order {
            let (visit, sensed) = visit(&setup, arm, options, &plan, &progress)?;
            visits.push(visit);
            sensing = sensing.or(sensed);
        }
    }
    drop(progress);
    setup.machine.finish();
    let found = LawRuns {
        form: match engine {
            Engine::Knobs => Form::Knobs,
            Engine::Ext => Form::Ext,
        },
        visits,
        who: arms(engine).iter().map(|arm| who(*arm, engine)).collect(),
        sensing,
    };
    let cpus = setup.machine.cpus as u32;
    let mut report = found.report(setup.machine, cpus)?;
    report.notes = notes(&found, &plan);
    Ok(report)
}

fn notes(found: &LawRuns, plan: &Plan) -> Vec<String> {
    let window_s = plan.window;
    if found.form == Form::Ext {
        return vec![format!(
            "Due is what the terms ask: the headroom, or what main, the rest and the tolerance (1 %) leave. Windows of \
         {window_s:.0} s, read from the threads' own clocks; other is the lab and who keeps the headroom (the agent, or the \
         process that has loaded the scheduler). What the kernel does for nobody (interrupts in idle) counts as idle."
        )];
    }
    let sensing = found.sensing.as_deref().unwrap_or_default();
    let mut notes = vec![format!(
        "Sensing: {sensing}. Due is what the terms ask: the headroom, or what main, the rest and the \
         tolerance (1 %) leave. Other programs count as main, as in the law. Side is a burner of one \
         thread a CPU. Read from the threads' own clocks and the root group, not from the agent."
    )];
    let loudest = found.loudest();
    if loudest > LOUD_PCT {
        notes.push(format!(
            "Other programs used up to {loudest:.0} % of the machine, so targets are not judged: run it \
             again on a quiet machine."
        ));
    }
    notes
}

fn visit(
    setup: &Setup,
    arm: Arm,
    options: &LabOptions,
    plan: &Plan,
    progress: &Progress,
) -> Result<(Visit, Option<String>), LabError> {
    let tidegate = match arm {
        Arm::Tidegate { .. } => Some(Tidegate::start(&setup.exe, options.sense)?),
        _ => None,
    };
    let stage = Stage {
        exe: &setup.exe,
        hierarchy: setup.hierarchy.as_ref().ok(),
        tidegate: tidegate.as_ref(),
    };
    let placement = Placement::new(&stage, arm)?;
    let main = start_constant(setup, &placement, 300_000)?;
    let at = At {
        setup,
        placement: &placement,
        tidegate: tidegate.as_ref(),
        main: &main,
    };
    let how = match options.engine {
        Engine::Knobs => String::new(),
        Engine::Ext => format!("{}, ", arm.label()),
    };
    let (constant, side) = at.levels(plan, progress, &how)?;
    let bench = at.bench(&side);
    let mut varying = Vec::new();
    // cpu.idle keeps nothing idle, whatever main does.
    if arm.headroom_pct().is_some() {
        for pattern in [SQUARE, RAMP] {
            progress.stage(&format!("{how}main as a {}", pattern.name));
            varying.push(bench.varying(&pattern, plan.varying, options.seed)?);
            progress.done(1.0 + plan.varying);
        }
        progress.stage(&format!("{how}main as an open-loop server"));
        varying.push(bench.poisson(plan.varying, options.seed)?);
        progress.done(1.0 + plan.varying);
    }
    placement.still_in_force()?;
    stop::check()?;
    let visit = Visit {
        who: who(arm, options.engine),
        cpus: setup.machine.cpus as u32,
        constant,
        varying,
    };
    Ok((visit, tidegate.map(|t| t.sensing().to_string())))
}

/// Where main is at work.
struct At<'a> {
    setup: &'a Setup,
    placement: &'a Placement<'a>,
    tidegate: Option<&'a Tidegate>,
    main: &'a Worker,
}

impl<'a> At<'a> {
    fn bench<'b>(&self, side: &'b Worker) -> Bench<'b>
    where
        'a: 'b,
    {
        let hierarchy = self.setup.hierarchy.as_ref().ok();
        let pids = [self.main.pid(), side.pid()];
        Bench {
            sampler: Sampler::new(hierarchy, &pids, self.placement.keeper_pid()),
            setup: self.setup,
            placement: self.placement,
            tidegate: self.tidegate,
            main: self.main,
            side,
        }
    }

    /// Every row, and the side work of the last, which has a thread for each CPU.
    fn levels(
        &self,
        plan: &Plan,
        progress: &Progress,
        how: &str,
    ) -> Result<(Vec<Constant>, Worker), LabError> {
        let mut found = Vec::new();
        let burner = |hogs: Hogs| {
            let threads = hogs.threads(self.setup.machine.cpus);
            start_burner(self.setup, self.placement, threads)
        };
        let mut hogs = Hogs::One;
        let mut side = burner(hogs)?;
        for row in Row::all() {
            if row.hogs != hogs {
                hogs = row.hogs;
                side = burner(hogs)?;
            }
            progress.stage(&format!("{how}main at {} %", row.label()));
            found.push(self.bench(&side).constant(row, plan)?);
            progress.done(plan.settle + plan.window);
        }
        Ok((found, side))
    }
}

/// Main and side at work.
struct Bench<'a> {
    setup: &'a Setup,
    placement: &'a Placement<'a>,
    sampler: Sampler,
    /// An agent that tells how often it writes.
    tidegate: Option<&'a Tidegate>,
    main: &'a Worker,
    side: &'a Worker,
}

impl Bench<'_> {
    fn snapshot(&self) -> Snapshot {
        let main = Source::Page(&self.main.page);
        self.sampler.snapshot(&main, &Source::Page(&self.side.page))
    }

    fn order(&self, level_ppm: u32) {
        let now = clock::monotonic_ns();
        self.main.page.order_level(level_ppm, now, now);
    }

    fn constant(&self, row: Row, plan: &Plan) -> Result<Constant, LabError> {
        self.order(row.main_pct * 10_000);
        stop::sleep_ns((plan.settle * NS) as u64)?;
        let status = || self.tidegate.map(Tidegate::status).transpose();
        let before = status()?;
        let from = self.snapshot();
        stop::sleep_ns((plan.window * NS) as u64)?;
        let to = self.snapshot();
        let after = status()?;
        let s = shares(&from, &to, self.setup.machine.cpus);
        // The agent counts over its last 10 s, which in a short window holds the step before it:
        // there its total is the better counter, though it counts every kind of write.
        let quota_writes = match (before, after) {
            (_, Some(after)) if plan.window >= 10.0 => number(&after, "quota_writes_per_second"),
            (Some(before), Some(after)) => {
                (number(&after, "writes_total") - number(&before, "writes_total")) / s.seconds
            }
            _ => f64::NAN,
        };
        Ok(Constant::new(row, s, self.setup.machine.cpus, quota_writes))
    }

    /// Main follows the pattern from a thread of its own, so that reading does not delay it.
    fn varying(&self, pattern: &Pattern, seconds: f64, seed: u64) -> Result<Varying, LabError> {
        let start = clock::monotonic_ns();
        let end = start + ((1.0 + seconds) * NS) as u64;
        let looks = thread::scope(|scope| {
            let driver = scope.spawn(move || -> Result<(), LabError> {
                let mut rng = Rng::new(seed);
                let mut step = 0u32;
                loop {
                    let t = f64::from(step) * pattern.hold;
                    let at = start + (t * NS) as u64;
                    if at >= end {
                        return Ok(());
                    }
                    stop::sleep_until(at)?;
                    self.order((pattern.level_ppm)(t, &mut rng));
                    step += 1;
                }
            });
            let looks = look_until(start, end, || self.snapshot());
            driver
                .join()
                .unwrap_or(Err(LabError::process("main's driver", "panicked")))?;
            looks
        })?;
        Ok(judge(pattern.name, &looks, self.setup.machine.cpus))
    }

    /// Main is a server at 40 % of the machine with Poisson arrivals: bursts of milliseconds.
    fn poisson(&self, seconds: f64, seed: u64) -> Result<Varying, LabError> {
        self.order(0);
        let steps_per_ms = Work::new(1).calibrate(10);
        let server = start_server(self.setup, self.placement, 0.4, steps_per_ms, seed)?;
        let pids = [self.main.pid(), self.side.pid(), server.pid()];
        let h = self.setup.hierarchy.as_ref().ok();
        let sampler = Sampler::new(h, &pids, self.placement.keeper_pid());
        let start = clock::monotonic_ns();
        let end = start + ((1.0 + seconds) * NS) as u64;
        let looks = look_until(start, end, || {
            let main = Source::Two(&self.main.page, &server.page);
            sampler.snapshot(&main, &Source::Page(&self.side.page))
        })?;
        Ok(judge(
            "server, Poisson arrivals, 40 %",
            &looks,
            self.setup.machine.cpus,
        ))
    }
}

/// A look every 100 ms, after a second in which the controller finds the new pattern.
fn look_until(
    start: u64,
    end: u64,
    look: impl Fn() -> Snapshot,
) -> Result<Vec<Snapshot>, LabError> {
    let mut looks = Vec::new();
    let mut at = start + 1_000_000_000;
    while at <= end {
        stop::sleep_until(at)?;
        looks.push(look());
        at += 100_000_000;
    }
    Ok(looks)
}
