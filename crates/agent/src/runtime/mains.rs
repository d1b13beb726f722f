//! Main gates without tasks: they have nothing to protect, so the machine keeps what it would keep without them (`domains`), and
//! their headroom again within 20 ms of the first task.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_knobs::group::GroupPath;
use tidegate_knobs::sync::lock;
use tidegate_terms::Class;
use tracing::debug;

use crate::gates::{Gate, Gates};
use crate::kernel::Kernel;
use crate::process::Life;
use crate::runtime::Runtime;
use crate::runtime::domains::poll_domains;
use crate::runtime::supervise::tell_machine;

/// Between two looks at the main gates that have no tasks.
const POLL_NS: u64 = 20_000_000;
/// A look at hundreds of groups takes so long that this part of a CPU is not exceeded.
const POLL_PART: u64 = 500;

/// Whether it is a main gate in whose group there is no task, or whose group is gone (a unit that is stopped).
pub(crate) fn is_vacant(kernel: &Kernel, gate: &Gate) -> bool {
    gate.class() == Class::Main && is_empty(kernel, gate.record.attachment.group())
}

/// What cannot be read has tasks.
fn is_empty(kernel: &Kernel, group: &GroupPath) -> bool {
    match kernel.groups.populated(group) {
        Ok(populated) => !populated,
        Err(error) => error.is_gone(),
    }
}

/// Polls until the agent leaves. The second in which a gate loses its last task passes before its headroom does (`poll_domains`).
pub(crate) fn run(registry: &Gates, runtime: &Runtime, life: &Life) {
    let clock = &runtime.kernel.clock;
    let mut took_ns = 0;
    while !life.leaving.load(Ordering::Acquire) {
        clock.sleep(Duration::from_nanos(POLL_NS.max(took_ns * POLL_PART)));
        let began_ns = clock.now_ns();
        poll_vacant(registry, runtime);
        took_ns = clock.now_ns().saturating_sub(began_ns);
    }
}

/// One look.
pub(crate) fn poll_vacant(registry: &Gates, runtime: &Runtime) {
    let vacant = lock(&runtime.vacant).clone();
    let back = vacant
        .iter()
        .find(|group| !is_empty(&runtime.kernel, group));
    if let Some(group) = back {
        debug!("{group} has tasks again");
        poll_domains(registry, runtime);
        tell_machine(runtime);
    }
}
