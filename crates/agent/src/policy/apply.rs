//! Putting texts in force, all or nothing, and going back.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use tidegate_api::{
    ApiError, ApiResult, ApplyRequest, Done, ErrorKind, PolicyChangeView, PolicyView, RuleView,
};
use tidegate_engine::sync::lock;
use tidegate_terms::{Config, ConfigErrors};
use tracing::warn;

use crate::agent::Agent;
use crate::events::EventKind;
use crate::gates::Gate;
use crate::kept_policy::{KeptPolicy, PolicyState, Texts};
use crate::peer::{Peer, check_admin, is_admin};
use crate::policy::find::Finder;
use crate::policy::in_force::{keep, put_in_force};
use crate::policy::reconcile::Refusal;
use crate::policy::rehearse::Rehearsal;
use crate::process::Mode;
use crate::view::figures::count;

const NS_PER_S: u64 = 1_000_000_000;

/// The longest trial: a week.
const TRIAL_MAX_S: u64 = 7 * 24 * 3600;

fn may(peer: &Peer, what: &str) -> ApiResult<()> {
    check_admin(peer, format!("{what}: the policy is the administrator's"))
}

fn refused(errors: &ConfigErrors) -> ApiError {
    let remedy =
        "correct the files (`tidegate policy check` shows each place); the policy in force stays";
    ApiError::new(ErrorKind::Usage, errors.to_string()).with_remedy(remedy)
}

fn read(agent: &Agent) -> ApiResult<(Texts, Config)> {
    let texts = agent.policy.roots.read().map_err(|why| refused(&why))?;
    let config = Config::from_texts(&texts).map_err(|why| refused(&why))?;
    Ok((texts, config))
}

fn tell_all(agent: &Agent, kind: EventKind, what: impl Into<String>) {
    agent.runtime.events.tell(kind, None, what);
}

pub(crate) fn diff(agent: &Agent, peer: &Peer) -> ApiResult<PolicyChangeView> {
    may(peer, "diff")?;
    let (_, config) = read(agent)?;
    let gates = agent.gates.lock();
    let matches = Finder::new(&agent.runtime.kernel, &config, &gates).all();
    let rehearsal = Rehearsal::new(&agent.runtime, &gates)?;
    let mut view = rehearsal.view(&gates, &config, &matches)?;
    view.notes = notes(agent, &config);
    Ok(view)
}

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
    asked: &ApplyRequest,
) -> ApiResult<PolicyChangeView> {
    may(peer, "apply")?;
    let trial_s = asked.for_seconds;
    if trial_s.is_some_and(|trial_s| trial_s == 0 || trial_s > TRIAL_MAX_S) {
        let detail = "apply: a trial is from one second to seven days long";
        return Err(ApiError::new(ErrorKind::Usage, detail).with_remedy("write --for 10m"));
    }
    let mut state = agent.policy.lock();
    let applied = read(agent).and_then(|(texts, config)| {
        let now_ns = agent.runtime.kernel.clock.now_ns();
        let notes = notes(agent, &config);
        let mut kept = next(&state.kept, texts, trial_s.map(|s| now_ns + s * NS_PER_S));
        let at_start = state.unasked.clone().filter(|_| asked.is_first);
        if at_start.is_some() {
            // The agent's start put the files in force; the way back is to no rules.
            kept.before = Some(Texts::new());
            kept.is_same_on_trial = false;
        }
        let mut view = put_in_force(agent, &mut state, config, kept, Refusal::Ends)?;
        view.gates.splice(..0, at_start.unwrap_or_default());
        view.notes = notes;
        Ok(view)
    });
    match &applied {
        Ok(view) => {
            let rules = agent.gates.config().rules().len();
            let rules = count(rules as u64, "rule");
            let changed = count(view.gates.len() as u64, "gate");
            let mut what = format!("{rules}, {changed} changed");
            if let Some(trial_s) = trial_s {
                what += &format!("; on trial for {trial_s} s");
            }
            tell_all(agent, EventKind::PolicyApplied, what);
        }
        Err(error) => {
            refused_now(agent, &mut state, error.detail.clone());
            let what = error.detail.lines().next().unwrap_or_default();
            tell_all(agent, EventKind::PolicyRejected, what);
        }
    }
    applied
}

fn refused_now(agent: &Agent, state: &mut PolicyState, why: String) {
    state.refused = Some(why);
    let gates = &agent.gates;
    gates.is_policy_refused.store(true, Ordering::Relaxed);
}

/// What is kept once these texts are in force. What was in force before a trial stays the way back
/// from the next one, and reading the same again is no other policy.
fn next(kept: &KeptPolicy, texts: Texts, trial_until_ns: Option<u64>) -> KeptPolicy {
    let is_trial = kept.trial_until_ns.is_some() && !kept.is_same_on_trial;
    let is_same = texts == kept.texts;
    let before = match is_trial || is_same {
        true => kept.before.clone(),
        false => Some(kept.texts.clone()),
    };
    KeptPolicy {
        texts,
        before,
        trial_until_ns,
        is_same_on_trial: trial_until_ns.is_some() && is_same && !is_trial,
        is_rolled_back: false,
    }
}

pub(crate) fn confirm(agent: &Agent, peer: &Peer) -> ApiResult<Done> {
    may(peer, "confirm")?;
    let mut state = agent.policy.lock();
    if state.kept.trial_until_ns.is_none() {
        let detail = "confirm: no policy is on trial";
        return Err(ApiError::new(ErrorKind::Usage, detail)
            .with_remedy("start one with `tidegate policy apply --for 10m`"));
    }
    end_of_trial(agent, &mut state)?;
    let what = "the policy on trial was confirmed";
    tell_all(agent, EventKind::PolicyConfirmed, what);
    Ok(Done {
        message: "the policy is confirmed; it stays in force".to_owned(),
    })
}

pub(crate) fn rollback(agent: &Agent, peer: &Peer) -> ApiResult<PolicyChangeView> {
    may(peer, "rollback")?;
    go_back(
        agent,
        agent.policy.lock(),
        "it was asked for",
        Refusal::Ends,
    )
}

pub(crate) fn end_trial(agent: &Agent) {
    let mut state = agent.policy.lock();
    let now_ns = agent.runtime.kernel.clock.now_ns();
    if state
        .kept
        .trial_until_ns
        .is_none_or(|until_ns| now_ns < until_ns)
    {
        return;
    }
    let ended = match state.kept.is_same_on_trial {
        true => end_of_trial(agent, &mut state),
        // It ends in any case: what cannot have its terms of before is told of, and goes without.
        false => go_back(
            agent,
            state,
            "it was not confirmed in time",
            Refusal::IsTold,
        )
        .map(drop),
    };
    if let Err(error) = ended {
        warn!("{error}");
    }
}

/// What was on trial stays; as it was where that cannot be written down.
fn end_of_trial(agent: &Agent, state: &mut PolicyState) -> ApiResult<()> {
    let kept = KeptPolicy {
        trial_until_ns: None,
        is_same_on_trial: false,
        ..state.kept.clone()
    };
    keep(agent, &agent.gates.config(), &kept)?;
    state.kept = kept;
    Ok(())
}

fn go_back(
    agent: &Agent,
    mut state: MutexGuard<'_, PolicyState>,
    why: &str,
    refusal: Refusal,
) -> ApiResult<PolicyChangeView> {
    let Some(before) = state.kept.before.clone() else {
        let detail = match state.kept.is_rolled_back {
            true => "rollback: the policy before is in force already",
            false => "rollback: no other policy was in force since the machine started",
        };
        return Err(ApiError::new(ErrorKind::Usage, detail)
            .with_remedy("change the files, then apply them"));
    };
    // It was in force: what an upgrade no longer reads of it is no reason to have none.
    let config = Config::from_texts(&before).map_err(|errors| refused(&errors))?;
    let kept = KeptPolicy {
        texts: before,
        before: None,
        trial_until_ns: None,
        is_same_on_trial: false,
        is_rolled_back: true,
    };
    let mut view = put_in_force(agent, &mut state, config, kept, refusal)?;
    view.notes = vec![
        "the files say otherwise still; the policy in force stays until they are applied again"
            .to_owned(),
    ];
    let what = format!("the policy before is in force again: {why}");
    tell_all(agent, EventKind::PolicyRolledBack, what);
    Ok(view)
}

/// At the agent's start: the gates that were taken up agree with the policy in force.
/// `files_refused` is why that is not the files'.
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
    let kept = state.kept.clone();
    if config.rules().is_empty() && !agent.gates.lock().iter().any(is_ruled) {
        if let Err(error) = keep(agent, &config, &kept) {
            warn!("policy: {error}");
        }
        return;
    }
    let is_unasked = state.unasked.is_some() && agent.life.mode == Mode::OnDemand;
    let begun = put_in_force(agent, &mut state, (*config).clone(), kept, Refusal::IsTold);
    state.unasked =
        is_unasked.then(|| begun.as_ref().map_or(Vec::new(), |view| view.gates.clone()));
    if let Err(error) = begun {
        warn!("policy: {error}");
        refused_now(agent, &mut state, error.detail.clone());
        lock(&agent.runtime.alerts).insert(format!("policy: {error}"));
    }
}

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

fn refuse(agent: &Agent, why: &str) {
    refused_now(agent, &mut agent.policy.lock(), why.to_owned());
    let runtime = &agent.runtime;
    let what = why.lines().next().unwrap_or_default();
    runtime.events.tell(EventKind::PolicyRejected, None, what);
    lock(&runtime.alerts).insert(format!(
        "policy: the files are wrong, and the policy that was in force last still is: {what}"
    ));
}
