//! Several scenarios in one text: `[scenario.NAME]` each, over what the text's top says for all of them.

use std::sync::Arc;

use super::read::Findings;
use super::tree::{Node, Table, Written};
use super::{Place, Scenario, ScenarioError, ScenarioErrors, Text};

/// A key that is the caller's own, with its text or its list of texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// Its name.
    pub key: String,
    /// The text, or the list.
    pub values: Vec<String>,
    /// Where it stands.
    pub place: Place,
}

impl Scenario {
    /// Every scenario of a text, in its order, each with those keys at its top that are in `own`.
    ///
    /// # Errors
    /// All that is wrong, each with its place and its mend.
    pub fn resolve_each(
        text: &Text,
        own: &[&str],
    ) -> Result<Vec<(Scenario, Vec<Own>)>, ScenarioErrors> {
        let file: Arc<str> = text.shown.as_str().into();
        let mut top =
            Table::parse(&file, &text.text).map_err(|error| ScenarioErrors(vec![error]))?;
        let at = top.entries.iter().position(|(key, _)| key == "scenario");
        let findings = Findings::default();
        let mut all = Vec::new();
        let each = match at.map(|at| top.entries.remove(at).1) {
            Some(Node::Table(each)) => each.entries,
            Some(Node::Leaf(_)) | None => {
                findings.add(none(top.place.clone()));
                Vec::new()
            }
        };
        for (name, node) in each {
            let Node::Table(above) = node else {
                findings.add(none(top.place.clone()));
                continue;
            };
            let mut tree = top.clone();
            tree.overlay(above);
            let taken = tree
                .entries
                .extract_if(.., |(key, _)| own.contains(&key.as_str()));
            let taken = taken.filter_map(|(key, node)| taken_as_own(key, node, &findings));
            let taken = taken.collect();
            let text = Text {
                name,
                ..text.clone()
            };
            all.push((super::read(&text, &tree, &findings), taken));
        }
        match findings.into_vec() {
            found if found.is_empty() => Ok(all),
            found => Err(ScenarioErrors(found)),
        }
    }
}

fn none(place: Place) -> ScenarioError {
    ScenarioError {
        key: "scenario".into(),
        place,
        why: "is not a table of scenarios".into(),
        mend: "write [scenario.NAME] and its keys below".into(),
    }
}

fn taken_as_own(key: String, node: Node, findings: &Findings) -> Option<Own> {
    let (place, values) = match node {
        Node::Leaf(leaf) => {
            let values = match leaf.value {
                Written::One(text) => Some(vec![text]),
                Written::List(list) => list.into_iter().map(Written::into_one).collect(),
            };
            (leaf.place, values)
        }
        Node::Table(table) => (table.place, None),
    };
    if values.is_none() {
        findings.add(ScenarioError {
            key: key.clone(),
            place: place.clone(),
            why: "is neither a text nor a list of texts".into(),
            mend: format!("write {key} = \"…\" or {key} = [\"…\", \"…\"]"),
        });
    }
    values.map(|values| Own { key, values, place })
}
