//! The call that makes a gate of a new command. A command asks again where the agent that made its
//! gate died before it answered.

use std::sync::atomic::Ordering;

use tidegate_api::{ApiError, ApiResult, ErrorKind, RunReply, RunRequest};
use tidegate_cgroup::KernelFs;
use tidegate_cgroup::group::GroupPath;
use tidegate_cgroup::target::{GateName, HeldProcess, ProcessRef};
use tidegate_engine::sync::lock;
use tidegate_terms::{Class, RawTerms, Source};
use tracing::info;

use crate::agent::Agent;
use crate::errors::{about, not_found, of_group, usage};
use crate::events::EventKind;
use crate::gates::budget::{check_descriptors, check_room, check_size};
use crate::gates::privilege::only_tightens;
use crate::gates::{Attachment, Gate, Record, free_name};
use crate::kernel::Kernel;
use crate::peer::{Peer, by_admin, charged, is_admin, may_give};
use crate::runtime::attach::agree;
use crate::runtime::confinement::{Place, left_limit, place_of};
use crate::runtime::cpuset_controller::gather_cpuset;
use crate::runtime::jobserver;
use crate::runtime::limits::{end_gates, ensure_side_root, enter};
use crate::runtime::measure::has_ended;
use crate::runtime::publish::publish;
use crate::systemd::own_unit::bring_in;

impl Agent {
    /// Called with the gates locked: leaving begins under that lock, so an admitted call ends
    /// before the agent does.
    pub(crate) fn admit(&self, peer: &Peer) -> ApiResult<()> {
        if self.life.leaving.load(Ordering::Acquire) {
            return Err(
                ApiError::new(ErrorKind::Leaving, "agent: it is leaving").with_remedy("try again")
            );
        }
        if lock(&self.gates.rate).admit(peer.charged_to(), self.runtime.kernel.clock.now_ns()) {
            return Ok(());
        }
        let message = format!(
            "agent: uid {} changes gates too often (each change writes quotas)",
            peer.uid
        );
        Err(ApiError::new(ErrorKind::Busy, message).with_remedy("wait a second"))
    }

    /// A new gate around the calling process, which then becomes the command.
    pub fn run(&self, peer: &Peer, request: &RunRequest) -> ApiResult<RunReply> {
        let kernel = &self.runtime.kernel;
        let pid = if request.pid == 0 {
            peer.pid
        } else {
            request.pid
        };
        let held = HeldProcess::hold(&*kernel.fs, pid).map_err(not_found)?;
        let process = &held.process;
        if pid != peer.pid && parent_of(&*kernel.fs, pid) != Some(peer.pid) {
            let message = format!(
                "process {pid} is not yours to start: ask for yourself or a child of yours"
            );
            return Err(ApiError::new(ErrorKind::Denied, message));
        }
        check_size(&request.terms)?;
        may_give(peer, is_admin(peer), process.uid, &request.terms)
            .map_err(about(&format!("process {pid}")))?;
        bring_in(kernel, pid, true)?;
        let mut gates = self.gates.lock();
        self.admit(peer)?;
        let raw = RawTerms::from_map(&request.terms, &Source::RunFlag);
        if let Some(name) = &request.name {
            let is_free = |gate: &Gate| gate.record.name == *name && has_ended(&self.runtime, gate);
            if end_gates(&self.runtime, &mut gates, is_free) {
                publish(&self.runtime, &gates)?;
            }
        }
        let known = match asked_before(kernel, &gates, pid, request) {
            None => self.gate_to_join(peer, &gates, process, request)?,
            known => known,
        };
        if let Some(index) = known {
            self.run_again(peer, &mut gates[index], &held, request, &raw)?;
            publish(&self.runtime, &gates)?;
            return Ok(self.reply_of(&gates, &gates[index]));
        }
        let place = place_of(kernel, peer, &gates, pid)?;
        let settings = &self.runtime.settings;
        let moves = place != Place::Root;
        check_room(
            &gates,
            (peer.charged_to(), moves),
            &kernel.side_root(),
            settings,
        )?;
        check_descriptors(peer.charged_to())?;
        let name = self.name_for(&gates, request)?;
        let parent = kernel.gate_of(&gates, pid);
        let attachment = Attachment::Owned {
            group: GroupPath::root(),
        };
        let record = Record {
            by_admin: by_admin(peer, &raw),
            uid: process.uid,
            charged: charged(peer, process.uid),
            command: RunRequest::begin_of_command(&request.command),
            parent: parent.map(|gate| gate.record.name.clone()),
            made_ns: kernel.clock.now_ns(),
            ..Record::new(name.to_string(), "run", raw, attachment)
        };
        let mut gate = Gate::new(record, &self.gates.config()).map_err(usage)?;
        if gate.class() != Class::Side
            && let Some(outer) = parent.filter(|outer| outer.class() == Class::Side)
        {
            let message = format!(
                "this shell is inside the side gate {}: {} work in it would let side work escape",
                outer.record.name,
                gate.class()
            );
            return Err(
                ApiError::new(ErrorKind::Denied, message).with_remedy("start it from outside")
            );
        }
        let from = kernel.groups.group_of(pid).ok().flatten();
        enter(&self.runtime, &mut gate, &held, &place)?;
        let left = from.and_then(|from| left_limit(kernel, &from, gate.record.attachment.group()));
        gate.record.notes.extend(left);
        let reply = self.reply_of(&gates, &gate);
        let what = format!("{} work of process {pid}", gate.class());
        gates.push(gate);
        let events = &self.runtime.events;
        events.tell(EventKind::GateCreated, Some(&reply.gate), what);
        publish(&self.runtime, &gates)?;
        Ok(reply)
    }

    /// The gate that the caller asks to enter, if it is there.
    fn gate_to_join(
        &self,
        peer: &Peer,
        gates: &[Gate],
        process: &ProcessRef,
        request: &RunRequest,
    ) -> ApiResult<Option<usize>> {
        let name = request.name.as_ref().filter(|_| request.join);
        let found = name.and_then(|name| gates.iter().position(|gate| gate.record.name == *name));
        let Some(index) = found else {
            return Ok(None);
        };
        let gate = &gates[index];
        let refused = |kind, why: String| {
            let message = format!("gate {}: {why}", gate.record.name);
            Err(ApiError::new(kind, message)
                .with_remedy("leave --join out, and choose another name"))
        };
        if !is_admin(peer) && gate.record.uid != process.uid {
            let why = format!(
                "uid {} made it, and only that user can enter it",
                gate.record.uid
            );
            return refused(ErrorKind::Denied, why);
        }
        let Attachment::Owned { group } = &gate.record.attachment else {
            return refused(ErrorKind::Usage, "it was not made by `run`".to_owned());
        };
        let class = gate.class().to_string();
        if request
            .terms
            .get("class")
            .is_some_and(|asked| *asked != class)
        {
            return refused(ErrorKind::Usage, format!("it is of class {class}"));
        }
        match place_of(&self.runtime.kernel, peer, gates, process.pid)? {
            Place::Below(own) if !group.is_within(&own) => {
                let why =
                    format!("its group {group} is not below {own}, which the caller cannot leave");
                refused(ErrorKind::Denied, why)
            }
            _ => Ok(Some(index)),
        }
    }

    fn name_for(&self, gates: &[Gate], request: &RunRequest) -> ApiResult<GateName> {
        let mut names = self.runtime.unread_names();
        names.extend(gates.iter().map(|gate| gate.record.name.clone()));
        let taken = |name: &str| names.contains(name);
        if let Some(asked) = &request.name {
            let name = GateName::parse(asked).map_err(usage)?;
            if taken(name.as_str()) {
                let message = format!("gate name: {asked:?}: a gate of that name has tasks");
                return Err(ApiError::new(ErrorKind::Usage, message)
                    .with_remedy("choose another name, or enter that gate with --join"));
            }
            return Ok(name);
        }
        let program = request.command.first().map_or("command", String::as_str);
        free_name(program, taken)
    }

    /// The process enters a gate that is there. The gate's terms stay, but for what is asked for
    /// now: any process in it can ask, so what was set with privilege since must neither be wiped
    /// nor loosened by it.
    pub(crate) fn run_again(
        &self,
        peer: &Peer,
        gate: &mut Gate,
        held: &HeldProcess,
        request: &RunRequest,
        asked: &RawTerms,
    ) -> ApiResult<()> {
        let kernel = &self.runtime.kernel;
        let process = &held.process;
        let mut record = gate.record.clone();
        record.raw.merge(asked);
        record.by_admin.extend(by_admin(peer, asked));
        if record.command.is_empty() {
            record.uid = process.uid;
            record.command = RunRequest::begin_of_command(&request.command);
        }
        record.notes.clear();
        let changed = Gate::new(record, &self.gates.config()).map_err(usage)?;
        if !is_admin(peer) {
            only_tightens(gate, &changed)?;
        }
        if changed.class() == Class::Side {
            ensure_side_root(&self.runtime, Some(&changed))?;
        }
        // The first agent may have died between two hierarchies.
        let group = gate.record.attachment.group().clone();
        let placement = kernel.groups.place(&group, process.pid);
        let placement = placement.map_err(of_group)?;
        kernel.check_moved(&placement, held)?;
        gather_cpuset(&self.runtime);
        agree(&self.runtime, gate, changed)?;
        info!(gate = gate.record.name, pid = process.pid, "entered");
        Ok(())
    }

    fn reply_of(&self, gates: &[Gate], gate: &Gate) -> RunReply {
        let record = &gate.record;
        let (jobserver, refused) = match jobserver::enter(&self.runtime, gates, gate) {
            Some(Ok(fifo)) => (Some(fifo), None),
            Some(Err(refused)) => (None, Some(refused)),
            None => (None, None),
        };
        RunReply {
            gate: record.name.clone(),
            cgroup: record.attachment.group().to_string(),
            notes: record.notes.iter().cloned().chain(refused).collect(),
            jobserver,
        }
    }
}

/// The gate that an earlier agent had made for this very request when it died: the process is alone
/// in it, and asks again because it had no answer.
fn asked_before(kernel: &Kernel, gates: &[Gate], pid: i32, request: &RunRequest) -> Option<usize> {
    let at = kernel.groups.group_of(pid).ok()??;
    let index = gates.iter().position(|gate| {
        let record = &gate.record;
        // The record of a gate that was not yet written down is lost, and its command with it.
        let same_command = record.command.is_empty()
            || record.command == RunRequest::begin_of_command(&request.command);
        let same_name = request
            .name
            .as_ref()
            .is_none_or(|asked| *asked == record.name);
        let own = matches!(&record.attachment, Attachment::Owned { group } if at.is_within(group));
        // Another class is another request: work in a side gate that asks to be main is to be
        // refused.
        let same_class = request.terms.get("class").map(String::as_str)
            == Some(gate.class().to_string().as_str());
        own && same_command && same_name && same_class
    })?;
    let alone = kernel.groups.procs(&at).is_ok_and(|pids| pids == [pid]);
    alone.then_some(index)
}

fn parent_of(fs: &dyn KernelFs, pid: i32) -> Option<i32> {
    let stat = fs
        .read(std::path::Path::new(&format!("/proc/{pid}/stat")))
        .ok()?;
    tidegate_cgroup::target::stat_field(&stat, 4).map(|parent| parent as i32)
}
