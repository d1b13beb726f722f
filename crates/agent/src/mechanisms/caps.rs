//! Hard and soft rate caps of one gate.

use tidegate_terms::CapScope;

use crate::gate::Gate;
use crate::owner::Owner;
use crate::server::Refusal;

impl Owner {
    /// Puts the gate's caps on. A hard one for all of the gate is a quota (`bandwidth`).
    pub(super) fn put_on_caps(&self, gate: &mut Gate) -> Result<(), Refusal> {
        let (hard, soft) = (gate.terms.cap_hard.value, gate.terms.cap_soft.value);
        if soft.ppt().is_some() {
            return Err(super::not_enforced("cap_soft"));
        }
        if hard.ppt().is_some() && gate.terms.cap_scope.value != CapScope::Group {
            return Err(super::not_enforced("cap_scope = task, process"));
        }
        Ok(())
    }

    /// Back to what stood before.
    pub(super) fn take_off_caps(&self, _gate: &Gate) -> Vec<String> {
        Vec::new()
    }
}
