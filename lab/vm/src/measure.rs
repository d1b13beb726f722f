//! One test of its own in the bed, for the sake of what it measures: the precise machine for tasks outside the suite.

use crate::catalog::{self, Mode};
use crate::progress::Progress;
use crate::suite::Suite;
use crate::{Bed, Setup, VmError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What a measurement came to.
pub struct Measured {
    /// The guest's kernel: package and version.
    pub kernel: String,
    /// Name, value, unit, in the order measured.
    pub measures: Vec<(String, String, String)>,
}

/// Runs the test that lies in the folder `cases` on the precise machine, with `files` (place in the guest, file here)
/// in its image.
pub fn measures(
    setup: &Setup,
    cases: &Path,
    files: Vec<(String, PathBuf)>,
    limit: Duration,
) -> Result<Measured, VmError> {
    let cases = catalog::read(cases)?;
    let mut bed = Bed::prepare(setup)?;
    bed.add_files(files);
    let progress = Progress::quiet(cases.len());
    let suite = Suite {
        label: Mode::Precise.name().into(),
        mode: Mode::Precise,
        part: 0,
        userland: None,
        bed: &bed,
        deadline: Instant::now() + limit,
        keep: false,
        again_max: 0,
    };
    let tally = suite.run(cases.iter().collect(), &progress)?;
    if tally.passed == 0 || tally.failed > 0 {
        let log = bed.work.join("precise-1/guest.log").display().to_string();
        return Err(VmError::new(
            "measure in the bed",
            &log,
            "the guest's run failed",
            "its last lines say why",
        ));
    }
    Ok(Measured {
        kernel: format!("{} {}", bed.kernel.package, bed.kernel.version),
        measures: tally.measures,
    })
}
