//! On a real kernel: side's CPU is read from outside each millisecond. The published laws run in the same run and in turns.
//!
//! They take many seconds to come back up, so before a step they are put into the state that they would be in after a long
//! time at 10 % (`Policy::prime`), except in the steps that measure giving back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use tidegate_sim::policies::{Counters, Koordlet, Order, Policy, Sideloader};

use super::report::{Step, Who, bins, sample};
use super::{HIGH_PCT, LOW_PCT};
use crate::beds::host::arms::{Arm, Placement, Stage};
use crate::beds::host::cgroup::Group;
use crate::beds::host::samplers::{
    Sample, Sampler, Source, proc_stat_idle_total, sample_during, shares,
};
use crate::beds::host::tidegate::Tidegate;
use crate::beds::host::{LOUD_PCT, Setup, kept, start_burner, start_constant};
use crate::beds::{HEADROOM_PCT, TOLERANCE_PCT};
use crate::experiments::settle::{Point, Trace};
use crate::loads::shared_page::SharedPage;
use crate::options::{LabOptions, Sense};
use crate::progress::Progress;
use crate::report::{Report, Sample as Measured};
use crate::rng::Rng;
use crate::{Engine, LabError, clock, stop};

const NS: f64 = 1e9;
/// The unit of /proc/stat.
const TICK_NS: u64 = 10_000_000;

/// A controller of side work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// Tidegate's own scheduler.
    Ext,
    /// Tidegate, with one of its sensors.
    Tidegate(Sense),
    /// A published law.
    Sideloader,
    /// Another.
    Koordlet,
}

/// In the tables' order.
const ALL: [Controller; 5] = [
    Controller::Ext,
    Controller::Tidegate(Sense::Bpf),
    Controller::Tidegate(Sense::Usage),
    Controller::Sideloader,
    Controller::Koordlet,
];

impl Controller {
    fn who(self) -> Who {
        let (key, label, target_ms) = match self {
            Controller::Ext => ("ext", "Tidegate, ext engine", Some(2.0)),
            Controller::Tidegate(Sense::Bpf) => {
                ("tidegate_bpf", "Tidegate, BPF sensing", Some(20.0))
            }
            Controller::Tidegate(Sense::Usage) => {
                ("tidegate_usage", "Tidegate, usage files", Some(60.0))
            }
            Controller::Sideloader => ("sideloader", "sideloader's law (1 s)", None),
            Controller::Koordlet => ("koordlet", "koordlet's law (1 s)", None),
        };
        Who {
            key,
            label,
            target_ms,
        }
    }

    /// What side should get by this controller's own law.
    pub fn allowance_pct(self, cpus: usize, busy_pct: f64) -> f64 {
        match self {
            Controller::Ext | Controller::Tidegate(_) => {
                (100.0 - HEADROOM_PCT - busy_pct).max(TOLERANCE_PCT)
            }
            Controller::Sideloader | Controller::Koordlet => self
                .policy(cpus)
                .map_or(0.0, |law| law.allowance_ppm(ppm(busy_pct)) as f64 / 1e4),
        }
    }

    /// Not a published law.
    fn is_ours(self) -> bool {
        matches!(self, Controller::Ext | Controller::Tidegate(_))
    }

    fn policy(self, cpus: usize) -> Option<Box<dyn Policy>> {
        match self {
            Controller::Ext | Controller::Tidegate(_) => None,
            Controller::Sideloader => {
                Some(Box::new(Sideloader::new(cpus as u32, ppm(HEADROOM_PCT))))
            }
            Controller::Koordlet => Some(Box::new(Koordlet::new(cpus as u32))),
        }
    }
}

/// Percent as the laws take it.
fn ppm(pct: f64) -> u64 {
    (pct * 1e4).round() as u64
}

/// Seconds of one step: quiet before, high, and quiet after it when giving back is measured.
#[derive(Clone, Copy)]
struct Timing {
    low: f64,
    high: f64,
    back: f64,
}

/// Runs the experiment.
pub fn run(options: &LabOptions) -> Result<Report, LabError> {
    let mut setup = Setup::new(options)?;
    setup.need_hierarchy()?;
    let mut controllers = vec![
        Controller::Tidegate(Sense::Bpf),
        Controller::Tidegate(Sense::Usage),
        Controller::Sideloader,
        Controller::Koordlet,
    ];
    if options.engine == Engine::Ext {
        controllers.insert(0, Controller::Ext);
        controllers.retain(|c| c.is_ours());
    }
    if let Some(only) = options.sense {
        controllers.retain(|c| !matches!(c, Controller::Tidegate(s) if *s != only));
    }
    let (rounds, each) = match (options.quick, options.rounds) {
        (true, n) => (1, n.unwrap_or(5)),
        (false, n) => (n.unwrap_or(4), 5),
    };
    let length = |c: Controller| {
        let t = timing(c, options.quick);
        // Tidegate gives back after each step, a law after its last one.
        let backs = if c.is_ours() { f64::from(each) } else { 1.0 };
        f64::from(each) * (t.low + t.high) + backs * t.back + 1.2
    };
    let total: f64 = f64::from(rounds) * controllers.iter().map(|&c| length(c)).sum::<f64>();
    let progress = Progress::new("step", total, options.quiet);
    let mut rng = Rng::new(options.seed);
    let mut steps: Vec<Measured<Step>> = Vec::new();
    let mut missing: Vec<String> = Vec::new();
    for round in 0..rounds {
        rng.shuffle(&mut controllers);
        for &controller in &controllers {
            let label = controller.who().label;
            let name = format!("round {} of {rounds}, {label}", round + 1);
            progress.stage(&name);
            let made = visit(&setup, controller, each, options.quick, &mut rng);
            steps.extend(kept(made, &name, &mut missing)?.into_iter().flatten());
            progress.done(length(controller));
        }
    }
    drop(progress);
    setup.machine.finish();
    report(setup, steps, missing)
}

fn report(
    setup: Setup,
    steps: Vec<Measured<Step>>,
    missing: Vec<String>,
) -> Result<Report, LabError> {
    if steps.is_empty() {
        return Err(LabError::process("step", missing.join(" ")));
    }
    let mut report =
        super::report::report(setup.machine, steps, Some(&ALL.map(Controller::who)), |_| 0)?;
    report.notes.splice(0..0, missing);
    report.notes.push(
        "Settled: the least t for which side's mean rate over [t, t + 20 ms] and over [t, t + 200 ms] \
         is within 5 points of its new allowance by that controller's own law. Reaction: side's CPU \
         above the new allowance over the first second, over the drop. Went on: the most that side had beyond its new \
         allowance by any moment of the next half second, as a length of time in which it took all that main left free \
         (a single stretch of 1 ms of its tolerance counts for 5 ms there). Above and below: the greatest \
         difference of any 200 ms mean after settling. Given back: the least t after main's step down \
         for which the mean over [t, t + 200 ms] is within 5 points. Read each millisecond from the \
         side threads' own clocks. Every controller has its side work in a group with cpu.idle; before \
         each step the published laws are put in their steady state at 10 %, and a law's giving back \
         is measured only in the full run."
            .into(),
    );
    Ok(report)
}

fn timing(controller: Controller, quick: bool) -> Timing {
    let (low, high, back) = match (controller, quick) {
        (c, true) if c.is_ours() => (0.7, 1.05, 0.8),
        (c, false) if c.is_ours() => (1.0, 1.5, 2.0),
        (_, true) => (0.6, 2.1, 0.0),
        // Sideloader looks back 5 s, and koordlet raises by 10 % of the machine a second.
        (_, false) => (1.0, 3.0, 12.0),
    };
    Timing { low, high, back }
}

/// Several steps of one controller, main and side kept throughout.
fn visit(
    setup: &Setup,
    controller: Controller,
    each: u32,
    quick: bool,
    rng: &mut Rng,
) -> Result<Vec<Measured<Step>>, LabError> {
    let hierarchy = setup.need_hierarchy()?;
    let tidegate = match controller {
        Controller::Tidegate(sense) => Some(Tidegate::start(&setup.exe, Some(sense))?),
        _ => None,
    };
    if let (Controller::Tidegate(sense), Some(t)) = (controller, &tidegate)
        && t.sensing() != sense.name()
    {
        let why = format!("the agent senses by {} here", t.sensing());
        return Err(LabError::process(controller.who().label, why));
    }
    let headroom_pct = HEADROOM_PCT as u32;
    let arm = match controller {
        Controller::Ext => Arm::Ext { headroom_pct },
        Controller::Tidegate(_) => Arm::Tidegate { headroom_pct },
        _ => Arm::CpuIdle,
    };
    let stage = Stage {
        exe: &setup.exe,
        hierarchy: Some(hierarchy),
        tidegate: tidegate.as_ref(),
    };
    let placement = Placement::new(&stage, arm)?;
    let main = start_constant(setup, &placement, (LOW_PCT * 1e4) as u32)?;
    let side = start_burner(setup, &placement, setup.machine.cpus)?;
    let visit = Visit {
        setup,
        controller,
        timing: timing(controller, quick),
        quick,
        main: &main.page,
        side: &side.page,
        sampler: Sampler::new(
            Some(hierarchy),
            &[main.pid(), side.pid()],
            placement.keeper_pid(),
        ),
    };
    match (
        controller.policy(setup.machine.cpus),
        placement.side_group(),
    ) {
        (Some(policy), Some(group)) => {
            // Settled before the first step like everyone else.
            let driver = Driver {
                policy: Mutex::new(policy),
                group,
                done: AtomicBool::new(false),
            };
            driver.prime()?;
            thread::scope(|scope| {
                let ticking = scope.spawn(|| driver.tick_until_done());
                let steps = visit.steps(each, Some(&driver), rng);
                driver.done.store(true, Ordering::Release);
                let ticked = ticking.join();
                let steps = steps?;
                ticked.unwrap_or(Err(LabError::process("policy", "panicked")))?;
                Ok(steps)
            })
        }
        _ => {
            // A fresh agent starts at the tolerance and ramps up.
            stop::sleep_ns((0.8 * NS) as u64)?;
            let steps = visit.steps(each, None, rng)?;
            placement.still_in_force()?;
            Ok(steps)
        }
    }
}

/// A published law at work on a group.
struct Driver<'a> {
    policy: Mutex<Box<dyn Policy>>,
    group: &'a Group,
    done: AtomicBool,
}

impl Driver<'_> {
    fn counters(&self) -> Counters {
        let (idle_ticks, total_ticks) = proc_stat_idle_total();
        Counters {
            idle_ns: idle_ticks * TICK_NS,
            total_ns: total_ticks * TICK_NS,
            side_ns: self.group.usage_ns(),
            ..Counters::default()
        }
    }

    fn prime(&self) -> Result<(), LabError> {
        let mut policy = self.policy.lock().unwrap_or_else(PoisonError::into_inner);
        let order = policy.prime(ppm(LOW_PCT), self.counters());
        self.obey(order, policy.period_us())
    }

    fn obey(&self, order: Order, period_us: u64) -> Result<(), LabError> {
        match order {
            Order::Quota(quota_us) => self.group.set_quota(Some(quota_us), period_us),
            Order::Pool { .. } => Err(LabError::process("policy", "the lab's group has no cpuset")),
        }
    }

    fn tick_until_done(&self) -> Result<(), LabError> {
        let interval = self
            .policy
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .interval_ns();
        let mut at = clock::monotonic_ns();
        while !self.done.load(Ordering::Acquire) {
            at += interval;
            while clock::monotonic_ns() < at && !self.done.load(Ordering::Acquire) {
                clock::sleep_until(at.min(clock::monotonic_ns() + 50_000_000));
            }
            let mut policy = self.policy.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(order) = policy.tick(self.counters()) {
                self.obey(order, policy.period_us())?;
            }
        }
        Ok(())
    }
}

struct Visit<'a> {
    setup: &'a Setup,
    controller: Controller,
    timing: Timing,
    quick: bool,
    main: &'a SharedPage,
    side: &'a SharedPage,
    sampler: Sampler,
}

impl Visit<'_> {
    fn steps(
        &self,
        each: u32,
        driver: Option<&Driver<'_>>,
        rng: &mut Rng,
    ) -> Result<Vec<Measured<Step>>, LabError> {
        let mut steps: Vec<Measured<Step>> = Vec::new();
        // What others spoilt is tried again, where there is time for it.
        let spare = if self.quick { 0 } else { each };
        for attempt in 0..each + spare {
            let good = steps.iter().filter(|s| s.key.valid).count() as u32;
            if good == each {
                break;
            }
            let last = good + 1 == each;
            if let Some(driver) = driver.filter(|_| attempt > 0) {
                driver.prime()?;
            }
            // Tidegate gives back before each next step anyway; a law only in its last one.
            let back = if driver.is_none() || last {
                self.timing.back
            } else {
                0.0
            };
            let jitter = rng.unit();
            steps.extend(self.step(jitter, back)?);
        }
        Ok(steps)
    }

    /// One step up, and back down; the trace runs from before the one to well after the other.
    fn step(&self, jitter: f64, back: f64) -> Result<Option<Measured<Step>>, LabError> {
        let t = self.timing;
        let look = || {
            self.sampler
                .snapshot(&Source::Page(self.main), &Source::Page(self.side))
        };
        let (done, samples) = sample_during(self.main, self.side, || {
            let now = clock::monotonic_ns();
            let before = look();
            let up = now + ((t.low * 0.85 + t.low * 0.3 * jitter) * NS) as u64;
            let down = up + (t.high * NS) as u64;
            self.main.order_level((HIGH_PCT * 1e4) as u32, up, now);
            stop::sleep_until(up + 10_000_000)?;
            self.main
                .order_level((LOW_PCT * 1e4) as u32, down, clock::monotonic_ns());
            stop::sleep_until(down)?;
            let other_pct = shares(&before, &look(), self.setup.machine.cpus).other_pct;
            stop::sleep_until(down + (back * NS) as u64)?;
            Ok::<_, LabError>((up, down, other_pct))
        });
        let (up, down, other_pct) = done?;
        Ok(self.judge(&samples, (up, down), back, other_pct))
    }

    fn judge(
        &self,
        samples: &[Sample],
        (up, down): (u64, u64),
        back: f64,
        other_pct: f64,
    ) -> Option<Measured<Step>> {
        let points: Vec<Point> = samples.iter().map(Point::from).collect();
        let cpus = self.setup.machine.cpus;
        let trace = Trace {
            points: &points,
            cpus: cpus as f64,
        };
        let allowance = |busy| self.controller.allowance_pct(cpus, busy);
        let step = trace.step_down(up, allowance(HIGH_PCT), down)?;
        let cut_ms = trace.cut_ms(up, allowance(HIGH_PCT), 100.0 - HIGH_PCT);
        let give_back_ms = (back > 0.25).then(|| trace.give_back_ms(down, allowance(LOW_PCT)));
        let last = (down - up) / 10_000_000 + 20;
        let valid = (step.old_pct - allowance(LOW_PCT)).abs() <= 10.0 && other_pct <= LOUD_PCT;
        let key = Step {
            who: self.controller.who(),
            cpus: None,
            valid,
            trace: bins(&trace, up, 0..last),
        };
        Some(
            sample(key, &step, give_back_ms, allowance(HIGH_PCT))
                .with("went_on_ms", cut_ms.unwrap_or(f64::INFINITY))
                .with("other_pct", other_pct),
        )
    }
}
