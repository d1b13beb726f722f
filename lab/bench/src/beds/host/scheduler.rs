//! The ext engine as a user has it: an agent with `--engine ext`, for as long as one arm of an experiment runs.
//! Before and after it the kernel's own scheduler has the machine, so that both are in one report of one boot.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::cgroup::{Bandwidth, Group, Hierarchy};
use super::tidegate::Tidegate;
use crate::{LabError, clock, stop};

const STATE: &str = "/sys/kernel/sched_ext/state";
const LOADED: &str = "/sys/kernel/sched_ext/root/ops";
/// The scheduler's name in the kernel.
const NAME: &str = "tidegate";
/// Verifying takes seconds on one emulated CPU, and over a minute on several, of which each has a part of the speed.
pub const LOAD_LIMIT_S: u64 = 240;

/// Whether this kernel can load a scheduler at all.
pub fn supported() -> Result<(), LabError> {
    if Path::new(STATE).exists() {
        return Ok(());
    }
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Err(LabError::Needs {
        what: "the ext engine".into(),
        why: format!("this kernel ({}) has no sched_ext", release.trim()),
        mend: "give --on vm, or boot a kernel from 6.12 with CONFIG_SCHED_CLASS_EXT".into(),
    })
}

fn state() -> String {
    let text = fs::read_to_string(STATE).unwrap_or_default();
    text.trim().to_string()
}

/// The scheduler of sched_ext that is in force, by its name in the kernel.
pub fn loaded() -> Option<String> {
    let name = fs::read_to_string(LOADED).ok()?;
    (state() == "enabled").then(|| name.trim().to_string())
}

fn in_force() -> bool {
    loaded().is_some_and(|name| name == NAME)
}

/// A scheduler that is in force until it is dropped.
pub struct Scheduler {
    agent: Tidegate,
}

impl Scheduler {
    /// Starts an agent with these gates and waits until its scheduler is in force.
    pub fn start(exe: &Path, gates: &[(&Group, &str)]) -> Result<Self, LabError> {
        supported()?;
        let agent = Tidegate::start_with(exe, &["--engine", "ext"])?;
        // The kernel still checks the programs: from the first task on, side work is side work.
        for (group, terms) in gates {
            agent.set(&format!("cgroup:/{}", group.name()), terms)?;
        }
        let scheduler = Scheduler { agent };
        let until = clock::monotonic_ns() + LOAD_LIMIT_S * 1_000_000_000;
        while !in_force() {
            if clock::monotonic_ns() > until {
                let ext = scheduler.ext()?;
                let why = format!("is not in force after {LOAD_LIMIT_S} s: {}", ext["off"]);
                return Err(LabError::process("the ext engine", why));
            }
            stop::sleep_ns(20_000_000)?;
        }
        Ok(scheduler)
    }

    /// What its agent says of it.
    fn ext(&self) -> Result<Value, LabError> {
        Ok(self.agent.status()?["ext"].take())
    }

    /// An error where it was ejected: what was measured meanwhile was measured under another scheduler.
    pub fn still_in_force(&self) -> Result<(), LabError> {
        let ext = self.ext()?;
        if ext["on"] == true && ext["ends"] == 0 {
            return Ok(());
        }
        let why = format!(
            "was ejected meanwhile: {}: {}",
            ext["last_reason"], ext["last_message"]
        );
        Err(LabError::process("the ext engine", why))
    }

    /// Its agent's process.
    pub fn pid(&self) -> i32 {
        self.agent.agent_pid()
    }

    /// What it has counted of all limits; `limit` is what the group's own files tell.
    pub fn bandwidth(&self, limit: Bandwidth) -> Bandwidth {
        self.ext()
            .map_or(limit, |ext| counted(&ext["quotas"], limit))
    }
}

/// One scheduler for all those cells of an experiment that need one, and the groups that its gates name: a start takes
/// half a minute of the emulator's CPU (the programs are verified), and gates are given at the start.
pub struct Shared {
    exe: PathBuf,
    /// Declared first: it lets go of the groups before they go.
    running: Option<Scheduler>,
    groups: Vec<(String, Group)>,
}

impl Shared {
    /// A group for each of these terms; none are terms too, of a group without a gate. Nothing is loaded yet.
    pub fn new(exe: &Path, h: &Hierarchy, terms: Vec<String>) -> Result<Self, LabError> {
        let made = |(at, terms): (usize, String)| {
            let group = Group::create(h, &format!("gate{at}"))?;
            Ok((terms, group))
        };
        Ok(Shared {
            exe: exe.to_path_buf(),
            running: None,
            groups: terms
                .into_iter()
                .enumerate()
                .map(made)
                .collect::<Result<_, LabError>>()?,
        })
    }

    /// Itself, in force, where `wanted`; else the kernel's own scheduler has the machine again.
    pub fn get(&mut self, wanted: bool) -> Result<Option<&Shared>, LabError> {
        if !wanted {
            self.running = None;
            return Ok(None);
        }
        if self.running.is_none() {
            let gates: Vec<(&Group, &str)> = self
                .groups
                .iter()
                .filter(|(terms, _)| !terms.is_empty())
                .map(|(terms, group)| (group, terms.as_str()))
                .collect();
            self.running = Some(Scheduler::start(&self.exe, &gates)?);
        }
        Ok(Some(self))
    }

    /// The group with these terms.
    pub fn group(&self, terms: &str) -> Result<&Group, LabError> {
        let found = self.groups.iter().find(|(own, _)| own == terms);
        let missing = || LabError::process("the scheduler's gates", format!("none has '{terms}'"));
        found.map(|(_, group)| group).ok_or_else(missing)
    }

    /// The scheduler, where it is in force.
    pub fn scheduler(&self) -> Option<&Scheduler> {
        self.running.as_ref()
    }

    /// An error where it was ejected meanwhile.
    pub fn still_in_force(&self) -> Result<(), LabError> {
        self.running
            .as_ref()
            .map_or(Ok(()), Scheduler::still_in_force)
    }
}

/// What the scheduler has counted of all limits, with the limit that the kernel's own files tell.
fn counted(quotas: &Value, limit: Bandwidth) -> Bandwidth {
    let count = |name: &str| quotas[name].as_u64().unwrap_or(0);
    let throttled_s = quotas["throttled_seconds"].as_f64().unwrap_or(0.0);
    Bandwidth {
        periods: count("periods"),
        throttled: count("throttled"),
        throttled_ns: (throttled_s * 1e9) as u64,
        bursts: count("bursts"),
        ..limit
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_scheduler_counts_stands_for_the_kernels_counters() {
        let quotas =
            json!({"periods": 15, "throttled": 3, "throttled_seconds": 0.0015, "bursts": 2});
        let limit = Bandwidth {
            quota_us: Some(40_000),
            periods: 7,
            ..Bandwidth::default()
        };
        let found = counted(&quotas, limit);
        assert_eq!((found.periods, found.throttled), (15, 3));
        assert_eq!((found.throttled_ns, found.bursts), (1_500_000, 2));
        assert_eq!(found.quota_us, Some(40_000));
        assert_eq!(counted(&Value::Null, limit).periods, 0);
    }

    #[test]
    fn a_kernel_without_sched_ext_is_told_what_it_lacks() {
        match supported() {
            Ok(()) => assert!(Path::new(STATE).exists()),
            Err(e) => {
                let said = e.to_string();
                assert!(
                    said.contains("no sched_ext") && said.contains("--on vm"),
                    "{said}"
                );
            }
        }
    }
}
