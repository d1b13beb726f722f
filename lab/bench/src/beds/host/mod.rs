//! This machine: the groups, the processes and the clocks that an experiment drives and reads.

pub mod arms;
pub mod cgroup;
pub mod cleanup;
pub mod foreign;
pub mod group_clock;
pub mod machine;
pub mod nginx;
pub mod proc;
pub mod samplers;
pub mod scheduler;
pub mod tidegate;

use std::path::PathBuf;

use self::arms::Placement;
use self::cgroup::Hierarchy;
use self::machine::Machine;
use self::proc::{Worker, WorkerPlan};
use crate::LabError;
use crate::options::LabOptions;

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

/// What was measured; what failed is told in the report, and what ends the run ends it.
pub fn kept<T>(
    made: Result<T, LabError>,
    name: &str,
    missing: &mut Vec<String>,
) -> Result<Option<T>, LabError> {
    match made {
        Err(e @ (LabError::Interrupted | LabError::Needs { .. })) => Err(e),
        Err(e) => {
            missing.push(format!("{name} was left out: {e}."));
            Ok(None)
        }
        Ok(one) => Ok(Some(one)),
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
