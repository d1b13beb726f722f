//! What is simulated.

/// The cap of a fork storm.
pub const STORM_PPT: u32 = 100;

/// One simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Hogs that always run, each with another cap, on CPUs enough.
    Continuous,
    /// A hog with this cap that has slept for five seconds.
    AfterSleep(u32),
    /// A storm of forks under a group's cap.
    Storm,
}
