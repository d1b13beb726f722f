//! Experiments, on this machine or on simulated ones: what side work does to main work, with and
//! without Tidegate, and what each of its mechanisms does to latency and throughput.
//!
//! On this machine the lab drives the *installed behaviour*: it starts main and side work through the `tidegate`
//! command, as a user would, and never calls the engine's code. What it reports it reads itself,
//! with samplers that share no code with the control loop ([`shared_page`], [`samplers`]): the load
//! generators publish their own CPU clocks in a shared page, so a running thread is known to a few
//! microseconds where the kernel's group usage moves by ticks.
//!
//! ```text
//! tidegate lab EXPERIMENT ──> run(&LabOptions) ──> arms (how main and side are placed)
//!                                                  ├─ worker processes: `tidegate lab-worker ...`
//!                                                  ├─ samplers: shared page, process clocks, cgroup, /proc
//!                                                  └─ Report: terminal table, HTML, CSV, JSON
//!                   --on sim ─> on_sim: cells, each a simulated machine ─> Report
//! ```
//!
//! Simulated ([`on_sim`]), Tidegate's engines are a part of the model: the agent's own control step and
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

pub mod arms;
pub mod cgroup;
pub mod cleanup;
pub mod clock;
pub mod demo;
pub mod dist;
pub mod error;
pub mod experiments;
pub mod foreign;
pub mod group_clock;
pub mod machine;
pub mod on_sim;
pub mod on_vm;
pub mod options;
pub mod policies;
pub mod proc;
pub mod progress;
pub mod report;
pub mod rng;
pub mod samplers;
pub mod scheduler;
pub mod settle;
pub mod shared_page;
pub mod simulated_report;
pub mod stats;
pub mod stop;
pub mod tables;
pub mod tidegate;
pub mod worker;

pub use error::LabError;
pub use options::{Engine, Experiment, LabOptions, On, Sense};
pub use report::{Headline, Report, headlines, make_folder, to_json_array};
pub use worker::worker_main;

/// Runs one experiment, writes its files under [`LabOptions::out`] and returns what was found.
///
/// Ctrl-C, SIGTERM and SIGHUP end it early with [`LabError::Interrupted`]; every process and
/// cgroup it made is gone when it returns.
pub fn run(options: &LabOptions) -> Result<Report, LabError> {
    asked_rightly(options)?;
    report::make_folder(&options.out_dir())?;
    // The bed has nothing to clean up on this machine: its emulator dies with us.
    let _signals = (options.on != On::Vm).then(stop::catch_signals);
    let mut report = match options.on {
        On::Host => run_on_host(options)?,
        On::Sim => on_sim::run(options)?,
        On::Vm => on_vm::run(options)?,
    };
    report.engine = options.engine;
    if let (true, report::Bed::Host(machine)) = (options.serialise, &report.machine) {
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
            (On::Host, Engine::Ext) => scheduler::supported(),
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
            why = "simulated reports have both engines in them".into();
        }
    }
    Err(LabError::Asked {
        what,
        why,
        mend: format!("give {}", places.join(" or ")),
    })
}

fn run_on_host(options: &LabOptions) -> Result<Report, LabError> {
    cleanup::sweep();
    match options.experiment {
        Experiment::Law if options.engine == Engine::Ext => experiments::law_ext::run(options),
        Experiment::Law => experiments::law::run(options),
        Experiment::Headroom => experiments::headroom::run(options),
        Experiment::Step => experiments::step::run(options),
        Experiment::Burst => experiments::burst::run(options),
        Experiment::Caps => experiments::caps::run(options),
        Experiment::Latency => experiments::latency::run(options),
        Experiment::Slices => experiments::slices::run(options),
        // Refused above: they need larger machines.
        Experiment::Objective | Experiment::Inversion => Err(LabError::process(
            options.experiment.name(),
            "is for simulated machines",
        )),
    }
}
