//! Experiments, on this machine or on simulated ones: what side work does to main work, with and
//! without Tidegate, and what each of its mechanisms does to latency and throughput.
//!
//! On this machine the lab drives the *installed behaviour*: it starts main and side work through the `tidegate`
//! command, as a user would, and never calls the engine's code. What it reports it reads itself,
//! with samplers that share no code with the control loop ([`loads::shared_page`], [`beds::host::samplers`]): the load
//! generators publish their own CPU clocks in a shared page, so a running thread is known to a few
//! microseconds where the kernel's group usage moves by ticks.
//!
//! ```text
//! tidegate lab EXPERIMENT ─> run(&LabOptions) ─> experiments: arms, on one of the beds
//!                                                 ├─ host: processes that run `tidegate lab-worker ...` (loads), and samplers
//!                                                 ├─ sim: cells, each a simulated machine
//!                                                 └─ vm: the host's bed, in a guest
//!                                                └─> report: terminal table, HTML, CSV, JSON
//! ```
//!
//! Simulated ([`beds::sim`]), Tidegate's engines are a part of the model: the agent's own control step and
//! the law's own headers decide, on a machine that is the same to the byte each time.
//!
//! The command line needs three things from here:
//! - `tidegate lab EXPERIMENT ...` fills [`LabOptions`] and calls [`run`], prints
//!   [`Report::to_text`] (or [`Report::to_json`] with `--json`), and exits 0; targets that are not
//!   met are shown, and are no error.
//! - the hidden subcommand `tidegate lab-worker ARGS...` calls [`worker_main`] with what follows
//!   the word `lab-worker`, and exits with what it returns. It must not start an async runtime or
//!   touch signals first.
//! - `tidegate lab demo` calls [`demo::run`] and prints [`demo::Demo::to_text`].

pub mod beds;
pub mod clock;
pub mod demo;
pub mod dist;
pub mod error;
pub mod experiments;
pub mod loads;
pub mod options;
pub mod policies;
pub mod progress;
pub mod report;
pub mod rng;
pub mod simulated_report;
pub mod stats;
pub mod stop;

pub use error::LabError;
pub use loads::worker_main;
pub use options::{Engine, Experiment, LabOptions, On, Sense};
pub use report::{Headline, Report, headlines, make_folder, to_json_array};

/// Runs one experiment, writes its files under [`LabOptions::out`] and returns what was found.
///
/// Ctrl-C, SIGTERM and SIGHUP end it early with [`LabError::Interrupted`]; every process and
/// cgroup it made is gone when it returns.
pub fn run(options: &LabOptions) -> Result<Report, LabError> {
    asked_rightly(options)?;
    report::make_folder(&options.out_dir())?;
    // The bed has nothing to clean up on this machine: its emulator dies with us.
    let _signals = (options.on != On::Vm).then(stop::catch_signals);
    let mut report = experiments::run(options)?;
    if let (true, beds::Bed::Host(machine)) = (options.serialise, &report.machine) {
        let path = options
            .out_dir()
            .join(format!("{}.report", report.experiment));
        std::fs::write(&path, report::serialisation::to_text(&report, machine))
            .map_err(|source| LabError::Report { path, source })?;
    }
    report.write_files(&options.out_dir())?;
    Ok(report)
}

/// Refuses what cannot be had there with that engine.
fn asked_rightly(options: &LabOptions) -> Result<(), LabError> {
    let (experiment, on, engine) = (options.experiment, options.on, options.engine);
    if experiment.runs_on(on, engine) {
        return match (on, engine) {
            (On::Host, Engine::Ext) => beds::host::scheduler::supported(),
            _ => Ok(()),
        };
    }
    let mut places = Vec::new();
    for engine in [Engine::Knobs, Engine::Ext] {
        for place in [On::Host, On::Vm, On::Sim] {
            let known = engine == Engine::Ext && experiment.runs_on(place, Engine::Knobs);
            if experiment.runs_on(place, engine) && (on == place || !known) {
                let with = if engine == Engine::Ext {
                    " --engine ext"
                } else {
                    ""
                };
                places.push(format!("--on {}{with}", place.name()));
            }
        }
    }
    let (mut what, mut why) = (
        format!("--on {}", on.name()),
        format!("{} cannot be had there", experiment.name()),
    );
    if engine == Engine::Ext {
        what += " --engine ext";
        if on == On::Sim {
            why = "the simulator does not simulate that engine".into();
        }
    }
    Err(LabError::Asked {
        what,
        why,
        mend: format!("give {}", places.join(" or ")),
    })
}
