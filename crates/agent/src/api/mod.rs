//! The calls of the socket: what is asked, by which caller, and whether they may.

pub(crate) mod measure;
pub(crate) mod reads;
pub(crate) mod report;
mod run;
mod targets;

use std::sync::Arc;

use tidegate_api::{ApiResult, Done, ExplainView, StatusView};

use crate::agent::Agent;
use crate::kept_policy;
use crate::lifecycle::{hand_over, leave};
use crate::peer::{Peer, check_admin};
use crate::view::{Detail, explain, status};

impl Agent {
    pub async fn left(&self) {
        self.life.left().await;
    }

    pub fn status(&self) -> StatusView {
        self.status_in(Detail::Whole)
    }

    pub(crate) fn status_in(&self, detail: Detail) -> StatusView {
        status(&self.gates, &self.runtime, &self.life, detail)
    }

    /// The same, no older than a second: one for all who may see no command.
    pub(crate) fn shared(&self, detail: Detail) -> Arc<StatusView> {
        let now_ns = self.runtime.kernel.clock.now_ns();
        let shared = &self.shared_status;
        shared.snapshot(detail, now_ns, || self.status_in(detail))
    }

    pub fn explain(&self, target: &str) -> ApiResult<ExplainView> {
        explain(&self.gates, &self.runtime, &self.life, target)
    }

    /// Ends the agent and returns how many side commands still run.
    pub fn leave(&self) -> usize {
        // A trial, and a policy that was gone back to, hold until the next boot.
        if !self.policy.lock().kept.outweighs_files() {
            kept_policy::forget(&self.runtime.kernel.run_dir);
        }
        leave(&self.gates, &self.runtime, &self.life)
    }

    /// Ends for the agent that a service manager starts next: nothing is put back.
    pub fn hand_over(&self) {
        hand_over(&self.gates, &self.runtime, &self.life);
    }

    pub fn stop(&self, peer: &Peer) -> ApiResult<Done> {
        check_admin(peer, "stop: without privilege you cannot end the agent")?;
        let orphans = self.leave();
        let message = match orphans {
            0 => "agent stopped; everything it had written was restored".to_owned(),
            1 => "agent stopped; one side command that runs keeps cpu.idle and a static quota until it ends".to_owned(),
            n => format!(
                "agent stopped; {n} side commands that run keep cpu.idle and a static quota until they end"
            ),
        };
        Ok(Done { message })
    }
}
