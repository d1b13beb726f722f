//! What one file says, and which class takes which term.

use std::collections::BTreeMap;

use crate::error::TermError;
use crate::policy::WrittenRule;
use crate::raw::RawTerms;
use crate::source::{RawTerm, Source};
use crate::table::Term;
use crate::values::Class;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layer {
    pub(crate) settings: RawTerms,
    pub(crate) classes: BTreeMap<Class, RawTerms>,
    pub(crate) rules: Vec<WrittenRule>,
}

/// The term in a layer, also when it was written with dashes.
pub(crate) fn candidate<'r>(layer: &&'r RawTerms, term: Term) -> Option<&'r RawTerm> {
    layer
        .0
        .iter()
        .find(|(name, _)| Term::from_name(name) == Some(term))
        .map(|(_, raw)| raw)
}

pub(crate) fn takes(class: Class, term: Term, source: &Source) -> Result<(), TermError> {
    if term.classes().contains(&class) {
        return Ok(());
    }
    let names: Vec<&str> = term.classes().iter().map(|class| class.name()).collect();
    Err(TermError::WrongClass {
        name: term.name(),
        source_place: source.clone(),
        class,
        remedy: format!("make it {}, or leave the term out", names.join(" or ")),
    })
}
