//! Scenarios: from TOML text to one resolved description of a run. docs/scenarios.md explains every
//! key.
//!
//! ```text
//! file ──> TOML tree, flags laid over it ──> keys of each table (serde, ranges) ──> Scenario (checked)
//! ```
//!
//! Nothing is parsed again after this. The first mistake ends the reading.

mod builtin;
mod document;
mod engine;
mod groups;
mod machine;
mod patterns;
mod workloads;

use std::path::{Path, PathBuf};

use serde::Deserialize;
use tidegate_terms::{TimeSpan, quoted};
use toml::Spanned;

pub use builtin::{BUILTIN, Builtin};
pub use document::ScenarioError;
pub use engine::{Engine, EngineKind};
pub use groups::{Group, GroupRef};
pub use workloads::Workload;

use crate::Ns;
use crate::config::MachineConfig;
use crate::values::{any_time, long, number};
use document::{Document, refused};
use engine::EngineKeys;
use machine::MachineKeys;

#[derive(Clone, Debug)]
pub struct Scenario {
    /// The file's name without its ending, or the built-in scenario's name.
    pub name: String,
    /// One line on what it shows.
    pub about: String,
    /// How long it runs, with the warm-up.
    pub duration_ns: Ns,
    /// The first part, which is not measured.
    pub warmup_ns: Ns,
    /// Use of the groups is sampled this often.
    pub window_ns: Ns,
    /// The machine, with the seed.
    pub machine: MachineConfig,
    /// The groups, each after its parent.
    pub groups: Vec<Group>,
    pub workloads: Vec<Workload>,
    pub engine: Engine,
}

/// A value laid over the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// The key, with its tables, as in `group.web.weight`.
    pub key: String,
    pub value: String,
    /// The flag that said so, for messages and for the line that reproduces the run.
    pub flag: String,
}

impl Override {
    /// From `key=value`, as `--set` takes it.
    ///
    /// # Errors
    /// No `=`, or no key before it.
    pub fn from_assignment(text: &str) -> Result<Override, String> {
        match text.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                Ok(Override::new(key.trim(), value.trim()))
            }
            _ => Err(format!(
                "\"{}\" is not of the form key=value; write it as in group.web.weight=200",
                quoted(text)
            )),
        }
    }

    pub fn new(key: &str, value: &str) -> Override {
        Override {
            key: key.to_owned(),
            value: value.to_owned(),
            flag: format!("--set {key}={value}"),
        }
    }
}

/// A scenario's text, before it is read.
#[derive(Clone, Debug)]
pub struct Text {
    /// What messages call it: the path as given, or the built-in name.
    pub shown: String,
    /// Its name without folder and ending.
    pub name: String,
    pub text: String,
}

/// Why there is no scenario of this name.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Neither a built-in one nor a file.
    #[error("{shown}: no such scenario: it is neither built in nor a file; {remedy}")]
    Unknown { shown: String, remedy: String },
    /// A file that cannot be read.
    #[error("{path}: cannot be read: {source}; check the path and its permissions", path = path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    /// A file whose bytes are no text.
    #[error("{path}:{line}: not UTF-8; save the file as UTF-8 text", path = path.display())]
    Bytes {
        path: PathBuf,
        /// Of the first byte that is no text, from 1.
        line: usize,
    },
    #[error("{path}: is a folder; name the file in it", path = path.display())]
    Folder { path: PathBuf },
}

impl Text {
    /// A built-in scenario by its name, or a file by its path.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn load(asked: &str) -> Result<Text, LoadError> {
        if let Some(builtin) = BUILTIN.iter().find(|builtin| builtin.name == asked) {
            return Ok(Text {
                shown: asked.to_owned(),
                name: asked.to_owned(),
                text: builtin.text.to_owned(),
            });
        }
        let path = Path::new(asked);
        if !path.exists() && !asked.contains(['/', '.']) {
            let names: Vec<&str> = BUILTIN.iter().map(|builtin| builtin.name).collect();
            return Err(LoadError::Unknown {
                shown: quoted(asked),
                remedy: tidegate_terms::remedy_for_unknown(asked, &names),
            });
        }
        let text = read_text(path)?;
        let stem = path.file_stem().unwrap_or_default();
        Ok(Text {
            shown: asked.to_owned(),
            name: stem.to_string_lossy().into_owned(),
            text,
        })
    }
}

fn read_text(path: &Path) -> Result<String, LoadError> {
    let path_owned = || path.to_owned();
    if path.is_dir() {
        return Err(LoadError::Folder { path: path_owned() });
    }
    let bytes = std::fs::read(path).map_err(|source| LoadError::Read {
        path: path_owned(),
        source,
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
        LoadError::Bytes {
            path: path_owned(),
            line,
        }
    })
}

/// The keys at the top of the file.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct TopKeys {
    about: String,
    #[serde(deserialize_with = "long")]
    duration: Option<u64>,
    #[serde(deserialize_with = "any_time")]
    warmup: u64,
    #[serde(deserialize_with = "long")]
    window: Option<u64>,
    #[serde(deserialize_with = "number")]
    seed: Option<u64>,
}

impl Scenario {
    /// Reads a text, with flags laid over it, weakest first.
    ///
    /// # Errors
    /// The first mistake.
    pub fn resolve(text: &Text, overrides: &[Override]) -> Result<Scenario, ScenarioError> {
        let (document, mut tree) = Document::parse(text, overrides)?;
        let machine: MachineKeys = document.read_table(&mut tree, "machine")?;
        let engine: EngineKeys = document.read_table(&mut tree, "engine")?;
        let cpus = machine.cpus();
        let mut machine = machine.config()?;
        let engine_terms = engine.terms();
        let engine = engine.engine();
        let kind = engine.kind;
        let groups = groups::read(&document, &mut tree, &engine_terms, kind, cpus)?;
        let workloads = workloads::read(&document, &mut tree, &groups, kind, cpus)?;
        let top: TopKeys = document.read("scenario", Spanned::new(0..0, tree))?;
        machine.seed = top.seed.unwrap_or(1);
        let duration_ns = top.duration.unwrap_or(10_000_000_000);
        if top.warmup >= duration_ns {
            let duration = TimeSpan::from_nanos(duration_ns);
            let why = format!("nothing is left to measure of a run of {duration}; make it shorter");
            return refused("warmup", why);
        }
        Ok(Scenario {
            name: text.name.clone(),
            about: top.about,
            duration_ns,
            warmup_ns: top.warmup,
            window_ns: top.window.unwrap_or(100_000_000),
            machine,
            workloads,
            engine,
            groups,
        })
    }
}
