//! Making every gate agree with a policy, or leaving all as it was.

use std::sync::{Arc, MutexGuard};

use tidegate_api::{ApiResult, GateChangeView, ObservedView, PolicyChangeView};
use tidegate_terms::Config;
use tracing::warn;

use crate::agent::Agent;
use crate::errors::internal;
use crate::events::EventKind;
use crate::gates::Gate;
use crate::kept_policy::{self, KeptPolicy, PolicyState};
use crate::policy::find::{Finder, Match};
use crate::policy::reconcile::{Refusal, alert_once, is_observed, reconcile};
use crate::policy::rehearse::Rehearsal;
use crate::process::Mode;
use crate::runtime::publish::publish;

/// Written down, so that files that are wrong at the next start do not count. An agent on demand
/// without rules leaves no such file.
pub(crate) fn keep(agent: &Agent, config: &Config, kept: &KeptPolicy) -> ApiResult<()> {
    let kernel = &agent.runtime.kernel;
    let is_plain = config.rules().is_empty() && kept.before.is_none() && !kept.outweighs_files();
    if is_plain && agent.life.mode == Mode::OnDemand {
        kept_policy::forget(&kernel.run_dir);
        return Ok(());
    }
    kept_policy::keep(&*kernel.fs, &kernel.run_dir, kept).map_err(internal)
}

/// Makes every gate agree with `config`; at a refusal that ends it, all is left as it was.
pub(crate) fn put_in_force(
    agent: &Agent,
    state: &mut MutexGuard<'_, PolicyState>,
    config: Config,
    kept: KeptPolicy,
    refusal: Refusal,
) -> ApiResult<PolicyChangeView> {
    let runtime = &agent.runtime;
    let config = Arc::new(config);
    let mut gates = agent.gates.lock();
    let matches = Finder::new(&runtime.kernel, &config, &gates).all();
    let old = agent.gates.config();
    // It is written down first: an agent that dies half way is followed by one that goes on with
    // it.
    keep(agent, &config, &kept)?;
    runtime.journal().begin_batch();
    let changed = reconcile(runtime, &mut gates, &config, &matches, refusal)
        .and_then(|changes| publish(runtime, &gates).map(|()| changes));
    if changed.is_err() {
        undo(agent, &state.kept, &mut gates, &old);
    }
    runtime.journal().end_batch();
    let changes = changed?;
    agent.gates.set_config(Arc::clone(&config));
    state.kept = kept;
    state.refused = None;
    state.unasked = None;
    // In force it is by now, whether what would be done elsewhere can be told or not.
    let observed = observe(agent, &gates, &config, &matches)
        .inspect_err(|error| warn!("policy: {error}"))
        .unwrap_or_default();
    state.observed.clone_from(&observed);
    drop(gates);
    tell(agent, &changes);
    Ok(PolicyChangeView {
        gates: changes,
        observed,
        ..PolicyChangeView::default()
    })
}

fn observe(
    agent: &Agent,
    gates: &[Gate],
    config: &Config,
    matches: &[Match],
) -> ApiResult<Vec<ObservedView>> {
    if !matches.iter().any(|one| is_observed(config, one)) {
        return Ok(Vec::new());
    }
    Ok(Rehearsal::new(&agent.runtime, gates)?.observed(gates, config, matches))
}

fn undo(agent: &Agent, kept: &KeptPolicy, gates: &mut Vec<Gate>, config: &Config) {
    let runtime = &agent.runtime;
    let matches = Finder::new(&runtime.kernel, config, gates).all();
    let undone = [
        reconcile(runtime, gates, config, &matches, Refusal::IsTold).map(drop),
        publish(runtime, gates),
        keep(agent, config, kept),
    ];
    for error in undone.into_iter().filter_map(Result::err) {
        alert_once(runtime, "policy: going back failed: ", &error.to_string());
    }
}

pub(crate) fn tell(agent: &Agent, changes: &[GateChangeView]) {
    for change in changes {
        let rule = change.rule.as_deref().unwrap_or_default();
        let (kind, what) = match change.change.as_str() {
            "made" => (
                EventKind::GateCreated,
                format!("{}, by rule {rule}: {}", change.target, change.terms),
            ),
            "ended" => (
                EventKind::GateEnded,
                "its rule no longer matches".to_owned(),
            ),
            _ => continue,
        };
        agent.runtime.events.tell(kind, Some(&change.gate), what);
    }
}
