//! Scenarios: from TOML text to one resolved description of a run. docs/scenarios.md explains every key.
//!
//! ```text
//! file ──> tree (texts and their lines) ──> flags laid over it ──> Scenario (typed, ranges checked)
//! ```
//!
//! Nothing is parsed again after this. Everything that is wrong is told at once, each with its line and its mend.

mod builtin;
mod engine;
mod error;
mod groups;
mod kinds;
mod listed;
mod machine;
mod patterns;
mod read;
mod tree;
mod workloads;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_terms::TimeSpan;

pub use builtin::{BUILTIN, Builtin};
pub use engine::{Engine, EngineKind};
pub use error::{Place, ScenarioError, ScenarioErrors};
pub use groups::{Group, GroupRef};
pub use workloads::Workload;

use crate::Ns;
use crate::config::MachineConfig;
use read::{Findings, Section};
use tree::{Node, Table};

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
                tidegate_terms::quoted(text)
            )),
        }
    }

    /// A key and its value.
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
    /// Where files that it names are looked for.
    pub folder: Option<PathBuf>,
}

/// Why there is no scenario of this name.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Neither a built-in one nor a file.
    #[error("{shown}: no such scenario: it is neither built in nor a file; {mend}")]
    Unknown { shown: String, mend: String },
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
                folder: None,
            });
        }
        let path = Path::new(asked);
        if !path.exists() && !asked.contains(['/', '.']) {
            let names: Vec<&str> = BUILTIN.iter().map(|builtin| builtin.name).collect();
            return Err(LoadError::Unknown {
                shown: tidegate_terms::quoted(asked),
                mend: tidegate_terms::mend_for_unknown(asked, &names),
            });
        }
        let text = read_text(path)?;
        let stem = path.file_stem().unwrap_or_default();
        Ok(Text {
            shown: asked.to_owned(),
            name: stem.to_string_lossy().into_owned(),
            text,
            folder: Some(path.parent().unwrap_or(Path::new("")).to_owned()),
        })
    }

    /// A file that the scenario names.
    fn file(&self, name: &str) -> Result<String, String> {
        match &self.folder {
            Some(folder) => {
                std::fs::read_to_string(folder.join(name)).map_err(|error| error.to_string())
            }
            None => builtin::file(name).map(str::to_owned),
        }
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

const TOP: &[&str] = &[
    "about",
    "duration",
    "warmup",
    "window",
    "seed",
    "machine",
    "scheduler",
    "engine",
    "group",
    "workload",
];

/// Tables that a flag may begin: they have one meaning and defaults for all keys.
const FIXED: &[&str] = &["machine", "scheduler", "engine"];

impl Scenario {
    /// Reads a text, with flags laid over it, weakest first.
    ///
    /// # Errors
    /// All that is wrong, each with its place and its mend.
    pub fn resolve(text: &Text, overrides: &[Override]) -> Result<Scenario, ScenarioErrors> {
        let file: Arc<str> = text.shown.as_str().into();
        let mut tree =
            Table::parse(&file, &text.text).map_err(|error| ScenarioErrors(vec![error]))?;
        let findings = Findings::default();
        for one in overrides {
            let place = Place::Flag(one.flag.as_str().into());
            if let Err(error) = tree.lay(&one.key, &one.value, &place, FIXED) {
                findings.add(error);
            }
        }
        let scenario = read(text, &tree, &findings);
        match findings.into_vec() {
            found if found.is_empty() => Ok(scenario),
            found => Err(ScenarioErrors(found)),
        }
    }
}

fn read(text: &Text, tree: &Table, findings: &Findings) -> Scenario {
    let empty = Table {
        place: tree.place.clone(),
        entries: Vec::new(),
    };
    let table = |name: &str| match tree.get(name) {
        Some(Node::Table(table)) => table,
        Some(Node::Leaf(leaf)) => {
            findings.add(ScenarioError {
                key: name.to_owned(),
                place: leaf.place.clone(),
                why: "a value, where a table is expected".into(),
                mend: format!("write [{name}] and its keys below"),
            });
            &empty
        }
        None => &empty,
    };
    let mut machine = machine::read(table("machine"), table("scheduler"), findings);
    let cpus = machine.topology.cpus();
    let top = Section::new(tree, "", &[TOP], findings, cpus);
    machine.seed = top.seed("seed").unwrap_or(1);
    let duration_ns = top
        .time("duration", TimeSpan::from_millis(1), read::TIME_MAX)
        .unwrap_or(10_000_000_000);
    let warmup_ns = top.any_time("warmup").unwrap_or(0);
    if warmup_ns >= duration_ns {
        let why = format!(
            "nothing is left to measure of a run of {}",
            TimeSpan::from_nanos(duration_ns)
        );
        top.refuse_key("warmup", why, "make it shorter than the duration");
    }
    let window_ns = top
        .time("window", TimeSpan::from_millis(1), TimeSpan::from_secs(60))
        .unwrap_or(100_000_000);
    let mut groups = groups::read(table("group"), findings, cpus);
    let workloads = workloads::read(text, table("workload"), &groups, findings, cpus);
    if table("workload").entries.is_empty() {
        let why = "the scenario has none".into();
        top.refuse_key("workload", why, "add one, as in [workload.web]");
    }
    let engine = engine::read(table("engine"), findings, cpus, &mut groups);
    Scenario {
        name: text.name.clone(),
        about: top.text("about").unwrap_or_default(),
        duration_ns,
        warmup_ns,
        window_ns,
        machine,
        groups,
        workloads,
        engine,
    }
}

/// Every key of every table, for pages and tests that must name them all.
pub fn keys() -> Vec<(&'static str, &'static str)> {
    let mut all = Vec::new();
    let tables: [(&str, &[&[&str]]); 5] = [
        ("", &[TOP]),
        (
            "machine",
            &[machine::MACHINE, machine::CONTENTION, machine::COSTS],
        ),
        ("scheduler", &[machine::EEVDF, machine::CFS]),
        ("engine", &[engine::KEYS]),
        ("group", &[groups::KEYS]),
    ];
    for (table, keys) in tables {
        all.extend(keys.concat().into_iter().map(|key| (table, key)));
    }
    all.extend(workloads::KEYS.iter().map(|key| ("workload", *key)));
    for row in kinds::ROWS {
        all.extend(row.keys.concat().into_iter().map(|key| (row.name, key)));
    }
    all
}
