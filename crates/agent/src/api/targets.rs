//! The calls that give terms to processes, groups and gates that are there already, and take them
//! back.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_api::{ApiError, ApiResult, Done, ErrorKind, GateView, SetRequest, UnsetRequest};
use tidegate_cgroup::discover::CgroupVersion;
use tidegate_cgroup::group::GroupPath;
use tidegate_cgroup::target::{HeldProcess, Target, threads_of};
use tidegate_terms::{Class, RawTerms, Source};
use tracing::warn;

use crate::agent::Agent;
use crate::errors::{about, no_gate, no_group, not_found, of_group, usage};
use crate::events::EventKind;
use crate::gates::budget::check_size;
use crate::gates::privilege::only_tightens;
use crate::gates::{Attachment, Gate};
use crate::kernel::Kernel;
use crate::peer::{Peer, as_numbered_here, by_admin, check_admin, is_admin, may_give};
use crate::runtime::attach::agree;
use crate::runtime::confinement::check_confinement;
use crate::runtime::limits::release;
use crate::runtime::make::{AskedGate, Obstacles, change_to, check_limitable, make};
use crate::runtime::publish::publish;
use crate::systemd::group_of_unit;
use crate::systemd::own_unit::bring_in;
use crate::view::gate_named;

/// A group that Tidegate made holds what gates have in common, or one task of a gate: terms there
/// would be taken for the planner's own.
fn check_not_made(kernel: &Kernel, target: &Target) -> ApiResult<()> {
    let Target::Cgroup(group) = target else {
        return Ok(());
    };
    if !kernel.journal().has_made(group) {
        return Ok(());
    }
    let detail = format!("{target}: Tidegate made this group for its gates");
    Err(ApiError::new(ErrorKind::Usage, detail).with_remedy("name one of the gates that are in it"))
}

impl Agent {
    pub fn set(&self, peer: &Peer, request: &SetRequest) -> ApiResult<GateView> {
        let request = &SetRequest {
            target: as_numbered_here(&*self.runtime.kernel.fs, peer, &request.target)?,
            ..request.clone()
        };
        let target = Target::parse(&request.target).map_err(usage)?;
        check_size(&request.terms)?;
        let asked = RawTerms::from_map(&request.terms, &Source::Set);
        asked.check().map_err(usage)?;
        if let Target::Thread(tid) = target
            && let Some(term) = request.terms.keys().find(|term| !is_of_threads(term))
        {
            let detail = format!(
                "{term}: thread {tid} can have a latency hint, a quota and caps, and no other terms"
            );
            let remedy = "name its process with pid:";
            return Err(ApiError::new(ErrorKind::Usage, detail).with_remedy(remedy));
        }
        let of_unit = self.ask_systemd(peer, &target, request)?;
        if let Target::Pid(pid) = target
            && !is_hint_only(&request.terms)
        {
            bring_in(&self.runtime.kernel, pid, request.only)?;
        }
        let mut gates = self.gates.lock();
        let known = self.runtime.kernel.find(&gates, &request.target).ok();
        if known.is_none() {
            check_not_made(&self.runtime.kernel, &target)?;
        }
        let hint_only = is_hint_only(&request.terms)
            && known.is_none_or(|index| gates[index].class() == Class::Neutral);
        let held = match (&target, known) {
            (Target::Pid(pid), None) => {
                let fs = &*self.runtime.kernel.fs;
                Some(HeldProcess::hold(fs, *pid).map_err(not_found)?)
            }
            (Target::Thread(tid), None) => {
                let fs = &*self.runtime.kernel.fs;
                Some(HeldProcess::hold_thread(fs, *tid).map_err(not_found)?)
            }
            _ => None,
        };
        let owner_uid = match (known, &held) {
            (Some(index), _) => gates[index].record.uid,
            (None, Some(held)) => {
                // v1: side work leaves its group. On v2 it stays below it; a hint moves no process.
                let kernel = &self.runtime.kernel;
                if kernel.groups.version() == CgroupVersion::V1 && !hint_only {
                    check_confinement(kernel, peer, &gates, held.process.pid)?;
                }
                held.process.uid
            }
            (None, None) => {
                let group = of_unit.clone().map(Target::Cgroup);
                let of = group.as_ref().unwrap_or(&target);
                self.uid_of(of, &request.target)?
            }
        };
        let effective = match known {
            Some(index) => with_class_of(&gates[index], &request.terms),
            None => request.terms.clone(),
        };
        let judged = judged(&effective, hint_only);
        let is_admin = is_admin(peer);
        may_give(peer, is_admin, owner_uid, &judged).map_err(about(&request.target))?;
        let is_of_init = match target {
            Target::Pid(pid) => pid == 1,
            Target::Thread(tid) => threads_of(&*self.runtime.kernel.fs, 1).contains(&tid),
            _ => false,
        };
        if is_of_init {
            let error = ApiError::new(ErrorKind::Usage, "process 1: it starts and ends all others");
            return Err(error.with_remedy("name a unit, a group or another process"));
        }
        self.admit(peer)?;
        let name = match known {
            Some(index) => {
                let gate = &gates[index];
                if !gate.is_limited() && effective.get("class").is_some_and(|class| class == "side")
                {
                    let attachment = &gate.record.attachment;
                    check_limitable(&self.runtime, &gates, &request.target, attachment)?;
                }
                let privileged = is_admin.then(|| by_admin(peer, &asked));
                self.change(&mut gates, index, &asked, privileged)?
            }
            None => {
                let asked = AskedGate {
                    target,
                    held,
                    of_unit,
                    by_admin: by_admin(peer, &asked),
                    raw: asked,
                    rule: None,
                    ruled: BTreeSet::new(),
                    uid: owner_uid,
                    charged_to: peer.charged_to(),
                    only: request.only,
                };
                let config = self.gates.config();
                let obstacles = Obstacles::by(&self.runtime, &gates);
                let gate = make(&self.runtime, &config, &gates, &obstacles, asked)?;
                let name = gate.record.name.clone();
                gates.push(gate);
                name
            }
        };
        let published = publish(&self.runtime, &gates);
        if published.is_err()
            && known.is_none()
            && let Some(gate) = gates.pop()
        {
            // The next agent would not know of it: rather not at all.
            release(&self.runtime, &gate);
            if let Err(error) = publish(&self.runtime, &gates) {
                warn!("gate {name}: {error}");
            }
        }
        published?;
        self.tell_made(&gates, known);
        drop(gates);
        self.shown(&name, &request.target)
    }

    /// The last gate is new, where none was known before.
    fn tell_made(&self, gates: &[Gate], known: Option<usize>) {
        if let Some(gate) = gates.last().filter(|_| known.is_none()) {
            let record = &gate.record;
            let what = format!("{} work: {}", gate.class(), record.target);
            let events = &self.runtime.events;
            events.tell(EventKind::GateCreated, Some(&record.name), what);
        }
    }

    /// The group of a unit that has no gate yet. The call to systemd is made without the lock of
    /// the gates, after the caller's terms and rate have been checked.
    fn ask_systemd(
        &self,
        peer: &Peer,
        target: &Target,
        request: &SetRequest,
    ) -> ApiResult<Option<GroupPath>> {
        let Target::Unit(unit) = target else {
            return Ok(None);
        };
        let gates = self.gates.lock();
        if self.runtime.kernel.find(&gates, &request.target).is_ok() {
            return Ok(None);
        }
        let judged = judged(&request.terms, is_hint_only(&request.terms));
        may_give(peer, is_admin(peer), peer.uid, &judged).map_err(about(&request.target))?;
        self.admit(peer)?;
        drop(gates);
        group_of_unit(&self.runtime.kernel, unit).map(Some)
    }

    fn shown(&self, name: &str, target: &str) -> ApiResult<GateView> {
        gate_named(&self.gates, &self.runtime, name).ok_or_else(|| {
            ApiError::new(ErrorKind::NotFound, format!("{target}: it has just ended"))
        })
    }

    fn uid_of(&self, target: &Target, text: &str) -> ApiResult<u32> {
        match target {
            Target::Cgroup(group) => {
                let groups = &self.runtime.kernel.groups;
                match groups.stat(group) {
                    Ok(stat) => Ok(stat.uid),
                    Err(error) if error.is_gone() => Err(no_group(groups, text)),
                    Err(error) => Err(of_group(error)),
                }
            }
            Target::Pid(_) | Target::Thread(_) | Target::Unit(_) | Target::Gate(_) => {
                Err(no_gate(text))
            }
        }
    }

    /// New terms for a gate that is there; `by_admin` are those that are set with privilege, `None`
    /// without any. What was left to another writer is ours again from here on.
    fn change(
        &self,
        gates: &mut [Gate],
        index: usize,
        asked: &RawTerms,
        by_admin: Option<BTreeSet<String>>,
    ) -> ApiResult<String> {
        let gate = &gates[index];
        let own_group = gate.record.attachment.group();
        self.runtime.control().quotas.take_again(own_group);
        let mut record = gate.record.clone();
        record.raw.merge(asked);
        let privileged = by_admin.is_some();
        record.by_admin.extend(by_admin.unwrap_or_default());
        let changed = Gate::new(record, &self.gates.config()).map_err(usage)?;
        if !privileged {
            only_tightens(gate, &changed)?;
        }
        let name = gate.record.name.clone();
        change_to(&self.runtime, gates, index, changed)?;
        if let Some(group) = self.runtime.kernel.limited_group(&gates[index]) {
            self.runtime.control().quotas.take_again(&group);
        }
        Ok(name)
    }

    /// Takes terms back; all of them ends the gate.
    pub fn unset(&self, peer: &Peer, request: &UnsetRequest) -> ApiResult<Done> {
        let kernel = &self.runtime.kernel;
        let target = as_numbered_here(&*kernel.fs, peer, &request.target)?;
        let mut gates = self.gates.lock();
        let index = kernel.find(&gates, &target)?;
        let uid = gates[index].record.uid;
        let name = gates[index].record.name.clone();
        let detail = format!(
            "unset: gate {name}: taking limits back gives its work more (uid {uid} made it), and without privilege you \
             can only tighten"
        );
        check_admin(peer, detail)?;
        self.admit(peer)?;
        let config = self.gates.config();
        let message = if request.terms.is_empty()
            && let Some(rule) = gates[index].record.rule.clone()
        {
            let place = config.rule(&rule).map(|rule| rule.place.to_string());
            let place = place.unwrap_or_default();
            if gates[index].record.raw.is_empty() {
                let detail =
                    format!("unset: gate {name}: rule {rule} ({place}) gives it its terms");
                return Err(ApiError::new(ErrorKind::Usage, detail)
                    .with_remedy("change the rule, then `tidegate policy apply`"));
            }
            let mut record = gates[index].record.clone();
            record.raw = RawTerms::default();
            record.by_admin = BTreeSet::new();
            let changed = Gate::new(record, &config).map_err(usage)?;
            change_to(&self.runtime, &mut gates, index, changed)?;
            format!("gate {name}: it has the terms of rule {rule} ({place}) alone again")
        } else if request.terms.is_empty() {
            if matches!(gates[index].record.attachment, Attachment::Owned { .. }) {
                let detail =
                    format!("unset: gate {name}: it was made by `run` and ends with its command");
                return Err(ApiError::new(ErrorKind::Usage, detail)
                    .with_remedy("name the terms to take back"));
            }
            let left = release(&self.runtime, &gates[index]);
            gates.remove(index);
            let (events, what) = (&self.runtime.events, "its terms were taken back");
            events.tell(EventKind::GateEnded, Some(&name), what);
            match left.is_empty() {
                true => format!("gate {name} has ended; what it had written was restored"),
                false => format!("gate {name} has ended; {}", left.join("; ")),
            }
        } else {
            let gate = &mut gates[index];
            let mut record = gate.record.clone();
            for term in &request.terms {
                if record.raw.0.remove(term).is_none() {
                    let detail = format!("unset: {term}: gate {name} was not given it");
                    return Err(ApiError::new(ErrorKind::Usage, detail)
                        .with_remedy(format!("see `tidegate status gate:{name}`")));
                }
                record.by_admin.remove(term);
            }
            let changed = Gate::new(record, &config).map_err(usage)?;
            if changed.class() != gate.class() {
                return Err(
                    ApiError::new(ErrorKind::Usage, "unset: class: a gate has one")
                        .with_remedy("use set to change it"),
                );
            }
            agree(&self.runtime, gate, changed)?;
            format!("gate {name}: {} taken back", request.terms.join(", "))
        };
        publish(&self.runtime, &gates)?;
        Ok(Done { message })
    }
}

fn is_hint_only(terms: &BTreeMap<String, String>) -> bool {
    let mut names = terms.keys().map(String::as_str);
    !terms.is_empty() && names.all(|name| matches!(name, "latency" | "latency_inherit"))
}

/// Terms that a thread can have without the others of its process.
fn is_of_threads(term: &str) -> bool {
    matches!(
        term,
        "latency" | "quota" | "period" | "burst" | "cap_hard" | "cap_soft"
    )
}

/// The terms as permission is asked for them: a hint without a class cannot make anything main's
/// equal.
fn judged(terms: &BTreeMap<String, String>, hint_only: bool) -> BTreeMap<String, String> {
    let mut judged = terms.clone();
    if hint_only {
        judged.insert("class".to_owned(), "side".to_owned());
    }
    judged
}

fn with_class_of(gate: &Gate, terms: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut all = terms.clone();
    all.entry("class".to_owned())
        .or_insert_with(|| gate.class().to_string());
    all
}
