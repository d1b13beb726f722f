//! What the control loop tells of one step.

use crate::control::meter::Use;
use crate::sense::Waits;

/// What one control step saw.
#[derive(Clone, Debug)]
pub struct Seen {
    /// When.
    pub now_ns: u64,
    /// Time since the step before.
    pub dt_ns: u64,
    /// Use in it; of no time where the reading is not to be used.
    pub window: Use,
    /// Main's waits in it.
    pub waits: Waits,
    /// There are main groups; else all but side work is main.
    pub has_main: bool,
    /// The sensor tells waits.
    pub tells_waits: bool,
    /// There is side work to limit.
    pub has_side: bool,
    /// CPUs online.
    pub cpus: u32,
    /// What side work gets at least.
    pub floor_ucpu: u64,
}

impl Seen {
    /// Main's CPU time in the window.
    pub fn main_ns(&self) -> u64 {
        let window = &self.window;
        if self.has_main {
            window.main_ns
        } else {
            window.busy_ns.saturating_sub(window.side_ns)
        }
    }
}
