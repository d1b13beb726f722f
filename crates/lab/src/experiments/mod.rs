//! The experiments on a real kernel, and what they share.

pub mod burst;
pub mod burst_report;
pub mod caps;
pub mod caps_report;
pub mod caps_soft;
pub mod headroom;
pub mod headroom_players;
pub mod headroom_report;
pub mod latency;
pub mod latency_cells;
pub mod latency_report;
pub mod law;
pub mod law_ext;
pub mod law_report;
pub mod law_rows;
pub mod published;
pub mod slices;
pub mod slices_report;
pub mod step;
pub mod step_report;

use std::path::PathBuf;

use serde_json::{Map, Value, json};

use crate::arms::Placement;
use crate::cgroup::Hierarchy;
use crate::machine::Machine;
use crate::options::LabOptions;
use crate::proc::{Worker, WorkerPlan};
use crate::{LabError, tidegate};

/// What every experiment looks at first.
pub struct Setup {
    /// The command that is driven.
    pub exe: PathBuf,
    /// The cgroup tree, or why there is none to write.
    pub hierarchy: Result<Hierarchy, LabError>,
    /// ... to read from, which takes no rights.
    pub readable: Option<Hierarchy>,
    /// Recorded in the report.
    pub machine: Machine,
}

impl Setup {
    /// Looks.
    pub fn new(options: &LabOptions) -> Result<Self, LabError> {
        let hierarchy = Hierarchy::find();
        let mut machine = Machine::look();
        machine.cgroup = hierarchy.as_ref().ok().map(|h| if h.v2 { 2 } else { 1 });
        Ok(Setup {
            exe: tidegate::executable(options)?,
            hierarchy,
            readable: Hierarchy::locate(),
            machine,
        })
    }

    /// The tree, or the error that says what is missing.
    pub fn need_hierarchy(&self) -> Result<&Hierarchy, LabError> {
        self.hierarchy.as_ref().map_err(|e| LabError::Needs {
            what: "this experiment".into(),
            why: e.to_string(),
            mend:
                "without groups only `tidegate lab headroom` can run, with the arms that need none"
                    .into(),
        })
    }
}

/// Starts the burner as side work: one thread a CPU, always wanting more.
pub fn start_burner(
    setup: &Setup,
    placement: &Placement<'_>,
    threads: usize,
) -> Result<Worker, LabError> {
    let plan = WorkerPlan {
        exe: &setup.exe,
        kind: "burner",
        args: Vec::new(),
        threads,
    };
    Worker::start(&plan, &placement.side_join(), &|words| {
        placement.side_command(words)
    })
}

/// Starts main work that holds `level_ppm` of each CPU.
pub fn start_constant(
    setup: &Setup,
    placement: &Placement<'_>,
    level_ppm: u32,
) -> Result<Worker, LabError> {
    let plan = WorkerPlan {
        exe: &setup.exe,
        kind: "constant",
        args: vec!["--level".into(), level_ppm.to_string()],
        threads: setup.machine.cpus,
    };
    Worker::start(&plan, &placement.main_join(), &|words| {
        placement.main_command(words)
    })
}

/// Above this much for other programs, percent of the machine, a measurement is theirs as much as ours.
pub const LOUD_PCT: f64 = 10.0;

/// Mean work of a request of the built-in server.
pub const SERVICE_US: f64 = 1000.0;

/// Starts the open-loop server as main, offered `share` of the machine.
pub fn start_server(
    setup: &Setup,
    placement: &Placement<'_>,
    share: f64,
    steps_per_ms: u64,
    seed: u64,
) -> Result<Worker, LabError> {
    let cpus = setup.machine.cpus;
    let per_second = share * cpus as f64 * 1e6 / SERVICE_US;
    let args = [
        ("--per-second", per_second.to_string()),
        ("--service-us", SERVICE_US.to_string()),
        ("--steps-per-ms", steps_per_ms.to_string()),
        ("--seed", seed.to_string()),
    ];
    let plan = WorkerPlan {
        exe: &setup.exe,
        kind: "server",
        args: args
            .into_iter()
            .flat_map(|(name, value)| [name.to_string(), value])
            .collect(),
        threads: 2 * cpus,
    };
    Worker::start(&plan, &placement.main_join(), &|words| {
        placement.main_command(words)
    })
}

/// A row of the report from a JSON object; anything else would be a mistake of ours and gives an
/// empty row.
pub fn row(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// A number for JSON: rounded to three decimals, `null` where it is not finite.
pub fn num(value: f64) -> Value {
    if value.is_finite() {
        json!((value * 1000.0).round() / 1000.0)
    } else {
        Value::Null
    }
}
