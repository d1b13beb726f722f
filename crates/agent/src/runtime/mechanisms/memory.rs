//! `memory.high` of a gate's group, above which the kernel takes its pages back first and slows it
//! down meanwhile (Documentation/admin-guide/cgroup-v2.rst). It goes with the group, so there is
//! nothing to put back.

use tidegate_api::{ApiError, ApiResult, ErrorKind};
use tidegate_terms::Source;

use crate::errors::of_group;
use crate::gates::{Attachment, Gate};
use crate::kernel::Kernel;

pub(super) fn enforce_memory(kernel: &Kernel, gate: &Gate) -> ApiResult<()> {
    let high_bytes = match gate.terms.memory_high.value.bytes() {
        0 => None,
        bytes => Some(bytes),
    };
    match &gate.record.attachment {
        Attachment::Owned { group } => {
            let set = kernel.groups.set_memory_high(group, high_bytes);
            set.map_err(of_group)
        }
        // What a file says of all side work is not asked of this one.
        _ if high_bytes.is_none() || gate.terms.memory_high.source != Source::Set => Ok(()),
        _ => {
            let detail = format!(
                "memory_high: gate {}: only a command of run has memory of its own",
                gate.record.name
            );
            let remedy = "for a unit: systemctl set-property --runtime UNIT MemoryHigh=SIZE";
            Err(ApiError::new(ErrorKind::Unsupported, detail).with_remedy(remedy))
        }
    }
}
