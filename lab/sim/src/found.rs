//! The headroom that an engine found (`headroom = "auto"`).

use crate::Ns;

/// A headroom that was found by measured harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundHeadroom {
    /// At the end, in millionths of the machine.
    pub level_ppm: u32,
    /// Why harm cannot be told at the end, if it cannot.
    pub why_unknown: Option<&'static str>,
    /// When it was found first; none if never.
    pub first_ns: Option<Ns>,
    /// Time that main's work takes, of that at the highest headroom: estimate and bounds in millionths.
    pub ratio_ppm: Option<[u32; 3]>,
    /// Time for which the highest headroom was kept, to compare.
    pub low_ns: u64,
}
