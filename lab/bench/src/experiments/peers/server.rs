//! nginx that compresses a small text for each request, and requests that come whatever became of those before.

use std::process::{Command, Stdio};

use crate::beds::host::Setup;
use crate::beds::host::arms::{plain, quiet};
use crate::beds::host::nginx::{Load, Site, wait_until_up};
use crate::beds::host::proc::Guarded;
use crate::{LabError, dist, stop};

const S: u64 = 1_000_000_000;
/// In the bed, nginx and its clients then have about half of the machine to do.
const TEXT_BYTES: usize = 10_000;
const REQUESTS_A_SECOND_PER_CPU: f64 = 150.0;
const SETTLE_NS: u64 = S;
const WINDOW_NS: u64 = 8 * S;

/// Median and p99 of a request from the moment at which it was due, us.
pub fn run(setup: &Setup) -> Result<Vec<f64>, LabError> {
    let cpus = setup.machine.cpus;
    let site = Site::new(cpus, TEXT_BYTES)?;
    // A guest begins without.
    let _ = Command::new("ip")
        .args(["link", "set", "lo", "up"])
        .status();
    let mut command = quiet(plain(&site.words()));
    command.stderr(Stdio::null());
    let _nginx = Guarded::start("nginx", command, &[])?;
    wait_until_up()?;
    let load = Load::start(REQUESTS_A_SECOND_PER_CPU * cpus as f64, 1);
    stop::sleep_ns(SETTLE_NS)?;
    load.take();
    stop::sleep_ns(WINDOW_NS)?;
    let mut latencies = dist::histogram_ns();
    for ns in load.take() {
        latencies.saturating_record(ns);
    }
    if latencies.is_empty() {
        return Err(LabError::process("nginx", "answered no request in 8 s"));
    }
    let latency = dist::summarise_ns(&latencies);
    Ok(vec![latency.p50_us, latency.p99_us])
}
