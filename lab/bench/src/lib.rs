//! Experiments, on this machine or on simulated ones: what side work does to main work, with and
//! without Tidegate, and what each of its mechanisms does to latency and throughput.
//!
//! On this machine the lab drives the *installed behaviour*: it starts main and side work through
//! the `tidegate` command, as a user would, and never calls the engine's code. What it reports it
//! reads itself, with clocks that share no code with the control loop ([`loads::shared_page`]): the
//! load generators publish their own CPU clocks in a shared page, so a running thread is known to a
//! few microseconds where the kernel's group usage moves by ticks.
//!
//! ```text
//! EXPERIMENT ─> run(&LabOptions) ─> its parts: cells (case, arm, scene), metrics, targets
//!                   ├─ runners::host: processes that run `worker ...` (loads), and clocks
//!                   ├─ runners::sim: simulated machines
//!                   └─ runners::vm: the host's runner, in a guest
//!               └─> samples ─> report: terminal table, HTML, JSON
//! ```
//!
//! Simulated ([`runners::sim`]), Tidegate's engines are a part of the model: the agent's own
//! control step and the law's own headers decide, on a machine that is the same to the byte each
//! time.
//!
//! Next to experiments, [`replay`] simulates recorded demand under other terms.

pub mod clock;
pub mod demo;
pub mod error;
pub mod experiment;
pub mod experiments;
pub mod loads;
pub mod machine;
pub mod options;
pub mod replay;
pub mod report;
pub mod runners;
pub mod scene;
pub mod settle;
pub mod simulated_report;
pub mod stats;
pub mod stop;

use rand::SeedableRng as _;
use rand_xoshiro::Xoshiro256StarStar;

pub use error::LabError;
pub use experiment::{Experiment, LabOptions};
pub use loads::worker_main;
pub use options::On;
pub use report::{Headline, Report, make_folder};

/// A generator for this seed: the same numbers on every machine.
pub fn seeded(seed: u64) -> Xoshiro256StarStar {
    Xoshiro256StarStar::seed_from_u64(seed)
}

/// Runs one experiment, writes its files under [`LabOptions::out`] and returns what was found.
///
/// Ctrl-C, SIGTERM and SIGHUP end it early with [`LabError::Interrupted`]; every process and
/// cgroup it made is gone when it returns.
pub fn run(options: &LabOptions) -> Result<Report, LabError> {
    check(options)?;
    report::make_folder(&options.out_dir())?;
    // The VM has nothing to clean up on this machine: its emulator dies with us.
    let _signals = (options.on != On::Vm).then(stop::catch_signals);
    let mut report = runners::run(options)?;
    report.write_files(&options.out_dir())?;
    Ok(report)
}

/// Refuses an experiment that this environment cannot run.
fn check(options: &LabOptions) -> Result<(), LabError> {
    let experiment = options.experiment();
    if options.cpus.is_some() && options.on != On::Sim {
        return Err(LabError::asked(
            "--cpus".to_owned(),
            "only a simulated machine has a size to choose".to_owned(),
            "give --on sim, too".to_owned(),
        ));
    }
    if experiment.places.contains(&options.on) {
        return Ok(());
    }
    let place = |on: &On| format!("--on {}", on.name());
    let places: Vec<String> = experiment.places.iter().map(place).collect();
    Err(LabError::asked(
        place(&options.on),
        format!("{} does not run there", experiment.name),
        format!("give {}", places.join(" or ")),
    ))
}
