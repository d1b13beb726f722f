//! An experiment is a value: a question, and parts of cells, metrics and targets. A runner for each
//! environment turns a cell's [`Scene`] into an [`Outcome`]; one report is made of all samples.
//!
//! To add an experiment, write its value in a file of [`crate::experiments`] and name it in
//! [`crate::experiments::ALL`].

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::path::PathBuf;

use crate::LabError;
use crate::options::On;
use crate::scene::{Latency, Outcome, Scene};

pub struct Experiment {
    pub name: &'static str,
    pub question: &'static str,
    pub places: &'static [On],
    /// Its parts, for what the user asked.
    pub parts: fn(&Ask<'_>) -> Result<Vec<Part>, LabError>,
    pub notes: &'static [&'static str],
}

/// Options of every experiment
#[derive(Clone, clap::Args)]
pub struct LabOptions {
    /// The subcommand.
    #[arg(skip)]
    pub experiment: Option<&'static Experiment>,
    /// Where: this machine, a stock kernel in virtual time, or simulated
    #[arg(long, value_name = "WHERE", value_enum, default_value_t = On::Host)]
    pub on: On,
    /// Under a minute: shorter windows, fewer rounds
    #[arg(long)]
    pub quick: bool,
    /// Repeat each arm this often
    #[arg(long, value_name = "N")]
    pub rounds: Option<u32>,
    /// Write the page and JSON into this folder [default: ./tidegate-lab]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Seed of every random choice
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// --on sim: sizes of the simulated machine [default: the experiment's own]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub cpus: Option<Vec<u32>>,
    /// --on sim: simulate on this many threads [default: one a CPU]
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,
    /// --on vm: the kernel's series [default: 6.18]
    #[arg(long, value_name = "SERIES")]
    pub kernel: Option<String>,
    /// Write the whole report too, for the host of this guest
    #[arg(long, hide = true)]
    pub serialise: bool,
    /// No progress on standard error
    #[arg(short, long)]
    pub quiet: bool,
}

impl LabOptions {
    /// The defaults of the command line.
    pub fn new(experiment: &'static Experiment) -> Self {
        #[derive(clap::Parser)]
        struct Command {
            #[command(flatten)]
            options: LabOptions,
        }
        let command: Command = clap::Parser::parse_from([""]);
        LabOptions {
            experiment: Some(experiment),
            ..command.options
        }
    }

    /// The experiment of the subcommand.
    ///
    /// # Panics
    /// The options are of no subcommand.
    pub fn experiment(&self) -> &'static Experiment {
        self.experiment.expect("a subcommand names an experiment")
    }

    pub fn out_dir(&self) -> PathBuf {
        self.out
            .clone()
            .unwrap_or_else(|| PathBuf::from("tidegate-lab"))
    }

    /// The words of the options that change figures.
    pub fn words(&self) -> Vec<String> {
        let list = |cpus: &Vec<u32>| {
            let words: Vec<String> = cpus.iter().map(u32::to_string).collect();
            words.join(",")
        };
        let valued = [
            ("--seed", Some(self.seed.to_string())),
            ("--cpus", self.cpus.as_ref().map(list)),
            ("--rounds", self.rounds.map(|rounds| rounds.to_string())),
        ];
        let words = valued
            .into_iter()
            .filter_map(|(name, value)| Some([name.into(), value?]));
        let words = words.flatten();
        words.chain(self.quick.then(|| "--quick".into())).collect()
    }
}

/// What the user asked, and the machine that runs it.
pub struct Ask<'a> {
    pub options: &'a LabOptions,
    /// CPUs of the machine under test; experiments on the simulator choose their own.
    pub cpus: u32,
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
            targets: Vec::new(),
        }
    }

    /// One row for each arm.
    pub fn pooled(mut self) -> Self {
        self.pooled = true;
        self
    }

    pub fn targets(mut self, targets: impl IntoIterator<Item = Target>) -> Self {
        self.targets.extend(targets);
        self
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
        let due = self.due.iter().find(|due| due.0 == name);
        due.map_or_else(|| self.case.given(name), |due| due.1)
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

    /// A field's number; NaN if there is none of that name.
    pub fn given(&self, name: &str) -> f64 {
        let found = self.fields.iter().find(|field| field.0 == name);
        found.and_then(|field| field.1.as_f64()).unwrap_or(f64::NAN)
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

/// Ratios and CPUs keep six decimals, times three; what is not finite is null.
fn rounded(value: f64) -> Value {
    let scale = if value.abs() < 100.0 { 1e6 } else { 1e3 };
    json!((value * scale).round() / scale)
}

/// The time that a load took to do its work.
pub fn elapsed(_: &Cell, o: &Outcome) -> Vec<Figures> {
    vec![Figures::default().with("elapsed_seconds", o.extra("elapsed_seconds"))]
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

    pub fn over(mut self, arm: &'static str) -> Self {
        (self.over, self.unit) = (Over::Arm(arm), "×");
        self
    }

    pub fn over_case(mut self, label: &'static str) -> Self {
        (self.over, self.unit) = (Over::Case(label), "×");
        self
    }

    pub fn of(mut self, of: Of) -> Self {
        self.of = of;
        self
    }

    pub fn cases(mut self, field: &'static str, value: impl Into<Value>) -> Self {
        self.cases = Some((field, value.into()));
        self
    }

    pub fn bound(mut self, bound: Bound) -> Self {
        self.bound = bound;
        self
    }

    pub fn published(mut self, published: f64) -> Self {
        self.published = Some(published);
        self
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
