//! A scenario as it was written: tables and texts, each with its place; flags lie over it.

use std::sync::Arc;

use tidegate_terms::{mend_for_unknown, quoted};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Place, ScenarioError};

/// A table, in the order of the file.
#[derive(Clone, Debug)]
pub struct Table {
    pub place: Place,
    pub entries: Vec<(String, Node)>,
}

#[derive(Clone, Debug)]
pub enum Node {
    Leaf(Leaf),
    Table(Table),
}

/// A value as text: numbers and booleans read like the text of a flag.
#[derive(Clone, Debug)]
pub struct Leaf {
    pub value: Value,
    pub place: Place,
}

/// One text, or a list of values.
#[derive(Clone, Debug)]
pub enum Value {
    /// A text, a number or a boolean.
    One(String),
    List(Vec<Value>),
}

impl Table {
    /// Reads a file's text.
    ///
    /// # Errors
    /// What is no TOML, and values that no scenario has.
    pub fn parse(file: &Arc<str>, text: &str) -> Result<Table, ScenarioError> {
        let reader = Reader { file, text };
        let table = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            // The parser's message may span lines; the first says what is wrong.
            let why = error.message().lines().next().unwrap_or_default();
            ScenarioError {
                key: "scenario".into(),
                place: reader.place(at),
                why: format!("not valid TOML: {why}"),
                mend: "mend the line (docs/scenarios.md shows the form)".into(),
            }
        })?;
        reader.table(table.get_ref(), reader.place(0), "", 0)
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Node> {
        let mut entries = self.entries.iter();
        entries.find(|(name, _)| name == key).map(|(_, node)| node)
    }

    /// Lays `path = text` over what stands there. Tables are never made, but for those in `fixed` at the top: a name that
    /// was mistyped must not become a group of its own.
    ///
    /// # Errors
    /// No such table.
    pub fn lay(
        &mut self,
        path: &str,
        text: &str,
        place: &Place,
        fixed: &[&str],
    ) -> Result<(), ScenarioError> {
        let mut names: Vec<&str> = path.split('.').collect();
        let last = names.pop().unwrap_or_default();
        let mut table = self;
        for (depth, name) in names.iter().enumerate() {
            if depth == 0 && fixed.contains(name) && table.get(name).is_none() {
                let empty = Table {
                    place: place.clone(),
                    entries: Vec::new(),
                };
                table.entries.push(((*name).to_owned(), Node::Table(empty)));
            }
            let known: Vec<String> = table.tables().map(str::to_owned).collect();
            let below = table.entries.iter_mut().find(|(key, _)| key == name);
            let Some((_, Node::Table(below))) = below else {
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                return Err(ScenarioError {
                    key: path.to_owned(),
                    place: place.clone(),
                    why: format!("the scenario has no table \"{}\" here", quoted(name)),
                    mend: mend_for_unknown(name, &known),
                });
            };
            table = below;
        }
        let leaf = Node::Leaf(Leaf {
            value: Value::One(text.to_owned()),
            place: place.clone(),
        });
        match table.entries.iter_mut().find(|(key, _)| key == last) {
            Some((_, node)) => *node = leaf,
            None => table.entries.push((last.to_owned(), leaf)),
        }
        Ok(())
    }

    fn tables(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().filter_map(|(name, node)| match node {
            Node::Table(_) => Some(name.as_str()),
            Node::Leaf(_) => None,
        })
    }
}

/// Tables in tables: more than any scenario has, and little enough for the stack.
const DEPTH_MAX: usize = 8;

struct Reader<'t> {
    file: &'t Arc<str>,
    text: &'t str,
}

impl Reader<'_> {
    fn place(&self, at: usize) -> Place {
        let before = self.text.as_bytes().get(..at).unwrap_or_default();
        let lines = before.iter().filter(|byte| **byte == b'\n').count();
        Place::File {
            file: Arc::clone(self.file),
            line: u32::try_from(lines).unwrap_or(u32::MAX - 1) + 1,
        }
    }

    fn table(
        &self,
        table: &DeTable<'_>,
        place: Place,
        path: &str,
        depth: usize,
    ) -> Result<Table, ScenarioError> {
        if depth > DEPTH_MAX {
            return Err(ScenarioError {
                key: path.to_owned(),
                place,
                why: "tables lie too deep in each other".into(),
                mend: "write it as docs/scenarios.md shows".into(),
            });
        }
        // The library sorts by name; reports read better in the order of the file.
        let mut keys: Vec<_> = table.iter().collect();
        keys.sort_by_key(|(key, _)| key.span().start);
        let mut entries = Vec::new();
        for (key, value) in keys {
            let name = key.get_ref().to_string();
            let path = match path {
                "" => name.clone(),
                above => format!("{above}.{name}"),
            };
            let place = self.place(key.span().start);
            let node = match value.get_ref() {
                DeValue::Table(below) => Node::Table(self.table(below, place, &path, depth + 1)?),
                _ => Node::Leaf(Leaf {
                    value: self.written(value, &path, depth)?,
                    place,
                }),
            };
            entries.push((name, node));
        }
        Ok(Table { place, entries })
    }

    fn written(
        &self,
        value: &Spanned<DeValue<'_>>,
        path: &str,
        depth: usize,
    ) -> Result<Value, ScenarioError> {
        Ok(match value.get_ref() {
            DeValue::String(text) => Value::One(text.to_string()),
            DeValue::Integer(number) if number.radix() == 10 => Value::One(number.to_string()),
            DeValue::Float(number) => Value::One(number.to_string()),
            DeValue::Boolean(truth) => Value::One(truth.to_string()),
            DeValue::Array(values) if depth <= DEPTH_MAX => {
                let each = values.iter().map(|one| self.written(one, path, depth + 1));
                Value::List(each.collect::<Result<_, _>>()?)
            }
            _ => {
                return Err(ScenarioError {
                    key: path.to_owned(),
                    place: self.place(value.span().start),
                    why: "is no value of a scenario".into(),
                    mend: "write a text in quotes, a decimal number, true, false, or a list".into(),
                });
            }
        })
    }
}
