//! A measurement of what side work costs main.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An estimate with its 95 % interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IntervalView {
    /// The estimate.
    pub estimate: f64,
    /// The interval's lower end.
    pub lower: f64,
    /// Its upper end.
    pub upper: f64,
}

/// What a level of headroom, or a gate, costs main.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EffectView {
    /// Rounds that were used.
    pub rounds: u64,
    /// How much longer a piece of main's work takes than at the reference; 0.1 is a tenth.
    pub slowdown_ratio: IntervalView,
    /// By how much the share of late runs is larger than at the reference.
    pub late_ratio: IntervalView,
    /// CPUs that side work used at the level; CPUs that the gate used more than at its tolerance.
    pub side_cpus: f64,
    /// Seconds a second that other work stood behind side work at the level; absent where the
    /// kernel cannot tell, and for a gate.
    pub behind_side_ratio: Option<f64>,
    /// Main's CPU time over that at the reference; far above 1 where side work gives main its
    /// work.
    pub main_cpu_ratio: f64,
}

/// One level of headroom.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeasuredLevelView {
    /// The headroom, of the machine.
    pub headroom_ratio: f64,
    /// What it costs main; absent while there are too few rounds.
    pub effect: Option<EffectView>,
}

/// One side gate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeasuredGateView {
    /// The gate's name.
    pub gate: String,
    /// What it costs main while it is free; absent while there are too few rounds.
    pub effect: Option<EffectView>,
}

/// A measurement: how far it is, and what it has found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeasureView {
    /// Its number, which its client asks with: one that is silent for 2 s ends it.
    pub id: u64,
    /// `running`, `done` or `ended`.
    pub state: String,
    /// Why it ended early.
    pub ended_because: Option<String>,
    /// The user who started it.
    pub uid: u32,
    /// When, since 1970.
    pub started_unix_seconds: f64,
    /// How much of it is over.
    pub elapsed_seconds: f64,
    /// How long it takes in all.
    pub length_seconds: f64,
    /// The gates whose work is measured.
    pub main: Vec<String>,
    /// The side gates that are switched.
    pub side: Vec<String>,
    /// CPUs that main used.
    pub main_cpus: f64,
    /// The tolerance, at which side work is held for the reference, of the machine.
    pub tolerance_ratio: f64,
    /// CPUs that side work used at the reference.
    pub reference_side_cpus: f64,
    /// A run is late if it waited for longer: main's mean run.
    pub late_after_us: f64,
    /// What each level of headroom costs main, where levels are switched.
    pub levels: Vec<MeasuredLevelView>,
    /// What each gate costs main, where gates are switched.
    pub gates: Vec<MeasuredGateView>,
    /// What to do, in one sentence; absent while it runs.
    pub advice: Option<String>,
    /// The command that does it, where there is one.
    pub command: Option<String>,
}

/// Of a status: a measurement runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeasuringView {
    /// The headroom in force now, of the machine; 1 where side work is at its tolerance.
    pub headroom_ratio: f64,
    /// How long it still takes.
    pub left_seconds: f64,
    /// The user who started it.
    pub uid: u32,
    /// The same in words.
    pub sentence: String,
}
