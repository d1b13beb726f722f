//! A control step's decision on side work, and the limit that holds a gate back. The control loop
//! makes them once, and every reader gets them unchanged.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate_law::Reason;

/// The limit that holds work back.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// No limit holds it back.
    #[default]
    None,
    /// It has no runnable task.
    Demand,
    /// What the headroom leaves of the machine.
    Headroom,
    /// The idle class alone: no headroom is asked for, and main takes the CPU.
    IdleClass,
    /// The tolerance: main leaves nothing above the headroom.
    Tolerance,
    /// Its weight among the side work that runs.
    Weight,
    /// The quota of all side work, lower than the law's allowance until the next write.
    Root,
    /// Its own quota.
    Quota,
    /// Its own hard cap.
    Cap,
    /// Its own soft cap.
    SoftCap,
    /// A limit of a group around it that is not Tidegate's.
    Parent,
    /// Another program's limit on its own group.
    Outside,
    /// Its group is frozen.
    Frozen,
}

impl Limit {
    pub fn name(self) -> &'static str {
        self.row().0
    }

    pub fn meaning(self) -> &'static str {
        self.row().1
    }

    fn row(self) -> (&'static str, &'static str) {
        match self {
            Self::None => ("none", "no limit holds it back"),
            Self::Demand => ("demand", "it has no task that wants to run"),
            Self::Headroom => ("headroom", "main and the headroom leave it no more"),
            Self::IdleClass => ("idle_class", "it gets the CPU that main leaves"),
            Self::Tolerance => (
                "tolerance",
                "main leaves nothing above the headroom, so it has the tolerance",
            ),
            Self::Weight => ("weight", "other side work takes its part by weight"),
            Self::Root => ("root", "the quota of all side work is about to be raised"),
            Self::Quota => ("quota", "its own quota"),
            Self::Cap => ("cap", "its own hard cap"),
            Self::SoftCap => (
                "soft_cap",
                "above its soft cap it gets only CPU that no other task wants",
            ),
            Self::Parent => ("parent", "a limit on a group around it"),
            Self::Outside => ("outside", "another program's limit on its group"),
            Self::Frozen => ("frozen", "its tasks are stopped, or its group is frozen"),
        }
    }
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// What the last control step decided on side work, with the figures that it came from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Decision {
    /// The decision as a sentence.
    pub sentence: String,
    /// Why the law allows side work this much.
    pub reason: Reason,
    /// The limit on all side work: `headroom`, `tolerance`, or `idle_class` without a quota.
    pub limit: Limit,
    /// What side work may use.
    pub allowance_cpus: f64,
    /// CPUs online less what the hypervisor takes, a mean.
    pub capacity_cpus: f64,
    /// Idle to keep.
    pub headroom_cpus: f64,
    /// The estimate of main and everything else that is not side work.
    pub main_cpus: f64,
    /// The correction learnt from the idle that was really kept.
    pub trim_cpus: f64,
    /// The least that side work is allowed.
    pub tolerance_cpus: f64,
    /// What side work used, a mean of about a second.
    pub side_cpus: f64,
    /// The idle that was kept, a mean of about a second.
    pub idle_cpus: f64,
    /// Each group whose quota the loop moves.
    pub groups: Vec<GroupDecision>,
}

/// What the last control step decided for one group whose quota the loop moves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroupDecision {
    /// The group, below the mount of the cpu controller.
    pub group: String,
    /// Its part of the allowance; none where no quota is to limit it.
    pub allowance_cpus: Option<f64>,
    /// The quota in force, where one limits it.
    pub quota_us: Option<u64>,
    /// The period of that quota.
    pub period_us: Option<u64>,
    /// The limit that throttles the group, whenever it is throttled.
    pub limit: Limit,
}

impl Decision {
    pub fn group(&self, path: &str) -> Option<&GroupDecision> {
        self.groups.iter().find(|one| one.group == path)
    }

    #[must_use]
    pub fn with_sentence(self) -> Self {
        let (allowance, main) = (self.allowance_cpus, self.main_cpus);
        let sentence = match self.reason {
            _ if self.groups.is_empty() => "no side work: nothing is limited".to_owned(),
            _ if self.limit == Limit::IdleClass => {
                "side work is in the idle class, without a quota: it yields to all other work, and no \
                 CPU is kept idle"
                    .to_owned()
            }
            Reason::Warmup => {
                "no history yet: side work has the tolerance, then ramps up".to_owned()
            }
            Reason::Ramp => {
                format!("main left more; side work is raised slowly, to {allowance:.2} CPUs so far")
            }
            Reason::Track => {
                format!("main uses {main:.2} CPUs; side work may use {allowance:.2}")
            }
            Reason::Cut => {
                format!("main stepped up to {main:.2} CPUs; side work cut to {allowance:.2}")
            }
            Reason::Floor => format!(
                "main uses {main:.2} CPUs and leaves nothing above the headroom: the tolerance"
            ),
            Reason::Restore => {
                format!("a burst of main is over; side work may use {allowance:.2} CPUs again")
            }
            Reason::Skip => format!(
                "the last sample was impossible and left out; side work may use {allowance:.2} CPUs as \
                 before"
            ),
            Reason::Stale => {
                "no usable sample for 250 ms: the tolerance until there is history".to_owned()
            }
        };
        Self { sentence, ..self }
    }
}

/// What the kernel counted of a gate between the last two polls at it, and the limit that follows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HeldView {
    /// The limit that holds it back.
    pub limit: Limit,
    /// That limit as a clause.
    pub meaning: String,
    /// The time between the two polls.
    pub window_seconds: f64,
    /// Periods in which its own limit throttled it; under the sched_ext engine and a cap, times
    /// that a task was throttled.
    pub own_throttled_periods: u64,
    /// Periods in which the quota of all side work throttled it.
    pub root_throttled_periods: u64,
    /// Periods in which a limit of another group around it throttled it.
    pub parent_throttled_periods: u64,
    /// Its tasks that were runnable at the last poll.
    pub runnable_tasks: u64,
    /// How long its tasks waited for a CPU (run delay), of 64 tasks at most.
    pub run_delay_seconds: f64,
    /// How long those ran.
    pub run_seconds: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_the_word_that_json_has() {
        let schema = schemars::schema_for!(Limit).to_value();
        let all = schema["oneOf"].as_array().unwrap();
        assert_eq!(all.len(), 13);
        for one in all {
            let limit: Limit = serde_json::from_value(one["const"].clone()).unwrap();
            assert_eq!(one["const"], limit.name());
            assert!(!limit.meaning().is_empty());
        }
    }

    #[test]
    fn the_sentence_says_what_the_fields_say() {
        let decision = |limit, reason, groups: &[&str]| {
            let groups = groups.iter().map(|group| GroupDecision {
                group: (*group).to_owned(),
                ..GroupDecision::default()
            });
            let decision = Decision {
                limit,
                reason,
                allowance_cpus: 0.5,
                groups: groups.collect(),
                ..Decision::default()
            };
            decision.with_sentence().sentence
        };
        assert!(decision(Limit::Headroom, Reason::Track, &[]).contains("no side work"));
        assert!(decision(Limit::IdleClass, Reason::Track, &["/side"]).contains("without a quota"));
        assert!(decision(Limit::Headroom, Reason::Cut, &["/side"]).contains("cut to 0.50"));
        assert!(decision(Limit::Tolerance, Reason::Floor, &["/side"]).contains("the tolerance"));
    }
}
