//! What the command line asks of the lab.

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
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// The kernel's own scheduler, moved by its files.
    #[default]
    Cgroup,
    /// Tidegate's own scheduler in the kernel, with the kernel's own and the cgroup engine beside it.
    SchedExt,
}

impl Engine {
    pub fn name(self) -> &'static str {
        match self {
            Engine::Cgroup => "cgroup",
            Engine::SchedExt => "sched_ext",
        }
    }
}

impl std::str::FromStr for Engine {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "cgroup" => Ok(Engine::Cgroup),
            "sched_ext" => Ok(Engine::SchedExt),
            other => Err(format!("unknown engine '{other}': cgroup or sched_ext")),
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
    /// As `tidegate agent run --sense` takes it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_command_line_are_read() {
        assert_eq!("sched_ext".parse(), Ok(Engine::SchedExt));
        assert!("fair".parse::<Engine>().is_err());
        assert!("cloud".parse::<On>().is_err());
        assert_eq!("usage".parse(), Ok(Sense::Usage));
    }
}
