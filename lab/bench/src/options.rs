//! What the command line asks of the lab.

use std::path::PathBuf;

use crate::experiment::Experiment;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    Host,
    Vm,
    /// A simulated machine.
    Sim,
}

impl On {
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
            engine: Engine::Knobs,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_command_line_are_read() {
        assert_eq!("ext".parse(), Ok(Engine::Ext));
        assert!("fair".parse::<Engine>().is_err());
        assert!("cloud".parse::<On>().is_err());
        assert_eq!("usage".parse(), Ok(Sense::Usage));
    }
}
