//! What `tidegate ext` tells the scheduler: the machine, and gates by cgroup id.

use std::path::{Path, PathBuf};

use tidegate_ext::{CapScope, CapTerms, CpuPlace, GateTerms, Kind, Machine, Options};
use tidegate_knobs::discover::{self, Hierarchy};
use tidegate_knobs::kfs::{KernelFs, RealFs};
use tidegate_terms::{Class, RawTerms, Source};

use crate::exit::{Exit, Failure};

/// Deeper groups are not looked at.
const LEVELS_MAX: u32 = 32;

/// The terms that the engine honours so far.
const HONOURED: [&str; 8] = [
    "class",
    "headroom",
    "latency",
    "tolerance",
    "cap_hard",
    "cap_soft",
    "cap",
    "cap_scope",
];

/// The engine's options on this machine; with `caches`, on one whose CPUs are dealt out to so many last-level caches.
pub fn options(caches: Option<u32>) -> Result<Options, Failure> {
    let mut options = tidegate_agent::ext::machine::options(&RealFs::new(), caches)
        .map_err(|why| Failure::new(Exit::Failure, format!("ext: {why}")))?;
    // As the agent does where no gate names one.
    let settings = tidegate_terms::Config::default().settings();
    options.headroom_ppm = settings.default_headroom.value.ppm();
    Ok(options)
}

/// A machine to verify for, `CPUS,CACHES`, with two threads to a core; for clap.
pub fn machine(text: &str) -> Result<Machine, String> {
    let numbers: Option<Vec<u32>> = text.split(',').map(|number| number.parse().ok()).collect();
    let Some([cpus, caches]) = numbers.as_deref() else {
        return Err(format!("\"{text}\" is no CPUS,CACHES, as in 64,4"));
    };
    let each = cpus.div_ceil(*caches.max(&1)).max(1);
    let place = |cpu| CpuPlace {
        cpu,
        core: cpu / 2,
        llc: cpu / each,
    };
    let places: Vec<CpuPlace> = (0..*cpus).map(place).collect();
    Machine::new(*cpus, &places).map_err(|error| error.to_string())
}

fn cpu_hierarchy(fs: &dyn KernelFs) -> Result<Hierarchy, Failure> {
    discover::discover(fs, None)
        .map(|machine| machine.cpu)
        .map_err(|error| Failure::new(Exit::Failure, error.to_string()))
}

/// A group that goes meanwhile has none.
fn tasks_below(fs: &dyn KernelFs, dir: &Path, levels: u32) -> u64 {
    let list = fs.read(&dir.join("cgroup.threads"));
    let list = list.or_else(|_| fs.read(&dir.join("tasks")));
    let own = list.map_or(0, |text| text.lines().count() as u64);
    let groups = fs.list(dir).unwrap_or_default();
    let below = groups.iter().filter(|entry| entry.is_dir && levels > 1);
    own + below
        .map(|entry| tasks_below(fs, &dir.join(&entry.name), levels - 1))
        .sum::<u64>()
}

/// A gate as it was typed: `cgroup:/PATH term=value …`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gate {
    /// The group, below the mount of the cpu controller.
    pub path: PathBuf,
    /// What is asked of it.
    pub terms: GateTerms,
}

impl Gate {
    /// Reads one; for clap.
    pub fn parse(text: &str) -> Result<Gate, String> {
        let mut words = text.split_whitespace();
        let target = words.next().unwrap_or_default();
        let path = target.strip_prefix("cgroup:/").filter(|path| !path.is_empty()).ok_or_else(|| {
            format!("\"{target}\" is no group; write cgroup:/PATH and then terms, as in 'cgroup:/batch class=side'")
        })?;
        if Path::new(path)
            .components()
            .any(|part| !matches!(part, std::path::Component::Normal(_)))
        {
            return Err(format!("\"{target}\" leads out of the tree of groups"));
        }
        let words: Vec<&str> = words.collect();
        let asked = RawTerms::from_assignments(&words, &Source::Set).map_err(|e| e.to_string())?;
        if let Some(name) = asked
            .0
            .keys()
            .find(|name| !HONOURED.contains(&name.as_str()))
        {
            let known = HONOURED.join(", ");
            return Err(format!(
                "{name} is not honoured by this engine; {known} are"
            ));
        }
        let terms = tidegate_terms::Config::default()
            .resolve(&[&asked])
            .map_err(|e| e.to_string())?;
        let says = |name: &str| asked.0.contains_key(name);
        let hint = i32::from(terms.latency.value.hint());
        Ok(Gate {
            path: PathBuf::from(path),
            terms: GateTerms {
                hint: says("latency").then_some(hint),
                kind: says("class").then(|| kind(terms.class.value)),
                headroom_ppm: says("headroom").then(|| terms.headroom.value.ppm()),
                tolerance_ppm: says("tolerance").then(|| terms.tolerance.value.ppm()),
                cap: cap(&terms),
                idle_is_mirror: false,
            },
        })
    }

    /// Tasks in the group and below it.
    pub fn tasks(&self) -> Result<u64, Failure> {
        let fs = RealFs::new();
        let dir = cpu_hierarchy(&fs)?.mount.join(&self.path);
        Ok(tasks_below(&fs, &dir, LEVELS_MAX))
    }

    /// The group's id, as the kernel gives it to BPF.
    pub fn cgroup_id(&self) -> Result<u64, Failure> {
        let fs = RealFs::new();
        let dir = cpu_hierarchy(&fs)?.mount.join(&self.path);
        let stat = fs.stat(&dir);
        stat.map(|stat| stat.ino).map_err(|error| {
            Failure::new(
                Exit::NoTarget,
                format!("ext: cgroup:/{}: {error}", self.path.display()),
            )
        })
    }
}

/// A cap on one task, as it was typed: `PID term=value …`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The task's number.
    pub pid: u32,
    /// Its cap.
    pub cap: CapTerms,
}

impl Task {
    /// Reads one; for clap.
    pub fn parse(text: &str) -> Result<Task, String> {
        let mut words = text.split_whitespace();
        let target = words.next().unwrap_or_default();
        let number = target.strip_prefix("pid:").unwrap_or(target).parse();
        let pid = number.ok().filter(|pid| *pid > 0).ok_or_else(|| {
            format!("\"{target}\" is no task; write its number and then a cap, as in '4711 cap_hard=200‰'")
        })?;
        let words: Vec<&str> = words.collect();
        let asked = RawTerms::from_assignments(&words, &Source::Set).map_err(|e| e.to_string())?;
        if let Some(name) = asked.0.keys().find(|name| !name.starts_with("cap")) {
            return Err(format!(
                "{name} is nothing that one task can have; caps are (other terms: --gate)"
            ));
        }
        let terms = tidegate_terms::Config::default()
            .resolve(&[&asked])
            .map_err(|e| e.to_string())?;
        let cap = cap(&terms).ok_or_else(|| {
            format!("task {pid} is given no cap; write cap_hard=200‰ or cap_soft=0")
        })?;
        Ok(Task { pid, cap })
    }

    /// There is such a task.
    pub fn exists(&self) -> Result<(), Failure> {
        // A thread's directory is not listed in /proc, but it is there.
        let there = Path::new("/proc").join(self.pid.to_string()).exists();
        there.then_some(()).ok_or_else(|| {
            Failure::new(
                Exit::NoTarget,
                format!("ext: task {}: there is no such task; see ps -eL", self.pid),
            )
        })
    }
}

fn cap(terms: &tidegate_terms::Terms) -> Option<CapTerms> {
    let cap = CapTerms {
        hard_ppt: terms.cap_hard.value.ppt(),
        soft_ppt: terms.cap_soft.value.ppt(),
        scope: match terms.cap_scope.value {
            tidegate_terms::CapScope::Task => CapScope::Task,
            tidegate_terms::CapScope::Process => CapScope::Process,
            tidegate_terms::CapScope::Group => CapScope::Group,
        },
    };
    (cap.hard_ppt.is_some() || cap.soft_ppt.is_some()).then_some(cap)
}

fn kind(class: Class) -> Kind {
    match class {
        Class::Side => Kind::Side,
        _ => Kind::Main,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_is_a_group_and_its_terms() {
        let gate = Gate::parse("cgroup:/batch/a class=side latency=-5").unwrap();
        assert_eq!(gate.path, Path::new("batch/a"));
        assert_eq!(
            gate.terms,
            GateTerms {
                hint: Some(-5),
                kind: Some(Kind::Side),
                ..GateTerms::default()
            }
        );
        let gate = Gate::parse("cgroup:/web class=main headroom=30% tolerance=0.5%").unwrap();
        assert_eq!(
            gate.terms,
            GateTerms {
                kind: Some(Kind::Main),
                headroom_ppm: Some(300_000),
                tolerance_ppm: Some(5_000),
                ..GateTerms::default()
            }
        );
        let gate = Gate::parse("cgroup:/web latency=-20").unwrap();
        assert_eq!(
            gate.terms,
            GateTerms {
                hint: Some(-20),
                ..GateTerms::default()
            }
        );
    }

    #[test]
    fn a_gate_may_have_a_cap() {
        let gate = Gate::parse("cgroup:/a cap_hard=250‰ cap_soft=0 cap_scope=process").unwrap();
        assert_eq!(
            gate.terms.cap,
            Some(CapTerms {
                hard_ppt: Some(250),
                soft_ppt: Some(0),
                scope: CapScope::Process
            })
        );
        assert!(Gate::parse("cgroup:/a cap_scope=task").is_err(), "of what?");
    }

    #[test]
    fn a_machine_to_verify_for_has_threads_and_caches() {
        let wide = machine("64,4").unwrap();
        assert_eq!((wide.cpus(), wide.llcs(), wide.smt()), (64, 4, 2));
        for text in ["", "64", "64,4,2", "many,4", "0,1"] {
            assert!(machine(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_task_has_a_cap_and_nothing_else() {
        let task = Task::parse("4711 cap_hard=200‰").unwrap();
        assert_eq!((task.pid, task.cap.hard_ppt), (4711, Some(200)));
        assert_eq!(Task::parse("pid:4711 cap=200‰"), Ok(task));
        let soft = Task::parse("7 cap_soft=0 cap_scope=task").unwrap();
        assert_eq!(
            (soft.cap.soft_ppt, soft.cap.scope),
            (Some(0), CapScope::Task)
        );
        for text in [
            "",
            "0 cap=200‰",
            "web cap=200‰",
            "7",
            "7 class=side",
            "7 cap=none",
        ] {
            assert!(Task::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_no_gate_is_refused() {
        for text in [
            "",
            "batch class=side",
            "cgroup:/",
            "cgroup:/a/../../etc class=side",
            "cgroup:/a latency=30",
        ] {
            assert!(Gate::parse(text).is_err(), "{text}");
        }
        let error = Gate::parse("cgroup:/a objective=none").unwrap_err();
        assert!(error.contains("class, headroom"), "{error}");
    }
}
