//! What can be asked of the scheduler for a group or a task.

use serde::Serialize;
pub use tidegate_terms::CapScope;

/// Kinds of work, in the order in which a CPU looks for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[repr(u32)]
pub enum Kind {
    /// Main and neutral work.
    #[default]
    Main = 0,
    /// Below a gate of class side.
    Side = 1,
}

/// What is asked of a group and all below it; what is None comes from the next group above that
/// says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GateTerms {
    /// Bounds on CPU use.
    pub cap: Option<CapTerms>,
    /// The latency hint, -20 (first) to 19 (last).
    pub hint: Option<i32>,
    pub kind: Option<Kind>,
    /// Idle to keep for it, of the machine; of all gates' the largest counts.
    pub headroom_ppm: Option<u32>,
    /// What side work gets though main takes all; of all gates' the smallest counts.
    pub tolerance_ppm: Option<u32>,
    /// The group's own cpu.idle stands for the time without this scheduler: it is not looked at.
    pub idle_is_mirror: bool,
}

/// Bounds on CPU use, in thousandths of a CPU; none of both is no cap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CapTerms {
    /// A bound that holds whatever is idle: from 1.
    pub hard_ppt: Option<u32>,
    /// A bound on what others are held up for; 0: only where no other task wants to run.
    pub soft_ppt: Option<u32>,
    pub scope: CapScope,
}
