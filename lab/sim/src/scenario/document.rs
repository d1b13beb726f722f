//! A scenario's text as TOML with flags laid over it, and what is wrong with it.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use serde::de::DeserializeOwned;
use tidegate_terms::{quoted, remedy_for_unknown};
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use super::{Override, Text};

/// One mistake: `key: place: why`, where the place is a line of the file or a flag.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {place}: {why}", quoted(key))]
pub struct ScenarioError {
    /// The key, with the tables that it is in.
    pub key: String,
    pub place: String,
    /// What is wrong, and what to write instead.
    pub why: String,
}

/// All that is wrong with a scenario: at least one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioErrors(pub Vec<ScenarioError>);

impl fmt::Display for ScenarioErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for ScenarioErrors {}

/// Tables that a flag may begin: they have one meaning and defaults for all keys.
const FIXED: &[&str] = &["machine", "scheduler", "engine"];

/// Where each key of a scenario is, and the mistakes so far.
pub(super) struct Findings<'t> {
    text: &'t Text,
    overrides: &'t [Override],
    /// The span of each key's name and of its value. A flag's number counts from the text's end.
    spans: BTreeMap<String, (Range<usize>, Range<usize>)>,
    errors: RefCell<Vec<ScenarioError>>,
}

impl<'t> Findings<'t> {
    /// Parses the text and lays the flags over it.
    ///
    /// # Errors
    /// The text is no TOML.
    pub(super) fn parse(
        text: &'t Text,
        overrides: &'t [Override],
    ) -> Result<(Findings<'t>, DeTable<'t>), ScenarioErrors> {
        let mut findings = Findings {
            text,
            overrides,
            spans: BTreeMap::new(),
            errors: RefCell::default(),
        };
        let parsed = DeTable::parse(&text.text).map_err(|error| {
            // The parser's message may span lines; the first says what is wrong.
            let why = error.message().lines().next().unwrap_or_default();
            ScenarioErrors(vec![ScenarioError {
                key: "scenario".into(),
                place: findings.place(error.span().map_or(0, |span| span.start)),
                why: format!("not valid TOML: {why}; docs/scenarios.md shows the form"),
            }])
        })?;
        let mut tree = parsed.into_inner();
        for nth in 0..overrides.len() {
            findings.lay(&mut tree, nth);
        }
        findings.note_spans("", &tree);
        Ok((findings, tree))
    }

    /// Lays a flag over the file. Tables are never made, but for those in [`FIXED`]: a name that
    /// was mistyped must not become a group of its own.
    fn lay(&self, tree: &mut DeTable<'t>, nth: usize) {
        let one = &self.overrides[nth];
        let at = self.text.text.len() + 1 + nth;
        let mut names: Vec<&str> = one.key.split('.').collect();
        let last = names.pop().unwrap_or_default();
        let mut table = tree;
        for (depth, name) in names.into_iter().enumerate() {
            if depth == 0 && FIXED.contains(&name) && table.get(name).is_none() {
                let empty = DeValue::Table(DeTable::new());
                table.insert(spanned(at, name.into()), spanned(at, empty));
            }
            let known: Vec<String> = table
                .iter()
                .filter(|(_, value)| value.get_ref().is_table())
                .map(|(key, _)| key.to_string())
                .collect();
            let below = table.get_mut(name).map(Spanned::get_mut);
            let Some(DeValue::Table(below)) = below else {
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                let remedy = remedy_for_unknown(name, &known);
                let why = format!(
                    "the scenario has no table \"{}\" here; {remedy}",
                    quoted(name)
                );
                return self.add(one.key.clone(), at, why);
            };
            table = below;
        }
        table.remove(last);
        let value = DeValue::String(one.value.as_str().into());
        table.insert(spanned(at, last.into()), spanned(at, value));
    }

    fn note_spans(&mut self, path: &str, table: &DeTable<'_>) {
        for (key, value) in table.iter() {
            let path = join(path, key.get_ref());
            if let DeValue::Table(below) = value.get_ref() {
                self.note_spans(&path, below);
            }
            self.spans.insert(path, (key.span(), value.span()));
        }
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

    fn add(&self, key: String, at: usize, why: String) {
        let place = self.place(at);
        let mut errors = self.errors.borrow_mut();
        errors.push(ScenarioError { key, place, why });
    }

    /// Refuses a key's value, or its absence.
    pub(super) fn refuse(&self, key: &str, why: impl Into<String>) {
        let parents = std::iter::successors(Some(key), |key| Some(key.rsplit_once('.')?.0));
        let span = parents.filter_map(|key| self.spans.get(key)).next();
        self.add(
            key.to_owned(),
            span.map_or(0, |(name, _)| name.start),
            why.into(),
        );
    }

    /// Reads a table by the type's own rules; the first mistake is noted.
    pub(super) fn read<T: DeserializeOwned>(
        &self,
        path: &str,
        table: Spanned<DeTable<'_>>,
    ) -> Option<T> {
        let at = table.span().start;
        T::deserialize(Deserializer::from(table))
            .map_err(|error| {
                let at = error.span().map_or(at, |span| span.start);
                // The innermost key at that position.
                let inside = self.spans.iter().filter(|(key, (name, value))| {
                    key.starts_with(path) && (name.contains(&at) || value.contains(&at))
                });
                let found =
                    inside.min_by_key(|(key, (_, value))| (value.len(), Reverse(key.len())));
                let key = found.map_or(path, |(key, _)| key);
                self.add(key.to_owned(), at, error.message().to_owned());
            })
            .ok()
    }

    /// Takes a table out of the tree and reads it.
    pub(super) fn read_table<T: DeserializeOwned>(
        &self,
        tree: &mut DeTable<'_>,
        name: &str,
    ) -> Option<T> {
        self.read(name, self.take(tree, name))
    }

    /// Takes a table out of another; an absent one is empty.
    fn take<'i>(&self, table: &mut DeTable<'i>, name: &str) -> Spanned<DeTable<'i>> {
        let Some(value) = table.remove(name) else {
            return spanned(0, DeTable::new());
        };
        self.table(name, value)
    }

    /// A value that must be a table.
    fn table<'i>(&self, path: &str, value: Spanned<DeValue<'i>>) -> Spanned<DeTable<'i>> {
        let span = value.span();
        match value.into_inner() {
            DeValue::Table(table) => Spanned::new(span, table),
            _ => {
                self.refuse(path, "a value, where a table is expected");
                Spanned::new(span, DeTable::new())
            }
        }
    }

    /// The tables in `[KIND]` by name, in the order of the file.
    pub(super) fn tables<'i>(
        &self,
        table: &mut DeTable<'i>,
        kind: &str,
    ) -> Vec<(String, Spanned<DeTable<'i>>)> {
        let mut entries: Vec<_> = self.take(table, kind).into_inner().into_iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        let named = entries.into_iter().map(|(key, value)| {
            let name = key.into_inner().into_owned();
            let table = self.table(&join(kind, &name), value);
            (name, table)
        });
        named.collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.errors.borrow().is_empty()
    }

    pub(super) fn into_errors(self) -> ScenarioErrors {
        ScenarioErrors(self.errors.into_inner())
    }
}

fn spanned<T>(at: usize, value: T) -> Spanned<T> {
    Spanned::new(at..at + 1, value)
}

pub(super) fn join(path: &str, key: &str) -> String {
    match path {
        "" => key.to_owned(),
        path => format!("{path}.{key}"),
    }
}
