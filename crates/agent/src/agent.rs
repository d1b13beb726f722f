//! The agent: what it holds, and the calls that make gates of new commands; those that give terms to what runs already are in
//! `targets`.
//!
//! Locks, always taken in this order: `gates`, `control`, `journal`; the others are held for a moment each. The loop takes
//! `control`, and `journal` for a write, so no call holds `control` while it reads files, nor `journal` while it moves a process.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tidegate_api::{ApiError, Done, ErrorKind, RunReply, RunRequest};
use tidegate_knobs::clock::Clock;
use tidegate_knobs::control::Control;
use tidegate_knobs::discover::Machine;
use tidegate_knobs::group::{GroupPath, Groups};
use tidegate_knobs::kfs::KernelFs;
use tidegate_knobs::sense::Meters;
use tidegate_knobs::target::{GateName, ProcessRef, Target};
use tidegate_terms::{Class, Config, RawTerms, Settings, Source, Term};
use tokio::sync::Notify;
use tracing::info;

use crate::control_thread::lock;
use crate::cpuset_controller::CpusetController;
use crate::ext::ExtSupervisor;
use crate::gate::{Attachment, Gate, Record};
use crate::journal::Journal;
use crate::lease::Lease;
use crate::lock_boost::LockBoostStats;
use crate::mechanisms::Units;
use crate::paths::RunDir;
use crate::peer::{ADMIN_GROUP, Peer, ask_an_admin, gid_of, may_give};
use crate::rate::RateLimit;

pub use crate::startup::{Options, main};

/// How the agent was started, which decides when it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// By the first `run` or `set`: leaves with the last gate.
    OnDemand,
    /// By a service manager: stays.
    Service,
}

impl Mode {
    /// As shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::OnDemand => "on-demand",
            Mode::Service => "service",
        }
    }
}

/// The process that holds the gates of one machine.
pub struct Agent {
    /// Where it lives.
    pub run_dir: RunDir,
    /// How it was started.
    pub mode: Mode,
    /// What the machine can do.
    pub machine: Machine,
    /// The way to kernel files.
    pub fs: Arc<dyn KernelFs>,
    /// The time of its threads. The control loop has timers of its own.
    pub clock: Arc<dyn Clock>,
    /// The way to groups.
    pub groups: Arc<Groups>,
    /// The files' terms.
    pub config: Config,
    /// The machine's settings.
    pub settings: Settings,
    /// What was written over what.
    pub journal: Arc<Mutex<Journal>>,
    /// Every gate.
    pub gates: Mutex<Vec<Gate>>,
    /// The loop's state.
    pub control: Arc<Mutex<Control>>,
    /// The usage files of groups with a soft cap.
    pub meters: Arc<Mutex<Meters>>,
    /// Gates whose caps count for each process or task alone.
    pub(crate) units: Mutex<Units>,
    /// The scheduler, where the engine is ext.
    pub(crate) ext: Arc<ExtSupervisor>,
    /// Lock holders that went first.
    pub(crate) lock_boost: Mutex<LockBoostStats>,
    /// Idle kept in space.
    pub cpuset: Mutex<CpusetController>,
    /// The page shared with the guardian.
    pub lease: Arc<Lease>,
    /// The kernel's tick.
    pub tick_ns: u64,
    /// The loop's period while something is limited.
    pub period_ns: u64,
    /// Which sensing, and why.
    pub sensing_note: String,
    /// When this agent started.
    pub started_ns: u64,
    /// The agent's own CPU.
    pub own_cpu_pct: Mutex<f64>,
    /// What needs a person.
    pub alerts: Mutex<BTreeSet<String>>,
    /// Calls that change something, per user.
    pub rate: Mutex<RateLimit>,
    /// Set once, when the agent leaves.
    pub leaving: Arc<AtomicBool>,
    /// Woken then.
    pub left: Notify,
}

/// An error of the machine becomes one of the socket, in its own words.
pub fn refuse(kind: ErrorKind) -> impl Fn(&dyn std::fmt::Display) -> ApiError {
    move |error| ApiError::new(kind, error.to_string())
}

impl Agent {
    /// Waits until the agent leaves.
    pub async fn left(&self) {
        while !self.leaving.load(Ordering::Acquire) {
            self.left.notified().await;
        }
    }

    /// A group of ours at the top: `<prefix>-side` and so on.
    fn root_named(&self, what: &str) -> GroupPath {
        let name = format!("{}-{what}", self.run_dir.prefix());
        // The prefix was checked when the agent started.
        self.groups
            .base()
            .join(&name)
            .unwrap_or_else(|_| GroupPath::root())
    }

    /// The one group that all side work of `run` is in.
    pub fn side_root(&self) -> GroupPath {
        self.root_named("side")
    }

    /// The group that main and neutral work of `run` is in.
    pub fn main_root(&self) -> GroupPath {
        self.root_named("main")
    }

    /// The group whose quota limits `gate`; `None` when nothing does.
    pub fn limited_group(&self, gate: &Gate) -> Option<GroupPath> {
        limited_below(&self.side_root(), gate).cloned()
    }

    /// Processes in `group` and the groups in it.
    pub fn processes_below(&self, group: &GroupPath, depth: u32) -> usize {
        let here = |group: &GroupPath| self.groups.procs(group).map_or(0, |pids| pids.len());
        self.count_below(group, depth, &here)
    }

    /// Tasks, i.e. threads, likewise.
    pub(crate) fn tasks_below(&self, group: &GroupPath, depth: u32) -> usize {
        let here = |group: &GroupPath| self.groups.tids(group).map_or(0, |tids| tids.len());
        self.count_below(group, depth, &here)
    }

    fn count_below(
        &self,
        group: &GroupPath,
        depth: u32,
        here: &dyn Fn(&GroupPath) -> usize,
    ) -> usize {
        let children = match depth {
            0 => Vec::new(),
            _ => self.groups.children(group).unwrap_or_default(),
        };
        let below = children
            .iter()
            .map(|child| self.count_below(child, depth - 1, here));
        here(group) + below.sum::<usize>()
    }

    pub(crate) fn is_admin(&self, peer: &Peer) -> bool {
        let group_file = std::fs::read_to_string("/etc/group").unwrap_or_default();
        peer.is_admin(gid_of(&group_file, ADMIN_GROUP))
    }

    /// The terms that are set with privilege by this call.
    pub(crate) fn by_admin(&self, peer: &Peer, terms: &RawTerms) -> BTreeSet<String> {
        match self.is_admin(peer) {
            true => {
                let named =
                    |name: &String| Term::from_name(name).map(|term| term.name().to_owned());
                terms.0.keys().filter_map(named).collect()
            }
            false => BTreeSet::new(),
        }
    }

    /// Called with the gates locked: leaving begins under that lock, so an admitted call ends before the agent does.
    pub(crate) fn admit(&self, peer: &Peer) -> Result<(), ApiError> {
        if self.leaving.load(Ordering::Acquire) {
            return Err(
                ApiError::new(ErrorKind::Leaving, "agent: it is leaving").with_mend("try again")
            );
        }
        if lock(&self.rate).admit(peer.uid, self.clock.now_ns()) {
            return Ok(());
        }
        let message = format!(
            "agent: uid {} changes gates too often (each change writes quotas)",
            peer.uid
        );
        Err(ApiError::new(ErrorKind::Busy, message).with_mend("wait a second"))
    }

    /// The name of the gate that `target` means.
    pub fn name_of(&self, target: &str) -> Result<String, ApiError> {
        let gates = lock(&self.gates);
        let not_found = match find_in(&gates, target) {
            Ok(index) => return Ok(gates[index].record.name.clone()),
            Err(not_found) => not_found,
        };
        // A process inside a gate: its gate is what limits it.
        let around = match Target::parse(target) {
            Ok(Target::Pid(pid)) => self.gate_of(&gates, pid),
            _ => None,
        };
        around.map(|gate| gate.record.name.clone()).ok_or(not_found)
    }

    /// A new gate around the calling process, which then becomes the command.
    pub fn run(&self, peer: &Peer, request: &RunRequest) -> Result<RunReply, ApiError> {
        let pid = if request.pid == 0 {
            peer.pid
        } else {
            request.pid
        };
        let process = ProcessRef::look_up(&*self.fs, pid)
            .map_err(|error| refuse(ErrorKind::NotFound)(&error))?;
        if pid != peer.pid && parent_of(&*self.fs, pid) != Some(peer.pid) {
            let message = format!(
                "process {pid} is not yours to start: ask for yourself or a child of yours"
            );
            return Err(ApiError::new(ErrorKind::Denied, message));
        }
        may_give(peer, self.is_admin(peer), process.uid, &request.terms)?;
        let mut gates = lock(&self.gates);
        self.admit(peer)?;
        let raw = RawTerms::from_map(&request.terms, &Source::RunFlag);
        if let Some(index) = self.asked_before(&gates, pid, request) {
            let reply = self.run_again(peer, &mut gates[index], &process, request, &raw)?;
            self.publish(&gates)?;
            return Ok(reply);
        }
        self.check_confinement(peer, &gates, pid)?;
        let name = self.name_for(&gates, request)?;
        let parent = self.gate_of(&gates, pid);
        let record = Record {
            name: name.to_string(),
            target: "run".to_owned(),
            by_admin: self.by_admin(peer, &raw),
            raw,
            uid: process.uid,
            command: request.command.clone(),
            parent: parent.map(|gate| gate.record.name.clone()),
            made_ns: self.clock.now_ns(),
            attachment: Attachment::Owned {
                group: GroupPath::root(),
            },
            notes: Vec::new(),
        };
        let mut gate =
            Gate::new(record, &self.config).map_err(|error| refuse(ErrorKind::Usage)(&error))?;
        if gate.class() != Class::Side
            && let Some(outer) = parent.filter(|outer| outer.class() == Class::Side)
        {
            let message = format!(
                "this shell is inside the side gate {}: {} work in it would let side work escape",
                outer.record.name,
                gate.class()
            );
            return Err(
                ApiError::new(ErrorKind::Denied, message).with_mend("start it from outside")
            );
        }
        self.enter(&mut gate, &process)?;
        let reply = reply_of(&gate);
        info!(gate = reply.gate, class = %gate.class(), pid, "new gate");
        gates.push(gate);
        self.publish(&gates)?;
        Ok(reply)
    }

    fn name_for(&self, gates: &[Gate], request: &RunRequest) -> Result<GateName, ApiError> {
        let names: BTreeSet<&str> = gates.iter().map(|gate| gate.record.name.as_str()).collect();
        let taken = |name: &GateName| names.contains(name.as_str());
        if let Some(asked) = &request.name {
            let name = GateName::parse(asked).map_err(|error| refuse(ErrorKind::Usage)(&error))?;
            if taken(&name) {
                let message = format!("gate name: {asked:?}: there is a gate of that name");
                return Err(ApiError::new(ErrorKind::Usage, message).with_mend("choose another"));
            }
            return Ok(name);
        }
        let program = request.command.first().map_or("command", String::as_str);
        // Endless, but for a machine with 2^32 gates of one name.
        (0..=u32::MAX)
            .filter(|number| *number != 1)
            .map(|number| GateName::from_command(program, number))
            .find(|name| !taken(name))
            .ok_or_else(|| {
                ApiError::new(
                    ErrorKind::Busy,
                    format!("gate name: {program}: all are taken"),
                )
            })
    }

    /// The gate in whose group the process is.
    fn gate_of<'g>(&self, gates: &'g [Gate], pid: i32) -> Option<&'g Gate> {
        let at = self.groups.group_of(pid).ok()??;
        gates
            .iter()
            .filter(|gate| !matches!(gate.record.attachment, Attachment::Observed { .. }))
            .filter(|gate| at.is_within(gate.record.attachment.group()))
            .max_by_key(|gate| gate.record.attachment.group().as_str().len())
    }

    /// Ends the agent.
    pub fn stop(&self, peer: &Peer) -> Result<Done, ApiError> {
        if !self.is_admin(peer) {
            let detail = "stop: without privilege you cannot end the agent";
            return Err(ApiError::new(ErrorKind::Denied, detail).with_mend(ask_an_admin()));
        }
        let orphans = self.leave();
        let message = match orphans {
            0 => "the agent has left; everything it had written was restored".to_owned(),
            n => format!(
                "the agent has left; {n} running side commands keep cpu.idle and a static quota until they end"
            ),
        };
        Ok(Done { message })
    }
}

/// What the command is told of its gate.
pub(crate) fn reply_of(gate: &Gate) -> RunReply {
    RunReply {
        gate: gate.record.name.clone(),
        cgroup: gate.record.attachment.group().to_string(),
        notes: gate.record.notes.clone(),
    }
}

/// The same, for many gates: `root` is the side root.
pub(crate) fn limited_below<'g>(root: &'g GroupPath, gate: &'g Gate) -> Option<&'g GroupPath> {
    let group = gate.record.attachment.group();
    let limited = gate.is_limited() && !gate.away;
    limited.then(|| if group.is_within(root) { root } else { group })
}

pub(crate) fn no_gate(target: &str) -> ApiError {
    ApiError::new(
        ErrorKind::NotFound,
        format!("{target}: there is no such gate"),
    )
    .with_mend("see `tidegate show`")
}

/// A gate by its target, by `gate:NAME`, or by its bare name.
pub fn find_in(gates: &[Gate], target: &str) -> Result<usize, ApiError> {
    let name = target.strip_prefix("gate:").unwrap_or(target);
    // `unit:nginx` is `unit:nginx.service`.
    let full = match Target::parse(target) {
        Ok(Target::Unit(unit)) => format!("unit:{unit}"),
        _ => target.to_owned(),
    };
    gates
        .iter()
        .position(|gate| gate.record.name == name || gate.record.target == full && target != "run")
        .ok_or_else(|| no_gate(target))
}

fn parent_of(fs: &dyn KernelFs, pid: i32) -> Option<i32> {
    let stat = fs
        .read(std::path::Path::new(&format!("/proc/{pid}/stat")))
        .ok()?;
    tidegate_knobs::target::stat_field(&stat, 4).map(|parent| parent as i32)
}
