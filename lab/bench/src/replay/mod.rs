//! Recorded demand through the simulator under other terms, beside what was.
//!
//! ```text
//! Recording ──> Demand (what each work wanted) ─┐
//! policy ─────> Arm (which work is in which gate) ┴─> scenario text ──> simulator ──> ReplayView
//! ```

pub mod arm;
mod as_it_was;
pub mod assumptions;
pub mod demand;
mod recorded_terms;
mod replayed;
pub mod rule;
pub mod scenario;
pub mod simulate;
pub mod stretch;
pub mod target;
pub mod tune;
pub mod view;

pub use arm::{Arm, Policy};
pub use demand::Demand;
pub use replayed::{Options, Replay};
pub use simulate::ReplayError;
pub use view::ReplayView;
