//! The seeds' experiments in the simulator: the same reports as on the host, from machines of any
//! size, without privilege, and the same to the byte from one seed.
//!
//! Each experiment is a list of *cells* (one simulation each), run side by side by [`jobs`], and
//! what its report makes of them. A cell's randomness comes from the experiment's seed and from what
//! is common to all arms of a comparison, never from the arm, so that every arm meets the same
//! arrivals.

pub mod jobs;

use crate::options::LabOptions;
use crate::report::Report;
use crate::{Experiment, LabError};

/// Runs one experiment.
pub fn run(options: &LabOptions) -> Result<Report, LabError> {
    if options.main_cmd.is_some() || options.side_cmd.is_some() {
        return Err(LabError::Needs {
            what: "--main-cmd and --side-cmd".into(),
            why: "a simulated machine cannot run a command".into(),
            mend: "leave them out, or run it with --on host".into(),
        });
    }
    match options.experiment {
        Experiment::Law
        | Experiment::Headroom
        | Experiment::Step
        | Experiment::Latency
        | Experiment::Burst
        | Experiment::Slices
        | Experiment::Caps => Err(LabError::process("sim", "not there")),
    }
}
