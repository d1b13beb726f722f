//! The published experiments in the simulator: the same reports as on the host, from machines of any
//! size, without privilege, and the same to the byte from one seed.
//!
//! Each experiment is a list of *cells* (one simulation each), run side by side by [`jobs`], and
//! what its report makes of them. A cell's randomness comes from the experiment's seed and from what
//! is common to all arms of a comparison, never from the arm, so that every arm meets the same
//! arrivals.
//!
//! | experiment | cells | report |
//! |---|---|---|
//! | headroom | [`headroom`], [`setup`], [`control`], [`cores`] | [`headroom_report`], [`headroom_tables`] |
//! | law, step | [`law`], [`step`], [`constant`] | [`law_report`], [`step_report`] |
//! | latency | [`latency`], [`classes`] | [`latency_report`] |
//! | burst | [`burst`] | [`burst_report`] |
//! | slices | [`slices`] | [`slices_report`] |
//! | caps | [`caps`] | [`caps_report`] |
//! | inversion | [`inversion`] | there as well |
//! | objective | [`objective`] | [`objective_report`] |
//!
//! The simulator decides in integers; floating point begins here, where figures are made for readers.

pub mod burst;
pub mod burst_report;
pub mod caps;
pub mod caps_report;
pub mod classes;
pub mod constant;
pub mod control;
pub mod headroom;
pub mod headroom_report;
pub mod headroom_tables;
pub mod inversion;
pub mod jobs;
pub mod latency;
pub mod latency_report;
pub mod law;
pub mod law_report;
pub mod objective;
pub mod objective_report;
pub mod setup;
pub mod slices;
pub mod slices_report;
pub mod stage;
pub mod step;
pub mod step_report;

use crate::options::LabOptions;
use crate::report::Report;
use crate::{Experiment, LabError};

/// Runs one experiment.
pub fn run(options: &LabOptions) -> Result<Report, LabError> {
    if options.main_cmd.is_some() || options.side_cmd.is_some() {
        return Err(LabError::Asked {
            what: "--main-cmd and --side-cmd".into(),
            why: "a simulated machine cannot run a command".into(),
            mend: "leave them out, or run it with --on host".into(),
        });
    }
    match options.experiment {
        Experiment::Law => law::run(options),
        Experiment::Headroom => headroom::run(options),
        Experiment::Step => step::run(options),
        Experiment::Latency => latency::run(options),
        Experiment::Burst => burst::run(options),
        Experiment::Slices => slices::run(options),
        Experiment::Caps => caps::run(options),
        Experiment::Objective => objective::run(options),
        Experiment::Inversion => inversion::run(options),
    }
}
