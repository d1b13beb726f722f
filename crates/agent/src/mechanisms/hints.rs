//! Latency hints of one gate.

use crate::gate::Gate;
use crate::owner::Owner;
use crate::server::Refusal;

impl Owner {
    /// Gives the gate's tasks their latency hint.
    pub(super) fn put_on_hints(&self, gate: &mut Gate) -> Result<(), Refusal> {
        if gate.terms.latency.value.hint() != 0 {
            return Err(super::not_enforced("latency"));
        }
        Ok(())
    }

    /// Back to what stood before.
    pub(super) fn take_off_hints(&self, _gate: &Gate) -> Vec<String> {
        Vec::new()
    }
}
