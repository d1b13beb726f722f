//! `tidegate lab slices --engine ext`: the small quota of commit de53fd7aedb1 on as many CPUs as there are, under the kernel's
//! own scheduler and under the ext engine; beside them slices that expire, which no kernel has had since 5.4, simulated.
//!
//! Two loads have the quota: fibtest (a thread computes without end, on each other CPU one works a moment and sleeps), and bursts
//! on all CPUs at the same moments whose mean is below the quota, once with it and once without.

use super::host_cells::{GAP_US, Kernel, Load, Run};
use super::{Excess, PERIOD_US, QUOTA_US, Used, host_report, sim as simulated, sim_cells};
use crate::beds::host::arms::plain;
use crate::beds::host::cgroup::{Bandwidth, Group};
use crate::beds::host::proc::{Worker, WorkerPlan};
use crate::beds::host::scheduler::Scheduler;
use crate::beds::host::{Setup, kept};
use crate::beds::sim::S;
use crate::loads::shared_page::SharedPage;
use crate::options::LabOptions;
use crate::progress::Progress;
use crate::report::{Report, Sample, Samples};
use crate::{LabError, clock, stop};

/// Where in a period use is looked at: one of these is in the part in which nothing is left, whenever the group's period began.
const PHASES: usize = 10;
/// The first second fills silos that start empty.
const WARM_S: u64 = 1;

/// Runs the experiment.
pub fn run(options: &LabOptions) -> Result<Report, LabError> {
    let mut setup = Setup::new(options)?;
    setup.need_hierarchy()?;
    let seconds = if options.quick { 3 } else { 10 };
    let rounds = options.rounds.unwrap_or(1).max(1);
    let length = (WARM_S + seconds) as f64 + 1.0;
    let cells = f64::from(rounds) * 2.0 * Load::ALL.len() as f64;
    let progress = Progress::new("slices", cells * length, options.quiet);
    let (mut samples, mut missing) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        for kernel in [Kernel::Eevdf, Kernel::Ext] {
            // One start for all loads: checking the programs takes the bed longer than a load.
            let scheduler = match kernel {
                Kernel::Ext => Some(Scheduler::start(&setup.exe, &[])?),
                _ => None,
            };
            for load in Load::ALL {
                let name = format!("{}, {}", kernel.label(), load.key());
                progress.stage(&name);
                let run = Run { kernel, load };
                let made = measure(&setup, scheduler.as_ref(), run, round, seconds);
                samples.extend(kept(made, &name, &mut missing)?);
                progress.done(length);
            }
        }
    }
    samples.extend(simulate(&setup, seconds, rounds.max(3), options.seed)?);
    drop(progress);
    setup.machine.finish();
    host_report::report(setup, Samples(samples), missing)
}

/// The same fibtest on a simulated machine of this size.
fn simulate(
    setup: &Setup,
    seconds: u64,
    rounds: u32,
    seed: u64,
) -> Result<Vec<Sample<Run>>, LabError> {
    let mut all = Vec::new();
    for kernel in [Kernel::Expire, Kernel::Stay] {
        for round in 0..rounds {
            let cell = sim_cells::Cell {
                kernel: sim_cells::Kernel {
                    cpus: setup.machine.cpus as u32,
                    tick_ns: S / u64::from(setup.machine.hz.max(1)),
                    expire: kernel == Kernel::Expire,
                    slice_us: sim_cells::DEFAULT_SLICE_US,
                },
                round,
            };
            let used = simulated::simulate(cell, seconds, seed)?;
            let load = Load::Fibtest;
            all.push(Run { kernel, load }.sample(round, &used, None));
        }
    }
    Ok(all)
}

fn measure(
    setup: &Setup,
    scheduler: Option<&Scheduler>,
    run: Run,
    round: u32,
    seconds: u64,
) -> Result<Sample<Run>, LabError> {
    let load = run.load;
    let h = setup.need_hierarchy()?;
    let group = Group::create(h, load.key())?;
    if load != Load::Free {
        group.set_quota(Some(QUOTA_US), PERIOD_US)?;
    }
    let mut worker = start(setup, &group, load)?;
    let counted = || {
        let own = Bandwidth::read(h.v2, &h.cpu.join(group.name()));
        scheduler.map_or(own, |s| s.bandwidth(own))
    };
    stop::sleep_ns(WARM_S * S)?;
    worker.ask("measure")?;
    let before = counted();
    let mut meter = Meter::new(&worker.page);
    let until_ns = meter.from_ns + seconds * S;
    while clock::monotonic_ns() < until_ns {
        meter.look(&worker.page)?;
    }
    let length_s = (clock::monotonic_ns() - meter.from_ns) as f64 / 1e9;
    let used_ns = worker.page.cpu_ns() - meter.used_ns;
    let busy_ns = worker.page.slot(0).cpu_ns() - meter.busy_ns;
    let burst = worker.report("")?;
    let since = counted().since(&before);
    scheduler.map_or(Ok(()), Scheduler::still_in_force)?;
    let quota_ns = length_s * 1e9 * QUOTA_US as f64 / PERIOD_US as f64;
    let if_known = |known: bool, value: f64| if known { value } else { f64::NAN };
    let used = Used {
        busy_ms_per_s: if_known(load.busy() > 0, busy_ns as f64 / 1e6 / length_s),
        used_pct: 100.0 * used_ns as f64 / quota_ns,
        throttled_pct: if_known(
            since.periods > 0,
            100.0 * since.throttled as f64 / since.periods as f64,
        ),
        excess_us_per_cpu: if_known(
            load != Load::Free,
            meter.excess_ns() / 1e3 / setup.machine.cpus as f64,
        ),
        seconds: length_s,
    };
    Ok(run.sample(round, &used, Some(&burst)))
}

fn start(setup: &Setup, group: &Group, load: Load) -> Result<Worker, LabError> {
    let args = [
        ("--busy", load.busy() as u64),
        ("--work-us", load.work_us()),
        ("--period-us", GAP_US),
    ];
    let plan = WorkerPlan {
        exe: &setup.exe,
        kind: "fibtest",
        args: args
            .into_iter()
            .flat_map(|(name, value)| [name.to_string(), value.to_string()])
            .collect(),
        threads: setup.machine.cpus,
    };
    Worker::start(&plan, &group.membership(), &plain)
}

/// Use over whole periods. Where the group's own begin is not known, so each of some phases is looked at, and the one that
/// sees least beyond the quota is the one that cuts no period's use in two.
struct Meter {
    from_ns: u64,
    used_ns: u64,
    busy_ns: u64,
    looks: u64,
    phases: [Excess; PHASES],
    began_ns: [u64; PHASES],
}

impl Meter {
    fn new(page: &SharedPage) -> Self {
        Meter {
            from_ns: clock::monotonic_ns(),
            used_ns: page.cpu_ns(),
            busy_ns: page.slot(0).cpu_ns(),
            looks: 0,
            phases: [Excess::default(); PHASES],
            began_ns: [0; PHASES],
        }
    }

    /// Waits for the next moment, and looks.
    fn look(&mut self, page: &SharedPage) -> Result<(), LabError> {
        stop::sleep_until(self.from_ns + self.looks * PERIOD_US * 1000 / PHASES as u64)?;
        self.seen(page.cpu_ns() - self.used_ns);
        Ok(())
    }

    fn seen(&mut self, used_ns: u64) {
        let (phase, periods) = (
            (self.looks % PHASES as u64) as usize,
            self.looks / PHASES as u64,
        );
        if periods == 0 {
            self.began_ns[phase] = used_ns;
        } else {
            self.phases[phase].period(used_ns - self.began_ns[phase], periods);
        }
        self.looks += 1;
    }

    fn excess_ns(&self) -> f64 {
        let least = self.phases.iter().map(|e| e.most_ns.max(0)).min();
        least.unwrap_or(0) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excess_of(used_ns: impl Fn(u64) -> u64) -> f64 {
        let page = SharedPage::create().expect("a page");
        let mut meter = Meter::new(&page);
        for look in 0..100 {
            meter.seen(used_ns(look));
        }
        meter.excess_ns()
    }

    #[test]
    fn a_period_that_is_cut_in_two_is_no_excess() {
        // The quota is used at once at each period's start, wherever that is.
        let quota_ns = QUOTA_US * 1000;
        for phase in 0..PHASES as u64 {
            let kept = excess_of(|look| quota_ns * ((look + phase) / PHASES as u64));
            assert_eq!(kept, 0.0);
        }
        // Half a quota too much in one period.
        let beyond = excess_of(|look| quota_ns * (look / 10) + quota_ns / 2 * u64::from(look > 45));
        assert_eq!(beyond, (quota_ns / 2) as f64);
    }
}
