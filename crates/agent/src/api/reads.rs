//! Calls that only read: as often as one likes, they cost the agent little, and a command line is shown to its user, root and the
//! group `tidegate` alone.

use tidegate_api::{ApiError, ErrorKind, EventsView, ExplainView, GateView, StatusView};

use crate::agent::Agent;
use crate::peer::{Peer, is_admin};

/// The machine at a glance, as `peer` may see it.
pub(crate) fn status_for(agent: &Agent, peer: Option<&Peer>) -> Result<StatusView, ApiError> {
    if peer.is_some_and(is_admin) {
        return Ok(agent.status());
    }
    admit(agent, peer)?;
    let mut view = StatusView::clone(&agent.shared());
    view.gates.iter_mut().for_each(|gate| hide(gate, peer));
    Ok(view)
}

/// Why the gate that `target` names runs at its present rate, as `peer` may see it.
pub(crate) fn explain_for(
    agent: &Agent,
    peer: Option<&Peer>,
    target: &str,
) -> Result<ExplainView, ApiError> {
    if peer.is_some_and(is_admin) {
        return agent.explain(target);
    }
    admit(agent, peer)?;
    let mut view = agent.explain(target)?;
    hide(&mut view.gate, peer);
    Ok(view)
}

/// What has happened after event number `since`: no command is in it.
pub(crate) fn events_for(
    agent: &Agent,
    peer: Option<&Peer>,
    since: u64,
) -> Result<EventsView, ApiError> {
    admit(agent, peer)?;
    Ok(agent.runtime.events.after(since))
}

/// Refuses one who asks too often; root and the group `tidegate` may.
pub(crate) fn admit(agent: &Agent, peer: Option<&Peer>) -> Result<(), ApiError> {
    if peer.is_some_and(is_admin) {
        return Ok(());
    }
    let user = peer.map_or(u32::MAX, Peer::charged_to);
    let now_ns = agent.runtime.kernel.clock.now_ns();
    if agent.shared_status.admit(user, now_ns) {
        return Ok(());
    }
    let detail = format!("budget: uid {user} asks more than ten times a second");
    Err(ApiError::new(ErrorKind::Busy, detail).with_mend("wait a second"))
}

fn hide(gate: &mut GateView, peer: Option<&Peer>) {
    if peer.is_none_or(|peer| peer.uid != gate.uid) {
        gate.command = None;
    }
}
