//! `[engine]`: who limits side work, and by which policy.

use serde::Deserialize;
use serde::de::Deserializer;
use serde::de::Error;
use tidegate_terms::{RawTerm, RawTerms, Source, Term};

use super::document::Findings;
use crate::engines::cgroup::Sensing;
use crate::registry;
use crate::values::{self, share};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineKind {
    /// Nothing: the kernel alone, with the groups as they are written.
    #[default]
    None,
    /// A policy that writes kernel files.
    Cgroup,
}

#[derive(Clone, Debug)]
pub struct Engine {
    pub kind: EngineKind,
    /// Which policy decides, by its name in the table of policies.
    pub policy: String,
    pub sense: Sensing,
    /// The quota of the policy `static`, of the machine.
    pub quota_ppm: u32,
}

impl Engine {
    /// Whether it is Tidegate, which holds every term.
    pub fn is_tidegate(&self) -> bool {
        self.kind == EngineKind::Cgroup && self.policy == registry::TIDEGATE
    }

    /// Engine and policy in words.
    pub fn label(&self) -> String {
        match self.kind {
            EngineKind::Cgroup => format!("cgroup/{}", self.policy),
            EngineKind::None => "none".to_owned(),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct EngineKeys {
    #[serde(deserialize_with = "kind")]
    name: EngineKind,
    policy: Option<String>,
    #[serde(deserialize_with = "headroom")]
    headroom: Option<RawTerm>,
    #[serde(deserialize_with = "tolerance")]
    tolerance: Option<RawTerm>,
    sense: Sensing,
    #[serde(deserialize_with = "share")]
    quota: Option<u32>,
}

fn kind<'de, D: Deserializer<'de>>(from: D) -> Result<EngineKind, D::Error> {
    values::by(from, "none or cgroup", |text| match text {
        "none" => Ok(EngineKind::None),
        "cgroup" => Ok(EngineKind::Cgroup),
        "sched_ext" => {
            Err("is not simulated (tidegate-lab --on vm --engine sched_ext measures it)".into())
        }
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

pub(super) fn resolve(keys: &EngineKeys, findings: &Findings<'_>) -> Engine {
    let engine = Engine {
        kind: keys.name,
        policy: keys
            .policy
            .clone()
            .unwrap_or_else(|| registry::TIDEGATE.into()),
        sense: keys.sense,
        quota_ppm: keys.quota.unwrap_or(300_000),
    };
    if registry::policy(&engine.policy).is_none() {
        let names: Vec<&str> = registry::policies().map(|policy| policy.name).collect();
        let policy = tidegate_terms::quoted(&engine.policy);
        let why = format!(
            "\"{policy}\" is not known here; write one of {}",
            names.join(", ")
        );
        findings.refuse("engine.policy", why);
    }
    if keys.quota.is_some() && engine.policy != "static" {
        let policy = tidegate_terms::quoted(&engine.policy);
        let why = format!("means nothing to the policy {policy}; take policy = \"static\"");
        findings.refuse("engine.quota", why);
    }
    engine
}
