//! `tidegate lab burst`: a bursty service under a quota that its mean leaves alone and some periods exceed, with the
//! proportions of the simulator's experiment scaled to this machine: no limit, the quota alone, the kernel's own burst,
//! koordlet's published law (it raises the quota), and `burst = auto`.
//!
//! Every arm meets the same arrivals. Throttling is read from the group's own counters, use from the service's clocks.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::arms::plain;
use crate::cgroup::{Bandwidth, Group, group_of};
use crate::dist::Latency;
use crate::options::LabOptions;
use crate::policies::cpuburst::{INTERVAL_NS, LOOKS};
use crate::policies::{CpuBurst, Look};
use crate::proc::{Worker, WorkerPlan};
use crate::progress::Progress;
use crate::report::Report;
use crate::rng::Rng;
use crate::samplers::proc_stat_idle_total;
use crate::scheduler::{Scheduler, Shared};
use crate::shared_page::SharedPage;
use crate::tidegate::Tidegate;
use crate::{Engine, LabError, clock, stop};

use super::{Setup, burst_report};

/// The period of every quota.
pub const PERIOD_US: u64 = 100_000;
/// The quota, of each CPU: as 700 ms are to the simulator's 500 of mean use.
const QUOTA_US_PER_CPU: u64 = 40_000;
/// Work of a request, of each CPU: twenty each 40 ms make 28.6 ms of mean use in each period.
const REQUEST_US_PER_CPU: u64 = 571;
/// Threads of the service.
pub const WORKERS: usize = 30;

/// How the service is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    /// Not at all.
    NoLimit,
    /// A quota, nothing carried over.
    Quota,
    /// ... with the burst series' burst: four sevenths of the quota.
    Fixed,
    /// A quota that koordlet's law raises.
    Koordlet,
    /// `tidegate run --quota Q --period P --burst auto`.
    Auto,
    /// No limit, under `tidegate ext`.
    ExtNoLimit,
    /// The quota that [`Arm::Quota`] has, which that scheduler honours.
    ExtQuota,
    /// ... and the burst that [`Arm::Fixed`] has.
    ExtFixed,
}

impl Arm {
    /// In the tables' order.
    pub const ALL: [Arm; 8] = [
        Arm::NoLimit,
        Arm::Quota,
        Arm::Fixed,
        Arm::Koordlet,
        Arm::Auto,
        Arm::ExtNoLimit,
        Arm::ExtQuota,
        Arm::ExtFixed,
    ];

    /// Those that are run: the published law is no matter of engines.
    fn of(engine: Engine) -> Vec<Arm> {
        let wanted = |arm: &Arm| match engine {
            Engine::Knobs => !arm.is_ext(),
            Engine::Ext => *arm != Arm::Koordlet,
        };
        Arm::ALL.into_iter().filter(wanted).collect()
    }

    /// Whether the ext engine runs it.
    pub fn is_ext(self) -> bool {
        matches!(self, Arm::ExtNoLimit | Arm::ExtQuota | Arm::ExtFixed)
    }

    fn has_quota(self) -> bool {
        !matches!(self, Arm::NoLimit | Arm::ExtNoLimit)
    }

    /// In tables.
    pub fn label(self) -> &'static str {
        match self {
            Arm::NoLimit => "no limit",
            Arm::Quota => "quota, no burst",
            Arm::Fixed => "quota, burst 4/7",
            Arm::Koordlet => "koordlet's law",
            Arm::Auto => "Tidegate, burst auto",
            Arm::ExtNoLimit => "ext: no limit",
            Arm::ExtQuota => "ext: quota, no burst",
            Arm::ExtFixed => "ext: quota, burst 4/7",
        }
    }

    /// In JSON and CSV.
    pub fn key(self) -> &'static str {
        match self {
            Arm::NoLimit => "no_limit",
            Arm::Quota => "quota",
            Arm::Fixed => "burst_fixed",
            Arm::Koordlet => "koordlet",
            Arm::Auto => "tidegate_auto",
            Arm::ExtNoLimit => "ext_no_limit",
            Arm::ExtQuota => "ext_quota",
            Arm::ExtFixed => "ext_burst_fixed",
        }
    }
}

/// What one arm did in one round.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Which arm.
    pub arm: Arm,
    /// From 0.
    pub round: u32,
    /// From when a request was due to when a thread took it up.
    pub wakeup: Latency,
    /// ... to its end.
    pub request: Latency,
    /// The service's use over the quota that was given.
    pub used_pct: f64,
    /// What the group counted in the window, and its limit at the end.
    pub counted: Bandwidth,
    /// Length of the window.
    pub seconds: f64,
}

/// The sizes of a run.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// The quota.
    pub quota_us: u64,
    /// Work of a request.
    pub request_us: u64,
    /// What the laws have to learn.
    pub warm_s: f64,
    /// The window.
    pub seconds: f64,
}

impl Sizes {
    fn of(cpus: usize, quick: bool) -> Self {
        // Adaptive burst learns from throttling, which comes seldom.
        let (warm_s, seconds) = if quick { (4.0, 4.0) } else { (20.0, 60.0) };
        Sizes {
            quota_us: QUOTA_US_PER_CPU * cpus as u64,
            request_us: REQUEST_US_PER_CPU * cpus as u64,
            warm_s,
            seconds,
        }
    }

    /// The burst series' burst for this quota.
    pub fn burst_us(&self) -> u64 {
        self.quota_us * 4 / 7
    }
}

/// Runs the experiment.
pub fn run(options: &LabOptions) -> Result<Report, LabError> {
    let mut setup = Setup::new(options)?;
    setup.need_hierarchy()?;
    let sizes = Sizes::of(setup.machine.cpus, options.quick);
    let rounds = options.rounds.unwrap_or(1).max(1);
    let length = sizes.warm_s + sizes.seconds + 1.0;
    let mut arms = Arm::of(options.engine);
    let cells = arms.len() as f64;
    let progress = Progress::new("burst", f64::from(rounds) * cells * length, options.quiet);
    let mut rng = Rng::new(options.seed);
    let mut shared = Shared::new(&setup.exe, setup.need_hierarchy()?, Vec::new())?;
    let (mut outcomes, mut missing) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        rng.shuffle(&mut arms);
        // The scheduler's together, so that one start does for all of them.
        arms.sort_by_key(|arm| arm.is_ext());
        for &arm in &arms {
            progress.stage(&format!("round {} of {rounds}, {}", round + 1, arm.label()));
            let made = shared
                .get(arm.is_ext())
                .and_then(|ext| measure(&setup, arm, round, &sizes, options.seed, ext));
            match made {
                Ok(outcome) => outcomes.push(outcome),
                Err(e @ (LabError::Interrupted | LabError::Needs { .. })) => return Err(e),
                Err(e) => missing.push(format!(
                    "{} was left out in round {}: {e}",
                    arm.label(),
                    round + 1
                )),
            }
            progress.done(length);
        }
    }
    drop((progress, shared));
    setup.machine.finish();
    burst_report::report(setup, &sizes, &outcomes, missing)
}

fn measure(
    setup: &Setup,
    arm: Arm,
    round: u32,
    sizes: &Sizes,
    seed: u64,
    ext: Option<&Shared>,
) -> Result<Outcome, LabError> {
    let h = setup.need_hierarchy()?;
    let tidegate = match arm {
        Arm::Auto => Some(Tidegate::start(&setup.exe, None)?),
        _ => None,
    };
    let group = match arm {
        Arm::Auto => None,
        _ => Some(Group::create(h, "limited")?),
    };
    if let (Some(group), true) = (&group, arm.has_quota()) {
        group.set_quota(Some(sizes.quota_us), PERIOD_US)?;
        if matches!(arm, Arm::Fixed | Arm::ExtFixed) {
            group.set_burst(sizes.burst_us())?;
        }
    }
    let join = group.as_ref().map(Group::membership).unwrap_or_default();
    let mut service = start_service(
        setup,
        tidegate.as_ref(),
        &join,
        sizes,
        seed + u64::from(round),
    )?;
    let watched = Watched::new(
        h.v2,
        group_of(h, service.pid()),
        &h.cpu,
        ext.and_then(Shared::scheduler),
    );
    let law = Law {
        group: group.as_ref().filter(|_| arm == Arm::Koordlet),
        watched: &watched,
        quota_us: sizes.quota_us,
        done: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        let driven = scope.spawn(|| law.drive());
        let outcome = window(&mut service, &watched, arm, round, sizes);
        law.done.store(true, Ordering::Release);
        driven
            .join()
            .unwrap_or(Err(LabError::process("koordlet's law", "panicked")))?;
        outcome
    })
}

fn start_service(
    setup: &Setup,
    tidegate: Option<&Tidegate>,
    join: &[PathBuf],
    sizes: &Sizes,
    seed: u64,
) -> Result<Worker, LabError> {
    let plan = WorkerPlan {
        exe: &setup.exe,
        kind: "bursty",
        args: [
            "--request-us",
            &sizes.request_us.to_string(),
            "--seed",
            &seed.to_string(),
        ]
        .map(str::to_string)
        .to_vec(),
        threads: WORKERS,
    };
    let (quota, period) = (format!("{}us", sizes.quota_us), format!("{PERIOD_US}us"));
    Worker::start(&plan, join, &|words| match tidegate {
        Some(t) => t.run(
            &["--quota", &quota, "--period", &period, "--burst", "auto"],
            words,
        ),
        None => plain(words),
    })
}

fn window(
    service: &mut Worker,
    watched: &Watched<'_>,
    arm: Arm,
    round: u32,
    sizes: &Sizes,
) -> Result<Outcome, LabError> {
    stop::sleep_ns((sizes.warm_s * 1e9) as u64)?;
    service.ask("measure")?;
    let before = watched.read();
    let (from_ns, used_ns) = (clock::monotonic_ns(), used(&service.page));
    stop::sleep_ns((sizes.seconds * 1e9) as u64)?;
    let length_ns = (clock::monotonic_ns() - from_ns) as f64;
    let used_ns = (used(&service.page) - used_ns) as f64;
    let counted = watched.read().since(&before);
    watched.still_in_force()?;
    if arm.has_quota() && counted.quota_us.is_none() {
        return Err(LabError::process(
            arm.label(),
            "no group above the service has a quota",
        ));
    }
    Ok(Outcome {
        arm,
        round,
        wakeup: service.report("wakeup")?,
        request: service.report("request")?,
        used_pct: 100.0 * used_ns / (length_ns * sizes.quota_us as f64 / PERIOD_US as f64),
        counted,
        seconds: length_ns / 1e9,
    })
}

fn used(page: &SharedPage) -> u64 {
    page.cpu_ns()
}

/// The group that limits the service, whoever made it: the nearest with a quota, from its own upwards.
struct Watched<'a> {
    v2: bool,
    dirs: Vec<PathBuf>,
    /// Who counts in the kernel's place.
    scheduler: Option<&'a Scheduler>,
}

impl<'a> Watched<'a> {
    fn new(
        v2: bool,
        group: Option<PathBuf>,
        root: &Path,
        scheduler: Option<&'a Scheduler>,
    ) -> Self {
        let dirs = group
            .iter()
            .flat_map(|dir| dir.ancestors())
            .take_while(|dir| dir.starts_with(root) && *dir != root)
            .map(Path::to_path_buf)
            .collect();
        Watched {
            v2,
            dirs,
            scheduler,
        }
    }

    fn read(&self) -> Bandwidth {
        let mut all = self.dirs.iter().map(|dir| Bandwidth::read(self.v2, dir));
        let kernel = all.find(|b| b.quota_us.is_some()).unwrap_or_default();
        match self.scheduler {
            Some(scheduler) => scheduler.bandwidth(kernel),
            None => kernel,
        }
    }

    fn still_in_force(&self) -> Result<(), LabError> {
        self.scheduler.map_or(Ok(()), Scheduler::still_in_force)
    }
}

/// koordlet's law at work on a group; without one it only waits.
struct Law<'a> {
    group: Option<&'a Group>,
    watched: &'a Watched<'a>,
    quota_us: u64,
    done: AtomicBool,
}

impl Law<'_> {
    fn drive(&self) -> Result<(), LabError> {
        let Some(group) = self.group else {
            return Ok(());
        };
        let mut law = CpuBurst::new(self.quota_us);
        let mut stats = vec![proc_stat_idle_total()];
        let mut throttled = self.watched.read().throttled;
        let mut at = clock::monotonic_ns();
        loop {
            at += INTERVAL_NS;
            while clock::monotonic_ns() < at {
                if self.done.load(Ordering::Acquire) {
                    return Ok(());
                }
                clock::sleep_until(at.min(clock::monotonic_ns() + 50_000_000));
            }
            stats.push(proc_stat_idle_total());
            let from = stats[stats.len().saturating_sub(LOOKS + 1)];
            let to = stats[stats.len() - 1];
            let all = (to.1 - from.1).max(1);
            let now = self.watched.read().throttled;
            let look = Look {
                throttled: now > throttled,
                busy_ppm: 1_000_000 * all.saturating_sub(to.0 - from.0) / all,
            };
            throttled = now;
            if let Some(quota_us) = law.look(look) {
                group.set_quota(Some(quota_us), PERIOD_US)?;
            }
        }
    }
}
