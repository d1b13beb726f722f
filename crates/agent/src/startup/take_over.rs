//! An agent that waits for the place of the one that runs, as during a rollout in Kubernetes. It
//! holds a lock meanwhile, by which the other one, told to end, sees that limits are to stay.

use std::fs::File;
use std::time::Instant;

use tidegate_terms::Config;
use tokio::runtime::Runtime;
use tracing::info;

use super::{Signals, StartError, open_agent_lock};
use crate::lifecycle::repair::is_handed_over;
use crate::paths::{RunDir, open_lock};
use crate::process::agent_lock::{LOCK_PATIENCE, LOCK_POLL};

pub(super) fn is_awaited(run_dir: &RunDir) -> bool {
    open_lock(&run_dir.next_lock()).is_ok_and(|file| file.try_lock().is_err())
}

/// Waits for the agent's lock. `None`: this process was told to end first.
///
/// An uninstall tells both agents to end at once. The other agent may already be handing over to
/// this one, however long that takes. After the signal, this agent therefore gives up its place in
/// the queue, but still takes over if the other hands over, and then leaves as any agent does.
///
/// # Errors
/// The configuration is wrong while another agent runs: a rollout must stop there. Without another
/// agent, the start decides what a wrong configuration comes to.
pub(super) fn wait(
    run_dir: &RunDir,
    runtime: &Runtime,
    signals: &mut Signals,
) -> Result<Option<File>, StartError> {
    let file = open_agent_lock(run_dir)?;
    if file.try_lock().is_ok() {
        return Ok(Some(file));
    }
    Config::from_texts(&run_dir.config_roots().read()?)?;
    let next_path = run_dir.next_lock();
    let mut next = Some(open_lock(&next_path).map_err(StartError::at(&next_path))?);
    let mut is_seen = false;
    let mut told: Option<Instant> = None;
    while file.try_lock().is_err() {
        // Another one may wait, too.
        if let Some(next) = next.as_ref().filter(|_| !is_seen) {
            is_seen = next.try_lock().is_ok();
            if is_seen {
                info!("another agent runs; this one waits for its place");
            }
        }
        let is_late = told.is_some_and(|at| at.elapsed() >= LOCK_PATIENCE);
        if is_late && !is_handed_over(run_dir) {
            return Ok(None);
        }
        if told.is_some() {
            std::thread::sleep(LOCK_POLL);
            continue;
        }
        let wait = async { tokio::time::timeout(LOCK_POLL, signals.recv()).await };
        if runtime.block_on(wait).is_ok() {
            next = None;
            told = Some(Instant::now());
        }
    }
    Ok(Some(file))
}
