//! A gate's own terms on the machine, beside what its class asks: quota and burst, caps, latency
//! hints, memory. One file each.
//!
//! [`enforce`] makes the machine agree with a gate's terms as they are now, and is called again
//! whenever they change or may have been lost; [`withdraw`] goes back to what stood before. Both
//! are idempotent.

pub(crate) mod bandwidth;
pub(crate) mod burst;
pub(crate) mod caps;
pub(crate) mod hint_sweep;
mod hints;
mod memory;
pub(crate) mod subgroups;

use tidegate_api::{ApiError, ApiResult, ErrorKind};
use tidegate_engine::apply::BurstWrite;
use tidegate_terms::{Source, Switch};

use crate::gates::{Attachment, Gate};
use crate::runtime::Runtime;
use crate::runtime::limits::note_weight;
use crate::runtime::mechanisms::bandwidth::{enforce_bandwidth, withdraw_bandwidth};
use crate::runtime::mechanisms::burst::{enforce_bursts, withdraw_bursts};
use crate::runtime::mechanisms::caps::{enforce_caps, withdraw_caps};
use crate::runtime::mechanisms::hints::{enforce_hints, withdraw_hints};
use crate::runtime::mechanisms::memory::enforce_memory;
use crate::runtime::mechanisms::subgroups::check_beside;

pub(crate) use subgroups::Subgroups;

/// Enforces a placed gate's own terms. After a refusal the caller withdraws them.
pub(crate) fn enforce(runtime: &Runtime, gate: &mut Gate) -> ApiResult<()> {
    // Before anything is changed.
    if !matches!(gate.record.attachment, Attachment::Observed { .. }) {
        check_beside(gate, &gate.record.attachment)?;
    }
    runtime.end_alerts_of(&gate.record.name);
    note_weight(&runtime.kernel, gate);
    enforce_bandwidth(runtime, gate)?;
    enforce_bursts(runtime, gate, BurstWrite::Always)?;
    enforce_caps(runtime, gate)?;
    enforce_memory(&runtime.kernel, gate)?;
    check_jobserver(gate)?;
    enforce_hints(&runtime.kernel, gate)
}

/// A command learns of its jobserver when `run` starts it.
fn check_jobserver(gate: &Gate) -> ApiResult<()> {
    let asked = &gate.terms.jobserver;
    let is_of_run = matches!(gate.record.attachment, Attachment::Owned { .. });
    // What a file says of all side work is not asked of this one.
    if is_of_run || asked.value != Switch(true) || asked.source != Source::Set {
        return Ok(());
    }
    let detail = format!(
        "jobserver: gate {}: only run can give a command its jobserver",
        gate.record.name
    );
    let remedy = "start it by tidegate run --side --jobserver -- COMMAND";
    Err(ApiError::new(ErrorKind::Unsupported, detail).with_remedy(remedy))
}

/// Withdraws a gate's own terms, as far as they are still ours; says what was not put back.
pub(crate) fn withdraw(runtime: &Runtime, gate: &Gate) -> Vec<String> {
    runtime.end_alerts_of(&gate.record.name);
    let mut left = withdraw_hints(&runtime.kernel, gate);
    left.extend(withdraw_caps(runtime, gate));
    left.extend(withdraw_bursts(runtime, gate));
    left.extend(withdraw_bandwidth(runtime, gate));
    left
}
