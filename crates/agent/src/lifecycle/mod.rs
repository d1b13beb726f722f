//! The life of gates and agent: taken up at the start, looked after once a second, put back in the
//! end, by the guardian where the agent is dead.

mod adopt;
pub mod guardian;
mod history_sampler;
pub(crate) mod housekeeping;
mod leaving;
pub(crate) mod loop_watch;
mod reassert;
pub(crate) mod repair;
mod round_robin;

pub(crate) use adopt::{renew_all, take_up};
pub(crate) use leaving::{hand_over, leave, leave_if_unused};
