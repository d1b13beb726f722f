//! The lock that every agent holds for its life.

use std::time::{Duration, Instant};

use super::liveness::agent_lives;
use crate::paths::{RunDir, open_lock};

/// An agent that does not answer is waited for this long: housekeeping sees within a second that it
/// is to leave.
pub(crate) const LOCK_PATIENCE: Duration = Duration::from_secs(5);
pub(crate) const LOCK_POLL: Duration = Duration::from_millis(10);

/// The agent's lock, as a guardian or `repair` finds it.
pub enum AgentLock {
    /// Ours, until it is dropped: no agent can start meanwhile.
    Held(#[expect(dead_code, reason = "held, not used")] std::fs::File),
    Taken,
    Unusable(std::io::Error),
}

impl AgentLock {
    pub fn is_taken(&self) -> bool {
        matches!(self, Self::Taken)
    }
}

/// Takes the lock that every agent holds for its life.
pub fn lock_agent(run_dir: &RunDir) -> AgentLock {
    match open_lock(&run_dir.agent_lock()) {
        Err(error) => AgentLock::Unusable(error),
        Ok(file) if file.try_lock().is_err() => AgentLock::Taken,
        Ok(file) => AgentLock::Held(file),
    }
}

/// The same; an agent that is leaving (it answers no more) and a guardian that tidies up are waited
/// for.
pub fn lock_when_free(run_dir: &RunDir) -> AgentLock {
    let began = Instant::now();
    loop {
        let lock = lock_agent(run_dir);
        if !lock.is_taken() || agent_lives(run_dir) || began.elapsed() >= LOCK_PATIENCE {
            return lock;
        }
        std::thread::sleep(LOCK_POLL);
    }
}
