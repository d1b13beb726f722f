//! Calls that only read: as often as one likes, they cost the agent little, and a command line is
//! shown to its user, root and the group `tidegate` alone.

use std::sync::Arc;

use tidegate_api::{ApiError, ApiResult, ErrorKind, EventsView, ExplainView, GateView, StatusView};

use crate::agent::Agent;
use crate::peer::{Peer, as_numbered_here, is_admin};
use crate::view::Detail;

pub(crate) fn status_for(
    agent: &Agent,
    peer: Option<&Peer>,
    detail: Detail,
) -> ApiResult<StatusView> {
    if peer.is_some_and(is_admin) {
        return Ok(agent.status_in(detail));
    }
    admit(agent, peer)?;
    Ok(shared_status_for(agent, peer, detail))
}

/// The same, no older than a second: readers share it, so it costs the same however many there are.
pub(crate) fn shared_status_for(agent: &Agent, peer: Option<&Peer>, detail: Detail) -> StatusView {
    let mut view = StatusView::clone(&agent.shared(detail));
    if !peer.is_some_and(is_admin) {
        view.gates.iter_mut().for_each(|gate| hide(gate, peer));
    }
    view
}

/// What metrics are made of: no command is in it.
pub(crate) fn figures_for(agent: &Agent, peer: Option<&Peer>) -> ApiResult<Arc<StatusView>> {
    if peer.is_some_and(is_admin) {
        return Ok(Arc::new(agent.status_in(Detail::Figures)));
    }
    admit(agent, peer)?;
    Ok(agent.shared(Detail::Figures))
}

/// Whether the control loop has made a step, and is not late beyond its lease.
pub(crate) fn check_ready(agent: &Agent) -> ApiResult<()> {
    let control_loop = &agent.runtime.control_loop;
    let steps = control_loop.lock().steps;
    let now_ns = agent.runtime.kernel.clock.now_ns();
    let (age_ns, lease_ns) = control_loop.lease.age_and_lease_ns(now_ns);
    let detail = if steps == 0 {
        "control loop: it has made no step yet".to_owned()
    } else if age_ns > lease_ns {
        let (age_s, lease_s) = (age_ns as f64 / 1e9, lease_ns as f64 / 1e9);
        format!("control loop: not in control for {age_s:.1} s; its lease is {lease_s:.1} s")
    } else {
        return Ok(());
    };
    Err(ApiError::new(ErrorKind::NotReady, detail).with_remedy("see `tidegate status`"))
}

/// Why the gate that `target` names runs at its present rate, as `peer` may see it.
pub(crate) fn explain_for(
    agent: &Agent,
    peer: Option<&Peer>,
    target: &str,
) -> ApiResult<ExplainView> {
    let is_admin = peer.is_some_and(is_admin);
    if !is_admin {
        admit(agent, peer)?;
    }
    let target = &match peer {
        Some(peer) => as_numbered_here(&*agent.runtime.kernel.fs, peer, target)?,
        None => target.to_owned(),
    };
    if is_admin {
        return agent.explain(target);
    }
    let mut view = agent.explain(target)?;
    hide(&mut view.gate, peer);
    Ok(view)
}

/// What has happened after event number `since`: no command is in it.
pub(crate) fn events_for(agent: &Agent, peer: Option<&Peer>, since: u64) -> ApiResult<EventsView> {
    admit(agent, peer)?;
    Ok(agent.runtime.events.after(since))
}

/// Refuses one who asks too often; root and the group `tidegate` may.
pub(crate) fn admit(agent: &Agent, peer: Option<&Peer>) -> ApiResult<()> {
    if peer.is_some_and(is_admin) {
        return Ok(());
    }
    let user = peer.map_or(u32::MAX, Peer::charged_to);
    let now_ns = agent.runtime.kernel.clock.now_ns();
    if agent.shared_status.admit(user, now_ns) {
        return Ok(());
    }
    let detail = format!("budget: uid {user} asks more than ten times a second");
    Err(ApiError::new(ErrorKind::Busy, detail).with_remedy("wait a second"))
}

fn hide(gate: &mut GateView, peer: Option<&Peer>) {
    if peer.is_none_or(|peer| peer.uid != gate.uid) {
        gate.command = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Bed, Kind};

    #[test]
    fn an_agent_is_ready_from_the_first_step_on_and_while_its_lease_is_renewed() {
        let bed = Bed::new(Kind::V2);
        let agent = bed.agent().unwrap();
        let error = check_ready(&agent).unwrap_err();
        assert_eq!(error.kind, ErrorKind::NotReady);
        assert!(error.detail.contains("no step"), "{error}");
        agent.runtime.control().steps = 1;
        assert_eq!(check_ready(&agent), Ok(()));
        agent.runtime.control_loop.lease.beat(0);
        let error = check_ready(&agent).unwrap_err();
        assert!(error.detail.contains("its lease is 2.0 s"), "{error}");
    }
}
