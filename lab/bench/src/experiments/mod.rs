//! The experiments. Each is a folder (or a file): what it compares, how each of its beds runs one arm once, and one report.
//!
//! To add one:
//! 1. a variant of [`Experiment`] with its name (`options.rs`);
//! 2. its module here: a function for each bed that it runs on, which runs every arm and keeps each run as a
//!    [`Sample`](crate::report::Sample), and a report that takes its figures from the samples by name. A function for the host
//!    serves the VM bed as well, which is the host's in a guest;
//! 3. its row in `Experiment::plan` below: its title and those functions;
//! 4. its line in `tidegate lab --help` (`crates/tidegate/src/cmd/lab.rs`).
//!
//! A simulated experiment is a list of *cells*, one simulation each. A cell's randomness comes from the experiment's seed
//! and from what is common to all arms of a comparison, never from the arm, so that every arm meets the same arrivals. The
//! simulator decides in integers; floating point begins here, where figures are made for readers.

pub mod burst;
pub mod caps;
pub mod headroom;
pub mod inversion;
pub mod latency;
pub mod law;
pub mod objective;
pub mod peers;
pub mod published;
pub mod settle;
pub mod slices;
pub mod step;

use crate::options::{Engine, Experiment, LabOptions, On};
use crate::report::{Report, serialisation};
use crate::{LabError, beds};

type Run = fn(&LabOptions) -> Result<Report, LabError>;

/// What an experiment is called, and how it runs.
struct Plan {
    /// Above its page.
    title: &'static str,
    /// On this machine, with the knobs.
    host: Option<Run>,
    /// Whether that can be had on the VM bed too, where one emulated CPU without a cache is all there is.
    vm: bool,
    /// On this machine and on the VM bed, with the ext engine.
    ext: Option<Run>,
    /// On simulated machines, where both engines are in one report.
    sim: Option<Run>,
}

fn on(title: &'static str, host: Run, vm: bool, ext: Run, sim: Run) -> Plan {
    Plan {
        title,
        host: Some(host),
        vm,
        ext: Some(ext),
        sim: Some(sim),
    }
}

fn simulated(title: &'static str, ext: Option<Run>, sim: Run) -> Plan {
    Plan {
        title,
        host: None,
        vm: false,
        ext,
        sim: Some(sim),
    }
}

impl Experiment {
    fn plan(self) -> Plan {
        match self {
            Experiment::Law => on(
                "Headroom against the table of the cpu.headroom patches (2019)",
                law::host::run,
                true,
                law::host::run,
                law::sim::run,
            ),
            Experiment::Headroom => on(
                "What side work costs main",
                headroom::host::run,
                false,
                headroom::host::run,
                headroom::sim::run,
            ),
            Experiment::Step => on(
                "How soon side work gives way",
                step::host::run,
                false,
                step::host::run,
                step::sim::run,
            ),
            Experiment::Latency => on(
                "What a latency hint gives, and what it costs others",
                latency::host::run,
                true,
                latency::host::run,
                latency::sim::run,
            ),
            Experiment::Burst => on(
                "What burst gives a load that exceeds its quota now and then",
                burst::host::run,
                true,
                burst::host::run,
                burst::sim::run,
            ),
            Experiment::Caps => on(
                "How exact rate caps are",
                caps::host::run,
                true,
                caps::host::run,
                caps::sim::run,
            ),
            // As many CPUs as the bed's wide mode carries; on 80 of them it is the simulator's.
            Experiment::Slices => simulated(
                "What becomes of a quota that many CPUs share",
                Some(slices::host::run),
                slices::sim::run,
            ),
            // It compares engines, so it takes none.
            Experiment::Peers => Plan {
                title: "Ordinary work under other schedulers of sched_ext",
                host: Some(peers::host::run),
                vm: true,
                ext: None,
                sim: None,
            },
            // They need larger machines.
            Experiment::Objective => simulated("objective", None, objective::run),
            Experiment::Inversion => simulated("inversion", None, inversion::run),
        }
    }

    /// Whether it can be had there with this engine.
    pub fn runs_on(self, on: On, engine: Engine) -> bool {
        let plan = self.plan();
        match (on, engine) {
            (On::Sim, engine) => engine == Engine::Knobs && plan.sim.is_some(),
            (_, Engine::Ext) => plan.ext.is_some(),
            (On::Host, Engine::Knobs) => plan.host.is_some(),
            (On::Vm, Engine::Knobs) => plan.vm,
        }
    }

    /// Those that can be had there; not [`Experiment::Peers`], which builds and runs the schedulers of others.
    pub fn all_on(on: On, engine: Engine) -> impl Iterator<Item = Experiment> {
        Experiment::ALL
            .into_iter()
            .filter(move |e| *e != Experiment::Peers && e.runs_on(on, engine))
    }
}

/// Runs one experiment where it was asked for, without writing its files.
pub(crate) fn run(options: &LabOptions) -> Result<Report, LabError> {
    let plan = options.experiment.plan();
    let refused = || LabError::process(options.experiment.name(), "cannot be had there");
    let mut report = match options.on {
        On::Host => {
            beds::host::cleanup::sweep();
            let run = match options.engine {
                Engine::Knobs => plan.host,
                Engine::Ext => plan.ext,
            };
            run.ok_or_else(refused)?(options)?
        }
        On::Sim if options.main_cmd.is_some() || options.side_cmd.is_some() => {
            return Err(LabError::Asked {
                what: "--main-cmd and --side-cmd".into(),
                why: "a simulated machine cannot run a command".into(),
                mend: "leave them out, or run it with --on host".into(),
            });
        }
        On::Sim => plan.sim.ok_or_else(refused)?(options)?,
        On::Vm => in_guest(options)?,
    };
    report.title = plan.title;
    report.engine = options.engine;
    Ok(report)
}

/// What the guest's own lab reported.
fn in_guest(options: &LabOptions) -> Result<Report, LabError> {
    let programs = match options.experiment {
        Experiment::Peers => peers::Programs::gather(options)?,
        _ => peers::Programs::default(),
    };
    let done = beds::vm::run(options, programs.binaries)?;
    let mut report = serialisation::from_text(&done.report, done.guest)?;
    report.notes.push(done.note);
    report.notes.extend(programs.absent);
    Ok(report)
}
