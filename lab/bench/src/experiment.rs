//! An experiment is a value: a question, and parts of cells, metrics and targets. A runner for each
//! environment turns a cell's [`Scene`] into an [`Outcome`]; one report is made of all samples.
//!
//! To add an experiment, write its value in a file of [`crate::experiments`] and name it in
//! [`crate::experiments::ALL`].

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::path::PathBuf;

use crate::LabError;
use crate::options::{Engine, On, Sense};
use crate::scene::{Latency, Outcome, Scene};

/// Programs that a guest needs: the place there, and the file here.
pub type GuestPrograms = Vec<(String, PathBuf)>;

pub struct Experiment {
    pub name: &'static str,
    pub question: &'static str,
    pub places: &'static [(On, Engine)],
    /// Its parts, for what the user asked.
    pub parts: fn(&Ask<'_>) -> Result<Vec<Part>, LabError>,
    pub guest_programs: Option<fn(&LabOptions) -> GuestPrograms>,
    pub notes: &'static [&'static str],
}

impl Experiment {
    /// Returns true if this engine can run it there. Simulated reports compare engines themselves.
    pub fn runs_on(&self, on: On, engine: Engine) -> bool {
        self.places.contains(&(on, engine))
    }
}

#[derive(Clone)]
pub struct LabOptions {
    pub experiment: &'static Experiment,
    pub on: On,
    pub engine: Engine,
    /// Under a minute in all (two for those of bounds and hints): shorter windows, fewer rounds.
    pub quick: bool,
    /// How often each arm is repeated; the experiment's default when absent.
    pub rounds: Option<u32>,
    /// Where the page, the CSV and the JSON go; `./tidegate-lab` when absent.
    pub out: Option<PathBuf>,
    /// A command as main instead of the built-in server (`headroom` on the host); see
    /// [`crate::runners::host::foreign`].
    pub main_cmd: Option<String>,
    /// A command as side instead of ffmpeg or the hogs (`headroom` on the host).
    pub side_cmd: Option<String>,
    /// Load levels instead of the cpu.headroom patches' 1.0…1.6 (`headroom`); level 1.0 is 25 % of
    /// the machine.
    pub loads: Option<Vec<f64>>,
    /// The sensor of Tidegate's arms; `step` runs both when absent, the others the best there is.
    pub sense: Option<Sense>,
    /// Other sched_ext schedulers: a name, and the program that is installed (`peers`).
    pub peers: Vec<(String, PathBuf)>,
    /// Sizes of the simulated machine, or of the guest (`peers`); the experiment's own when absent.
    pub cpus: Option<Vec<u32>>,
    /// Threads that simulate side by side; one a CPU when absent. What is found does not depend on
    /// it.
    pub jobs: Option<usize>,
    /// The kernel series of the VM; [`crate::runners::vm::SERIES`] when absent.
    pub kernel: Option<String>,
    /// Write the whole report as well, drawings and all, for the host of this guest.
    pub serialise: bool,
    /// Seed of every random choice (arrivals, order of arms).
    pub seed: u64,
    pub quiet: bool,
}

impl LabOptions {
    pub fn new(experiment: &'static Experiment) -> Self {
        LabOptions {
            experiment,
            on: On::Host,
            engine: Engine::Cgroup,
            quick: false,
            rounds: None,
            out: None,
            main_cmd: None,
            side_cmd: None,
            loads: None,
            sense: None,
            peers: Vec::new(),
            cpus: None,
            jobs: None,
            kernel: None,
            serialise: false,
            seed: 1,
            quiet: false,
        }
    }

    pub fn out_dir(&self) -> PathBuf {
        self.out
            .clone()
            .unwrap_or_else(|| PathBuf::from("tidegate-lab"))
    }
}

/// What the user asked, and the machine that runs it.
pub struct Ask<'a> {
    pub options: &'a LabOptions,
    /// CPUs of the machine under test; experiments on the simulator choose their own.
    pub cpus: u32,
    /// Timer interrupts a second of the machine under test.
    pub hz: u32,
}

impl Ask<'_> {
    pub fn quick_or<T>(&self, quick: T, full: T) -> T {
        if self.options.quick { quick } else { full }
    }

    /// Rounds: those asked for, or the default of the run's length.
    pub fn rounds(&self, quick: u32, full: u32) -> u32 {
        let default = self.quick_or(quick, full);
        self.options.rounds.unwrap_or(default).max(1)
    }

    pub fn is_simulated(&self) -> bool {
        self.options.on == On::Sim
    }

    /// Returns true for the emulated guest, and within it.
    pub fn is_virtual(&self) -> bool {
        self.options.on == On::Vm || crate::loads::spin::by_nops()
    }

    /// Returns true if the sched_ext engine is under test.
    pub fn is_sched_ext(&self) -> bool {
        self.options.engine == Engine::SchedExt
    }

    /// Sizes of simulated machines: those asked for, or these. A real machine has one size.
    pub fn sizes(&self, default: &[u32]) -> Vec<u32> {
        match (self.is_simulated(), &self.options.cpus) {
            (false, _) => vec![self.cpus],
            (true, Some(cpus)) => cpus.clone(),
            (true, None) => default.into(),
        }
    }

    /// A seed from the user's and from what is common to all arms of a comparison, never from the
    /// arm: every arm meets the same arrivals.
    pub fn seed(&self, parts: &[u64]) -> u64 {
        let mut rng = tidegate_sim::Prng::new(self.options.seed);
        for &part in parts {
            rng = tidegate_sim::Prng::stream(rng.next_u64(), part);
        }
        rng.next_u64()
    }
}

pub struct Part {
    /// The `part` of its rows.
    pub key: &'static str,
    pub title: String,
    pub cells: Vec<Cell>,
    /// Turns what the runner saw into figures; a cell of several steps gives several.
    pub figures: fn(&Cell, &Outcome) -> Vec<Figures>,
    /// Columns of its table. The first is the one that is drawn.
    pub metrics: &'static [Metric],
    /// One row for each arm, pooled over the cases of a group; else one row for each case and arm.
    pub pooled: bool,
    /// Alternatives, and the figures that are compared with each in pairs of the same case and
    /// round. The strongest simple one is always among them: cpu.idle for side work, cpu.max for
    /// caps.
    pub over: &'static [(&'static str, &'static [&'static str])],
    pub targets: Vec<Target>,
}

impl Part {
    /// A part without targets, with a row for each case and arm.
    pub fn new(
        key: &'static str,
        title: impl Into<String>,
        cells: Vec<Cell>,
        figures: fn(&Cell, &Outcome) -> Vec<Figures>,
        metrics: &'static [Metric],
    ) -> Self {
        Part {
            key,
            title: title.into(),
            cells,
            figures,
            metrics,
            pooled: false,
            over: &[],
            targets: Vec::new(),
        }
    }
}

/// One run: an arm in a case.
pub struct Cell {
    pub case: Case,
    pub arm: Arm,
    /// From 0.
    pub round: u32,
    pub due: Vec<(&'static str, f64)>,
    pub scene: Scene,
}

impl Cell {
    /// A cell of an arm that is due nothing of its own.
    pub fn new(case: &Case, arm: Arm, round: u32, scene: Scene) -> Self {
        Cell {
            case: case.clone(),
            arm,
            round,
            due: Vec::new(),
            scene,
        }
    }

    pub fn due(mut self, name: &'static str, value: f64) -> Self {
        self.due.push((name, value));
        self
    }

    /// A number of the arm's or the case's, such as a cap; NaN if there is none of that name.
    pub fn given(&self, name: &str) -> f64 {
        if let Some(due) = self.due.iter().find(|d| d.0 == name) {
            return due.1;
        }
        let found = self.case.fields.iter().find(|f| f.0 == name);
        found.and_then(|f| f.1.as_f64()).unwrap_or(f64::NAN)
    }

    pub fn label(&self) -> String {
        let parts = [&self.case.group, &self.case.label, &self.arm.label];
        let words: Vec<&str> = parts.into_iter().map(String::as_str).collect();
        let words: Vec<&str> = words.into_iter().filter(|w| !w.is_empty()).collect();
        format!("{}, round {}", words.join(", "), self.round + 1)
    }
}

/// A point at which arms are compared, such as a load on a machine of one size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// Cases of a group share a table: `16 CPUs`.
    pub group: String,
    /// In tables: `load 1.4`.
    pub label: String,
    pub fields: Vec<(String, Value)>,
}

impl Case {
    pub fn new(group: impl Into<String>, label: impl Into<String>) -> Self {
        Case {
            group: group.into(),
            label: label.into(),
            fields: Vec::new(),
        }
    }

    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.fields.push((name.into(), value.into()));
        self
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Arm {
    pub key: String,
    pub label: String,
}

impl Arm {
    pub fn new(key: impl Into<String>, label: impl Into<String>) -> Self {
        Arm {
            key: key.into(),
            label: label.into(),
        }
    }
}

/// Named numbers of one run, in base units; NaN is not measured, infinity is never seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures(pub Vec<(String, f64)>);

impl Figures {
    pub fn with(mut self, name: &str, value: f64) -> Self {
        self.0.push((name.into(), value));
        self
    }

    /// Adds these statistics of a latency: `p99_us`, or `wakeup_p99_us` with the prefix `wakeup`.
    pub fn latency(mut self, prefix: &str, latency: &Latency, shown: &[&str]) -> Self {
        for name in shown {
            let full = match prefix {
                "" => format!("{name}_us"),
                _ => format!("{prefix}_{name}_us"),
            };
            self = self.with(&full, latency.statistic(name));
        }
        self
    }

    /// A figure by its name; NaN if there is none.
    pub fn get(&self, name: &str) -> f64 {
        let found = self.0.iter().find(|f| f.0 == name);
        found.map_or(f64::NAN, |f| f.1)
    }
}

/// Text, because JSON has neither infinity nor NaN.
impl Serialize for Figures {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(self.0.iter().map(|(name, value)| (name, value.to_string())))
    }
}

impl<'de> Deserialize<'de> for Figures {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let pairs = Vec::<(String, String)>::deserialize(d)?;
        let number = |text: String| text.parse().unwrap_or(f64::NAN);
        Ok(Figures(
            pairs.into_iter().map(|(n, v)| (n, number(v))).collect(),
        ))
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    pub part: String,
    pub case: Case,
    pub arm: Arm,
    /// From 0.
    pub round: u32,
    pub figures: Figures,
}

impl Sample {
    pub fn row(&self) -> Map<String, Value> {
        let mut row = Map::new();
        row.insert("part".into(), json!(self.part));
        row.extend(self.case.fields.iter().cloned());
        row.insert("arm".into(), json!(self.arm.key));
        row.insert("round".into(), json!(self.round + 1));
        let figures = self.figures.0.iter();
        row.extend(figures.map(|(name, value)| (name.clone(), rounded(*value))));
        row
    }
}

/// Ratios and CPUs keep six decimals, times three.
fn rounded(value: f64) -> Value {
    let scale = if value.abs() < 100.0 { 1e6 } else { 1e3 };
    match value.is_finite() {
        true => json!((value * scale).round() / scale),
        false => Value::Null,
    }
}

/// A column: a figure, as it is shown.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    pub name: &'static str,
    /// The column's head, with the unit that is shown.
    pub head: &'static str,
    /// Shown is the figure times this.
    pub scale: f64,
    pub digits: usize,
}

pub const fn metric(name: &'static str, head: &'static str, digits: usize) -> Metric {
    scaled(name, head, 1.0, digits)
}

pub const fn scaled(name: &'static str, head: &'static str, scale: f64, digits: usize) -> Metric {
    Metric {
        name,
        head,
        scale,
        digits,
    }
}

#[derive(Clone, Debug)]
pub enum Over {
    Itself,
    /// Its ratio to this arm's in the same case and round; the geometric mean of a case's rounds
    /// counts once.
    Arm(&'static str),
    /// Its ratio to the same arm's in the case with this label and group.
    Case(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    Median,
    Mean,
    Most,
    Least,
}

/// The bound of a target, in the unit that is shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    None,
    Most(f64),
    Least(f64),
    /// From the one to the other.
    Within(f64, f64),
}

/// A line of the headline: a figure over some samples, with its bound.
#[derive(Clone, Debug)]
pub struct Target {
    /// In words, with `{arm}` where the arm's label belongs.
    pub what: String,
    /// Keys of the arms that it is for, each with a line of its own.
    pub arms: Vec<String>,
    pub metric: Metric,
    pub over: Over,
    pub of: Of,
    /// Only cases for which this field has this value.
    pub cases: Option<(&'static str, Value)>,
    pub bound: Bound,
    pub published: Option<f64>,
    pub unit: &'static str,
}

impl Target {
    pub fn new(what: impl Into<String>, arms: &[&str], metric: Metric, unit: &'static str) -> Self {
        Target {
            what: what.into(),
            arms: arms.iter().map(|a| (*a).to_string()).collect(),
            metric,
            over: Over::Itself,
            of: Of::Median,
            cases: None,
            bound: Bound::None,
            published: None,
            unit,
        }
    }

    pub fn over(self, arm: &'static str) -> Self {
        Target {
            over: Over::Arm(arm),
            unit: "×",
            ..self
        }
    }

    pub fn over_case(self, label: &'static str) -> Self {
        Target {
            over: Over::Case(label),
            unit: "×",
            ..self
        }
    }

    pub fn of(self, of: Of) -> Self {
        Target { of, ..self }
    }

    pub fn cases(self, field: &'static str, value: impl Into<Value>) -> Self {
        Target {
            cases: Some((field, value.into())),
            ..self
        }
    }

    pub fn bound(self, bound: Bound) -> Self {
        Target { bound, ..self }
    }

    pub fn published(self, published: f64) -> Self {
        Target {
            published: Some(published),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_that_json_lacks_travel_as_text() {
        let figures = Figures::default()
            .with("never_us", f64::INFINITY)
            .with("lost_us", f64::NAN)
            .with("used_cpus", 1.5);
        let text = serde_json::to_string(&figures).expect("JSON");
        let back: Figures = serde_json::from_str(&text).expect("figures");
        assert_eq!(back.get("never_us"), f64::INFINITY);
        assert!(back.get("lost_us").is_nan() && back.get("none").is_nan());
        assert_eq!(back.get("used_cpus"), 1.5);
    }

    #[test]
    fn a_row_has_the_case_the_arm_and_the_figures() {
        let sample = Sample {
            part: "loads".into(),
            case: Case::new("16 CPUs", "load 1.4").with("load", 1.4),
            arm: Arm::new("cpu_idle", "cpu.idle"),
            round: 0,
            figures: Figures::default().with("p99_us", 2.000_000_49),
        };
        assert_eq!(
            json!(sample.row()),
            json!({"part": "loads", "load": 1.4, "arm": "cpu_idle", "round": 1, "p99_us": 2.0})
        );
    }
}
