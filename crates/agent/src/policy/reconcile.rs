//! Making gates agree with rules: what matches gets the rule's terms, what no rule matches any more
//! loses them.

use std::collections::{BTreeSet, HashMap};

use tidegate_api::{ApiError, ApiResult, ErrorKind, GateChangeView};
use tidegate_cgroup::group::GroupPath;
use tidegate_cgroup::target::{HeldProcess, Target};
use tidegate_engine::sync::lock;
use tidegate_terms::policy::Mode;
use tidegate_terms::{Class, Config, RawTerms, Term, TermError, Terms};
use tracing::warn;

use crate::errors::{not_found, usage};
use crate::follow_units::follow;
use crate::gates::privilege::only_tightens;
use crate::gates::{Attachment, Gate, Record};
use crate::policy::find::Match;
use crate::runtime::Runtime;
use crate::runtime::limits::release;
use crate::runtime::make::{AskedGate, Obstacles, change_to, check_limitable, make};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Ends,
    IsTold,
}

/// One alert that begins with `start` stands for all: processes come and go by the thousand.
pub(crate) fn alert_once(runtime: &Runtime, start: &str, what: &str) {
    let text = format!("{start}{what}");
    warn!("{text}");
    let mut alerts = lock(&runtime.alerts);
    if !alerts.iter().any(|known| known.starts_with(start)) {
        alerts.insert(text);
    }
}

fn unless_told<T>(
    runtime: &Runtime,
    refusal: Refusal,
    rule: &str,
    done: ApiResult<Option<T>>,
) -> ApiResult<Option<T>> {
    match (done, refusal) {
        (Err(error), Refusal::IsTold) => {
            alert_once(
                runtime,
                &format!("policy: rule {rule}: "),
                &error.to_string(),
            );
            Ok(None)
        }
        (done, _) => done,
    }
}

/// Makes the gates agree with `matches`, which the rules of `config` are for, and says what has
/// changed. What matches no more is released last, so that nothing is without limits in between.
///
/// # Errors
/// The first refusal; the gates are then half of the one and half of the other policy, and the
/// caller goes back.
pub(crate) fn reconcile(
    runtime: &Runtime,
    gates: &mut Vec<Gate>,
    config: &Config,
    matches: &[Match],
    refusal: Refusal,
) -> ApiResult<Vec<GateChangeView>> {
    let mut changes = Vec::new();
    let mut known = Known::of(runtime, gates);
    let mut wanted = BTreeSet::new();
    for one in matches.iter().filter(|one| is_enforced(config, one)) {
        if let Some(index) = known.find(one) {
            wanted.insert(index);
            let rule = Some(one.rule.clone());
            let given = give(runtime, gates, config, index, rule);
            changes.extend(unless_told(runtime, refusal, &one.rule, given)?);
            continue;
        }
        let made = make_gate(runtime, gates, &mut known, config, one);
        if let Some(made) = unless_told(runtime, refusal, &one.rule, made)? {
            wanted.insert(gates.len() - 1);
            changes.push(made);
        }
    }
    for index in (0..gates.len()).rev() {
        let Some(rule) = gates[index].record.rule.clone() else {
            continue;
        };
        if wanted.contains(&index) {
            continue;
        }
        let left = match outlives_its_process(runtime, config, &gates[index]) {
            true => give(runtime, gates, config, index, Some(rule.clone())),
            false => let_go(runtime, gates, config, index).map(Some),
        };
        changes.extend(unless_told(runtime, refusal, &rule, left)?);
    }
    Ok(changes)
}

/// The process that a rule matched has ended, and others that it started are in its gate: those go
/// on with the rule's terms.
fn outlives_its_process(runtime: &Runtime, config: &Config, gate: &Gate) -> bool {
    let rule = gate.record.rule.as_ref();
    let is_enforced = rule.and_then(|name| config.mode_of(name)) == Some(Mode::Enforce);
    let is_moved = matches!(gate.record.attachment, Attachment::Moved { .. });
    let process = gate.record.attachment.process();
    let process = process.filter(|_| is_moved && is_enforced);
    process.is_some_and(|(pid, start_ticks)| runtime.kernel.process_gone(pid, start_ticks))
}

/// Which gate is on what: by its target, or by a group that it has under another name (`unit:` and
/// `cgroup:` may be the same group). With thousands of gates, none is searched for.
pub(crate) struct Known {
    targets: HashMap<String, usize>,
    groups: HashMap<GroupPath, usize>,
    obstacles: Obstacles,
}

impl Known {
    pub fn of(runtime: &Runtime, gates: &[Gate]) -> Self {
        let mut known = Self {
            targets: HashMap::new(),
            groups: HashMap::new(),
            obstacles: Obstacles::by(runtime, gates),
        };
        for (index, gate) in gates.iter().enumerate() {
            known.add(&gate.record, index);
        }
        known
    }

    fn add(&mut self, record: &Record, index: usize) {
        self.obstacles.names.insert(record.name.clone());
        self.targets.insert(record.target.clone(), index);
        if let Attachment::InPlace { group } = &record.attachment {
            self.groups.insert(group.clone(), index);
        }
    }

    pub fn drop(&mut self, record: &Record) {
        self.obstacles.names.remove(&record.name);
        self.targets.remove(&record.target);
        self.groups.remove(record.attachment.group());
    }

    pub fn find(&self, one: &Match) -> Option<usize> {
        let by_target = self.targets.get(&one.target.to_string());
        let by_group = || self.groups.get(one.group.as_ref()?);
        by_target.or_else(by_group).copied()
    }
}

pub(crate) fn is_enforced(config: &Config, one: &Match) -> bool {
    config.mode_of(&one.rule) == Some(Mode::Enforce)
}

pub(crate) fn is_observed(config: &Config, one: &Match) -> bool {
    config.mode_of(&one.rule) == Some(Mode::Observe)
}

/// Gives one group or process its rule's terms; `None` where nothing changes, or it is gone
/// meanwhile.
pub(crate) fn apply(
    runtime: &Runtime,
    gates: &mut Vec<Gate>,
    known: &mut Known,
    config: &Config,
    one: &Match,
) -> ApiResult<Option<GateChangeView>> {
    if !is_enforced(config, one) {
        return Ok(None);
    }
    match known.find(one) {
        Some(index) => {
            // The unit or group may have come back since.
            let is_back = follow(runtime, &mut gates[index], None);
            let gate = &gates[index];
            if gate.record.rule.as_ref() == Some(&one.rule) {
                let again = || changed("changed", gate, terms_text(&gate.terms));
                return Ok(is_back.then(again));
            }
            give(runtime, gates, config, index, Some(one.rule.clone()))
        }
        None => make_gate(runtime, gates, known, config, one),
    }
}

fn make_gate(
    runtime: &Runtime,
    gates: &mut Vec<Gate>,
    known: &mut Known,
    config: &Config,
    one: &Match,
) -> ApiResult<Option<GateChangeView>> {
    let (held, uid) = match &one.target {
        Target::Pid(pid) => {
            // Work in a gate has its terms already, by whatever way it came there.
            if runtime.kernel.gate_of(gates, *pid).is_some() {
                return Ok(None);
            }
            match HeldProcess::hold(&*runtime.kernel.fs, *pid) {
                Ok(held) => {
                    let uid = held.process.uid;
                    (Some(held), uid)
                }
                Err(_) => return Ok(None),
            }
        }
        Target::Cgroup(_) | Target::Unit(_) => {
            let Some(group) = &one.group else {
                return Ok(None);
            };
            match runtime.kernel.groups.stat(group) {
                Ok(stat) => (None, stat.uid),
                Err(error) if error.is_gone() => return Ok(None),
                Err(error) => return Err(not_found(error)),
            }
        }
        Target::Gate(_) | Target::Thread(_) => return Ok(None),
    };
    let asked = AskedGate {
        target: one.target.clone(),
        held,
        of_unit: one.group.clone(),
        raw: RawTerms::default(),
        rule: Some(one.rule.clone()),
        uid,
        by_admin: BTreeSet::new(),
        ruled: terms_of(config, Some(&one.rule)),
        charged_to: uid,
        only: true,
    };
    let gate = match make(runtime, config, gates, &known.obstacles, asked) {
        Ok(gate) => gate,
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(None),
        // A user who starts more than a user may have gated is no reason for the administrator to
        // have no policy.
        Err(error) if error.kind == ErrorKind::Busy && uid != 0 => {
            let start = format!("policy: rule {}: ", one.rule);
            alert_once(runtime, &start, &format!("{}: {error}", one.target));
            return Ok(None);
        }
        Err(error) => return Err(named(config, &one.rule, error)),
    };
    let change = changed("made", &gate, terms_text(&gate.terms));
    known.add(&gate.record, gates.len());
    gates.push(gate);
    Ok(Some(change))
}

/// A refusal, with the rule that asks for what is refused.
fn named(config: &Config, rule: &str, error: ApiError) -> ApiError {
    let place = config.rule(rule).map(|rule| rule.place.to_string());
    let detail = format!("{rule}: {}: {}", place.unwrap_or_default(), error.detail);
    ApiError { detail, ..error }
}

/// The names of a rule's terms: they are the administrator's.
fn terms_of(config: &Config, rule: Option<&String>) -> BTreeSet<String> {
    let rule = rule.and_then(|name| config.rule(name));
    let layers = rule.into_iter().flat_map(|rule| &rule.terms);
    let names = layers.flat_map(|layer| layer.0.keys());
    let terms = names.filter_map(|name| Term::from_name(name));
    terms.map(|term| term.name().to_owned()).collect()
}

/// A gate has these terms of a rule below those that were asked for.
fn give(
    runtime: &Runtime,
    gates: &mut [Gate],
    config: &Config,
    index: usize,
    rule: Option<String>,
) -> ApiResult<Option<GateChangeView>> {
    let gate = &gates[index];
    let mut record = gate.record.clone();
    record.ruled = terms_of(config, rule.as_ref());
    record.rule = rule;
    let new = without_loosening(record, config).map_err(usage)?;
    let (had, has) = (terms_text(&gate.terms), terms_text(&new.terms));
    if had == has {
        gates[index].record = new.record;
        gates[index].terms = new.terms;
        return Ok(None);
    }
    if new.class() == Class::Side && !gate.is_limited() {
        check_limitable(runtime, gates, &gate.record.target, &gate.record.attachment)?;
    }
    change_to(runtime, gates, index, new)?;
    Ok(Some(changed(
        "changed",
        &gates[index],
        format!("{has} (was {had})"),
    )))
}

/// The gate of this record. What was set on it without privilege, and is looser than its rule, no
/// longer counts.
fn without_loosening(record: Record, config: &Config) -> Result<Gate, TermError> {
    let by_users = |name: &String| {
        let term = Term::from_name(name).map(|term| term.name());
        !term.is_some_and(|term| record.by_admin.contains(term))
    };
    let has_users_terms = record.rule.is_some() && record.raw.0.keys().any(by_users);
    let mut tight = record.clone();
    tight.raw.0.retain(|name, _| !by_users(name));
    let asked = Gate::new(record, config);
    if !has_users_terms {
        return asked;
    }
    let tight = Gate::new(tight, config)?;
    Ok(asked
        .ok()
        .filter(|asked| only_tightens(&tight, asked).is_ok())
        .unwrap_or(tight))
}

/// A gate that no rule matches any more: it ends, unless it was set as well.
fn let_go(
    runtime: &Runtime,
    gates: &mut Vec<Gate>,
    config: &Config,
    index: usize,
) -> ApiResult<GateChangeView> {
    if !gates[index].record.raw.is_empty() {
        let change = give(runtime, gates, config, index, None)?;
        let same = || changed("changed", &gates[index], terms_text(&gates[index].terms));
        return Ok(change.unwrap_or_else(same));
    }
    release(runtime, &gates[index]);
    let gate = gates.remove(index);
    Ok(changed("ended", &gate, terms_text(&gate.terms)))
}

fn changed(change: &str, gate: &Gate, terms: String) -> GateChangeView {
    GateChangeView {
        change: change.to_owned(),
        gate: gate.record.name.clone(),
        target: gate.record.target.clone(),
        rule: gate.record.rule.clone(),
        terms,
    }
}

/// The class, and every term that is written anywhere, as `name=value` words.
pub(crate) fn terms_text(terms: &Terms) -> String {
    let written = |view: &tidegate_terms::View| view.source != tidegate_terms::Source::Default;
    let views = terms.views();
    let words: Vec<String> = views
        .iter()
        .filter(|view| written(view) || view.name == Term::Class.name())
        .map(|view| format!("{}={}", view.name, view.value))
        .collect();
    words.join(" ")
}
