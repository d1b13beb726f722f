//! Making gates agree with rules: what matches gets the rule's terms, what no rule matches any more loses them.

use std::collections::{BTreeSet, HashMap};

use tidegate_api::{ApiError, ErrorKind, GateChangeView};
use tidegate_knobs::target::{HeldProcess, Target};
use tidegate_terms::policy::Mode;
use tidegate_terms::{Class, Config, RawTerms, Term, Terms};

use crate::errors::{not_found, usage};
use crate::gates::{Gate, find_in};
use crate::policy::find::Match;
use crate::runtime::Runtime;
use crate::runtime::limits::release;
use crate::runtime::make::{AskedGate, change_to, check_limitable, make};

/// Makes the gates agree with `matches`, which the rules of `config` are for, and says what has changed. What matches no more is
/// released last, so that nothing is without limits in between.
///
/// # Errors
/// The first refusal; the gates are then half of the one and half of the other policy, and the caller goes back.
pub(crate) fn reconcile(
    runtime: &Runtime,
    gates: &mut Vec<Gate>,
    config: &Config,
    matches: &[Match],
) -> Result<Vec<GateChangeView>, ApiError> {
    let mut changes = Vec::new();
    let at = gates.iter().enumerate();
    let mut at: HashMap<String, usize> = at
        .map(|(index, gate)| (gate.record.target.clone(), index))
        .collect();
    for one in matches.iter().filter(|one| is_enforced(config, one)) {
        let target = one.target.to_string();
        match at.get(&target) {
            Some(index) => {
                changes.extend(give(
                    runtime,
                    gates,
                    config,
                    *index,
                    Some(one.rule.clone()),
                )?);
            }
            None => {
                let made = make_gate(runtime, gates, config, one)?;
                if made.is_some() {
                    at.insert(target, gates.len() - 1);
                }
                changes.extend(made);
            }
        }
    }
    let wanted: BTreeSet<String> = matches
        .iter()
        .filter(|one| is_enforced(config, one))
        .map(|one| one.target.to_string())
        .collect();
    let mut index = gates.len();
    while index > 0 {
        index -= 1;
        let record = &gates[index].record;
        if record.rule.is_some() && !wanted.contains(&record.target) {
            changes.push(let_go(runtime, gates, config, index)?);
        }
    }
    Ok(changes)
}

/// Whether the rule writes.
pub(crate) fn is_enforced(config: &Config, one: &Match) -> bool {
    let rule = config.rule(&one.rule);
    rule.is_some_and(|rule| rule.mode == Mode::Enforce)
}

/// Gives one group or process its rule's terms; `None` where nothing changes, or it is gone meanwhile.
pub(crate) fn apply(
    runtime: &Runtime,
    gates: &mut Vec<Gate>,
    config: &Config,
    one: &Match,
) -> Result<Option<GateChangeView>, ApiError> {
    if !is_enforced(config, one) {
        return Ok(None);
    }
    match find_in(gates, &one.target.to_string()) {
        Ok(index) => give(runtime, gates, config, index, Some(one.rule.clone())),
        Err(_) => make_gate(runtime, gates, config, one),
    }
}

/// A gate for a group or process that has none.
fn make_gate(
    runtime: &Runtime,
    gates: &mut Vec<Gate>,
    config: &Config,
    one: &Match,
) -> Result<Option<GateChangeView>, ApiError> {
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
        Target::Cgroup(group) => match runtime.kernel.groups.stat(group) {
            Ok(stat) => (None, stat.uid),
            Err(error) if error.is_gone() => return Ok(None),
            Err(error) => return Err(not_found(error)),
        },
        Target::Unit(_) | Target::Gate(_) => return Ok(None),
    };
    let asked = AskedGate {
        target: one.target.clone(),
        held,
        of_unit: None,
        raw: RawTerms::default(),
        rule: Some(one.rule.clone()),
        uid,
        by_admin: terms_of(config, Some(&one.rule)),
        charged_to: 0,
    };
    let gate = match make(runtime, config, gates, asked) {
        Ok(gate) => gate,
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(named(config, &one.rule, error)),
    };
    let change = changed("made", &gate, terms_text(&gate.terms));
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
pub(crate) fn terms_of(config: &Config, rule: Option<&String>) -> BTreeSet<String> {
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
) -> Result<Option<GateChangeView>, ApiError> {
    let gate = &gates[index];
    let before = terms_of(config, gate.record.rule.as_ref());
    let mut record = gate.record.clone();
    record
        .by_admin
        .retain(|term| !before.contains(term) || record.raw.0.contains_key(term));
    record.by_admin.extend(terms_of(config, rule.as_ref()));
    record.rule = rule;
    let new = Gate::new(record, config).map_err(usage)?;
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

/// A gate that no rule matches any more: it ends, unless it was set as well.
fn let_go(
    runtime: &Runtime,
    gates: &mut Vec<Gate>,
    config: &Config,
    index: usize,
) -> Result<GateChangeView, ApiError> {
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

/// The terms that somebody wrote, as `name=value` words.
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
