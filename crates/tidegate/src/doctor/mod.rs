//! What this machine can enforce: facts are gathered here by looking and trying; [`report`] is a
//! pure function of them.

mod mechanisms;
mod obstacle;
pub mod page;
mod scheduler;
mod server;

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use tidegate_agent::client;
use tidegate_agent::main_cpus_advice;
use tidegate_agent::paths::RunDir;
use tidegate_agent::peer::{ADMIN_GROUP, Peer, gid_of, may_administer};
use tidegate_agent::systemd::bus::{managers_group, version};
use tidegate_api::{ErrorKind, StatusView};
use tidegate_cgroup::RealFs;
use tidegate_cgroup::discover::{Machine, discover, probe_features};
use tidegate_cgroup::group::Groups;
use tidegate_cgroup::sched::{Support, probe};
use tidegate_engine::sense::{self, KernelTypes, SenseConfig};
use tidegate_terms::{Config, Engine, Sense};

use scheduler::Scheduler;
use server::ServerSettings;

pub struct Facts {
    pub root: bool,
    /// The caller may ask for what takes CPU from others: root, or in the group `tidegate`.
    pub admin: bool,
    /// What the kernel makes of latency hints, tried on a thread of our own; or why that could not
    /// be tried.
    pub slices: Result<Support, String>,
    /// The cgroup tree and the kernel's mechanisms, or why they could not be understood.
    pub machine: Result<Machine, String>,
    /// The BPF sensor was loaded and unloaded, or why not.
    pub bpf: Result<(), String>,
    pub usage: Result<(), String>,
    pub types: KernelTypes,
    /// The agent that runs, as a phrase; none; or why it cannot be asked.
    pub agent: Result<Option<String>, String>,
    /// What to do where main has CPUs of its own, one sentence for each main gate.
    pub main_cpus: Vec<String>,
    pub scheduler: Scheduler,
    /// What is set of the kernel's own scheduler that another one leaves out.
    pub server: ServerSettings,
    /// Processes that have a cookie of core scheduling, which Tidegate never gives.
    pub core_cookies: usize,
    /// The scheduler's feature SIS_UTIL is on; without debugfs or root that is not known.
    pub has_sis_util: bool,
    /// systemd's version, when it is the first process and its bus answers; or why units cannot be
    /// targets.
    pub systemd: Result<String, String>,
    /// The engine of the configuration, and who says so; or the mistakes in its files.
    pub config: Result<(Engine, String), String>,
    /// The slice of quotas, a sysctl, in microseconds.
    pub bandwidth_slice_us: Option<u64>,
    pub run_dir: String,
    pub run_dir_writable: bool,
}

impl Facts {
    pub fn gather() -> Facts {
        let run_dir = RunDir::from_env();
        let sense = |prefer| {
            sense::open(&SenseConfig::detect(), &[], &[], prefer)
                .map(drop)
                .map_err(|e| e.to_string())
        };
        let root = rustix::process::geteuid().is_root();
        let is_own = !root && is_callers(run_dir.dir());
        let manager = is_own.then(managers_group).and_then(Result::ok);
        let machine = machine(&run_dir, manager.as_deref());
        let status = status(&run_dir);
        Facts {
            main_cpus: match (&machine, &status) {
                (Ok(machine), Ok(Some(status))) => main_cpus(machine, status),
                _ => Vec::new(),
            },
            root,
            admin: is_own || is_admin(),
            slices: probe(&RealFs::new()).map_err(|error| error.to_string()),
            machine,
            bpf: sense(Sense::Bpf),
            usage: sense(Sense::Usage),
            types: KernelTypes::read(),
            agent: status.map(|status| status.map(|status| agent(&status))),
            scheduler: Scheduler::gather(),
            server: ServerSettings::gather(),
            core_cookies: core_cookies(),
            has_sis_util: std::fs::read_to_string("/sys/kernel/debug/sched/features")
                .is_ok_and(|features| features.split_whitespace().any(|one| one == "SIS_UTIL")),
            systemd: version().map_err(|error| error.to_string()),
            config: Config::load(&run_dir.config_roots())
                .map(|config| {
                    let engine = config.settings().engine;
                    (engine.value, engine.source.to_string())
                })
                .map_err(|e| e.to_string()),
            bandwidth_slice_us: std::fs::read_to_string(
                "/proc/sys/kernel/sched_cfs_bandwidth_slice_us",
            )
            .ok()
            .and_then(|text| text.trim().parse().ok()),
            run_dir: run_dir.dir().display().to_string(),
            run_dir_writable: writable(run_dir.dir()),
        }
    }
}

/// The caller owns this directory, or, until it is made, the one that it will be in.
fn is_callers(dir: &Path) -> bool {
    let there = dir.ancestors().find_map(|dir| dir.metadata().ok());
    there.is_some_and(|there| there.uid() == rustix::process::geteuid().as_raw())
}

fn is_admin() -> bool {
    let pid = std::process::id() as i32;
    let own = Peer {
        pid,
        uid: rustix::process::geteuid().as_raw(),
        has_no_rights: !may_administer(pid).unwrap_or(false),
        groups: rustix::process::getgroups()
            .unwrap_or_default()
            .iter()
            .chain([&rustix::process::getegid()])
            .map(|gid| gid.as_raw())
            .collect(),
        ..Peer::default()
    };
    let group_file = std::fs::read_to_string("/etc/group").unwrap_or_default();
    own.is_admin(gid_of(&group_file, ADMIN_GROUP))
}

/// `base` is the group of the user's own systemd, where that is asked.
fn machine(run_dir: &RunDir, base: Option<&str>) -> Result<Machine, String> {
    let fs = RealFs::new();
    let mut machine = discover(&fs, base).map_err(|error| error.to_string())?;
    let known = [
        &machine.features.quota,
        &machine.features.burst,
        &machine.features.idle,
    ];
    let unsure = known.iter().any(|feature| feature.present.is_none());
    if unsure && machine.refusal().is_none() {
        let name = format!("{}-doctor", run_dir.prefix());
        let probed = probe_features(
            &fs,
            machine.version,
            &machine.cpu,
            &name,
            &mut machine.features,
        );
        if let Err(error) = probed {
            machine.notes.push(format!(
                "a group for a closer look could not be made: {error}"
            ));
        }
    }
    Ok(machine)
}

fn core_cookies() -> usize {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| core_cookie(*pid) != 0).count()
}

/// 0 for none, and where it cannot be asked.
fn core_cookie(pid: i32) -> u64 {
    const OF_TASK: libc::c_ulong = 0;
    let mut cookie = 0_u64;
    // SAFETY: the kernel writes one u64, which is alive during the call.
    unsafe {
        libc::prctl(
            libc::PR_SCHED_CORE,
            libc::PR_SCHED_CORE_GET,
            pid,
            OF_TASK,
            &raw mut cookie,
        );
    }
    cookie
}

fn status(run_dir: &RunDir) -> Result<Option<StatusView>, String> {
    let client = match client::connect(run_dir) {
        Ok(client) => client,
        Err(error) if error.kind == ErrorKind::Unreachable => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let status = client.status().map_err(|error| error.to_string())?;
    Ok(Some(status))
}

fn agent(status: &StatusView) -> String {
    format!(
        "runs: process {} ({}), engine {}, sensing by {}, {}",
        status.pid,
        status.mode,
        status.engine,
        status.sensing,
        crate::render::count(status.gates.len() as u64, "gate", "gates")
    )
}

fn main_cpus(machine: &Machine, status: &StatusView) -> Vec<String> {
    let groups = Groups::new(Arc::new(RealFs::new()), machine);
    let of = |class: &'static str| status.gates.iter().filter(move |gate| gate.class == class);
    main_cpus_advice(&groups, &machine.online_cpus, of("main"), of("side"))
}

/// The directory, or the nearest parent that exists, can be written.
fn writable(dir: &Path) -> bool {
    let existing = dir
        .ancestors()
        .find(|dir| dir.exists())
        .unwrap_or(Path::new("/"));
    rustix::fs::accessat(
        rustix::fs::CWD,
        existing,
        rustix::fs::Access::WRITE_OK,
        rustix::fs::AtFlags::EACCESS,
    )
    .is_ok()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Now {
    Yes,
    Partly,
    No,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mechanism {
    pub name: &'static str,
    pub now: Now,
    /// By which engine; empty when by none.
    pub engine: &'static str,
    pub how: String,
    /// What to change to get it, or more of it.
    pub change: Option<String>,
}

impl Mechanism {
    fn new(name: &'static str, now: Now, how: impl Into<String>, change: Option<String>) -> Self {
        Self {
            name,
            now,
            engine: if now == Now::No { "" } else { "cgroup" },
            how: how.into(),
            change,
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub version: &'static str,
    pub enforceable: bool,
    pub verdict: String,
    pub facts: Vec<(&'static str, String)>,
    pub mechanisms: Vec<Mechanism>,
    pub notes: Vec<String>,
}

pub fn report(facts: &Facts) -> Report {
    let obstacle = obstacle::obstacle(facts);
    let enforceable = obstacle.is_none();
    let verdict = match &obstacle {
        None => "headroom can be enforced here: tidegate run --side -- CMD".to_owned(),
        Some(obstacle) => format!(
            "headroom cannot be enforced now: {}; {}",
            obstacle.why, obstacle.remedy
        ),
    };
    let mut notes = Vec::new();
    if let Err(why) = &facts.config {
        notes.extend(why.lines().map(|line| format!("configuration: {line}")));
    }
    if let Err(why) = &facts.agent {
        notes.push(why.clone());
    }
    if let Ok(machine) = &facts.machine {
        notes.extend(machine.notes.iter().cloned());
        if machine.features.rt_group_sched.is_present() {
            notes.push(
                "no task in a gate can be real-time (CONFIG_RT_GROUP_SCHED on cgroup v1): a process that has a \
                 real-time thread is refused by name, and `chrt -f` in a gate gets EPERM"
                    .to_owned(),
            );
        }
    }
    if let Some(note) = without_privilege(facts) {
        notes.push(note);
    }
    notes.extend(facts.main_cpus.iter().cloned());
    if facts.core_cookies > 0 {
        notes.push(format!(
            "{} a cookie of core scheduling: it keeps a core from others' work, and main can wait a tick for that",
            crate::render::count(facts.core_cookies as u64, "process has", "processes have")
        ));
    }
    if facts.has_sis_util {
        notes.push(
            "several tasks of main can wait behind each other while side work keeps the other CPUs busy: the kernel \
             looks for one less often then (SIS_UTIL). `echo NO_SIS_UTIL > /sys/kernel/debug/sched/features` ends \
             that, for the whole machine"
                .to_owned(),
        );
    }
    notes.extend(facts.server.notes(facts.scheduler.is_supported()));
    Report {
        version: env!("CARGO_PKG_VERSION"),
        enforceable,
        verdict,
        facts: lines(facts),
        mechanisms: mechanisms::all(facts, obstacle.as_ref()),
        notes,
    }
}

/// What root would have besides.
fn without_privilege(facts: &Facts) -> Option<String> {
    let machine = facts.machine.as_ref().ok()?;
    let has_machines_agent = !facts.admin && facts.agent != Ok(None);
    if facts.root || has_machines_agent {
        return None;
    }
    let administrator = "an administrator: sudo systemctl enable --now tidegate";
    Some(match machine.refusal() {
        None => format!(
            "side work is in the idle class among what runs below {}; beside other sessions and services it has \
             that group's weight, and only headroom, which follows all that runs, keeps it from them ({administrator})",
            machine.cpu.base
        ),
        Some(_) => format!(
            "side work yields by nice 19, slices of 20 ms and idle I/O, without limits; your own systemd would hold more \
             (log in again after: sudo apt install dbus-user-session; {administrator})"
        ),
    })
}

fn lines(facts: &Facts) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    match &facts.machine {
        Ok(machine) => {
            let hz = machine
                .features
                .hz
                .map_or_else(|| "tick unknown".to_owned(), |hz| format!("HZ={hz}"));
            let cpus = crate::render::count(machine.online_cpus.len() as u64, "CPU", "CPUs");
            lines.push((
                "Machine",
                format!("kernel {}, {cpus}, {hz}", machine.kernel),
            ));
            let version = format!("{:?}", machine.version).to_lowercase();
            let place = machine.cpu.dir(&machine.cpu.base);
            let may = match machine.refusal() {
                None => "writable".to_owned(),
                Some(why) => format!("not writable: {why}"),
            };
            lines.push((
                "Cgroups",
                format!(
                    "cpu controller on {version}, groups go to {} ({may})",
                    place.display()
                ),
            ));
        }
        Err(why) => lines.push(("Cgroups", why.clone())),
    }
    lines.push((
        "Sensing",
        match (&facts.bpf, &facts.usage) {
            (Ok(()), _) => "BPF, at every context switch".to_owned(),
            (Err(why), Ok(())) => {
                format!("group usage, in windows of 50 ms and more; no BPF: {why}")
            }
            (Err(bpf), Err(usage)) => format!("none; no BPF: {bpf}; no usage: {usage}"),
        },
    ));
    lines.push(("Scheduler", facts.scheduler.line()));
    if let Ok((engine, source)) = &facts.config {
        lines.push(("Engine", facts.scheduler.configured_line(*engine, source)));
    }
    lines.push((
        "systemd",
        match &facts.systemd {
            Ok(version) => format!(
                "{version}; units can be targets (unit:NAME) and keep the floor when it writes"
            ),
            Err(why) => format!(
                "units cannot be targets: {}",
                why.trim_start_matches("unit: ")
            ),
        },
    ));
    lines.push((
        "Caller",
        if facts.root {
            "root".to_owned()
        } else {
            "not root".to_owned()
        },
    ));
    lines.push((
        "Agent",
        match &facts.agent {
            Ok(Some(text)) => text.clone(),
            Ok(None) => "none runs; the first run or set starts one".to_owned(),
            Err(_) => "runs, and cannot be asked".to_owned(),
        },
    ));
    lines
}
