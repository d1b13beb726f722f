//! `[engine]`: who limits side work.

use serde::Deserialize;
use serde::de::Deserializer;
use serde::de::Error;
use tidegate_terms::{RawTerm, RawTerms, Source, Term};

use crate::engines::cgroup::Sensing;
use crate::values;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineKind {
    /// Nothing: the kernel alone, with the groups as they are written.
    #[default]
    None,
    /// Tidegate's engine on kernel files.
    Cgroup,
}

impl EngineKind {
    /// Whether it is Tidegate, which holds every term.
    pub fn is_tidegate(self) -> bool {
        self == EngineKind::Cgroup
    }

    /// Why caps are not held.
    pub(super) fn no_caps(self) -> Option<&'static str> {
        let why =
            "the engine none holds no caps; write [engine] name = \"cgroup\", or leave the cap out";
        (!self.is_tidegate()).then_some(why)
    }

    /// Why latency hints are not held.
    pub(super) fn no_hints(self) -> Option<&'static str> {
        let why = "the engine none holds no hints; write [engine] name = \"cgroup\", or slice in a \
                   workload";
        (!self.is_tidegate()).then_some(why)
    }

    pub fn name(self) -> &'static str {
        match self {
            EngineKind::None => "none",
            EngineKind::Cgroup => "cgroup",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Engine {
    pub kind: EngineKind,
    pub sense: Sensing,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct EngineKeys {
    #[serde(deserialize_with = "kind")]
    name: EngineKind,
    #[serde(deserialize_with = "headroom")]
    headroom: Option<RawTerm>,
    #[serde(deserialize_with = "tolerance")]
    tolerance: Option<RawTerm>,
    sense: Sensing,
}

fn kind<'de, D: Deserializer<'de>>(from: D) -> Result<EngineKind, D::Error> {
    values::by(from, "none or cgroup", |text| match text {
        "none" => Ok(EngineKind::None),
        "cgroup" => Ok(EngineKind::Cgroup),
        "sched_ext" => Err("is not simulated".into()),
        _ => Err("is no engine".into()),
    })
}

fn headroom<'de, D: Deserializer<'de>>(from: D) -> Result<Option<RawTerm>, D::Error> {
    term(from, Term::Headroom)
}

fn tolerance<'de, D: Deserializer<'de>>(from: D) -> Result<Option<RawTerm>, D::Error> {
    term(from, Term::Tolerance)
}

fn term<'de, D: Deserializer<'de>>(from: D, term: Term) -> Result<Option<RawTerm>, D::Error> {
    let raw = RawTerm {
        text: values::text(from)?,
        source: Source::Set,
    };
    let checked = term.check(&raw);
    checked.map_err(|error| D::Error::custom(error.why()))?;
    Ok(Some(raw))
}

impl EngineKeys {
    pub(super) fn engine(&self) -> Engine {
        Engine {
            kind: self.name,
            sense: self.sense,
        }
    }

    /// The terms that every group of class main or side gets from the engine's table.
    pub(super) fn terms(&self) -> RawTerms {
        let named = [
            (Term::Headroom, &self.headroom),
            (Term::Tolerance, &self.tolerance),
        ];
        let named = named.into_iter().filter_map(|(term, raw)| {
            let raw = raw.as_ref()?.clone();
            Some((term.name().to_owned(), raw))
        });
        RawTerms(named.collect())
    }
}
