//! `[engine]`: who limits side work, and by which policy.

use serde::Deserialize;
use serde::de::Deserializer;
use tidegate_terms::combine;

use super::document::Findings;
use super::groups::{Group, NO_MAIN};
use crate::engines::cgroup::Sensing;
use crate::registry;
use crate::spec::Class;
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
    #[serde(deserialize_with = "share")]
    headroom: Option<u32>,
    #[serde(deserialize_with = "share")]
    tolerance: Option<u32>,
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

/// What the agent begins with for an objective where no group names a headroom.
const OBJECTIVE_START_PPM: u32 = 200_000;

pub(super) fn resolve(keys: EngineKeys, findings: &Findings<'_>, groups: &mut [Group]) -> Engine {
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
    spread_terms(&keys, &engine, findings, groups);
    engine
}

/// Headroom and tolerance are the machine's, whichever group names them (`tidegate run --side
/// --headroom 30%`): the engines read them from main's groups, so the other groups' terms are
/// copied there. The engine's own table overrides them all.
fn spread_terms(keys: &EngineKeys, engine: &Engine, findings: &Findings<'_>, groups: &mut [Group]) {
    let headrooms = groups.iter().filter(|group| group.headroom_said);
    let headroom = combine::headroom(headrooms.map(|group| group.spec.headroom_ppm), |ppm| *ppm);
    let headroom = keys.headroom.or(headroom);
    let tolerances = groups.iter().filter_map(|group| group.spec.tolerance_ppm);
    let tolerance = combine::tolerance(tolerances, |ppm| *ppm);
    let tolerance = keys.tolerance.or(tolerance);
    let searches = engine.kind == EngineKind::Cgroup && engine.policy == registry::TIDEGATE;
    let mut has_main = false;
    for group in groups
        .iter_mut()
        .filter(|group| group.spec.class == Class::Main)
    {
        has_main = true;
        if let Some(objective) = &mut group.spec.objective
            && searches
            && headroom.is_none()
        {
            objective.start_ppm = OBJECTIVE_START_PPM;
        }
        group.spec.headroom_ppm = headroom.unwrap_or(group.spec.headroom_ppm);
        group.spec.tolerance_ppm = tolerance;
    }
    for (key, named) in [("headroom", keys.headroom), ("tolerance", keys.tolerance)] {
        if named.is_some() && !has_main {
            findings.refuse(&format!("engine.{key}"), NO_MAIN);
        }
    }
}
