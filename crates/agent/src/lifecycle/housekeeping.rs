//! What housekeeping does, row by row of its table (`threads`): gates that have ended, what each
//! uses, outside writes, the guardian, leaving.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::fs::FileType;
use tidegate_engine::control::Target;
use tidegate_engine::ledger::{Change, Entry};
use tidegate_engine::sync::lock;
use tidegate_terms::Engine;
use tracing::{info, warn};

use super::repair::has_records;
use crate::events::EventKind;
use crate::gates::{Attachment, Gate, Gates};
use crate::lifecycle::history_sampler::sample_second;
use crate::lifecycle::leave_if_unused;
use crate::lifecycle::loop_watch::LoopWatch;
use crate::lifecycle::reassert::reassert;
use crate::lifecycle::renew_all;
use crate::lifecycle::round_robin::RoundRobin;
use crate::policy::starts::StartFollower;
use crate::process::program::start_guardian;
use crate::process::{Life, Mode};
use crate::runtime::limits::{end_gates, remove_unused_roots};
use crate::runtime::measure::{has_ended, judge_demands, measure};
use crate::runtime::mechanisms::hint_sweep::sweep_hints;
use crate::runtime::publish::publish;
use crate::runtime::supervise::tell_sched_ext;
use crate::runtime::{GateAlert, Runtime};
use crate::systemd::is_written_by_systemd;
use crate::view::figures::seconds;

/// So many gates are polled each second, and so many entries of the journal compared with what
/// stands. With more, each has its turn less often: what is shown is measured when it is asked for.
const TURNS_PER_POLL: usize = 16;

/// Writes of systemd that follow each other within this are told of once.
const SYSTEMD_QUIET_NS: u64 = 5_000_000_000;
/// Kubelet resizes a pod now and then; what comes more often is a fight.
const OWNER_QUIET_NS: u64 = 10_000_000_000;

/// A new gate is empty until its process is in; an ended one stays empty.
const EMPTY_POLLS_MAX: u32 = 2;

/// A guardian that has not polled for so long may be stopped or stuck: it polls three times in
/// that.
const GUARDIAN_SILENT_NS: u64 = 700_000_000;
/// Or all processes stood still, as on a virtual machine that lost its CPUs: then the guardian
/// polls within this once they go on. In all, a stopped one is replaced within two seconds, which
/// is the lease by default.
const GUARDIAN_GRACE: Duration = Duration::from_millis(300);

/// An agent that was started on demand leaves when it has had no gate for this many polls.
const IDLE_POLLS_MAX: u32 = 3;

/// A value that was written over so often is left to the other writer.
const LEFT_ALONE: u32 = 2;

#[derive(Default)]
pub struct Housekeeping {
    pub(crate) starts: StartFollower,
    pub(crate) vacant_took_ns: u64,
    idle_polls: u32,
    gate_turns: RoundRobin,
    journal_turns: RoundRobin,
    /// The sweep of hints begins at this one of the hinted gates.
    next_hint: usize,
    /// How often an outside write was answered, by entry of the journal.
    answered: BTreeMap<u64, u32>,
    /// When systemd's own value was last written over, by entry of the journal.
    systemds: BTreeMap<u64, u64>,
    /// When an owner's new limit of an entry was last followed.
    owners: BTreeMap<u64, u64>,
    /// The guardian's fallbacks that were answered; none before the first poll.
    fallbacks: Option<u64>,
    guardian: Option<std::process::Child>,
    /// Replaced ones that the kernel has not let go of yet.
    stuck_guardians: Vec<std::process::Child>,
    /// What the agent was asked for by name, which its guardian is to know.
    engine: Option<Engine>,
    loop_watch: LoopWatch,
    late_steps: u64,
}

impl Housekeeping {
    pub fn new(guardian: Option<std::process::Child>) -> Self {
        Self {
            guardian,
            ..Self::default()
        }
    }

    pub fn with_engine(self, engine: Option<Engine>) -> Self {
        Self { engine, ..self }
    }

    pub(crate) fn end(self, runtime: &Runtime) {
        // The guardian sees that the agent left; a zombie of ours would be its only trace. Where
        // commands go on, so does it.
        if let Some(mut guardian) = self.guardian
            && runtime.control_loop.lease.left()
            && !has_records(&runtime.kernel.run_dir)
        {
            let _ = guardian.wait();
        }
    }

    pub(crate) fn note_figures(&mut self, runtime: &Runtime, life: &Life) {
        lock(&life.own_cpu).poll(runtime.kernel.clock.now_ns());
        if life.mode == Mode::OnDemand {
            bound_log();
        }
        self.loop_watch.poll(runtime);
        sample_second(runtime, &mut self.late_steps);
    }

    /// An agent that was started on demand leaves without gates; with rules, it stays for what
    /// starts later.
    pub(crate) fn leave_if_idle(&mut self, registry: &Gates, runtime: &Runtime, life: &Life) {
        let is_needed = life.mode == Mode::Service || !registry.config().rules().is_empty();
        if self.idle_polls >= IDLE_POLLS_MAX && !is_needed {
            leave_if_unused(registry, runtime, life);
        }
    }

    pub(crate) fn poll_gates(&mut self, registry: &Gates, runtime: &Runtime) {
        let kernel = &runtime.kernel;
        let mut gates = registry.lock();
        self.find_ended(runtime, &mut gates);
        let has_been_empty = |gate: &Gate| gate.empty_polls >= EMPTY_POLLS_MAX;
        if end_gates(runtime, &mut gates, has_been_empty) {
            remove_unused_roots(kernel, &runtime.control_loop, &gates);
            if let Err(error) = publish(runtime, &gates) {
                lock(&runtime.alerts).insert(error.to_string());
            }
        }
        self.idle_polls = if gates.is_empty() {
            self.idle_polls + 1
        } else {
            0
        };
        judge_demands(runtime, &gates);
        sweep_hints(kernel, &mut gates, &mut self.next_hint);
    }

    /// Checks the gates that are due and those that were empty before; checks more gates if many
    /// have just ended, since others probably have, too.
    fn find_ended(&mut self, runtime: &Runtime, gates: &mut [Gate]) {
        let now_ns = runtime.kernel.clock.now_ns();
        let decision = runtime.decision();
        let again = (0..gates.len()).filter(|index| gates[*index].empty_polls > 0);
        let mut due: Vec<usize> = again
            .chain(self.gate_turns.turn(gates.len(), TURNS_PER_POLL))
            .collect();
        let mut polled = BTreeSet::new();
        loop {
            let mut newly_empty = 0;
            for index in due.into_iter().filter(|index| polled.insert(*index)) {
                let gate = &mut gates[index];
                measure(runtime, gate, &decision, now_ns);
                let is_populated = gate.record.attachment.placed().is_some() && gate.held.has_tasks;
                gate.empty_polls = if !is_populated && has_ended(runtime, gate) {
                    newly_empty += usize::from(gate.empty_polls == 0);
                    gate.empty_polls + 1
                } else {
                    0
                };
            }
            if newly_empty * 2 < TURNS_PER_POLL || polled.len() == gates.len() {
                return;
            }
            due = self.gate_turns.turn(gates.len(), TURNS_PER_POLL).collect();
        }
    }

    /// What the guardian wrote was no outside write, and what it put back is wanted again.
    pub(crate) fn check_fallback(&mut self, registry: &Gates, runtime: &Runtime) {
        let (fallbacks, silent_ns) = {
            let control = runtime.control();
            (control.fallbacks, control.silent_ns)
        };
        if self.fallbacks.replace(fallbacks).unwrap_or(0) != fallbacks {
            let silent_s = seconds(silent_ns);
            let what = format!(
                "the agent was silent for {silent_s:.1} s, and the guardian wrote the fallback"
            );
            runtime.events.tell(EventKind::LeaseExpired, None, what);
            self.answered.clear();
            renew_all(registry, runtime);
        }
    }

    /// What another writer wrote over what is ours: written again once, then left alone. What
    /// cannot be written again (a process that was moved away) is left at once.
    pub(crate) fn check_outside_writes(&mut self, registry: &Gates, runtime: &Runtime) {
        // A call that is under way has in the journal what it is about to write: it is waited for.
        let gates = registry.lock();
        follow_limits_before(runtime, &gates);
        forget_taken_again(runtime);
        // The loop writes quotas under the journal's lock, so what is read here is not half of one.
        let differing = {
            let journal = runtime.journal();
            let turn = self
                .journal_turns
                .turn(journal.entries().len(), TURNS_PER_POLL);
            journal.outside_writes(turn)
        };
        // What the guardian wrote is ours: the next poll writes everything again.
        let fallbacks = runtime.control().fallbacks;
        if runtime.control_loop.lease.has_fallback()
            || self.fallbacks.is_some_and(|seen| seen != fallbacks)
        {
            return;
        }
        for (entry, found) in differing {
            let mut times = self.answered.get(&entry.id).copied().unwrap_or(0);
            // No fight over the knob: it is done with the start or the reload that made systemd
            // write.
            if is_written_by_systemd(&runtime.kernel, &gates, &entry) {
                // Main does not wait for a full /run.
                if entry.change.is_idle_class()
                    && let Err(error) = runtime.journal().replace_weight_before(&entry.group)
                {
                    warn!("{error}");
                }
                if reassert(runtime, &entry) {
                    self.tell_of_systemd(runtime, &entry, &found);
                    continue;
                }
            }
            let is_quota = matches!(entry.change, Change::Bandwidth { .. });
            if is_quota && follow_owner(runtime, &gates, &entry) {
                continue;
            }
            if is_quota
                && times < LEFT_ALONE
                && self.follow_owner_of_moving(runtime, &gates, &entry)
            {
                self.answered.insert(entry.id, 1);
                continue;
            }
            let is_it = |alert: &GateAlert| alert.left_alone == Some(entry.id);
            if times >= LEFT_ALONE && !lock(&runtime.gate_alerts).iter().any(is_it) {
                // The gate was set again.
                times = 0;
            }
            times = times.saturating_add(1);
            let what = format!("{} of group {}", entry.change.name(), entry.group);
            match times {
                1 if reassert(runtime, &entry) => {
                    let told = format!("{what}: another program wrote {found}; written again once");
                    let events = &runtime.events;
                    events.tell(EventKind::OutsideWrite, Some(&entry.gate), told);
                }
                1 | LEFT_ALONE => {
                    // Once: what is found may change every second.
                    times = LEFT_ALONE;
                    if is_quota {
                        runtime.control().quotas.leave_alone(&entry.group);
                        // Theirs for the scheduler, too.
                        tell_sched_ext(runtime, &gates);
                    }
                    if matches!(entry.change, Change::Cpuset { .. }) {
                        lock(&runtime.cpuset).leave_alone();
                    }
                    let alert = format!(
                        "{what}: another program changed it ({found}); left alone until the gate is set again"
                    );
                    let events = &runtime.events;
                    events.tell(EventKind::OutsideWrite, Some(&entry.gate), &*alert);
                    runtime.alert_of(&entry.gate, Some(entry.id), alert);
                }
                _ => {}
            }
            self.answered.insert(entry.id, times);
        }
    }

    /// The owner of a group in which the loop moves a quota has given it another limit: that is
    /// what will be put back, and the loop stays within it. Another writer that does so again and
    /// again is no owner.
    fn follow_owner_of_moving(&mut self, runtime: &Runtime, gates: &[Gate], entry: &Entry) -> bool {
        let group = &entry.group;
        let is_moving = gates.iter().any(|gate| {
            let is_in_place = matches!(&gate.record.attachment, Attachment::InPlace { .. });
            is_in_place && gate.is_limited() && gate.record.attachment.group() == group
        });
        let now_ns = runtime.kernel.clock.now_ns();
        let last_ns = self.owners.get(&entry.id).copied();
        let is_rare = last_ns.is_none_or(|at_ns| now_ns.saturating_sub(at_ns) >= OWNER_QUIET_NS);
        let Ok(found) = runtime.kernel.groups.bandwidth(group) else {
            return false;
        };
        if !is_moving || !is_rare {
            return false;
        }
        match runtime.journal().replace_before(group, found) {
            Ok(true) => {}
            Ok(false) => return false,
            Err(error) => {
                warn!("gate {}: {error}", entry.gate);
                return false;
            }
        }
        self.owners.insert(entry.id, now_ns);
        reassert(runtime, entry)
    }

    /// A pod or a unit that starts in several steps makes systemd write several times: that is one
    /// line.
    fn tell_of_systemd(&mut self, runtime: &Runtime, entry: &Entry, found: &str) {
        let now_ns = runtime.kernel.clock.now_ns();
        let last_ns = self.systemds.insert(entry.id, now_ns);
        if last_ns.is_none_or(|last_ns| now_ns.saturating_sub(last_ns) >= SYSTEMD_QUIET_NS) {
            info!(
                "{} of group {}: systemd wrote its own ({found}); written again",
                entry.change.name(),
                entry.group
            );
        }
    }

    pub(crate) fn check_guardian(&mut self, runtime: &Runtime, life: &Life) {
        // Its guardian then looks after what is left.
        if life.leaving.load(Ordering::Acquire) {
            return;
        }
        self.stuck_guardians
            .retain_mut(|guardian| matches!(guardian.try_wait(), Ok(None)));
        let has_ended = match &mut self.guardian {
            Some(guardian) => !matches!(guardian.try_wait(), Ok(None)),
            None => true,
        };
        if has_ended {
            let what = "the guardian has ended; starting another";
            runtime.events.tell(EventKind::GuardianReplaced, None, what);
            self.start_guardian(runtime, life);
        } else if self.is_guardian_stuck(runtime) {
            // One that waits in the kernel dies when that lets it; another is started at once.
            if let Some(mut guardian) = self.guardian.take() {
                let _ = guardian.kill();
                self.stuck_guardians.push(guardian);
            }
            let what = "guardian: it had stopped looking after the agent, and was replaced";
            runtime.events.tell(EventKind::GuardianReplaced, None, what);
            lock(&runtime.alerts).insert(what.to_owned());
            self.start_guardian(runtime, life);
        }
    }

    fn is_guardian_stuck(&self, runtime: &Runtime) -> bool {
        self.is_guardian_silent(runtime) && {
            runtime.kernel.clock.sleep(GUARDIAN_GRACE);
            self.is_guardian_silent(runtime)
        }
    }

    fn is_guardian_silent(&self, runtime: &Runtime) -> bool {
        let now_ns = runtime.kernel.clock.now_ns();
        let lease = &runtime.control_loop.lease;
        self.guardian
            .as_ref()
            .and_then(|guardian| lease.guardian_silent_ns(guardian.id() as i32, now_ns))
            .is_some_and(|silent_ns| silent_ns > GUARDIAN_SILENT_NS)
    }

    fn start_guardian(&mut self, runtime: &Runtime, life: &Life) {
        self.guardian = start_guardian(&runtime.kernel.run_dir, life.mode, self.engine)
            .inspect_err(|error| warn!("guardian: {error}"))
            .ok();
    }
}

/// An agent on demand logs to a file in memory, to which every user's calls add: it starts again
/// when it is this long.
const LOG_BYTES_MAX: i64 = 1 << 20;

fn bound_log() {
    let log = std::io::stderr();
    let is_long = rustix::fs::fstat(&log).is_ok_and(|file| {
        let is_file = FileType::from_raw_mode(file.st_mode) == FileType::RegularFile;
        is_file && file.st_size > LOG_BYTES_MAX
    });
    if is_long && let Err(error) = rustix::fs::ftruncate(&log, 0) {
        warn!("agent.log: {error}");
    }
}

/// The quota of the side root serves several gates: its alert ends when any of them is set again.
fn forget_taken_again(runtime: &Runtime) {
    let control = runtime.control();
    let journal = runtime.journal();
    let is_left_alone = |id| {
        let entry = journal.entries().find(|entry| entry.id == id);
        entry.is_some_and(|entry| {
            !entry.change.is_bandwidth() || control.quotas.is_left_alone(&entry.group)
        })
    };
    lock(&runtime.gate_alerts).retain(|alert| alert.left_alone.is_none_or(is_left_alone));
}

/// The loop's quotas stay within the limits that the groups' owners have set since.
fn follow_limits_before(runtime: &Runtime, gates: &[Gate]) {
    let changed: Vec<_> = {
        let mut control = runtime.control();
        let journal = runtime.journal();
        let targets = control.quotas.targets().iter();
        let differs =
            |target: &&Target| target.before_ucpu() != journal.limit_before(&target.group);
        targets
            .filter(differs)
            .map(|target| target.group.clone())
            .collect()
    };
    if changed.is_empty() {
        return;
    }
    if let Err(error) = publish(runtime, gates) {
        warn!("gates: {error}");
    }
    for group in changed {
        let told = format!(
            "quota of group {group}: its owner has changed the limit; side work stays within it"
        );
        let is_of = |gate: &&Gate| *gate.record.attachment.group() == group;
        let name = gates.iter().find(is_of).map(|gate| &*gate.record.name);
        runtime.events.tell(EventKind::OutsideWrite, name, told);
    }
}

/// The owner of a group that is limited in place may change the group's limit at any time. Returns
/// true if that is lower than the gate's, and so holds; false also for a quota that the loop moves.
fn follow_owner(runtime: &Runtime, gates: &[Gate], entry: &Entry) -> bool {
    let is_in_place = |gate: &&Gate| {
        gate.record.name == entry.gate
            && !gate.is_limited()
            && matches!(&gate.record.attachment, Attachment::InPlace { group } if *group == entry.group)
    };
    let gate = gates.iter().find(is_in_place);
    let Some(own) = gate.and_then(Gate::own_limit) else {
        return false;
    };
    let own = runtime.kernel.as_kernel_has(own);
    let Ok(found) = runtime.kernel.groups.bandwidth(&entry.group) else {
        return false;
    };
    match runtime.journal().found_again(&entry.group, found, own) {
        Ok(true) => {
            let group = &entry.group;
            let told =
                format!("quota of group {group}: another program wrote {found}, which holds");
            let events = &runtime.events;
            events.tell(EventKind::OutsideWrite, Some(&entry.gate), told);
            true
        }
        Ok(false) => false,
        Err(error) => {
            warn!("gate {}: {error}", entry.gate);
            false
        }
    }
}
