//! What all gates together ask of the machine.

use tidegate_law::HeadroomTerms;

use super::Objective;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    pub headroom_ppm: u32,
    pub headroom_from: String,
    pub tolerance_ppm: u32,
    /// How long main may wait to run, where an objective says so: then headroom is found on top of
    /// what is asked.
    pub objective: Option<Objective>,
}

impl Demand {
    /// The terms of a law that is asked to keep this much, and what an objective adds.
    pub(super) fn terms(&self, asked_ppm: u32, extra_ppm: u32) -> HeadroomTerms {
        HeadroomTerms {
            headroom_ppm: asked_ppm.saturating_add(extra_ppm).min(1_000_000),
            tolerance_ppm: self.tolerance_ppm,
        }
    }
}
