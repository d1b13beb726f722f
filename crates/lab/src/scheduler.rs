//! The ext engine as a user has it: `tidegate ext` in the foreground, for as long as one arm of an experiment runs.
//! Before and after it the kernel's own scheduler has the machine, so that both stand in one report of one boot.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use crate::cgroup::{Bandwidth, Group, Hierarchy};
use crate::proc::Guarded;
use crate::{LabError, clock, stop};

const STATE: &str = "/sys/kernel/sched_ext/state";
const LOADED: &str = "/sys/kernel/sched_ext/root/ops";
/// The scheduler's name in the kernel.
const NAME: &str = "tidegate";
/// Verifying takes seconds in the bed; leaving as long as the kernel needs to move every task.
const PATIENCE_NS: u64 = 60_000_000_000;
/// More than the longest line of statistics.
const TAIL_BYTES: u64 = 262_144;

/// Whether this kernel can load a scheduler at all.
pub fn supported() -> Result<(), LabError> {
    if Path::new(STATE).exists() {
        return Ok(());
    }
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Err(LabError::Needs {
        what: "--engine ext".into(),
        why: format!("this kernel ({}) has no sched_ext", release.trim()),
        mend: "give --on vm, or boot a kernel from 6.12 with CONFIG_SCHED_CLASS_EXT".into(),
    })
}

fn state() -> String {
    let text = fs::read_to_string(STATE).unwrap_or_default();
    text.trim().to_string()
}

fn in_force() -> bool {
    state() == "enabled" && fs::read_to_string(LOADED).is_ok_and(|name| name.trim() == NAME)
}

/// A scheduler that is in force until it is dropped.
pub struct Scheduler {
    process: Guarded,
    log: PathBuf,
}

impl Scheduler {
    /// Loads it with these gates and waits until it is in force.
    pub fn start(exe: &Path, gates: &[(&Group, &str)]) -> Result<Self, LabError> {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        supported()?;
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = format!("tglab-{}-ext-{serial}.log", std::process::id());
        let log = std::env::temp_dir().join(name);
        let out = File::create(&log).map_err(|e| LabError::file("make a log", &log, e))?;
        let err = out
            .try_clone()
            .map_err(|e| LabError::file("make a log", &log, e))?;
        let mut command = Command::new(exe);
        command.args(["ext", "--json"]);
        for (group, terms) in gates {
            let gate = format!("cgroup:/{} {terms}", group.name());
            command.args(["--gate", &gate]);
        }
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        let process = Guarded::start("tidegate ext", command, &[]).inspect_err(|_| {
            let _ = fs::remove_file(&log);
        })?;
        let mut scheduler = Scheduler { process, log };
        let until = clock::monotonic_ns() + PATIENCE_NS;
        while !in_force() {
            scheduler.alive()?;
            if clock::monotonic_ns() > until {
                let why = format!("is not in force after 60 s: {}", scheduler.said());
                return Err(LabError::process("tidegate ext", why));
            }
            stop::sleep_ns(20_000_000)?;
        }
        Ok(scheduler)
    }

    fn alive(&mut self) -> Result<(), LabError> {
        match self.process.ended() {
            Some(status) => Err(LabError::process(
                "tidegate ext",
                format!("ended ({status}): {}", self.said()),
            )),
            None => Ok(()),
        }
    }

    /// An error where it was ejected: what was measured meanwhile was measured under another scheduler.
    pub fn still_in_force(&self) -> Result<(), LabError> {
        if in_force() {
            return Ok(());
        }
        let why = format!("was ejected meanwhile: {}", self.said());
        Err(LabError::process("tidegate ext", why))
    }

    /// Its process.
    pub fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// What it has said so far, from the end.
    fn tail(&self) -> String {
        let read = || -> std::io::Result<String> {
            let mut file = File::open(&self.log)?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        read().unwrap_or_default()
    }

    /// Its message.
    fn said(&self) -> String {
        let tail = self.tail();
        let mut lines = tail.lines().rev();
        let line = lines.find(|line| line.starts_with("tidegate:"));
        line.unwrap_or("it left no message").to_string()
    }

    /// What it counted of all limits, at most a second ago; `limit` is what the group's own files tell.
    pub fn bandwidth(&self, limit: Bandwidth) -> Bandwidth {
        counted(&last_object(&self.tail()), limit)
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
fn counted(statistics: &Value, limit: Bandwidth) -> Bandwidth {
    let none = Vec::new();
    let groups = statistics["limits"].as_array().unwrap_or(&none);
    let sum = |name: &str| groups.iter().filter_map(|g| g[name].as_u64()).sum::<u64>();
    Bandwidth {
        periods: sum("nr_periods"),
        throttled: sum("nr_throttled"),
        throttled_ns: sum("throttled_us") * 1000,
        bursts: sum("nr_bursts"),
        ..limit
    }
}

/// The last whole object: `tidegate ext --json` prints one a line, and the last line may be on its way.
fn last_object(text: &str) -> Value {
    let mut objects = text
        .lines()
        .rev()
        .filter_map(|line| serde_json::from_str(line).ok());
    objects.find(Value::is_object).unwrap_or(Value::Null)
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.process.end(PATIENCE_NS);
        // The guard kills what is left; then the kernel takes the tasks back by itself.
        let until = clock::monotonic_ns() + PATIENCE_NS;
        while in_force() && self.process.ended().is_some() && clock::monotonic_ns() < until {
            clock::sleep_until(clock::monotonic_ns() + 20_000_000);
        }
        let _ = fs::remove_file(&self.log);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_newest_whole_object_counts() {
        assert_eq!(last_object("{\"a\":1}\n{\"a\":2}\n{\"a\":3")["a"], 2);
        let line = |n: u64| json!({"limits": [{"nr_periods": n}]}).to_string();
        let (whole, half) = (line(7), line(8));
        let found = last_object(&format!("{whole}\n{}", &half[..half.len() / 2]));
        assert_eq!(found["limits"][0]["nr_periods"], 7);
        // The end of a line of which the beginning was not read.
        let found = last_object(&format!("{}\n", &half[half.len() / 2..]));
        assert_eq!(found, Value::Null);
        assert_eq!(last_object("tidegate: ext: no\n"), Value::Null);
        assert_eq!(last_object(""), Value::Null);
    }

    #[test]
    fn what_the_scheduler_counts_stands_for_the_kernels_counters() {
        let line = r#"{"limits":[{"nr_periods":10,"nr_throttled":3,"throttled_us":1500,"nr_bursts":2},{"nr_periods":5}]}"#;
        let limit = Bandwidth {
            quota_us: Some(40_000),
            periods: 7,
            ..Bandwidth::default()
        };
        let found = counted(&last_object(&format!("{line}\n")), limit);
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
