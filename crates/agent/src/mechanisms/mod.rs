//! A gate's own terms on the machine, beside what its class asks: quota and burst, caps, latency hints. One file each.
//!
//! [`Agent::put_on`] makes the machine agree with a gate's terms as they are now, and is called again whenever they change
//! or may have been lost; [`Agent::take_off`] goes back to what stood before. Both are idempotent.

mod bandwidth;
mod caps;
mod hint_places;
mod hint_sweep;
mod hints;
pub(crate) mod units;

pub(crate) use hint_places::HintPlace;
pub(crate) use hint_sweep::{HintSweep, latency_view};
pub(crate) use hints::HintState;
pub(crate) use units::Units;

use crate::agent::Agent;
use crate::gate::{Attachment, Gate};
use tidegate_api::ApiError;

impl Agent {
    /// Puts a placed gate's own terms on the machine. After a refusal the caller takes the gate off again.
    pub(crate) fn put_on(&self, gate: &mut Gate) -> Result<(), ApiError> {
        // Before anything is changed.
        if !matches!(gate.record.attachment, Attachment::Observed { .. }) {
            self.check_beside(gate, &gate.record.attachment)?;
        }
        self.put_on_bandwidth(gate)?;
        self.put_on_caps(gate)?;
        self.put_on_hints(gate)
    }

    /// Takes a gate's own terms off the machine, as far as they are still ours; says what was not put back.
    pub(crate) fn take_off(&self, gate: &Gate) -> Vec<String> {
        let mut left = self.take_off_hints(gate);
        left.extend(self.take_off_caps(gate));
        left.extend(self.take_off_bandwidth(gate));
        left
    }
}
