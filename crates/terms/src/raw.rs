//! Terms as they were written, before anything is checked.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{TermError, remedy_for_unknown};
use crate::source::{RawTerm, Source};
use crate::table::Term;

/// Terms as they were written, by name: one layer. Nothing about them has been checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RawTerms(pub BTreeMap<String, RawTerm>);

impl RawTerms {
    pub fn from_map(map: &BTreeMap<String, String>, source: &Source) -> RawTerms {
        let mut terms = RawTerms::default();
        for (name, text) in map {
            terms.insert(name, text, source.clone());
        }
        terms
    }

    /// `term=value` words, as `tidegate set` takes them. Dashes in names count as underscores.
    pub fn from_assignments<S: AsRef<str>>(
        words: &[S],
        source: &Source,
    ) -> Result<RawTerms, TermError> {
        let mut terms = RawTerms::default();
        for word in words {
            let word = word.as_ref();
            let Some((name, text)) = word.split_once('=') else {
                return Err(TermError::NotAssignment {
                    input: word.to_owned(),
                    source_place: source.clone(),
                });
            };
            let term = Term::named(name.trim(), source)?;
            if terms.0.contains_key(term.name()) {
                return Err(TermError::Rule {
                    name: term.name().to_owned(),
                    source_place: source.clone(),
                    why: "it is given twice".to_owned(),
                    remedy: "give it once".to_owned(),
                });
            }
            terms.insert(term.name(), text.trim(), source.clone());
        }
        Ok(terms)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn insert(&mut self, name: &str, text: &str, source: Source) {
        self.0.insert(
            name.to_owned(),
            RawTerm {
                text: text.to_owned(),
                source,
            },
        );
    }

    /// Lays `stronger` over this layer.
    pub fn merge(&mut self, stronger: &RawTerms) {
        for (name, raw) in &stronger.0 {
            self.0.insert(name.clone(), raw.clone());
        }
    }

    pub fn to_map(&self) -> BTreeMap<String, String> {
        self.0
            .iter()
            .map(|(name, raw)| (name.clone(), raw.text.clone()))
            .collect()
    }

    /// Refuses unknown names and texts that are no values, without looking at classes or other
    /// layers.
    pub fn check(&self) -> Result<(), TermError> {
        for (name, raw) in &self.0 {
            Term::named(name, &raw.source)?.check(raw)?;
        }
        Ok(())
    }
}

impl Term {
    /// The term of this name.
    ///
    /// # Errors
    /// There is none; the error has the nearest name.
    pub fn named(name: &str, source: &Source) -> Result<Term, TermError> {
        Term::from_name(name).ok_or_else(|| TermError::Unknown {
            name: name.to_owned(),
            source_place: source.clone(),
            kind: "term",
            remedy: remedy_for_unknown(name, &Term::names()),
        })
    }
}
