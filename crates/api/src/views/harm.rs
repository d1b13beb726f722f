//! Headroom that is found by measured harm, as it is told.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `headroom = auto`: what was found.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct HarmView {
    /// `no side work`, `no main work`, `no room` (main and the headroom leave side work its tolerance), `learning`, `known`,
    /// `unproven` (no harm was found where a few times the aim would have been) or `unknown`.
    pub state: String,
    /// The headroom in force, percent of the machine.
    pub level_pct: f64,
    /// Harm that is accepted: how much longer main's work may take, in percent.
    pub aim_pct: f64,
    /// How much longer main's work takes than at 60 % of headroom, in percent; none before the first look.
    pub harm_pct: Option<f64>,
    /// The interval's lower end.
    pub harm_from_pct: Option<f64>,
    /// The interval's upper end.
    pub harm_to_pct: Option<f64>,
    /// How many more of main's runs wait long than at 60 % of headroom, in percent of the runs; none before it is measured.
    #[serde(default)]
    pub tail_pct: Option<f64>,
    /// The interval's lower end.
    #[serde(default)]
    pub tail_from_pct: Option<f64>,
    /// The interval's upper end.
    #[serde(default)]
    pub tail_to_pct: Option<f64>,
    /// A longer wait is long: the mean CPU time of a run.
    #[serde(default)]
    pub tail_after_us: Option<f64>,
    /// All of it, and why it is not known.
    pub sentence: String,
}
