//! `[group.NAME]`: the tree of groups with their terms.
//!
//! A group's terms are read and resolved as the product's own ([`tidegate_terms`]): what the
//! command refuses is refused here, too.

use std::collections::BTreeMap;

use serde::Deserialize;
use tidegate_cgroup::subgroups::Per;
use tidegate_engine::limit::caps_for_each;
use tidegate_terms::{
    Config, Objective, RawTerms, Source, Term, TermError, Terms, Weight, quoted, remedy_for_unknown,
};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Held;
use super::document::{Findings, join};
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
    parent: String,
    #[serde(deserialize_with = "values::cpu_list")]
    cpus: Option<CpuSet>,
}

pub(super) struct GroupKeys {
    place: PlaceKeys,
    /// The terms by their names as they are written.
    raw: RawTerms,
}

/// The keys of each group by its name; none when one cannot be read.
pub(super) fn read(
    findings: &Findings<'_>,
    tree: &mut DeTable<'_>,
) -> Option<Vec<(String, GroupKeys)>> {
    let tables = findings.tables(tree, "group").into_iter();
    let groups: Vec<Option<(String, GroupKeys)>> = tables
        .map(|(name, table)| {
            let path = join("group", &name);
            let span = table.span();
            let mut own = table.into_inner();
            let place = PLACE.iter().filter_map(|key| own.remove_entry(*key));
            let place = findings.read(&path, Spanned::new(span, place.collect()));
            let raw = read_terms(&path, &own, findings);
            let (place, raw) = (place?, raw?);
            Some((name, GroupKeys { place, raw }))
        })
        .collect();
    groups.into_iter().collect()
}

fn read_terms(path: &str, table: &DeTable<'_>, findings: &Findings<'_>) -> Option<RawTerms> {
    let mut raw = RawTerms::default();
    for (key, value) in table {
        let name: &str = key.get_ref();
        let read = read_term(name, value.get_ref(), &raw);
        let text = read
            .map_err(|why| findings.refuse(&join(path, name), why))
            .ok()?;
        raw.insert(name, &text, Source::Set);
    }
    Some(raw)
}

fn read_term(name: &str, value: &DeValue<'_>, before: &RawTerms) -> Result<String, String> {
    let Some(term) = Term::from_name(name) else {
        let known: Vec<&str> = PLACE.into_iter().chain(Term::names()).collect();
        let remedy = remedy_for_unknown(name, &known);
        return Err(format!("is no key of a group; {remedy}"));
    };
    if let Some(other) = key_of(before, term) {
        return Err(format!("is set as {other}, too; keep one of the two"));
    }
    match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().to_owned()),
        DeValue::Float(number) => Ok(number.as_str().to_owned()),
        _ => Err(format!(
            "is not a value; write text in quotes, as in \"{}\"",
            term.example()
        )),
    }
}

/// The name by which a term is written.
fn key_of(raw: &RawTerms, term: Term) -> Option<&String> {
    raw.0.keys().find(|key| Term::from_name(key) == Some(term))
}

impl GroupKeys {
    /// The key that an error or a refusal of a term is about.
    fn key(&self, path: &str, term: Option<Term>) -> String {
        let written = term.and_then(|term| key_of(&self.raw, term));
        written.map_or_else(|| path.to_owned(), |key| join(path, key))
    }

    /// Groups below groups inherit the class; the engine's own terms override the groups'.
    fn terms(&self, inherited: Class, engine: &RawTerms) -> Result<Terms, TermError> {
        let mut own = self.raw.clone();
        let is_neutral = |text: &str| Class::from_name(text.trim()) == Some(Class::Neutral);
        if own.0.get("class").is_none_or(|raw| is_neutral(&raw.text)) {
            own.insert(Term::Class.name(), inherited.name(), Source::Set);
        }
        let config = Config::default();
        let terms = config.resolve(&[&own])?;
        match terms.class.value {
            Class::Neutral => Ok(terms),
            Class::Main | Class::Side => config.resolve(&[&own, engine]),
        }
    }
}

/// Groups below groups: as deep as anyone nests them, and little enough for the machine's walks.
const DEPTH_MAX: usize = 16;

/// The groups, each after its parent.
pub(super) fn resolve(
    keys: Vec<(String, GroupKeys)>,
    engine: &RawTerms,
    held: &Held<'_>,
    findings: &Findings<'_>,
    cpus: u32,
) -> Vec<Group> {
    let names: Vec<String> = keys.iter().map(|(name, _)| name.clone()).collect();
    let mut unplaced = keys;
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut groups: Vec<Group> = Vec::new();
    // Each round places the groups whose parent has a place; the groups that remain have no way to
    // the root.
    for _ in 0..DEPTH_MAX {
        let above = places.clone();
        let ready = unplaced.extract_if(.., |(_, keys)| {
            keys.place.parent.is_empty() || above.contains_key(&keys.place.parent)
        });
        for (name, keys) in ready {
            let parent = above.get(&keys.place.parent).copied();
            let class = parent.map_or(Class::Neutral, |at| groups[at].terms.class.value);
            let mut group = group(&name, &keys, class, engine, findings);
            group.parent = parent;
            refuse_unsimulated(&keys, &group, held, findings);
            places.insert(name, groups.len());
            groups.push(group);
        }
    }
    for (name, keys) in &unplaced {
        let parent = &keys.place.parent;
        let shown = quoted(parent);
        let why = if names.contains(parent) {
            format!(
                "\"{shown}\" has no way to the root, or one of more than {DEPTH_MAX} groups; let \
                 no group be above itself"
            )
        } else {
            no_group(parent, &names)
        };
        findings.refuse(&format!("group.{name}.parent"), why);
    }
    for group in &groups {
        if let Some(own) = &group.spec.cpus {
            let key = format!("group.{}.cpus", group.spec.name);
            refuse_no_cpus(&key, own, &groups, group.parent, findings, cpus);
        }
    }
    let takes = |group: &Group| group.terms.class.value != Class::Neutral;
    if !groups.iter().any(takes) {
        for name in engine.0.keys() {
            let why = "no group is of class main or side; add class = \"main\" to main's group";
            findings.refuse(&format!("engine.{name}"), why);
        }
    }
    groups
}

/// There is no such group, and which ones there are.
pub(super) fn no_group(asked: &str, names: &[String]) -> String {
    let shown = quoted(asked);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let remedy = match names.is_empty() {
        true => format!("add [group.{shown}]"),
        false => remedy_for_unknown(asked, &names),
    };
    format!("there is no group \"{shown}\"; {remedy}")
}

/// Refuses CPUs that the machine does not have, and CPUs of which the groups above have none.
pub(super) fn refuse_no_cpus(
    key: &str,
    own: &CpuSet,
    groups: &[Group],
    above: GroupRef,
    findings: &Findings<'_>,
    cpus: u32,
) {
    if !own.is_subset(&CpuSet::first_n(cpus)) {
        let why = format!(
            "names CPUs that the machine does not have; it has 0-{}",
            cpus - 1
        );
        findings.refuse(key, why);
        return;
    }
    let lineage = std::iter::successors(above, |at| groups[*at].parent);
    let sets = lineage.filter_map(|at| groups[at].spec.cpus);
    let allowed = sets.fold(CpuSet::first_n(cpus), |allowed, own| allowed.and(&own));
    // Without a CPU above, the group above is refused.
    if !own.intersects(&allowed) && !allowed.is_empty() {
        let why = format!("the groups above may only run on {allowed}; name at least one of those");
        findings.refuse(key, why);
    }
}

/// A name that no log and no table mistakes for anything else.
fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || "-_".contains(c);
    (1..=40).contains(&name.chars().count()) && name.chars().all(plain)
}

fn group(
    name: &str,
    keys: &GroupKeys,
    inherited: Class,
    engine: &RawTerms,
    findings: &Findings<'_>,
) -> Group {
    let path = join("group", name);
    if !is_name(name) {
        let why = "is no name for a group; use 1 to 40 letters, digits, - and _";
        findings.refuse(&path, why);
    }
    let terms = keys.terms(inherited, engine).unwrap_or_else(|error| {
        let term = error.name().and_then(Term::from_name);
        findings.refuse(&keys.key(&path, term), error.why());
        Terms::of_class(inherited)
    });
    let mut spec = GroupSpec::new(name, GroupId::ROOT);
    match terms.weight.value {
        Weight::Idle => spec.idle = true,
        Weight::Of(weight) => spec.weight = weight,
    }
    spec.cpus = keys.place.cpus;
    spec.latency = terms.latency.value.hint();
    Group {
        spec,
        parent: None,
        terms,
    }
}

/// Refuses terms that this run would not hold.
fn refuse_unsimulated(keys: &GroupKeys, group: &Group, held: &Held<'_>, findings: &Findings<'_>) {
    let path = join("group", &group.spec.name);
    let terms = &group.terms;
    let refuse = |term: Term, why: &str| findings.refuse(&keys.key(&path, Some(term)), why);
    if !terms.fallback.is_default() {
        refuse(
            Term::Fallback,
            "is not simulated, for the simulated agent does not end; leave it out",
        );
    }
    if !terms.jobserver.is_default() {
        let why = "is not simulated, for simulated work asks for no token; leave it out";
        refuse(Term::Jobserver, why);
    }
    if !terms.memory_high.is_default() {
        refuse(Term::MemoryHigh, "is not simulated; leave it out");
    }
    if !terms.latency_inherit.is_default() {
        let why = "is not simulated for a group; write it in its workloads";
        refuse(Term::LatencyInherit, why);
    }
    if matches!(terms.objective.value, Objective::Reported { .. }) {
        let why = "is of a latency that is reported, which is not simulated; write p99<5ms";
        refuse(Term::Objective, why);
    }
    match caps_for_each(terms) {
        Some((Per::Process, ..)) => {
            let why =
                "process is not simulated, where tasks are of no process; write task or group";
            refuse(Term::CapScope, why);
        }
        Some((Per::Task, _, Some(_))) => {
            let why = "is not simulated for each task; write cap_scope = \"group\"";
            refuse(Term::CapSoft, why);
        }
        _ => {}
    }
    for (term, is_named) in [
        (Term::CapHard, terms.cap_hard.value.ppt().is_some()),
        (Term::CapSoft, terms.cap_soft.value.ppt().is_some()),
    ] {
        if is_named && let Some(why) = held.no_caps() {
            refuse(term, why);
        }
    }
    if terms.latency.value.hint() != 0
        && let Some(why) = held.no_hints()
    {
        refuse(Term::Latency, why);
    }
}
