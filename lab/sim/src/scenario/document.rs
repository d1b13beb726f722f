//! A scenario's text as TOML with flags laid over it, and the first mistake in it.

use serde::de::DeserializeOwned;
use tidegate_terms::{quoted, remedy_for_unknown};
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use super::{Override, Text};

/// A mistake: `key: why`, with a line of the file or a flag where a value cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {why}", quoted(key))]
pub struct ScenarioError {
    /// The key or its table, with the tables that it is in.
    pub key: String,
    /// What is wrong, and what to write instead.
    pub why: String,
}

pub(super) fn refused<T>(key: &str, why: impl Into<String>) -> Result<T, ScenarioError> {
    Err(ScenarioError {
        key: key.to_owned(),
        why: why.into(),
    })
}

/// Tables that a flag may begin: they have one meaning and defaults for all keys.
const FIXED: &[&str] = &["machine", "engine"];

/// A text and the flags over it. The position of a flag's value counts from the text's end.
pub(super) struct Document<'t> {
    text: &'t Text,
    overrides: &'t [Override],
}

impl<'t> Document<'t> {
    /// Parses the text and lays the flags over it.
    pub(super) fn parse(
        text: &'t Text,
        overrides: &'t [Override],
    ) -> Result<(Document<'t>, DeTable<'t>), ScenarioError> {
        let document = Document { text, overrides };
        let parsed = DeTable::parse(&text.text).or_else(|error| {
            // The parser's message may span lines; the first says what is wrong.
            let why = error.message().lines().next().unwrap_or_default();
            let place = document.place(error.span().map_or(0, |span| span.start));
            refused(
                "scenario",
                format!("{place}: not valid TOML: {why}; docs/scenarios.md shows the form"),
            )
        })?;
        let mut tree = parsed.into_inner();
        for (nth, one) in overrides.iter().enumerate() {
            lay(&mut tree, one, text.text.len() + 1 + nth)?;
        }
        Ok((document, tree))
    }

    /// A line of the file, or the flag, from a position in the text.
    fn place(&self, at: usize) -> String {
        let text = &self.text.text;
        let flag = at.checked_sub(text.len() + 1);
        if let Some(flag) = flag.and_then(|nth| self.overrides.get(nth)) {
            return quoted(&flag.flag);
        }
        let before = text.as_bytes().get(..at).unwrap_or_default();
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        format!("{}:{line}", self.text.shown)
    }

    /// Reads a table by the type's own rules.
    pub(super) fn read<T: DeserializeOwned>(
        &self,
        key: &str,
        table: Spanned<DeTable<'_>>,
    ) -> Result<T, ScenarioError> {
        let start = table.span().start;
        T::deserialize(Deserializer::from(table)).or_else(|error| {
            let place = self.place(error.span().map_or(start, |span| span.start));
            refused(key, format!("{place}: {}", error.message()))
        })
    }

    /// Takes a table out of the tree and reads it; an absent one is empty.
    pub(super) fn read_table<T: DeserializeOwned>(
        &self,
        tree: &mut DeTable<'_>,
        name: &str,
    ) -> Result<T, ScenarioError> {
        self.read(name, take(tree, name)?)
    }
}

/// Lays a flag over the file. Tables are never made, but for those in [`FIXED`]: a name that was
/// mistyped must not become a group of its own.
fn lay<'t>(tree: &mut DeTable<'t>, one: &'t Override, at: usize) -> Result<(), ScenarioError> {
    let mut names: Vec<&str> = one.key.split('.').collect();
    let last = names.pop().unwrap_or_default();
    let mut table = tree;
    for (depth, name) in names.into_iter().enumerate() {
        if depth == 0 && FIXED.contains(&name) && table.get(name).is_none() {
            let empty = DeValue::Table(DeTable::new());
            table.insert(spanned(at, name.into()), spanned(at, empty));
        }
        let is_table = |value: &Spanned<DeValue<'_>>| value.get_ref().is_table();
        let tables = table.iter().filter(|(_, value)| is_table(value));
        let known: Vec<String> = tables.map(|(key, _)| key.to_string()).collect();
        let Some(DeValue::Table(below)) = table.get_mut(name).map(Spanned::get_mut) else {
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            let remedy = remedy_for_unknown(name, &known);
            let (flag, name) = (quoted(&one.flag), quoted(name));
            return refused(
                &one.key,
                format!("{flag}: the scenario has no table \"{name}\" here; {remedy}"),
            );
        };
        table = below;
    }
    table.remove(last);
    let value = DeValue::String(one.value.as_str().into());
    table.insert(spanned(at, last.into()), spanned(at, value));
    Ok(())
}

fn take<'i>(table: &mut DeTable<'i>, name: &str) -> Result<Spanned<DeTable<'i>>, ScenarioError> {
    match table.remove(name) {
        None => Ok(spanned(0, DeTable::new())),
        Some(value) => as_table(name, value),
    }
}

fn as_table<'i>(
    key: &str,
    value: Spanned<DeValue<'i>>,
) -> Result<Spanned<DeTable<'i>>, ScenarioError> {
    let span = value.span();
    match value.into_inner() {
        DeValue::Table(table) => Ok(Spanned::new(span, table)),
        _ => refused(key, "is a value, where a table is expected"),
    }
}

/// The tables in `[KIND]` by name, in the order of the file.
pub(super) fn tables<'i>(
    tree: &mut DeTable<'i>,
    kind: &str,
) -> Result<Vec<(String, Spanned<DeTable<'i>>)>, ScenarioError> {
    let mut entries: Vec<_> = take(tree, kind)?.into_inner().into_iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let named = entries.into_iter().map(|(key, value)| {
        let name = key.into_inner().into_owned();
        let table = as_table(&join(kind, &name), value)?;
        Ok((name, table))
    });
    named.collect()
}

fn spanned<T>(at: usize, value: T) -> Spanned<T> {
    Spanned::new(at..at + 1, value)
}

pub(super) fn join(path: &str, key: &str) -> String {
    format!("{path}.{key}")
}
