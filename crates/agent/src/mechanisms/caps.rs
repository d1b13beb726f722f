//! Hard and soft rate caps of one gate.

use crate::gate::Gate;
use crate::owner::Owner;
use crate::server::Refusal;

impl Owner {
    /// Puts the gate's caps on.
    pub(super) fn put_on_caps(&self, gate: &mut Gate) -> Result<(), Refusal> {
        if gate.terms.cap_hard.value.ppt().is_some() || gate.terms.cap_soft.value.ppt().is_some() {
            return Err(super::not_enforced("cap_hard, cap_soft"));
        }
        Ok(())
    }

    /// Back to what stood before.
    pub(super) fn take_off_caps(&self, _gate: &Gate) -> Vec<String> {
        Vec::new()
    }
}
