//! One configuration file being read: text to layers, each piece with its line and column.

use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::{TermError, quoted, remedy_for_unknown};
use crate::layer::{Layer, takes};
use crate::policy::twice_named;
use crate::raw::RawTerms;
use crate::source::{RawTerm, Source};
use crate::table::{Setting, Term};
use crate::values::Class;

pub(crate) struct Reader<'t> {
    path: &'t Path,
    pub(crate) text: &'t str,
    /// Where each line begins.
    lines: Vec<usize>,
}

impl<'t> Reader<'t> {
    pub(crate) fn new(path: &'t Path, text: &'t str) -> Reader<'t> {
        let ends = text.match_indices('\n').map(|(end, _)| end + 1);
        let lines = std::iter::once(0).chain(ends).collect();
        Reader { path, text, lines }
    }

    /// What it says; all that is wrong with it.
    pub(crate) fn read(&self, errors: &mut Vec<TermError>) -> Layer {
        let mut layer = Layer::default();
        let table = match DeTable::parse(self.text) {
            Ok(table) => table.into_inner(),
            Err(error) => {
                let at = error.span().map_or(0, |span| span.start);
                // The parser's message may span lines; the first says what is wrong.
                let why = error
                    .message()
                    .lines()
                    .next()
                    .unwrap_or_default()
                    .to_owned();
                errors.push(TermError::Toml {
                    source_place: self.place(at),
                    why,
                });
                return layer;
            }
        };
        for (key, value) in &table {
            let name: &str = key.get_ref();
            let at = self.place(key.span().start);
            if name == "rule" {
                layer.rules = self.rules(value, errors);
                errors.extend(twice_named(&layer.rules));
                continue;
            }
            if name == "version" {
                errors.extend(self.version(value).err());
                continue;
            }
            let read = match (Class::from_name(name), Setting::from_name(name)) {
                (Some(class), _) => self.class_terms(class, value, &mut layer, errors),
                (None, Some(setting)) if setting.classes().is_empty() => {
                    self.setting(setting, value, &mut layer)
                }
                (None, _) => Err(Setting::unknown(name, at)),
            };
            errors.extend(read.err());
        }
        layer
    }

    /// The format that the file is written in: there is one so far.
    fn version(&self, value: &Spanned<DeValue<'_>>) -> Result<(), TermError> {
        let text = self.text_of("version", "1", value)?.text;
        if text == "1" {
            return Ok(());
        }
        Err(TermError::Rule {
            name: "version".to_owned(),
            source_place: self.place(value.span().start),
            why: format!(
                "this program reads files of version 1, not {}",
                quoted(&text)
            ),
            remedy: "write version = 1, or install the program that the file was written for"
                .to_owned(),
        })
    }

    fn setting(
        &self,
        setting: Setting,
        value: &Spanned<DeValue<'_>>,
        layer: &mut Layer,
    ) -> Result<(), TermError> {
        let raw = self.text_of(setting.name(), setting.example(), value)?;
        setting.check(&raw)?;
        layer.settings.0.insert(setting.name().to_owned(), raw);
        Ok(())
    }

    fn class_terms(
        &self,
        class: Class,
        value: &Spanned<DeValue<'_>>,
        layer: &mut Layer,
        errors: &mut Vec<TermError>,
    ) -> Result<(), TermError> {
        let Some(table) = value.get_ref().as_table() else {
            return Err(self.not_text(class.name(), &format!("[{class}]"), value));
        };
        let mut terms = RawTerms::default();
        for (key, value) in table {
            let name: &str = key.get_ref();
            if let Some(setting) = Setting::from_name(name).filter(|one| one.is_under(class)) {
                errors.extend(self.setting(setting, value, layer).err());
                continue;
            }
            let read = self.class_term(class, name, key.span().start, value);
            match read {
                Ok((term, raw)) => {
                    let set = terms.0.insert(term.name().to_owned(), raw);
                    errors.extend(set.map(|_| self.set_twice(term, key.span().start)));
                }
                Err(error) => errors.push(error),
            }
        }
        layer.classes.insert(class, terms);
        Ok(())
    }

    pub(super) fn set_twice(&self, term: Term, at: usize) -> TermError {
        TermError::Toml {
            source_place: self.place(at),
            why: format!("{}: set twice, by two names; keep this one", term.name()),
        }
    }

    fn class_term(
        &self,
        class: Class,
        name: &str,
        at: usize,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<(Term, RawTerm), TermError> {
        let source = self.place(at);
        let settings = Setting::ALL.iter().filter(|one| one.is_under(class));
        let known: Vec<&str> = Term::names()
            .into_iter()
            .filter(|name| *name != "class")
            .chain(settings.map(|one| one.name()))
            .collect();
        let term = match Term::from_name(name) {
            // The table's own name is the class.
            Some(Term::Class) | None => {
                return Err(TermError::Unknown {
                    name: name.to_owned(),
                    source_place: source,
                    kind: "term",
                    remedy: remedy_for_unknown(name, &known),
                });
            }
            Some(term) => term,
        };
        let raw = self.text_of(name, term.example(), value)?;
        term.check(&raw)?;
        takes(class, term, &source)?;
        Ok((term, raw))
    }

    /// Text, or a number as it was written: the digits are kept, so that `0.3` stays exact.
    pub(crate) fn text_of(
        &self,
        name: &str,
        example: &str,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<RawTerm, TermError> {
        let text = match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
            DeValue::Float(number) => number.as_str().to_owned(),
            _ => return Err(self.not_text(name, &format!("{name} = \"{example}\""), value)),
        };
        Ok(RawTerm {
            text,
            source: self.place(value.span().start),
        })
    }

    pub(crate) fn not_text(
        &self,
        name: &str,
        example: &str,
        value: &Spanned<DeValue<'_>>,
    ) -> TermError {
        let written = self.text.get(value.span()).unwrap_or_default();
        TermError::NotText {
            name: name.to_owned(),
            source_place: self.place(value.span().start),
            found: format!("{} ({})", quoted(written), value.get_ref().type_str()),
            example: example.to_owned(),
        }
    }

    /// Line and column of a byte, both from 1.
    pub(crate) fn place(&self, byte: usize) -> Source {
        let line = self.lines.partition_point(|start| *start <= byte);
        let begin = self.lines[line.saturating_sub(1)];
        let before = self.text.get(begin..byte).unwrap_or_default();
        Source::File {
            path: self.path.to_owned(),
            line: u32::try_from(line).unwrap_or(u32::MAX),
            column: u32::try_from(before.chars().count() + 1).unwrap_or(u32::MAX),
        }
    }
}
