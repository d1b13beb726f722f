//! Measurements of what side work costs main: started by root or the group `tidegate`, one at a
//! time, for as long as their client asks after them.

use tidegate_api::{ApiResult, MeasureRequest, MeasureView};

use crate::agent::Agent;
use crate::api::reads::admit;
use crate::peer::{Peer, check_admin, is_admin};
use crate::runtime::measurement;

const DENIED: &str = "measure: without privilege you cannot switch others' side work";

fn view(agent: &Agent) -> ApiResult<MeasureView> {
    measurement::view(&agent.runtime).ok_or_else(measurement::none_yet)
}

pub(crate) fn start(
    agent: &Agent,
    peer: &Peer,
    request: &MeasureRequest,
) -> ApiResult<MeasureView> {
    check_admin(peer, DENIED)?;
    let gates = agent.gates.lock();
    agent.admit(peer)?;
    measurement::begin(&agent.runtime, &gates, peer.uid, request)?;
    drop(gates);
    view(agent)
}

/// `id`: the number of the caller's own measurement.
pub(crate) fn read(agent: &Agent, peer: Option<&Peer>, id: Option<u64>) -> ApiResult<MeasureView> {
    admit(agent, peer)?;
    if let Some(id) = id.filter(|_| peer.is_some_and(is_admin)) {
        measurement::heard(&agent.runtime, id);
    }
    view(agent)
}

pub(crate) fn end(agent: &Agent, peer: &Peer) -> ApiResult<MeasureView> {
    check_admin(peer, DENIED)?;
    measurement::end(&agent.runtime)?;
    view(agent)
}
