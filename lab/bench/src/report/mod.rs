//! What an experiment found, and its three forms: tables on the terminal, one HTML page and JSON.

pub mod build;
mod html;
pub mod plots;
pub(crate) mod text;

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Map, Value};

use crate::LabError;
use crate::machine::Machine;

pub(crate) fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('"', "&quot;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

/// One measured figure with the published one and its target.
#[derive(Clone, Debug, Serialize)]
pub struct Headline {
    pub name: String,
    #[serde(serialize_with = "rounded")]
    pub value: f64,
    pub unit: String,
    pub published: Option<f64>,
    pub target: Option<String>,
    /// Absent without a target, or if it cannot be judged here.
    pub met: Option<bool>,
    /// 95 % interval of the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval95: Option<(f64, f64)>,
}

/// To three decimals. JSON has no infinity: an event that was not seen to happen is `null`.
fn rounded<S: serde::Serializer>(value: &f64, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_f64((value * 1000.0).round() / 1000.0)
}

impl Headline {
    pub fn new(name: &str, value: f64, unit: &str) -> Self {
        Headline {
            name: name.into(),
            value,
            unit: unit.into(),
            published: None,
            target: None,
            met: None,
            interval95: None,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Table {
    pub title: String,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(title: &str, columns: &[&str]) -> Self {
        Table {
            title: title.into(),
            columns: columns.iter().map(|c| (*c).to_string()).collect(),
            rows: Vec::new(),
        }
    }

    pub fn push(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Subject {
    pub name: String,
    pub about: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub experiment: &'static str,
    /// Where: `host`, `vm` or `sim`.
    pub on: &'static str,
    #[serde(skip)]
    pub title: &'static str,
    /// What was run, when it was no experiment of the lab.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scenario: Option<Subject>,
    #[serde(serialize_with = "with_line")]
    pub machine: Machine,
    pub rows: Vec<Map<String, Value>>,
    pub headline: Vec<Headline>,
    pub notes: Vec<String>,
    #[serde(skip)]
    pub tables: Vec<Table>,
    #[serde(skip)]
    pub plots: Vec<plots::Plot>,
    #[serde(skip)]
    files: Vec<PathBuf>,
}

/// The machine's facts, and all of them in one line.
fn with_line<S: serde::Serializer>(machine: &Machine, s: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Lined<'a> {
        #[serde(flatten)]
        machine: &'a Machine,
        line: String,
    }
    let line = machine.line();
    Lined { machine, line }.serialize(s)
}

impl Report {
    pub fn new(experiment: &'static str, machine: Machine) -> Self {
        Report {
            experiment,
            on: machine.on().name(),
            title: experiment,
            scenario: None,
            machine,
            rows: Vec::new(),
            headline: Vec::new(),
            notes: Vec::new(),
            tables: Vec::new(),
            plots: Vec::new(),
            files: Vec::new(),
        }
    }

    pub fn to_text(&self) -> String {
        text::render(self)
    }

    /// The whole report for programs; plots are left out.
    pub fn to_json(&self) -> String {
        // A report holds maps with text keys, numbers and text: nothing that JSON refuses.
        serde_json::to_string_pretty(self).unwrap_or_else(|e| format!("{{\"error\":\"{e}\"}}"))
    }

    /// One page with everything, that loads nothing from elsewhere.
    pub fn to_html(&self) -> String {
        html::render(self)
    }

    /// The page and the JSON that were written.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// A simulated report may stand beside the host's in one folder.
    fn file_stem(&self) -> String {
        let name = self.experiment;
        match (&self.scenario, &self.machine) {
            (Some(scenario), _) => scenario.name.clone(),
            (None, Machine::Host(_)) => name.into(),
            (None, Machine::Simulated(_)) => format!("{name}-sim"),
            (None, Machine::Guest(guest)) => format!("{name}-vm-{}", guest.series),
        }
    }

    pub(crate) fn command(&self) -> String {
        match &self.scenario {
            Some(scenario) => format!("tidegate-lab sim {}", scenario.name),
            None => format!("tidegate-lab {}", self.experiment),
        }
    }

    /// Writes the two files into `dir`, which is made.
    pub fn write_files(&mut self, dir: &Path) -> Result<(), LabError> {
        make_folder(dir)?;
        let json = self.to_json() + "\n";
        for (kind, text) in [("html", self.to_html()), ("json", json)] {
            let path = dir.join(format!("{}.{kind}", self.file_stem()));
            match std::fs::write(&path, text) {
                Ok(()) => self.files.push(path),
                Err(source) => return Err(LabError::Report { path, source }),
            }
        }
        Ok(())
    }
}

/// Makes the folder that a report will be written into and tries it: asked before the work, so that
/// minutes of it are not lost.
///
/// # Errors
/// It cannot be made, or nothing can be written there.
pub fn make_folder(dir: &Path) -> Result<(), LabError> {
    let probe = dir.join(format!(".tidegate-{}", std::process::id()));
    std::fs::create_dir_all(dir)
        .and_then(|()| std::fs::write(&probe, ""))
        .and_then(|()| std::fs::remove_file(&probe))
        .map_err(|source| LabError::Report {
            path: dir.to_owned(),
            source,
        })
}
