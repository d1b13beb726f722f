//! Main's latency as its operator measures it, held against the objective of its gate.

use tidegate_api::{ApiError, ApiResult, Done, ErrorKind, ReportRequest};
use tidegate_engine::control::Figure;
use tidegate_terms::{Objective, TimeSpan, quoted};

use crate::agent::Agent;
use crate::errors::usage;
use crate::peer::{Peer, as_numbered_here, denied, is_admin};

/// Takes one figure, from the gate's owner or an administrator.
pub(crate) fn report(agent: &Agent, peer: &Peer, request: &ReportRequest) -> ApiResult<Done> {
    let text = &request.latency;
    let latency = TimeSpan::parse(text).map_err(|why| {
        usage(format!("latency: \"{}\" {why}", quoted(text))).with_remedy("write 4.2ms")
    })?;
    let kernel = &agent.runtime.kernel;
    let target = as_numbered_here(&*kernel.fs, peer, &request.target)?;
    let gates = agent.gates.lock();
    let gate = &gates[kernel.find(&gates, &target)?];
    let name = &gate.record.name;
    if peer.uid != gate.record.uid && !is_admin(peer) {
        return Err(denied(format!("objective: gate {name} is not yours")));
    }
    let Objective::Reported { span } = gate.terms.objective.value else {
        let detail = format!("objective: gate {name} has none on a reported latency");
        let remedy = format!("tidegate set gate:{name} objective='reported<TIME'");
        return Err(ApiError::new(ErrorKind::Usage, detail).with_remedy(remedy));
    };
    agent.admit(peer)?;
    let mut control = agent.runtime.control();
    let message = match control.demand().objective.clone() {
        Some(found) if found.gate == *name && found.figure == Figure::Reported => {
            control.report(latency.ns());
            let against = if latency.ns() > span.ns() {
                "above"
            } else {
                "within"
            };
            format!("gate {name}: {latency}, {against} the objective of {span}")
        }
        Some(stricter) => format!("gate {name}: not used, {} is in force", stricter.from),
        None => format!("gate {name}: not used, no objective is in force"),
    };
    Ok(Done { message })
}
