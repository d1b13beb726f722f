//! An agent on kernel files in memory, for tests: the production code with another file system and
//! another sensor.

mod bandwidth;
mod budgets;
mod caps;
mod confinement;
mod confinement_v2;
mod cpuset_controller;
mod events;
mod fake_scheduler;
mod faults;
mod hints;
mod life;
mod lock_boost;
mod mains;
mod many;
mod matrix;
mod measurement;
mod objective;
mod policy;
mod quota_tree;
mod sched_ext;
mod sched_ext_outside;
mod sensor;
mod sim_clock;
mod steps;
mod subgroups;
mod threads;
mod versions;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tidegate_api::{ApiResult, GateView, RunReply, RunRequest, SetRequest, UnsetRequest};
use tidegate_cgroup::KernelFs;
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::discover::discover;
use tidegate_cgroup::group::{GroupPath, Groups};
use tidegate_cgroup::testkit::{FakeFs, FakeProcess, FaultFs};
use tidegate_cgroup::topology::Topology;
use tidegate_engine::apply::Journal;
use tidegate_engine::clock::{Clock, SystemClock};
use tidegate_engine::control::Control;
use tidegate_terms::{Config, CpusetMode, Roots};

pub use self::sensor::{CPUS, FakeSensor, STEP_NS};
use crate::agent::Agent;
use crate::control_loop::ControlLoop;
use crate::gates::{Gates, demand};
use crate::kept_policy::{KeptPolicy, Policy};
use crate::kernel::Kernel;
use crate::lifecycle::take_up;
use crate::paths::RunDir;
use crate::peer::Peer;
use crate::process::lease::Lease;
use crate::process::{Life, Mode};
use crate::runtime::Runtime;
use crate::runtime::cpuset_controller::CpusetController;
use crate::sched_ext::SchedExtSupervisor;

/// The processes that tests place.
pub const PIDS: [i32; 3] = [501, 502, 503];

/// The machines that everything is tried on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Mixed,
    V1,
    V2,
}

pub const KINDS: [Kind; 3] = [Kind::Mixed, Kind::V1, Kind::V2];

/// Names the machine of a test that fails.
struct Named(Kind);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("on {:?}", self.0);
        }
    }
}

/// A machine in memory, on which agents come and go.
pub struct Bed {
    pub kind: Kind,
    pub fs: Arc<FaultFs<Arc<FakeFs>>>,
    pub fake: Arc<FakeFs>,
    /// A guardian wrote the fallback while the agent was frozen.
    pub acted: Arc<AtomicBool>,
    pub sensor: FakeSensor,
    /// Whether idle is kept by the cpuset.
    pub cpuset: CpusetMode,
    /// The kernel that takes a scheduler, for the engine sched_ext.
    pub kernel: Option<Arc<dyn crate::sched_ext::kernel::Kernel>>,
    /// The kernel has one queue a CPU.
    pub has_short_turns: bool,
    /// The time of its agents' threads.
    pub clock: Arc<dyn Clock>,
    dir: tempfile::TempDir,
    homes: Vec<String>,
    _named: Named,
}

impl Bed {
    pub fn new(kind: Kind) -> Bed {
        Bed::on(
            kind,
            match kind {
                Kind::Mixed => FakeFs::mixed(),
                Kind::V1 => FakeFs::v1(),
                Kind::V2 => FakeFs::v2(),
            },
        )
    }

    /// On this machine, which is of this kind.
    pub fn on(kind: Kind, fake: FakeFs) -> Bed {
        let fake = Arc::new(fake);
        for pid in PIDS {
            fake.add_process(FakeProcess::new(pid));
        }
        let other = format!("{}/other", cpu_mount(kind));
        if kind == Kind::V2 {
            fake.write(Path::new("/sys/fs/cgroup/cgroup.subtree_control"), "+cpu")
                .unwrap();
        }
        fake.mkdir(Path::new(&other)).unwrap();
        let theirs = format!("{}/theirs", cpu_mount(kind));
        fake.mkdir(Path::new(&theirs)).unwrap();
        let (file, quota) = match kind {
            Kind::V2 => ("cpu.max", "60000 100000"),
            _ => ("cpu.cfs_quota_us", "60000"),
        };
        fake.write(Path::new(&format!("{theirs}/{file}")), quota)
            .unwrap();
        if kind == Kind::Mixed {
            fake.mkdir(Path::new("/sys/fs/cgroup/cpuacct/other"))
                .unwrap();
        }
        let homes = PIDS
            .map(|pid| fake.text(&format!("/proc/{pid}/cgroup")))
            .to_vec();
        Bed {
            kind,
            fs: Arc::new(FaultFs::new(Arc::clone(&fake))),
            fake,
            acted: Arc::default(),
            sensor: FakeSensor::default(),
            cpuset: CpusetMode::Off,
            kernel: None,
            has_short_turns: false,
            clock: Arc::new(SystemClock),
            dir: directory_in_memory(),
            homes,
            _named: Named(kind),
        }
    }

    /// What main uses from now on, of the machine.
    pub fn main_uses(&self, ppm: u64) {
        self.sensor.main_ppm.store(ppm, Ordering::Relaxed);
    }

    /// Another process, of user 1000.
    pub fn add_users_process(&self, pid: i32) {
        self.fake.add_process(FakeProcess {
            uid: 1000,
            ..FakeProcess::new(pid)
        });
    }

    pub fn run_dir(&self) -> RunDir {
        RunDir::new(self.dir.path(), "tg")
    }

    /// An agent, which has taken up what it found; an error when it cannot start.
    pub fn agent(&self) -> Result<Agent, String> {
        let fs: Arc<dyn KernelFs> = Arc::clone(&self.fs) as Arc<dyn KernelFs>;
        let machine = discover(&*fs, None).map_err(|error| error.to_string())?;
        let opened = Kernel::open(fs, machine, self.run_dir(), Arc::clone(&self.clock));
        let (mut kernel, report) = opened.map_err(|error| error.to_string())?;
        kernel.has_short_turns = self.has_short_turns;
        let config = Config::default();
        let topology = Topology::read(&*kernel.fs).unwrap_or_default();
        let cpuset = CpusetController::new(self.cpuset, topology, &kernel.groups);
        let settings = cpuset.settings(config.settings());
        let lease = Lease::open(&self.run_dir().lease()).unwrap();
        lease.take(1, 2_000_000_000);
        let sensor = Box::new(self.sensor.clone());
        let control = Control::new(sensor, demand([].into_iter(), &settings));
        let control_loop = ControlLoop::new(control, lease, 4_000_000, STEP_NS);
        let sched_ext = SchedExtSupervisor::new(self.kernel.clone());
        let agent = Agent {
            gates: Gates::new(config),
            policy: Policy::new(Roots::under(self.dir.path()), KeptPolicy::default()),
            runtime: Runtime {
                alerts: Mutex::new(report.alerts.into_iter().collect()),
                ..Runtime::new(kernel, control_loop, sched_ext, cpuset, settings)
            },
            life: Life::new(Mode::OnDemand, 0),
            shared_status: crate::view::SharedStatus::default(),
        };
        take_up(&agent.gates, &agent.runtime).map_err(|error| error.to_string())?;
        Ok(agent)
    }

    pub fn without_agent(&self) -> (Arc<Groups>, Journal) {
        let fs: Arc<dyn KernelFs> = Arc::clone(&self.fs) as Arc<dyn KernelFs>;
        let machine = discover(&*fs, None).unwrap();
        let groups = Arc::new(Groups::new(fs, &machine));
        let (journal, _) = Journal::open(self.dir.path(), Arc::clone(&groups)).unwrap();
        (groups, journal)
    }

    /// A file of a group, by its path below the cpu controller's mount.
    pub fn file(&self, group: &str, name: &str) -> String {
        self.fake
            .text(&format!("{}{group}/{name}", cpu_mount(self.kind)))
    }

    pub fn exists(&self, group: &str) -> bool {
        self.fake
            .exists(Path::new(&format!("{}{group}", cpu_mount(self.kind))))
    }

    /// Everything that the engine may change about a group.
    pub fn values(&self, group: &str) -> Vec<String> {
        let names: &[&str] = match self.kind {
            Kind::V2 => &["cpu.max", "cpu.weight", "cpu.idle"],
            _ => &[
                "cpu.cfs_quota_us",
                "cpu.cfs_period_us",
                "cpu.shares",
                "cpu.idle",
            ],
        };
        names.iter().map(|name| self.file(group, name)).collect()
    }

    pub fn is_limited(&self, group: &str) -> bool {
        let quota = if self.kind == Kind::V2 {
            "cpu.max"
        } else {
            "cpu.cfs_quota_us"
        };
        let text = self.file(group, quota);
        !text.starts_with("max") && text != "-1" && self.file(group, "cpu.idle") == "1"
    }

    /// Where a process is, in every hierarchy; nowhere when it has exited.
    pub fn place(&self, pid: i32) -> String {
        let file = format!("/proc/{pid}/cgroup");
        let text = self.fake.read(Path::new(&file));
        text.unwrap_or_default().trim().to_owned()
    }

    /// The burst of a group that another program has limited.
    fn their_burst(&self) -> String {
        let file = match self.kind {
            Kind::V2 => "cpu.max.burst",
            _ => "cpu.cfs_burst_us",
        };
        self.file("/theirs", file)
    }

    /// What is left of ours on this machine, a line each: groups, values, processes that are not
    /// back, files.
    pub fn left_behind(&self, fresh: &[String]) -> Vec<String> {
        let mut left = Vec::new();
        for mount in [cpu_mount(self.kind), "/sys/fs/cgroup/cpuacct"] {
            for group in ["tg-side", "tg-main", "tg-work"] {
                let dir = format!("{mount}/{group}");
                if self.fake.exists(Path::new(&dir)) {
                    left.push(format!("group {dir}"));
                }
            }
        }
        let values = self.values("/other");
        if values != fresh {
            left.push(format!("/other: {values:?} instead of {fresh:?}"));
        }
        if self.their_burst() != "0" {
            left.push(format!("/theirs: burst {}", self.their_burst()));
        }
        for (nth, pid) in PIDS.iter().enumerate() {
            let place = self.place(*pid);
            if !place.is_empty() && place != self.homes[nth] {
                left.push(format!("process {pid} in {place:?}"));
            }
        }
        let untouched = self.fake.sched(1).ok();
        for pid in PIDS {
            let now = self.fake.sched(pid).ok();
            if now.is_some() && now != untouched {
                left.push(format!("process {pid} is scheduled as {now:?}"));
            }
        }
        for file in [self.run_dir().gates(), self.dir.path().join("ledger.json")] {
            if self.fake.exists(&file) {
                let text = self.fake.text(&file.display().to_string());
                left.push(format!("file {}: {text}", file.display()));
            }
        }
        left
    }

    pub fn is_home(&self, nth: usize) -> bool {
        self.place(PIDS[nth]) == self.homes[nth]
    }
}

/// A machine with an agent on it.
fn begun(kind: Kind) -> (Bed, Agent) {
    let bed = Bed::new(kind);
    let agent = bed.agent().unwrap();
    (bed, agent)
}

/// The moving limits are mapped from a real file: on a disk its making would be most of a bed's
/// time.
fn directory_in_memory() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => tempfile::tempdir_in(memory).unwrap(),
        false => tempfile::tempdir().unwrap(),
    }
}

fn cpu_mount(kind: Kind) -> &'static str {
    match kind {
        Kind::Mixed => "/sys/fs/cgroup/cpu",
        Kind::V1 => "/sys/fs/cgroup/cpu,cpuacct",
        Kind::V2 => "/sys/fs/cgroup",
    }
}

/// docs/metrics.md has `table` between these two lines; with UPDATE_DOCS it is written there.
pub fn check_metrics_page(begin: &str, end: &str, table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let from = page.find(begin).expect(begin) + begin.len();
    let to = from + page[from..].find(end).expect(end);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let page = format!("{}{table}{}", &page[..from], &page[to..]);
        return std::fs::write(&path, page).unwrap();
    }
    assert_eq!(&page[from..to], table, "out of date: {begin}");
}

/// Kinds of events told so far, in order.
fn kinds(agent: &Agent) -> Vec<String> {
    let events = agent.runtime.events.after(0).events;
    events.into_iter().map(|event| event.kind).collect()
}

pub fn terms(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

/// Root, at the process that asks.
pub fn root(pid: i32) -> Peer {
    Peer {
        pid,
        ..Peer::default()
    }
}

/// User 1000, at the process that asks.
pub fn user(pid: i32) -> Peer {
    Peer {
        pid,
        uid: 1000,
        groups: vec![1000],
        ..Peer::default()
    }
}

/// A group, with those around it.
pub fn make_group(agent: &Agent, group: &GroupPath) {
    if let Some(parent) = group.parent().filter(|parent| !parent.is_root()) {
        make_group(agent, &parent);
    }
    agent.groups().create(group).unwrap();
}

fn path(text: &str) -> GroupPath {
    GroupPath::parse(text).unwrap()
}

/// The limit that the kernel has for a group.
fn stands(agent: &Agent, group: &str) -> Bandwidth {
    agent.groups().bandwidth(&path(group)).unwrap()
}

/// Another program writes a group's limit.
fn write_quota(agent: &Agent, group: &str, to: Bandwidth) {
    let written = agent.groups().set_bandwidth(&path(group), None, to);
    written.unwrap();
}

/// The group of a process or task.
fn at(agent: &Agent, tid: i32) -> String {
    agent.groups().group_of(tid).unwrap().unwrap().to_string()
}

/// `run` by the process that asks, as `job`.
fn run_as(agent: &Agent, peer: &Peer, pairs: &[(&str, &str)]) -> ApiResult<RunReply> {
    let request = RunRequest {
        pid: peer.pid,
        name: None,
        command: vec!["job".to_owned()],
        terms: terms(pairs),
        join: false,
    };
    agent.run(peer, &request)
}

/// `run` by root with these terms; the group it came to.
fn run(agent: &Agent, pid: i32, pairs: &[(&str, &str)]) -> ApiResult<String> {
    run_as(agent, &root(pid), pairs).map(|reply| reply.cgroup)
}

fn set_as(agent: &Agent, peer: &Peer, target: &str, pairs: &[(&str, &str)]) -> ApiResult<GateView> {
    let request = SetRequest {
        target: target.to_owned(),
        terms: terms(pairs),
        only: false,
    };
    agent.set(peer, &request)
}

/// `set` by root; the gate's notes.
fn set(agent: &Agent, target: &str, pairs: &[(&str, &str)]) -> ApiResult<Vec<String>> {
    set_as(agent, &root(1), target, pairs).map(|view| view.notes)
}

/// Side work without a headroom.
pub fn run_side(agent: &Agent, pid: i32) -> ApiResult<RunReply> {
    run_as(agent, &root(pid), &[("class", "side")])
}

/// Side work with a headroom, and so under a quota.
pub fn run_limited(agent: &Agent, pid: i32) -> ApiResult<RunReply> {
    run_as(agent, &root(pid), &LIMITED)
}

pub fn set_limited(agent: &Agent, target: &str) -> ApiResult<()> {
    set(agent, target, &LIMITED).map(drop)
}

const LIMITED: [(&str, &str); 2] = [("class", "side"), ("headroom", "20%")];

pub fn unset(agent: &Agent, target: &str) -> ApiResult<()> {
    unset_terms(agent, target, &[])
}

fn unset_terms(agent: &Agent, target: &str, names: &[&str]) -> ApiResult<()> {
    let request = UnsetRequest {
        target: target.to_owned(),
        terms: names.iter().map(|name| (*name).to_owned()).collect(),
    };
    agent.unset(&root(1), &request).map(drop)
}

fn alerts(agent: &Agent) -> String {
    agent.runtime.all_alerts().join("\n")
}

pub fn gate_names(agent: &Agent) -> Vec<String> {
    agent
        .gates
        .lock()
        .iter()
        .map(|gate| gate.record.name.clone())
        .collect()
}

pub fn in_journal(agent: &Agent) -> Vec<GroupPath> {
    agent
        .runtime
        .journal()
        .entries()
        .map(|entry| entry.group.clone())
        .collect()
}
