//! What the command line asks of the lab.

use std::path::PathBuf;

/// The experiments of this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Experiment {
    /// Main constant at 30…80 % of the machine: what side gets and what stays idle.
    Law,
    /// Main's latency at several loads, with side work placed in several ways.
    Headroom,
    /// Main steps from 10 to 80 % of the machine: how soon side work gives way.
    Step,
    /// Latency hints: cyclictest beside hackbench.
    Latency,
    /// A quota with burst under a load that exceeds it in some periods.
    Burst,
    /// Slices of a quota on many CPUs, that expire and that do not.
    Slices,
    /// Rate caps on tasks: how exact, and what a fork storm makes of them.
    Caps,
    /// Headroom that is asked for, and headroom that is found from main's run delay.
    Objective,
    /// Main waits for a lock that side work holds.
    Inversion,
    /// Ordinary work under other schedulers of sched_ext.
    Peers,
}

/// Where an experiment runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// This machine.
    Host,
    /// A stock kernel in the VM bed, in virtual time.
    Vm,
    /// A simulated machine.
    Sim,
}

impl On {
    /// As the command line has it.
    pub fn name(self) -> &'static str {
        match self {
            On::Host => "host",
            On::Vm => "vm",
            On::Sim => "sim",
        }
    }
}

impl std::str::FromStr for On {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "host" => Ok(On::Host),
            "vm" => Ok(On::Vm),
            "sim" => Ok(On::Sim),
            other => Err(format!("unknown place '{other}': host, vm or sim")),
        }
    }
}

/// Which of Tidegate's engines is under test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// The kernel's own scheduler, moved by its files.
    #[default]
    Knobs,
    /// Tidegate's own scheduler in the kernel, with the kernel's own and the knobs beside it.
    Ext,
}

impl Engine {
    /// As the command line has it.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Knobs => "knobs",
            Engine::Ext => "ext",
        }
    }
}

impl std::str::FromStr for Engine {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "knobs" => Ok(Engine::Knobs),
            "ext" => Ok(Engine::Ext),
            other => Err(format!("unknown engine '{other}': knobs or ext")),
        }
    }
}

impl Experiment {
    /// Every experiment; `tidegate lab all` runs those that [`Experiment::all_on`] names, in this order.
    pub const ALL: [Experiment; 10] = [
        Experiment::Law,
        Experiment::Step,
        Experiment::Headroom,
        Experiment::Latency,
        Experiment::Burst,
        Experiment::Slices,
        Experiment::Caps,
        Experiment::Objective,
        Experiment::Inversion,
        Experiment::Peers,
    ];

    /// The name on the command line and of the report's files.
    pub fn name(self) -> &'static str {
        match self {
            Experiment::Law => "law",
            Experiment::Headroom => "headroom",
            Experiment::Step => "step",
            Experiment::Latency => "latency",
            Experiment::Burst => "burst",
            Experiment::Slices => "slices",
            Experiment::Caps => "caps",
            Experiment::Objective => "objective",
            Experiment::Inversion => "inversion",
            Experiment::Peers => "peers",
        }
    }

    /// Every name, for messages.
    pub fn names() -> String {
        let names: Vec<&str> = Experiment::ALL.iter().map(|e| e.name()).collect();
        names.join(", ")
    }
}

impl std::str::FromStr for Experiment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Experiment::ALL
            .into_iter()
            .find(|e| e.name() == text)
            .ok_or_else(|| format!("unknown experiment '{text}': {}", Experiment::names()))
    }
}

/// Which sensor Tidegate's agent is told to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sense {
    /// BPF run-time accounting, windows of 5 ms.
    Bpf,
    /// Group usage files, windows of 50 ms.
    Usage,
}

impl Sense {
    /// As `tidegate agent --sense` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Sense::Bpf => "bpf",
            Sense::Usage => "usage",
        }
    }
}

impl std::str::FromStr for Sense {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "bpf" => Ok(Sense::Bpf),
            "usage" => Ok(Sense::Usage),
            other => Err(format!("unknown sensor '{other}': bpf or usage")),
        }
    }
}

/// One run of one experiment. `LabOptions::new(Experiment::Law)` has every default.
#[derive(Clone, Debug)]
pub struct LabOptions {
    /// Which experiment.
    pub experiment: Experiment,
    /// Where.
    pub on: On,
    /// Which engine.
    pub engine: Engine,
    /// Under a minute in all (two for those of bounds and hints): shorter windows, fewer rounds.
    pub quick: bool,
    /// How often each arm is repeated; the experiment's default when absent.
    pub rounds: Option<u32>,
    /// Where the page, the CSV and the JSON go; `./tidegate-lab` when absent.
    pub out: Option<PathBuf>,
    /// A command as main instead of the built-in server (`headroom` on the host); see
    /// [`crate::beds::host::foreign`].
    pub main_cmd: Option<String>,
    /// A command as side instead of ffmpeg or the burner (`headroom` on the host).
    pub side_cmd: Option<String>,
    /// Load levels instead of the cpu.headroom patches' 1.0…1.6 (`headroom`); level 1.0 is 25 % of the machine.
    pub loads: Option<Vec<f64>>,
    /// The sensor of Tidegate's arms; `step` runs both when absent, the others the best there is.
    pub sense: Option<Sense>,
    /// Neither build nor run the schedulers of others (`peers`).
    pub without_peers: bool,
    /// The program of that name, of Chris Mason's; looked for on the PATH when absent (`peers`).
    pub schbench: Option<PathBuf>,
    /// Sizes of the simulated machine, or of the guest (`peers`); the experiment's own when absent.
    pub cpus: Option<Vec<u32>>,
    /// Threads that simulate side by side; one a CPU when absent. What is found does not depend on
    /// it.
    pub jobs: Option<usize>,
    /// The kernel series of the VM bed; [`crate::beds::vm::SERIES`] when absent.
    pub kernel: Option<String>,
    /// Write the whole report as well, drawings and all, for the host of this guest.
    pub serialise: bool,
    /// Seed of every random choice (arrivals, order of arms).
    pub seed: u64,
    /// The `tidegate` command to drive; this very executable when absent.
    pub tidegate: Option<PathBuf>,
    /// No progress shown.
    pub quiet: bool,
}

impl LabOptions {
    /// Every default.
    pub fn new(experiment: Experiment) -> Self {
        LabOptions {
            experiment,
            on: On::Host,
            engine: Engine::Knobs,
            quick: false,
            rounds: None,
            out: None,
            main_cmd: None,
            side_cmd: None,
            loads: None,
            sense: None,
            without_peers: false,
            schbench: None,
            cpus: None,
            jobs: None,
            kernel: None,
            serialise: false,
            seed: 1,
            tidegate: None,
            quiet: false,
        }
    }

    /// Where the files go.
    pub fn out_dir(&self) -> PathBuf {
        self.out
            .clone()
            .unwrap_or_else(|| PathBuf::from("tidegate-lab"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_is_known_by_its_name() {
        for e in Experiment::ALL {
            assert_eq!(e.name().parse(), Ok(e));
            let is_simulated = e.runs_on(On::Sim, Engine::Knobs);
            assert_eq!(is_simulated, e != Experiment::Peers, "{}", e.name());
            assert!(!e.runs_on(On::Sim, Engine::Ext), "{}", e.name());
        }
        assert_eq!(Experiment::all_on(On::Host, Engine::Knobs).count(), 7);
        assert_eq!(Experiment::all_on(On::Vm, Engine::Knobs).count(), 4);
        assert_eq!(Experiment::all_on(On::Vm, Engine::Ext).count(), 7);
        assert_eq!("ext".parse(), Ok(Engine::Ext));
        assert!("fair".parse::<Engine>().is_err());
        assert!("cloud".parse::<On>().is_err());
    }
}
