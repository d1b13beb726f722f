//! `[engine]`: who limits side work, and by which policy.

use tidegate_terms::combine;

use super::groups::{Group, NO_MAIN};
use super::read::{Findings, Section};
use super::tree::Table;
use crate::engines::cgroup::Sensing;
use crate::registry;
use crate::spec::Class;

pub(super) const KEYS: &[&str] = &["name", "policy", "headroom", "tolerance", "sense", "quota"];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineKind {
    /// Nothing: the kernel alone, with the groups as they are written.
    #[default]
    None,
    /// A policy that writes kernel files.
    Cgroup,
}

impl EngineKind {
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
    /// Which policy decides, by its name in the table of policies.
    pub policy: String,
    /// Idle to keep; the largest of the groups' when absent.
    pub headroom_ppm: Option<u32>,
    /// What side work gets at least; the smallest of the groups' when absent.
    pub tolerance_ppm: Option<u32>,
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
            tolerance_ppm: None,
            sense: Sensing::Bpf,
            quota_ppm: 300_000,
        }
    }
}

/// What the agent begins with for an objective where no group names a headroom.
const OBJECTIVE_START_PPM: u32 = 200_000;

impl Engine {
    /// Headroom and tolerance are the machine's, whichever group says them (`tidegate run --side --headroom 30%`): the engines
    /// read them from main's groups, so what another group says is laid there. What the engine's table says counts for all.
    fn lay_terms(&self, groups: &mut [Group], section: &Section<'_>) {
        let headrooms = groups.iter().filter(|group| group.headroom_said);
        let headroom =
            combine::headroom(headrooms.map(|group| group.spec.headroom_ppm), |ppm| *ppm);
        let tolerances = groups.iter().filter_map(|group| group.spec.tolerance_ppm);
        let tolerance = combine::tolerance(tolerances, |ppm| *ppm);
        let searches = self.kind == EngineKind::Cgroup && self.policy == registry::TIDEGATE;
        let no_number = self.headroom_ppm.is_none() && headroom.is_none();
        let is_searched = searches && no_number;
        let mut none = true;
        for group in groups
            .iter_mut()
            .filter(|group| group.spec.class == Class::Main)
        {
            none = false;
            if let Some(objective) = group.spec.objective.as_mut().filter(|_| is_searched) {
                objective.start_ppm = OBJECTIVE_START_PPM;
            }
            if let Some(ppm) = self.headroom_ppm.or(headroom) {
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

    /// Engine and policy in words.
    pub fn label(&self) -> String {
        match self.kind {
            EngineKind::Cgroup => format!("cgroup/{}", self.policy),
            kind => kind.name().to_owned(),
        }
    }
}

fn kind_of(name: &str) -> Result<EngineKind, String> {
    match name {
        "none" => Ok(EngineKind::None),
        "cgroup" => Ok(EngineKind::Cgroup),
        "sched_ext" => {
            Err("is not simulated (tidegate-lab --on vm --engine sched_ext measures it)".into())
        }
        _ => Err("is none of what is known here".into()),
    }
}

pub(super) fn read(table: &Table, findings: &Findings, cpus: u32, groups: &mut [Group]) -> Engine {
    let section = Section::new(table, "engine", &[KEYS], findings, cpus);
    let kind = section.one("name", "none or cgroup", kind_of);
    let mut engine = Engine {
        kind: kind.unwrap_or_default(),
        ..Engine::default()
    };
    let names: Vec<(&str, &str)> = registry::policies()
        .map(|policy| (policy.name, policy.name))
        .collect();
    if let Some(policy) = section.choice("policy", &names) {
        engine.policy = policy.to_owned();
    }
    engine.headroom_ppm = section.share("headroom");
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
