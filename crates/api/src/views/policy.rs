//! The policy: which files are in force, what their rules do, and what others would change.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The policy in force.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct PolicyView {
    /// Counts what was put in force since the agent started.
    pub generation: u64,
    /// The files, weakest first.
    pub files: Vec<String>,
    /// Their rules.
    pub rules: Vec<RuleView>,
    /// On trial: so long until the policy before is in force again, unless this one is confirmed.
    pub trial_seconds_left: Option<f64>,
    /// Whether the files now say something else than what is in force.
    pub files_differ: bool,
    /// Why the files were last refused, where that was after what is in force.
    pub refused: Option<String>,
    /// How what starts later is found.
    pub watch: String,
}

/// One rule.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct RuleView {
    /// Its name.
    pub name: String,
    /// `enforce` or `observe`.
    pub mode: String,
    /// Where it stands, as `file:line:column`.
    pub source: String,
    /// Gates that have its terms.
    pub gates: Vec<String>,
    /// What it matches and, since it only observes, leaves alone.
    pub observed: Vec<ObservedView>,
}

/// Work that a rule only observes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ObservedView {
    /// `cgroup:/path` or `pid:N`.
    pub target: String,
    /// The rule.
    pub rule: String,
    /// The terms that it would have.
    pub terms: String,
    /// What would be written.
    pub writes: Vec<KernelWriteView>,
    /// Why it would be refused, where it would.
    pub refused: Option<String>,
}

/// A value in a kernel file, before and after.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KernelWriteView {
    /// The file.
    pub path: String,
    /// What stands; absent where the file is not there yet, or lists tasks.
    pub from: Option<String>,
    /// What would stand, or the task that joins the list. A moving quota starts at the tolerance
    /// and follows main from there.
    pub to: String,
}

/// A gate that is made, changed or ended by a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GateChangeView {
    /// `made`, `changed` or `ended`.
    pub change: String,
    /// The gate.
    pub gate: String,
    /// What it is on.
    pub target: String,
    /// The rule, where one gives it terms.
    pub rule: Option<String>,
    /// Its terms from then on, and what a changed one had before.
    pub terms: String,
}

/// What a policy changes, or would.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct PolicyChangeView {
    /// Gates.
    pub gates: Vec<GateChangeView>,
    /// What is only observed from then on.
    pub observed: Vec<ObservedView>,
    /// Kernel files.
    pub writes: Vec<KernelWriteView>,
    /// What a person should know: settings that count from the next start on, work that is gated
    /// already.
    pub notes: Vec<String>,
}
