//! `[engine]`: who limits side work, and by which policy.

use tidegate_terms::{Headroom, combine};

use super::groups::{Group, NO_MAIN};
use super::read::{Findings, Section};
use super::tree::Table;
use crate::engines::cgroup::Sensing;
use crate::registry;
use crate::spec::Class;

pub(super) const KEYS: &[&str] = &[
    "name",
    "policy",
    "headroom",
    "harm",
    "tolerance",
    "sense",
    "quota",
];

/// What enforces the terms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineKind {
    /// Nothing: the kernel alone, with the groups as they are written.
    #[default]
    None,
    /// A policy that writes kernel files.
    Knobs,
}

impl EngineKind {
    /// As a user writes it.
    pub fn name(self) -> &'static str {
        match self {
            EngineKind::None => "none",
            EngineKind::Knobs => "knobs",
        }
    }
}

/// Who limits side work.
#[derive(Clone, Debug)]
pub struct Engine {
    /// What enforces.
    pub kind: EngineKind,
    /// Which policy decides, by its name in the table of policies.
    pub policy: String,
    /// Idle to keep; the largest of the groups' when absent.
    pub headroom_ppm: Option<u32>,
    /// Headroom is found, with this much harm accepted.
    pub harm_aim_ppm: Option<u32>,
    /// What side work gets at least; the smallest of the groups' when absent.
    pub tolerance_ppm: Option<u32>,
    /// How use is sensed.
    pub sense: Sensing,
    /// The quota of the policy `static`, of the machine.
    pub quota_ppm: u32,
}

impl Default for Engine {
    fn default() -> Engine {
        Engine {
            kind: EngineKind::None,
            policy: registry::TIDEGATE.into(),
            headroom_ppm: None,
            harm_aim_ppm: None,
            tolerance_ppm: None,
            sense: Sensing::Bpf,
            quota_ppm: 300_000,
        }
    }
}

/// The agent's `default_headroom`.
const DEFAULT_HEADROOM_PPM: u32 = 200_000;
/// The agent's `harm`.
const DEFAULT_HARM_PPM: u32 = 50_000;

impl Engine {
    /// Headroom and tolerance are the machine's, whichever group says them (`tidegate run --side --headroom 30%`): the engines
    /// read them from main's groups, so what another group says is laid there. What the engine's table says counts for all;
    /// where no group names a headroom, an engine keeps what the agent keeps by default.
    fn lay_terms(&self, groups: &mut [Group], section: &Section<'_>) {
        let headrooms = groups.iter().filter(|group| group.headroom_said);
        let headroom =
            combine::headroom(headrooms.map(|group| group.spec.headroom_ppm), |ppm| *ppm);
        let tolerances = groups.iter().filter_map(|group| group.spec.tolerance_ppm);
        let tolerance = combine::tolerance(tolerances, |ppm| *ppm);
        let default = (self.kind != EngineKind::None).then_some(DEFAULT_HEADROOM_PPM);
        // With an objective, the default is where the search for a headroom begins.
        let searches = self.kind == EngineKind::Knobs && self.policy == registry::TIDEGATE;
        let no_number = self.headroom_ppm.is_none() && headroom.is_none();
        let has_objective = groups.iter().any(|group| group.spec.objective.is_some());
        let is_searched = searches && no_number && has_objective;
        let default = if is_searched { Some(0) } else { default };
        let mut none = true;
        for group in groups
            .iter_mut()
            .filter(|group| group.spec.class == Class::Main)
        {
            none = false;
            if let Some(objective) = group.spec.objective.as_mut().filter(|_| is_searched) {
                objective.start_ppm = DEFAULT_HEADROOM_PPM;
            }
            if let Some(ppm) = self.headroom_ppm.or(headroom).or(default) {
                group.spec.headroom_ppm = ppm;
            }
            group.spec.tolerance_ppm = self.tolerance_ppm.or(tolerance);
        }
        for key in ["headroom", "tolerance"] {
            if none && section.has(key) {
                section.refuse_key(key, NO_MAIN.0.into(), NO_MAIN.1);
            }
        }
    }

    /// `headroom = "auto"`. Where harm cannot be told, the default is in force.
    fn find_headroom(&mut self, section: &Section<'_>) {
        if self.kind != EngineKind::Knobs || self.policy != registry::TIDEGATE {
            let why = "\"auto\" is not found by this engine".into();
            let mend = "write a share as in 30%, or take name = \"knobs\" with its own policy";
            return section.refuse_key("headroom", why, mend);
        }
        self.headroom_ppm = Some(DEFAULT_HEADROOM_PPM);
        self.harm_aim_ppm = Some(section.share("harm").unwrap_or(DEFAULT_HARM_PPM));
    }

    /// Engine and policy in words.
    pub fn label(&self) -> String {
        match self.kind {
            EngineKind::Knobs => format!("knobs/{}", self.policy),
            kind => kind.name().to_owned(),
        }
    }
}

fn kind_of(name: &str) -> Result<EngineKind, String> {
    match name {
        "none" => Ok(EngineKind::None),
        "knobs" => Ok(EngineKind::Knobs),
        "ext" | "sched_ext" => {
            Err("is not simulated (tidegate lab --on vm --engine ext measures it)".into())
        }
        _ => Err("is none of what is known here".into()),
    }
}

pub(super) fn read(table: &Table, findings: &Findings, cpus: u32, groups: &mut [Group]) -> Engine {
    let section = Section::new(table, "engine", &[KEYS], findings, cpus);
    let mut engine = Engine::default();
    engine.kind = section
        .one("name", "none or knobs", kind_of)
        .unwrap_or_default();
    let names: Vec<(&str, &str)> = registry::policies()
        .map(|policy| (policy.name, policy.name))
        .collect();
    if let Some(policy) = section.choice("policy", &names) {
        engine.policy = policy.to_owned();
    }
    match section.headroom("headroom") {
        Some(Headroom::Of(share)) => engine.headroom_ppm = Some(share.ppm()),
        Some(Headroom::Auto) => engine.find_headroom(&section),
        None => {}
    }
    if section.has("harm") && engine.harm_aim_ppm.is_none() {
        let why = "means nothing where headroom is not found".into();
        section.refuse_key("harm", why, "leave it out, or take headroom = \"auto\"");
    }
    engine.tolerance_ppm = section.share("tolerance");
    let senses = [("bpf", Sensing::Bpf), ("usage", Sensing::Usage)];
    engine.sense = section.choice("sense", &senses).unwrap_or_default();
    engine.quota_ppm = section.share("quota").unwrap_or(engine.quota_ppm);
    if section.has("quota") && engine.policy != "static" {
        let why = format!("means nothing to the policy {}", engine.policy);
        section.refuse_key("quota", why, "leave it out, or take policy = \"static\"");
    }
    engine.lay_terms(groups, &section);
    engine
}
