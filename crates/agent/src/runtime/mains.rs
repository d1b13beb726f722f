//! Main gates without tasks have nothing to protect: the machine keeps what it would keep without
//! them (`demand`). A poll gives them their headroom again within 20 ms of the first task.

use std::time::Duration;

use tidegate_engine::sync::lock;
use tracing::debug;

use crate::gates::Gates;
use crate::runtime::Runtime;
use crate::runtime::demand::{is_empty, poll_demand};
use crate::runtime::supervise::tell_machine;

const POLL_NS: u64 = 20_000_000;
/// With hundreds of them a poll takes so long that it comes less often, at most this part of the
/// time.
const POLL_PART: u64 = 500;
/// At least so often, also after a poll that was held up (an agent that leaves waits for it), and
/// while every main gate has tasks: one that is found empty asks for its headroom for as long.
const POLL_MAX_NS: u64 = 1_000_000_000;

/// Until the next poll, when the last one took so long.
pub(crate) fn period(runtime: &Runtime, took_ns: u64) -> Duration {
    let pause_ns = match lock(&runtime.empty_mains).is_empty() {
        true => POLL_MAX_NS,
        false => (took_ns * POLL_PART).clamp(POLL_NS, POLL_MAX_NS),
    };
    Duration::from_nanos(pause_ns)
}

pub(crate) fn poll_vacant(registry: &Gates, runtime: &Runtime) -> u64 {
    let clock = &runtime.kernel.clock;
    let empty = lock(&runtime.empty_mains).clone();
    let began_ns = clock.now_ns();
    let back = empty
        .iter()
        .find(|(group, _)| !is_empty(&runtime.kernel, group));
    let took_ns = clock.now_ns().saturating_sub(began_ns);
    if let Some((group, _)) = back {
        debug!("{group} has tasks again");
        poll_demand(registry, runtime);
        tell_machine(runtime);
    }
    took_ns
}
