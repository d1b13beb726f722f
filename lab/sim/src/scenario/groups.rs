//! `[group.NAME]`: the tree of groups with their terms.
//!
//! A group's terms are read and resolved as the product's own ([`tidegate_terms`]): what the
//! command refuses is refused here, too.

use serde::Deserialize;
use tidegate_cgroup::subgroups::Per;
use tidegate_engine::limit::caps_for_each;
use tidegate_terms::{
    Config, Objective, RawTerms, Source, Term, Terms, Weight, quoted, remedy_for_unknown,
};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::document::{Document, join, refused, tables};
use super::{EngineKind, ScenarioError};
use crate::cpuset::CpuSet;
use crate::ids::GroupId;
use crate::spec::{Class, GroupSpec};
use crate::values;

/// A group of the scenario, by its index; none is the root.
pub type GroupRef = Option<usize>;

#[derive(Clone, Debug)]
pub struct Group {
    /// Its files as a user writes them without an engine. `parent` is filled in when the machine is
    /// built, and so is its limit.
    pub spec: GroupSpec,
    pub parent: GroupRef,
    /// Its class is that of the nearest group above which has one.
    pub terms: Terms,
}

/// The keys that are no terms.
const PLACE: [&str; 2] = ["parent", "cpus"];

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PlaceKeys {
    parent: Option<String>,
    #[serde(deserialize_with = "values::cpu_list")]
    cpus: Option<CpuSet>,
}

/// The groups, each after its parent.
pub(super) fn read(
    document: &Document<'_>,
    tree: &mut DeTable<'_>,
    engine: &RawTerms,
    kind: EngineKind,
    cpus: u32,
) -> Result<Vec<Group>, ScenarioError> {
    let mut groups: Vec<Group> = Vec::new();
    for (name, table) in tables(tree, "group")? {
        let path = join("group", &name);
        if !is_name(&name) {
            let why = "is no name for a group; use 1 to 40 letters, digits, - and _";
            return refused(&path, why);
        }
        let span = table.span();
        let mut own = table.into_inner();
        let place = PLACE.iter().filter_map(|key| own.remove_entry(*key));
        let place: PlaceKeys = document.read(&path, Spanned::new(span, place.collect()))?;
        let parent = find(&groups, &join(&path, "parent"), place.parent.as_deref())?;
        if let Some(cpu_list) = &place.cpus {
            check_cpus(&join(&path, "cpus"), cpu_list, &groups, parent, cpus)?;
        }
        let inherited = parent.map_or(Class::Neutral, |at| groups[at].terms.class.value);
        let raw = read_terms(&path, &own)?;
        let terms = resolve(&path, &raw, inherited, engine)?;
        refuse_unsimulated(&path, &terms, kind)?;
        let mut spec = GroupSpec::new(&name, GroupId::ROOT);
        match terms.weight.value {
            Weight::Idle => spec.idle = true,
            Weight::Of(weight) => spec.weight = weight,
        }
        spec.cpus = place.cpus;
        groups.push(Group {
            spec,
            parent,
            terms,
        });
    }
    let takes = |group: &Group| group.terms.class.value != Class::Neutral;
    match engine.0.keys().next() {
        Some(name) if !groups.iter().any(takes) => {
            let why = "no group is of class main or side; add class = \"main\" to main's group";
            refused(&join("engine", name), why)
        }
        _ => Ok(groups),
    }
}

fn read_terms(path: &str, table: &DeTable<'_>) -> Result<RawTerms, ScenarioError> {
    let mut raw = RawTerms::default();
    for (key, value) in table {
        let name: &str = key.get_ref();
        let key = join(path, name);
        let Some(term) = Term::from_name(name) else {
            let known: Vec<&str> = PLACE.into_iter().chain(Term::names()).collect();
            let remedy = remedy_for_unknown(name, &known);
            return refused(&key, format!("is no key of a group; {remedy}"));
        };
        if let Some(other) = raw.0.keys().find(|key| Term::from_name(key) == Some(term)) {
            return refused(&key, format!("is set as {other}, too; keep one of the two"));
        }
        let text = match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
            DeValue::Float(number) => number.as_str().to_owned(),
            _ => {
                let example = term.example();
                let why = format!("is not a value; write text in quotes, as in \"{example}\"");
                return refused(&key, why);
            }
        };
        raw.insert(name, &text, Source::Set);
    }
    Ok(raw)
}

/// Groups below groups inherit the class; the engine's own terms override the groups'.
fn resolve(
    path: &str,
    raw: &RawTerms,
    inherited: Class,
    engine: &RawTerms,
) -> Result<Terms, ScenarioError> {
    let mut own = raw.clone();
    let is_neutral = |text: &str| Class::from_name(text.trim()) == Some(Class::Neutral);
    if own.0.get("class").is_none_or(|raw| is_neutral(&raw.text)) {
        own.insert(Term::Class.name(), inherited.name(), Source::Set);
    }
    let config = Config::default();
    let terms = config
        .resolve(&[&own])
        .and_then(|terms| match terms.class.value {
            Class::Neutral => Ok(terms),
            Class::Main | Class::Side => config.resolve(&[&own, engine]),
        });
    terms.or_else(|error| {
        let key = error
            .name()
            .map_or(path.to_owned(), |name| join(path, name));
        refused(&key, error.why())
    })
}

/// The group of this name among those so far; none is the root.
pub(super) fn find(
    groups: &[Group],
    key: &str,
    asked: Option<&str>,
) -> Result<GroupRef, ScenarioError> {
    let Some(asked) = asked else {
        return Ok(None);
    };
    let found = groups.iter().position(|group| group.spec.name == asked);
    if found.is_some() {
        return Ok(found);
    }
    let shown = quoted(asked);
    let names: Vec<&str> = groups
        .iter()
        .map(|group| group.spec.name.as_str())
        .collect();
    let remedy = match names.is_empty() {
        true => format!("add [group.{shown}]"),
        false => remedy_for_unknown(asked, &names),
    };
    refused(
        key,
        format!("there is no group \"{shown}\" above; {remedy}"),
    )
}

/// Refuses CPUs that the machine does not have, and CPUs of which the groups above have none.
pub(super) fn check_cpus(
    key: &str,
    own: &CpuSet,
    groups: &[Group],
    above: GroupRef,
    cpus: u32,
) -> Result<(), ScenarioError> {
    let all = CpuSet::first_n(cpus);
    if !own.is_subset(&all) {
        let last = cpus - 1;
        let why = format!("names CPUs that the machine does not have; it has 0-{last}");
        return refused(key, why);
    }
    let lineage = std::iter::successors(above, |at| groups[*at].parent);
    let sets = lineage.filter_map(|at| groups[at].spec.cpus);
    let allowed = sets.fold(all, |allowed, own| allowed.and(&own));
    if own.intersects(&allowed) {
        return Ok(());
    }
    let why = format!("the groups above may only run on {allowed}; name at least one of those");
    refused(key, why)
}

/// A name that no table mistakes for anything else.
fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || "-_".contains(c);
    (1..=40).contains(&name.chars().count()) && name.chars().all(plain)
}

/// Refuses terms that this run would not hold.
fn refuse_unsimulated(path: &str, terms: &Terms, kind: EngineKind) -> Result<(), ScenarioError> {
    let is_reported = matches!(terms.objective.value, Objective::Reported { .. });
    let each = caps_for_each(terms);
    let of_processes = matches!(each, Some((Per::Process, ..)));
    let soft_of_tasks = matches!(each, Some((Per::Task, _, Some(_))));
    let (no_caps, no_hints) = (kind.no_caps(), kind.no_hints());
    let unsimulated = [
        (
            Term::Fallback,
            !terms.fallback.is_default(),
            "is not simulated, for the simulated agent does not end; leave it out",
        ),
        (
            Term::Jobserver,
            !terms.jobserver.is_default(),
            "is not simulated, for simulated work asks for no token; leave it out",
        ),
        (
            Term::MemoryHigh,
            !terms.memory_high.is_default(),
            "is not simulated; leave it out",
        ),
        (
            Term::LatencyInherit,
            !terms.latency_inherit.is_default(),
            "is not simulated, for forks have the hint of their parent; leave it out",
        ),
        (
            Term::Objective,
            is_reported,
            "is of a latency that is reported, which is not simulated; write p99<5ms",
        ),
        (
            Term::CapScope,
            of_processes,
            "process is not simulated, where tasks are of no process; write task or group",
        ),
        (
            Term::CapSoft,
            soft_of_tasks,
            "is not simulated for each task; write cap_scope = \"group\"",
        ),
        (
            Term::CapHard,
            terms.cap_hard.value.ppt().is_some() && no_caps.is_some(),
            no_caps.unwrap_or_default(),
        ),
        (
            Term::CapSoft,
            terms.cap_soft.value.ppt().is_some() && no_caps.is_some(),
            no_caps.unwrap_or_default(),
        ),
        (
            Term::Latency,
            terms.latency.value.hint() != 0 && no_hints.is_some(),
            no_hints.unwrap_or_default(),
        ),
    ];
    match unsimulated.into_iter().find(|(_, is_named, _)| *is_named) {
        Some((term, _, why)) => refused(&join(path, term.name()), why),
        None => Ok(()),
    }
}
