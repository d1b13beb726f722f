//! A gate's own terms on the machine, beside what its class asks: quota and burst, caps, latency hints. One file each.
//!
//! [`put_on`] makes the machine agree with a gate's terms as they are now, and is called again whenever they change
//! or may have been lost; [`take_off`] goes back to what stood before. Both are idempotent.

pub(crate) mod bandwidth;
pub(crate) mod caps;
mod hint_places;
pub(crate) mod hint_sweep;
mod hints;
pub(crate) mod subgroups;

use tidegate_api::ApiError;

use crate::gates::{Attachment, Gate};
use crate::runtime::Runtime;
use crate::runtime::mechanisms::bandwidth::{put_on_bandwidth, take_off_bandwidth};
use crate::runtime::mechanisms::caps::{put_on_caps, take_off_caps};
use crate::runtime::mechanisms::hints::{put_on_hints, take_off_hints};
use crate::runtime::mechanisms::subgroups::check_beside;

pub(crate) use subgroups::Subgroups;

/// Puts a placed gate's own terms on the machine. After a refusal the caller takes the gate off again.
pub(crate) fn put_on(runtime: &Runtime, gate: &mut Gate) -> Result<(), ApiError> {
    // Before anything is changed.
    if !matches!(gate.record.attachment, Attachment::Observed { .. }) {
        check_beside(gate, &gate.record.attachment)?;
    }
    put_on_bandwidth(runtime, gate)?;
    put_on_caps(runtime, gate)?;
    put_on_hints(&runtime.kernel, gate)
}

/// Takes a gate's own terms off the machine, as far as they are still ours; says what was not put back.
pub(crate) fn take_off(runtime: &Runtime, gate: &Gate) -> Vec<String> {
    let mut left = take_off_hints(&runtime.kernel, gate);
    left.extend(take_off_caps(runtime, gate));
    left.extend(take_off_bandwidth(runtime, gate));
    left
}
