//! `tidegate lab burst`: a bursty service under a quota that its mean leaves alone and some periods exceed, with the
//! proportions of the simulator's experiment scaled to this machine: no limit, the quota alone, the kernel's own burst,
//! koordlet's published law (it raises the quota), and `burst = auto`.
//!
//! Every arm meets the same arrivals. Throttling is read from the group's own counters, use from the service's clocks.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::report::{BurstRuns, Service};
use super::{Arm, HOST, Limit, Run};
use crate::beds::host::arms::plain;
use crate::beds::host::cgroup::{Bandwidth, Group, group_of};
use crate::beds::host::proc::{Worker, WorkerPlan};
use crate::beds::host::samplers::proc_stat_idle_total;
use crate::beds::host::scheduler::{Scheduler, Shared};
use crate::beds::host::tidegate::Tidegate;
use crate::beds::host::{Setup, kept};
use crate::loads::bursty::Batches;
use crate::loads::shared_page::SharedPage;
use crate::options::LabOptions;
use crate::policies::cpuburst::{INTERVAL_NS, LOOKS};
use crate::policies::{CpuBurst, Look};
use crate::progress::Progress;
use crate::report::{Report, Sample};
use crate::rng::Rng;
use crate::{Engine, LabError, clock, stop};

/// The period of every quota.
pub const PERIOD_US: u64 = 100_000;
/// The quota, of each CPU: as 700 ms are to the simulator's 500 of mean use.
const QUOTA_US_PER_CPU: u64 = 40_000;
/// Work of a request, of each CPU: twenty each 40 ms make 28.6 ms of mean use in each period.
const REQUEST_US_PER_CPU: u64 = 571;
/// Threads of the service.
pub const WORKERS: usize = 30;

/// Those arms that are run: the published law is no matter of engines.
fn arms(engine: Engine) -> Vec<Arm> {
    let wanted = |arm: &Arm| match engine {
        Engine::Knobs => !arm.ext,
        Engine::Ext => arm.limit != Limit::Koordlet,
    };
    HOST.into_iter().filter(wanted).collect()
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

    fn service(&self) -> Service {
        Service {
            quota_us: self.quota_us,
            period_us: PERIOD_US,
            work_us: self.request_us as f64,
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
    let mut arms = arms(options.engine);
    let cells = arms.len() as f64;
    let progress = Progress::new("burst", f64::from(rounds) * cells * length, options.quiet);
    let mut rng = Rng::new(options.seed);
    let mut shared = Shared::new(&setup.exe, setup.need_hierarchy()?, Vec::new())?;
    let (mut samples, mut missing) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        rng.shuffle(&mut arms);
        // The scheduler's together, so that one start does for all of them.
        arms.sort_by_key(|arm| arm.ext);
        for &arm in &arms {
            let name = format!("round {} of {rounds}, {}", round + 1, arm.label);
            progress.stage(&name);
            let made = shared
                .get(arm.ext)
                .and_then(|ext| measure(&setup, Run { arm, round }, &sizes, options.seed, ext));
            samples.extend(kept(made, &name, &mut missing)?);
            progress.done(length);
        }
    }
    drop((progress, shared));
    setup.machine.finish();
    report(setup, &sizes, samples, missing)
}

fn report(
    setup: Setup,
    sizes: &Sizes,
    samples: Vec<Sample<Run>>,
    missing: Vec<String>,
) -> Result<Report, LabError> {
    if samples.is_empty() {
        return Err(LabError::process("burst", missing.join(" ")));
    }
    let service = sizes.service();
    let found = BurstRuns::new(samples, &HOST, &service);
    let ms = |us: u64| us as f64 / 1000.0;
    let (quota, work) = (ms(sizes.quota_us), ms(sizes.request_us));
    let mean = Batches::PLAN.per_second() * work / 10.0;
    let mut report = found.report(
        setup.machine,
        &format!("Quota {quota:.0} ms in 100 ms, mean use {mean:.0} ms"),
        &format!(
            "What a request waits (its latency less its own {work:.2} ms) beside the burst series' wakeup latency, us"
        ),
    )?;
    report.headline = found.host_headline();
    report.tables.push(found.counters());
    let b = Batches::PLAN;
    report.notes.push(format!(
        "{WORKERS} threads, requests of {work:.2} ms, a batch each 40 ms over 20 ms: {} requests, or {} with odds of one \
         in three: the proportions of the simulator's experiment, whose quota is 700 ms. Each arm runs for {:.0} s, of \
         which the last {:.0} count. Throttling is what the group itself counts, over all its CPUs; use is the \
         service's own clocks over the quota that was given (koordlet's law raises it). koordlet's law: × 1.2 each \
         second in which the group was throttled, × 0.8 while half of the machine is in use, up to three times.",
        b.small,
        b.large,
        sizes.warm_s + sizes.seconds,
        sizes.seconds,
    ));
    if found.arms.iter().any(|a| a.ext) {
        report.notes.push(
            "Under the ext engine the group's quota and burst are the files that the fair class has, cpu.max and \
             cpu.max.burst; what was throttled is counted by the scheduler, once a second, over what had to wait. Each \
             arm's p99 stands over no limit under the same scheduler."
                .into(),
        );
    }
    report.notes.extend(missing);
    Ok(report)
}

fn measure(
    setup: &Setup,
    run: Run,
    sizes: &Sizes,
    seed: u64,
    ext: Option<&Shared>,
) -> Result<Sample<Run>, LabError> {
    let (limit, seed) = (run.arm.limit, seed + u64::from(run.round));
    let h = setup.need_hierarchy()?;
    let tidegate = match limit {
        Limit::Auto => Some(Tidegate::start(&setup.exe, None)?),
        _ => None,
    };
    let group = match limit {
        Limit::Auto => None,
        _ => Some(Group::create(h, "limited")?),
    };
    if let (Some(group), true) = (&group, limit != Limit::None) {
        group.set_quota(Some(sizes.quota_us), PERIOD_US)?;
        if limit == Limit::Burst {
            group.set_burst(sizes.burst_us())?;
        }
    }
    let join = group.as_ref().map(Group::membership).unwrap_or_default();
    let mut service = start_service(setup, tidegate.as_ref(), &join, sizes, seed)?;
    let watched = Watched::new(
        h.v2,
        group_of(h, service.pid()),
        &h.cpu,
        ext.and_then(Shared::scheduler),
    );
    let law = Law {
        group: group.as_ref().filter(|_| limit == Limit::Koordlet),
        watched: &watched,
        quota_us: sizes.quota_us,
        done: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        let driven = scope.spawn(|| law.drive());
        let sample = window(&mut service, &watched, run, sizes);
        law.done.store(true, Ordering::Release);
        driven
            .join()
            .unwrap_or(Err(LabError::process("koordlet's law", "panicked")))?;
        sample
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
    run: Run,
    sizes: &Sizes,
) -> Result<Sample<Run>, LabError> {
    stop::sleep_ns((sizes.warm_s * 1e9) as u64)?;
    service.ask("measure")?;
    let before = watched.read();
    let (from_ns, used_ns) = (clock::monotonic_ns(), used(&service.page));
    stop::sleep_ns((sizes.seconds * 1e9) as u64)?;
    let length_ns = (clock::monotonic_ns() - from_ns) as f64;
    let used_ns = (used(&service.page) - used_ns) as f64;
    let counted = watched.read().since(&before);
    watched.still_in_force()?;
    if run.arm.limit != Limit::None && counted.quota_us.is_none() {
        return Err(LabError::process(
            run.arm.label,
            "no group above the service has a quota",
        ));
    }
    let seconds = length_ns / 1e9;
    // Where nothing was counted, nothing is known: no figure, rather than a zero.
    let known = |value: f64| match run.arm.ext && counted.periods == 0 {
        true => f64::NAN,
        false => value,
    };
    let throttled_pct = 100.0 * counted.throttled as f64 / counted.periods.max(1) as f64;
    let used_pct = 100.0 * used_ns / (length_ns * sizes.quota_us as f64 / PERIOD_US as f64);
    let (wakeup, request) = (service.report("wakeup")?, service.report("request")?);
    Ok(sizes
        .service()
        .sample(run, &wakeup, &request)
        .with("used_pct_of_quota", used_pct)
        .with("periods", counted.periods)
        .with("throttled_periods", counted.throttled)
        .with(
            "throttled_ms_per_second",
            known(counted.throttled_ns as f64 / 1e6 / seconds),
        )
        .with("bursts", counted.bursts)
        .with("quota_us_at_end", counted.quota_us)
        .with("burst_us_at_end", counted.burst_us)
        .with("seconds", seconds)
        .aside("throttled_periods_pct", known(throttled_pct))
        .aside("burst_ms_at_end", counted.burst_us as f64 / 1000.0))
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
