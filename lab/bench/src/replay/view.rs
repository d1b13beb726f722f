//! What came of a replay: what `--json` prints and every page draws.

use serde::{Deserialize, Serialize};

/// An arm has at most this many points.
pub const POINTS_MAX: usize = 600;

/// The name of the arm that was recorded.
pub const AS_IT_WAS: &str = "as it was";

/// A recording, and what the simulator says would have come of its demand under each policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplayView {
    pub recording: RecordingView,
    pub arms: Vec<ArmView>,
    /// What the recording says happened, in order of time.
    pub events: Vec<EventView>,
    /// What the simulation takes for granted, and what of the policies it cannot play, in
    /// sentences.
    pub assumptions: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordingView {
    pub from_unix_seconds: f64,
    pub to_unix_seconds: f64,
    pub cpus: u32,
    /// Seconds in it; fewer than between begin and end where some are missing.
    pub seconds: u64,
}

/// One arm: what was, or what a policy makes of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArmView {
    /// [`AS_IT_WAS`], or the policy's file.
    pub name: String,
    pub is_recorded: bool,
    /// Use over time, each the mean since the point before: at most [`POINTS_MAX`]. Of a simulated
    /// arm those of the first seed.
    pub points: Vec<PointView>,
    pub figures: FiguresView,
    pub works: Vec<WorkView>,
}

/// Use up to one point in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PointView {
    pub time_unix_seconds: f64,
    /// Main and everything that is not side.
    pub main_cpus: f64,
    pub side_cpus: f64,
    pub idle_cpus: f64,
    /// What side work was allowed; recorded arms alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowance_cpus: Option<f64>,
}

/// The figures; one is absent where nothing tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FiguresView {
    pub idle_kept_pct: Option<FigureView>,
    /// CPUs that side work used, the mean.
    pub side_cpus: Option<FigureView>,
    /// CPUs that main and everything else that is not side used, the mean.
    pub main_cpus: Option<FigureView>,
    /// How long main's tasks waited to run, the mean.
    pub main_wait_mean_us: Option<FigureView>,
    /// 99 of 100 waits are no longer.
    pub main_wait_p99_us: Option<FigureView>,
    /// Time in which side work had the tolerance alone, percent.
    pub at_tolerance_pct: Option<FigureView>,
}

/// A value with its interval: the least and the largest over the seeds; of a recorded arm the value
/// itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FigureView {
    /// The mean over the seeds.
    pub value: f64,
    pub from: f64,
    pub to: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkView {
    /// The gate's name; of a group without a gate its unit or its path.
    pub name: String,
    /// `main`, `side` or `neutral`, under this arm's terms.
    pub class: String,
    /// CPUs that it used, the mean.
    pub used_cpus: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventView {
    pub time_unix_seconds: f64,
    /// As `tidegate events` has it.
    pub kind: String,
    pub gate: Option<String>,
    pub message: String,
}
