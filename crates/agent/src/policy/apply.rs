//! Putting texts in force, all or nothing, and going back.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use tidegate_api::{
    ApiError, Done, ErrorKind, GateChangeView, ObservedView, PolicyChangeView, PolicyView, RuleView,
};
use tidegate_knobs::sync::lock;
use tidegate_terms::policy::Mode;
use tidegate_terms::{Config, ConfigErrors};
use tracing::{debug, warn};

use crate::agent::Agent;
use crate::errors::internal;
use crate::events::EventKind;
use crate::gates::Gate;
use crate::kept_policy::{self, KeptPolicy, PolicyState, Texts};
use crate::peer::{Peer, ask_an_admin, is_admin};
use crate::policy::find::{Finder, Match};
use crate::policy::reconcile::reconcile;
use crate::policy::rehearse::Rehearsal;
use crate::runtime::Runtime;
use crate::runtime::publish::publish;

const NS_PER_S: u64 = 1_000_000_000;

/// The longest trial: a week.
const TRIAL_MAX_S: u64 = 7 * 24 * 3600;

fn may(peer: &Peer, what: &str) -> Result<(), ApiError> {
    if is_admin(peer) {
        return Ok(());
    }
    let detail = format!("{what}: the policy is the administrator's");
    Err(ApiError::new(ErrorKind::Denied, detail).with_mend(ask_an_admin()))
}

fn refused(errors: &ConfigErrors) -> ApiError {
    let mend = "mend the files (`tidegate check` shows each place); the policy in force stays";
    ApiError::new(ErrorKind::Usage, errors.to_string()).with_mend(mend)
}

/// The files as they are now.
fn read(agent: &Agent) -> Result<(Texts, Config), ApiError> {
    let texts = agent.policy.roots.read().map_err(|why| refused(&why))?;
    let config = Config::from_texts(&texts).map_err(|why| refused(&why))?;
    Ok((texts, config))
}

/// What the files would change, were they applied now.
pub(crate) fn diff(agent: &Agent, peer: &Peer) -> Result<PolicyChangeView, ApiError> {
    may(peer, "diff")?;
    let (_, config) = read(agent)?;
    let gates = agent.gates.lock();
    let matches = Finder::new(&agent.runtime.kernel, &config).all();
    let rehearsal = Rehearsal::new(&agent.runtime, &gates)?;
    let mut view = rehearsal.change(&gates, &config, &matches)?;
    view.notes = notes(agent, &config);
    Ok(view)
}

/// Settings that count from the agent's next start on.
fn notes(agent: &Agent, config: &Config) -> Vec<String> {
    let (old, new) = (agent.runtime.settings.views(), config.settings().views());
    let differing = old
        .iter()
        .zip(&new)
        .filter(|(old, new)| old.value != new.value);
    differing
        .map(|(old, new)| {
            format!(
                "{} = {} ({}) counts from the agent's next start on; until then it is {}",
                new.name, new.value, new.source, old.value
            )
        })
        .collect()
}

/// The files are in force from here on; for `trial_s` only, unless they are confirmed.
pub(crate) fn apply(
    agent: &Agent,
    peer: &Peer,
    trial_s: Option<u64>,
) -> Result<PolicyChangeView, ApiError> {
    may(peer, "apply")?;
    if trial_s.is_some_and(|trial_s| trial_s == 0 || trial_s > TRIAL_MAX_S) {
        let detail = "apply: a trial is from one second to seven days long";
        return Err(ApiError::new(ErrorKind::Usage, detail).with_mend("write --for 10m"));
    }
    let mut state = agent.policy.lock();
    let applied = read(agent).and_then(|(texts, config)| {
        let now_ns = agent.runtime.kernel.clock.now_ns();
        let notes = notes(agent, &config);
        let kept = next(&state.kept, texts, trial_s.map(|s| now_ns + s * NS_PER_S));
        let mut view = put_in_force(agent, &mut state, config, kept)?;
        view.notes = notes;
        Ok(view)
    });
    match &applied {
        Ok(view) => {
            let rules = agent.gates.config().rules().len();
            let mut what = format!("{rules} rules, {} gates changed", view.gates.len());
            if let Some(trial_s) = trial_s {
                what += &format!("; on trial for {trial_s} s");
            }
            agent
                .runtime
                .events
                .tell(EventKind::PolicyApplied, None, what);
        }
        Err(error) => {
            refused_now(agent, &mut state, error.detail.clone());
            let what = error.detail.lines().next().unwrap_or_default();
            agent
                .runtime
                .events
                .tell(EventKind::PolicyRejected, None, what);
        }
    }
    applied
}

fn refused_now(agent: &Agent, state: &mut PolicyState, why: String) {
    state.refused = Some(why);
    let gates = &agent.gates;
    gates.is_policy_refused.store(true, Ordering::Relaxed);
}

/// What is kept once these texts are in force. What was in force before a trial stays the way back from the next one, and reading the
/// same again is no other policy.
fn next(kept: &KeptPolicy, texts: Texts, trial_until_ns: Option<u64>) -> KeptPolicy {
    let is_trial = kept.trial_until_ns.is_some();
    let before = match is_trial || texts == kept.texts {
        true => kept.before.clone(),
        false => Some(kept.texts.clone()),
    };
    KeptPolicy {
        texts,
        before,
        trial_until_ns,
        is_rolled_back: false,
    }
}

/// The trial is over, and what it tried stays.
pub(crate) fn confirm(agent: &Agent, peer: &Peer) -> Result<Done, ApiError> {
    may(peer, "confirm")?;
    let mut state = agent.policy.lock();
    if state.kept.trial_until_ns.is_none() {
        let detail = "confirm: no policy is on trial";
        return Err(ApiError::new(ErrorKind::Usage, detail)
            .with_mend("start one with `tidegate apply --for 10m`"));
    }
    state.kept.trial_until_ns = None;
    keep(agent, &agent.gates.config(), &state.kept)?;
    let what = "the policy on trial was confirmed";
    agent
        .runtime
        .events
        .tell(EventKind::PolicyConfirmed, None, what);
    Ok(Done {
        message: "the policy is confirmed; it stays in force".to_owned(),
    })
}

/// The policy before is in force again.
pub(crate) fn rollback(agent: &Agent, peer: &Peer) -> Result<PolicyChangeView, ApiError> {
    may(peer, "rollback")?;
    go_back(agent, "it was asked for")
}

/// A trial that nobody confirmed in time is over.
pub(crate) fn end_trial(agent: &Agent) {
    let until_ns = agent.policy.lock().kept.trial_until_ns;
    let now_ns = agent.runtime.kernel.clock.now_ns();
    if until_ns.is_some_and(|until_ns| now_ns >= until_ns)
        && let Err(error) = go_back(agent, "nobody confirmed it in time")
    {
        warn!("{error}");
    }
}

fn go_back(agent: &Agent, why: &str) -> Result<PolicyChangeView, ApiError> {
    let mut state = agent.policy.lock();
    let Some(before) = state.kept.before.clone() else {
        let detail = "rollback: no other policy was in force since the machine started";
        return Err(
            ApiError::new(ErrorKind::Usage, detail).with_mend("change the files, then apply them")
        );
    };
    // It was in force: what an upgrade no longer reads of it is no reason to have none.
    let config = Config::from_texts(&before).map_err(|errors| refused(&errors))?;
    let kept = KeptPolicy {
        texts: before,
        before: None,
        trial_until_ns: None,
        is_rolled_back: true,
    };
    let mut view = put_in_force(agent, &mut state, config, kept)?;
    view.notes = vec![
        "the files say otherwise still; the policy in force stays until they are applied again"
            .to_owned(),
    ];
    let what = format!("the policy before is in force again: {why}");
    agent
        .runtime
        .events
        .tell(EventKind::PolicyRolledBack, None, what);
    Ok(view)
}

/// Written down, unless it is no more than the files without rules.
fn keep(agent: &Agent, config: &Config, kept: &KeptPolicy) -> Result<(), ApiError> {
    let kernel = &agent.runtime.kernel;
    if config.rules().is_empty() && kept.before.is_none() && !kept.outweighs_files() {
        kept_policy::forget(&kernel.run_dir);
        return Ok(());
    }
    kept_policy::keep(&*kernel.fs, &kernel.run_dir, kept).map_err(internal)
}

/// Makes every gate agree with `config`, or leaves all as it was.
fn put_in_force(
    agent: &Agent,
    state: &mut MutexGuard<'_, PolicyState>,
    config: Config,
    kept: KeptPolicy,
) -> Result<PolicyChangeView, ApiError> {
    let runtime = &agent.runtime;
    let config = Arc::new(config);
    let mut gates = agent.gates.lock();
    let matches = Finder::new(&runtime.kernel, &config).all();
    let old = agent.gates.config();
    // It is written down first: an agent that dies half way is followed by one that goes on with it.
    keep(agent, &config, &kept)?;
    let rehearsed = rehearsed(runtime, &gates, &config, &matches);
    runtime.journal().forget_later();
    let changed = reconcile(runtime, &mut gates, &config, &matches)
        .and_then(|changes| publish(runtime, &gates).map(|()| changes));
    let is_made = |name: &str| gates.iter().any(|gate| gate.record.name == name);
    runtime.journal().store_forgotten(rehearsed, is_made);
    let changes = match changed {
        Ok(changes) => changes,
        Err(error) => {
            undo(agent, &state.kept, &mut gates, &old);
            return Err(error);
        }
    };
    agent.gates.set_config(Arc::clone(&config));
    state.kept = kept;
    state.refused = None;
    let observed = observe(agent, &gates, &config, &matches)?;
    state.observed.clone_from(&observed);
    drop(gates);
    tell(agent, &changes);
    Ok(PolicyChangeView {
        gates: changes,
        observed,
        ..PolicyChangeView::default()
    })
}

/// What is about to be done, done in memory first and written down at once. Where that fails, each change is written down by itself, and
/// the machine says what is wrong.
fn rehearsed(runtime: &Runtime, gates: &[Gate], config: &Config, matches: &[Match]) -> Range<u64> {
    let recorded = Rehearsal::new(runtime, gates).and_then(|rehearsal| {
        rehearsal.change(gates, config, matches)?;
        rehearsal.record_in(runtime)
    });
    recorded.unwrap_or_else(|why| {
        debug!("policy: not rehearsed: {why}");
        0..0
    })
}

/// What rules in observe mode match.
fn observe(
    agent: &Agent,
    gates: &[Gate],
    config: &Config,
    matches: &[Match],
) -> Result<Vec<ObservedView>, ApiError> {
    if config.rules().iter().all(|rule| rule.mode == Mode::Enforce) {
        return Ok(Vec::new());
    }
    Ok(Rehearsal::new(&agent.runtime, gates)?.observed(gates, config, matches))
}

/// Goes back to the policy in force after a refusal.
fn undo(agent: &Agent, kept: &KeptPolicy, gates: &mut Vec<Gate>, config: &Config) {
    let runtime = &agent.runtime;
    let matches = Finder::new(&runtime.kernel, config).all();
    let undone = reconcile(runtime, gates, config, &matches)
        .map(drop)
        .and_then(|()| publish(runtime, gates))
        .and_then(|()| keep(agent, config, kept));
    if let Err(error) = undone {
        warn!("going back to the policy in force: {error}");
        lock(&runtime.alerts).insert(format!("policy: going back failed: {error}"));
    }
}

/// Gates that were made and ended.
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

/// At the agent's start: the gates that were taken up agree with the policy in force. `files_refused` is why that is not the files'.
pub(crate) fn begin(agent: &Agent, files_refused: Option<&str>) {
    agree(agent);
    if let Some(why) = files_refused {
        refuse(agent, why);
    }
}

fn agree(agent: &Agent) {
    let mut state = agent.policy.lock();
    let config = agent.gates.config();
    let is_ruled = |gate: &Gate| gate.record.rule.is_some();
    if config.rules().is_empty() && !agent.gates.lock().iter().any(is_ruled) {
        return;
    }
    let kept = state.kept.clone();
    if let Err(error) = put_in_force(agent, &mut state, (*config).clone(), kept) {
        warn!("policy: {error}");
        refused_now(agent, &mut state, error.detail.clone());
        lock(&agent.runtime.alerts).insert(format!("policy: {error}"));
    }
}

/// The policy in force.
pub(crate) fn view(agent: &Agent, peer: Option<&Peer>) -> PolicyView {
    let state = agent.policy.lock();
    let config = agent.gates.config();
    let gates = agent.gates.lock();
    let now_ns = agent.runtime.kernel.clock.now_ns();
    let is_admin = peer.is_some_and(is_admin);
    let rules = config.rules().iter().map(|rule| RuleView {
        name: rule.name.clone(),
        mode: rule.mode.name().to_owned(),
        source: rule.place.to_string(),
        gates: gates
            .iter()
            .filter(|gate| gate.record.rule.as_ref() == Some(&rule.name))
            .map(|gate| gate.record.name.clone())
            .collect(),
        observed: state
            .observed
            .iter()
            .filter(|view| view.rule == rule.name && is_admin)
            .cloned()
            .collect(),
    });
    let left_ns = |until_ns: u64| until_ns.saturating_sub(now_ns);
    PolicyView {
        generation: agent.gates.policy().0,
        files: state
            .kept
            .texts
            .iter()
            .map(|(path, _)| path.display().to_string())
            .collect(),
        rules: rules.collect(),
        trial_seconds_left: state
            .kept
            .trial_until_ns
            .map(|until_ns| left_ns(until_ns) as f64 / 1e9),
        files_differ: agent
            .policy
            .roots
            .read()
            .map_or(true, |texts| texts != state.kept.texts),
        refused: state.refused.clone(),
        watch: state.watch.clone(),
    }
}

/// The files were wrong when the agent started.
fn refuse(agent: &Agent, why: &str) {
    refused_now(agent, &mut agent.policy.lock(), why.to_owned());
    let runtime = &agent.runtime;
    let what = why.lines().next().unwrap_or_default();
    runtime.events.tell(EventKind::PolicyRejected, None, what);
    lock(&runtime.alerts).insert(format!(
        "policy: the files are wrong, and the policy that was in force last still is: {what}"
    ));
}
