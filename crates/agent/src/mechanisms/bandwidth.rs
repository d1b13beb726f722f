//! Quota, period and burst of one gate.

use crate::gate::Gate;
use crate::owner::Owner;
use crate::server::Refusal;

impl Owner {
    /// Writes the gate's own quota to its group.
    pub(super) fn put_on_bandwidth(&self, gate: &mut Gate) -> Result<(), Refusal> {
        if gate.terms.quota_us().is_some() {
            return Err(super::not_enforced("quota"));
        }
        Ok(())
    }

    /// Back to what stood before.
    pub(super) fn take_off_bandwidth(&self, _gate: &Gate) -> Vec<String> {
        Vec::new()
    }
}
