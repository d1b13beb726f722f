//! The owner: what it holds, and the calls that change gates.
//!
//! Two locks, always taken in this order: `gates`, then `control`. The loop takes only `control`, so no call holds that while
//! it touches a file.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tidegate_knobs::discover::Machine;
use tidegate_knobs::group::{GroupPath, Groups};
use tidegate_knobs::kfs::KernelFs;
use tidegate_knobs::target::{GateName, ProcessRef, Target};
use tidegate_terms::{Class, Config, RawTerms, Settings, Source};
use tokio::sync::Notify;
use tracing::{info, warn};

use crate::api::{Done, GateView, RunReply, RunRequest, SetRequest, UnsetRequest};
use crate::books::Books;
use crate::control::Control;
use crate::gate::{Gate, Place, Record};
use crate::lease::{Lease, monotonic_ns};
use crate::looper::lock;
use crate::paths::RunDir;
use crate::peer::{ADMIN_GROUP, Peer, gid_of, may_give};
use crate::rate::RateLimit;
use crate::server::{LEAVING, Refusal};

pub use crate::startup::{Options, main};

/// How the owner was started, which decides when it leaves.
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
pub struct Owner {
    /// Where it lives.
    pub run_dir: RunDir,
    /// How it was started.
    pub mode: Mode,
    /// What the machine can do.
    pub machine: Machine,
    /// The way to kernel files.
    pub fs: Arc<dyn KernelFs>,
    /// The way to groups.
    pub groups: Arc<Groups>,
    /// The files' terms.
    pub config: Config,
    /// The machine's settings.
    pub settings: Settings,
    /// What was written over what.
    pub books: Arc<Mutex<Books>>,
    /// Every gate.
    pub gates: Mutex<Vec<Gate>>,
    /// The loop's state.
    pub control: Arc<Mutex<Control>>,
    /// The page shared with the guardian.
    pub lease: Arc<Lease>,
    /// The kernel's tick.
    pub tick_ns: u64,
    /// The loop's period while something is limited.
    pub period_ns: u64,
    /// Which sensing, and why.
    pub sensing_note: String,
    /// When this owner started.
    pub started_ns: u64,
    /// The owner's own CPU.
    pub own_cpu_pct: Mutex<f64>,
    /// What needs a person.
    pub alerts: Mutex<BTreeSet<String>>,
    /// Calls that change something, per user.
    pub rate: Mutex<RateLimit>,
    /// Set once, when the owner leaves.
    pub leaving: Arc<AtomicBool>,
    /// Woken then.
    pub left: Notify,
}

/// Anything that went wrong with the machine becomes a refusal with its own words.
pub fn refuse(kind: &'static str) -> impl Fn(&dyn std::fmt::Display) -> Refusal {
    move |error| Refusal::new(kind, error.to_string())
}

impl Owner {
    /// Waits until the owner leaves.
    pub async fn left(&self) {
        while !self.leaving.load(Ordering::Acquire) {
            self.left.notified().await;
        }
    }

    /// A group of ours at the top: `<prefix>-side` and so on.
    fn root_named(&self, what: &str) -> GroupPath {
        let name = format!("{}-{what}", self.run_dir.prefix());
        // The prefix was checked when the owner started.
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
        if !gate.is_limited() {
            return None;
        }
        let group = gate.record.place.group();
        let root = self.side_root();
        Some(if group.is_within(&root) {
            root
        } else {
            group.clone()
        })
    }

    /// Processes in `group` and the groups in it.
    pub fn processes_below(&self, group: &GroupPath, depth: u32) -> usize {
        let here = self.groups.procs(group).map_or(0, |pids| pids.len());
        if depth == 0 {
            return here;
        }
        let children = self.groups.children(group).unwrap_or_default();
        here + children
            .iter()
            .map(|child| self.processes_below(child, depth - 1))
            .sum::<usize>()
    }

    fn is_admin(&self, peer: &Peer) -> bool {
        let group_file = std::fs::read_to_string("/etc/group").unwrap_or_default();
        peer.is_admin(gid_of(&group_file, ADMIN_GROUP))
    }

    /// Called with the gates locked: leaving begins under that lock, so whoever is admitted is still within an owner's life.
    fn admit(&self, peer: &Peer) -> Result<(), Refusal> {
        if self.leaving.load(Ordering::Acquire) {
            return Err(Refusal::new(LEAVING, "owner: it is leaving; try again"));
        }
        if lock(&self.rate).admit(peer.uid, monotonic_ns()) {
            return Ok(());
        }
        let message = format!(
            "owner: uid {} changes gates too often (each change writes quotas); wait a second",
            peer.uid
        );
        Err(Refusal::new("busy", message))
    }

    /// The gate that `target` names.
    pub fn find(&self, target: &str) -> Result<usize, Refusal> {
        let gates = lock(&self.gates);
        find_in(&gates, target)
    }

    /// A new gate around the calling process, which then becomes the command.
    pub fn run(&self, peer: &Peer, request: &RunRequest) -> Result<RunReply, Refusal> {
        let pid = if request.pid == 0 {
            peer.pid
        } else {
            request.pid
        };
        let process =
            ProcessRef::look_up(&*self.fs, pid).map_err(|error| refuse("not_found")(&error))?;
        if pid != peer.pid && parent_of(&*self.fs, pid) != Some(peer.pid) {
            let message = format!(
                "process {pid} is not yours to start: ask for yourself or a child of yours"
            );
            return Err(Refusal::new("denied", message));
        }
        may_give(peer, self.is_admin(peer), process.uid, &request.terms)
            .map_err(|error| refuse("denied")(&error))?;
        let mut gates = lock(&self.gates);
        self.admit(peer)?;
        let raw = RawTerms::from_map(&request.terms, &Source::RunFlag);
        let name = match self.asked_before(&gates, pid, request) {
            Some(index) => GateName::parse(&gates.remove(index).record.name)
                .map_err(|error| refuse("internal")(&error))?,
            None => self.name_for(&gates, request)?,
        };
        let parent = self.gate_of(&gates, pid);
        let record = Record {
            name: name.to_string(),
            target: "run".to_owned(),
            raw,
            uid: process.uid,
            command: request.command.clone(),
            parent: parent.map(|gate| gate.record.name.clone()),
            made_ns: monotonic_ns(),
            place: Place::Own {
                group: GroupPath::root(),
            },
            notes: Vec::new(),
        };
        let mut gate = Gate::new(record, &self.config).map_err(|error| refuse("usage")(&error))?;
        if gate.class() != Class::Side
            && let Some(outer) = parent.filter(|outer| outer.class() == Class::Side)
        {
            let message = format!(
                "this shell is inside the side gate {}: {} work in it would let side work escape; start it \
                 from outside",
                outer.record.name,
                gate.class()
            );
            return Err(Refusal::new("denied", message));
        }
        self.enter(&mut gate, pid)?;
        let reply = RunReply {
            gate: gate.record.name.clone(),
            cgroup: gate.record.place.group().to_string(),
            notes: gate.record.notes.clone(),
        };
        info!(gate = reply.gate, class = %gate.class(), pid, "new gate");
        gates.push(gate);
        self.publish(&gates)?;
        Ok(reply)
    }

    /// The gate that an earlier owner had made for this very request when it died: the process is alone in it, and asks
    /// again because it had no answer.
    fn asked_before(&self, gates: &[Gate], pid: i32, request: &RunRequest) -> Option<usize> {
        let at = self.groups.group_of(pid).ok()??;
        let index = gates.iter().position(|gate| {
            let record = &gate.record;
            // The record of a gate that was not yet written down is lost, and its command with it.
            let same_command = record.command.is_empty() || record.command == request.command;
            let same_name = request
                .name
                .as_ref()
                .is_none_or(|asked| *asked == record.name);
            let own = matches!(&record.place, Place::Own { group } if *group == at);
            own && same_command && same_name
        })?;
        let alone = self.groups.procs(&at).is_ok_and(|pids| pids == [pid]);
        alone.then_some(index)
    }

    fn name_for(&self, gates: &[Gate], request: &RunRequest) -> Result<GateName, Refusal> {
        let taken = |name: &GateName| gates.iter().any(|gate| gate.record.name == name.as_str());
        if let Some(asked) = &request.name {
            let name = GateName::parse(asked).map_err(|error| refuse("usage")(&error))?;
            if taken(&name) {
                let message =
                    format!("gate name: {asked:?}: there is a gate of that name; choose another");
                return Err(Refusal::new("usage", message));
            }
            return Ok(name);
        }
        let program = request.command.first().map_or("command", String::as_str);
        // Endless, but for a machine with 2^32 gates of one name.
        (0..=u32::MAX)
            .filter(|number| *number != 1)
            .map(|number| GateName::from_command(program, number))
            .find(|name| !taken(name))
            .ok_or_else(|| Refusal::new("busy", format!("gate name: {program}: all are taken")))
    }

    /// The gate in whose group the process is.
    fn gate_of<'g>(&self, gates: &'g [Gate], pid: i32) -> Option<&'g Gate> {
        let at = self.groups.group_of(pid).ok()??;
        gates
            .iter()
            .filter(|gate| !matches!(gate.record.place, Place::Known { .. }))
            .filter(|gate| at.is_within(gate.record.place.group()))
            .max_by_key(|gate| gate.record.place.group().as_str().len())
    }

    /// Terms for something that runs already.
    pub fn set(&self, peer: &Peer, request: &SetRequest) -> Result<GateView, Refusal> {
        let target = Target::parse(&request.target).map_err(|error| refuse("usage")(&error))?;
        let asked = RawTerms::from_map(&request.terms, &Source::Set);
        asked.check().map_err(|error| refuse("usage")(&error))?;
        let mut gates = lock(&self.gates);
        let known = find_in(&gates, &request.target).ok();
        let owner_uid = match (known, &target) {
            (Some(index), _) => gates[index].record.uid,
            (None, Target::Pid(pid)) => {
                ProcessRef::look_up(&*self.fs, *pid)
                    .map_err(|error| refuse("not_found")(&error))?
                    .uid
            }
            (None, Target::Cgroup(group)) => {
                self.groups
                    .stat(group)
                    .map_err(|error| refuse("not_found")(&error))?
                    .uid
            }
            (None, Target::Gate(_)) => return Err(no_gate(&request.target)),
        };
        let effective = match known {
            Some(index) => with_class_of(&gates[index], &request.terms),
            None => request.terms.clone(),
        };
        may_give(peer, self.is_admin(peer), owner_uid, &effective)
            .map_err(|error| refuse("denied")(&error))?;
        self.admit(peer)?;
        let name = match known {
            Some(index) => self.change(&mut gates[index], &asked)?,
            None => {
                let gate = self.adopt_target(&gates, &target, asked, owner_uid)?;
                let name = gate.record.name.clone();
                gates.push(gate);
                name
            }
        };
        let published = self.publish(&gates);
        if published.is_err()
            && known.is_none()
            && let Some(gate) = gates.pop()
        {
            // The next owner would not know of it: rather not at all.
            if let Err(error) = self.release(&gate).and_then(|()| self.publish(&gates)) {
                warn!("gate {name}: {error}");
            }
        }
        published?;
        drop(gates);
        let found = self
            .status()
            .gates
            .into_iter()
            .find(|gate| gate.name == name);
        found.ok_or_else(|| {
            Refusal::new(
                "not_found",
                format!("{}: it has just ended", request.target),
            )
        })
    }

    /// New terms for a gate that is there.
    fn change(&self, gate: &mut Gate, asked: &RawTerms) -> Result<String, Refusal> {
        let mut record = gate.record.clone();
        record.raw.merge(asked);
        let changed = Gate::new(record, &self.config).map_err(|error| refuse("usage")(&error))?;
        if changed.class() != gate.class() {
            if matches!(gate.record.place, Place::Own { .. }) {
                let message = format!(
                    "class: gate {}: the class of a running command cannot change; start it again with --{}",
                    gate.record.name,
                    changed.class()
                );
                return Err(Refusal::new("usage", message));
            }
            self.release(gate)?;
            let place = self.place_after_release(gate);
            let mut again = changed;
            if let Err(refusal) = self.limit_place(&mut again, place.clone()) {
                // As it was, as far as that can be had.
                if let Err(error) = self.limit_place(gate, place) {
                    warn!("gate {}: {error}", gate.record.name);
                }
                return Err(refusal);
            }
            *gate = again;
            return Ok(gate.record.name.clone());
        }
        if changed.weight() != gate.weight() && gate.is_limited() {
            self.write_weight(&changed)?;
        }
        gate.record = changed.record;
        gate.terms = changed.terms;
        Ok(gate.record.name.clone())
    }

    /// Where a gate's work sits once nothing of ours acts on it: a process that was moved is back where it was.
    fn place_after_release(&self, gate: &Gate) -> Place {
        match &gate.record.place {
            Place::Lent {
                placement,
                start_ticks,
            } => Place::Known {
                pid: placement.pid,
                start_ticks: *start_ticks,
                group: self
                    .groups
                    .group_of(placement.pid)
                    .ok()
                    .flatten()
                    .unwrap_or_else(GroupPath::root),
            },
            place => place.clone(),
        }
    }

    /// A gate around a process or group that was there before.
    fn adopt_target(
        &self,
        gates: &[Gate],
        target: &Target,
        raw: RawTerms,
        uid: u32,
    ) -> Result<Gate, Refusal> {
        let taken = |name: &str| gates.iter().any(|gate| gate.record.name == name);
        let (wanted, place) = match target {
            Target::Pid(pid) => {
                let process = ProcessRef::look_up(&*self.fs, *pid)
                    .map_err(|error| refuse("not_found")(&error))?;
                let group = self
                    .groups
                    .group_of(*pid)
                    .map_err(|error| refuse("not_found")(&error))?;
                let place = Place::Known {
                    pid: *pid,
                    start_ticks: process.start_ticks,
                    group: group.unwrap_or_else(GroupPath::root),
                };
                (process.comm, place)
            }
            Target::Cgroup(group) => (
                group.name().to_owned(),
                Place::Foreign {
                    group: group.clone(),
                },
            ),
            Target::Gate(name) => return Err(no_gate(name.as_str())),
        };
        let name = (0..=u32::MAX)
            .filter(|number| *number != 1)
            .map(|number| GateName::from_command(&wanted, number))
            .find(|name| !taken(name.as_str()))
            .ok_or_else(|| Refusal::new("busy", "gate name: all are taken"))?;
        let record = Record {
            name: name.to_string(),
            target: target.to_string(),
            raw,
            uid,
            command: Vec::new(),
            parent: None,
            made_ns: monotonic_ns(),
            place: place.clone(),
            notes: Vec::new(),
        };
        let mut gate = Gate::new(record, &self.config).map_err(|error| refuse("usage")(&error))?;
        self.limit_place(&mut gate, place)?;
        info!(gate = gate.record.name, class = %gate.class(), target = gate.record.target, "new gate");
        Ok(gate)
    }

    /// Takes terms back; all of them ends the gate.
    pub fn unset(&self, peer: &Peer, request: &UnsetRequest) -> Result<Done, Refusal> {
        let mut gates = lock(&self.gates);
        let index = find_in(&gates, &request.target)?;
        let uid = gates[index].record.uid;
        if !self.is_admin(peer) {
            let message = format!(
                "unset: gate {}: taking limits back gives its work more (uid {uid} made it), and without privilege you \
                 can only tighten; ask root or a member of the group `{ADMIN_GROUP}`",
                gates[index].record.name
            );
            return Err(Refusal::new("denied", message));
        }
        self.admit(peer)?;
        let name = gates[index].record.name.clone();
        let message = if request.terms.is_empty() {
            if matches!(gates[index].record.place, Place::Own { .. }) {
                let message = format!(
                    "unset: gate {name}: it was made by `run` and ends with its command; name the terms to take back"
                );
                return Err(Refusal::new("usage", message));
            }
            self.release(&gates[index])?;
            gates.remove(index);
            format!("gate {name} has ended; what it had written was restored")
        } else {
            let gate = &mut gates[index];
            let mut record = gate.record.clone();
            for term in &request.terms {
                if record.raw.0.remove(term).is_none() {
                    let message = format!(
                        "unset: {term}: gate {name} was not given it; see `tidegate show gate:{name}`"
                    );
                    return Err(Refusal::new("usage", message));
                }
            }
            let changed =
                Gate::new(record, &self.config).map_err(|error| refuse("usage")(&error))?;
            if changed.class() != gate.class() {
                return Err(Refusal::new(
                    "usage",
                    "unset: class: a gate has one; use set to change it",
                ));
            }
            self.write_weight(&changed)?;
            *gate = changed;
            format!("gate {name}: {} taken back", request.terms.join(", "))
        };
        self.publish(&gates)?;
        Ok(Done { message })
    }

    /// Ends the owner.
    pub fn stop(&self, peer: &Peer) -> Result<Done, Refusal> {
        if !self.is_admin(peer) {
            let message = format!("stop: ask root or a member of the group `{ADMIN_GROUP}`");
            return Err(Refusal::new("denied", message));
        }
        let orphans = self.leave();
        let message = match orphans {
            0 => "the owner has left; everything it had written was restored".to_owned(),
            n => format!(
                "the owner has left; {n} running side commands keep cpu.idle and a static quota until they end"
            ),
        };
        Ok(Done { message })
    }
}

fn with_class_of(gate: &Gate, terms: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut all = terms.clone();
    all.entry("class".to_owned())
        .or_insert_with(|| gate.class().to_string());
    all
}

fn no_gate(target: &str) -> Refusal {
    Refusal::new(
        "not_found",
        format!("{target}: there is no such gate; see `tidegate show`"),
    )
}

/// A gate by its target, by `gate:NAME`, or by its bare name.
pub fn find_in(gates: &[Gate], target: &str) -> Result<usize, Refusal> {
    let name = target.strip_prefix("gate:").unwrap_or(target);
    gates
        .iter()
        .position(|gate| {
            gate.record.name == name || gate.record.target == target && target != "run"
        })
        .ok_or_else(|| no_gate(target))
}

fn parent_of(fs: &dyn KernelFs, pid: i32) -> Option<i32> {
    let stat = fs
        .read(std::path::Path::new(&format!("/proc/{pid}/stat")))
        .ok()?;
    tidegate_knobs::target::stat_field(&stat, 4).map(|parent| parent as i32)
}
