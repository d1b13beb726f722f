//! Housekeeping, once a second: gates that have ended, what each uses, outside writes, the guardian, leaving.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::process::{Pid, test_kill_process};
use tidegate_knobs::group::GroupPath;
use tidegate_knobs::kfs::KernelFs;
use tidegate_knobs::ledger::{Change, Entry};
use tidegate_knobs::target::{ProcessRef, TargetError};
use tidegate_terms::Engine;
use tracing::{info, warn};

use crate::agent::{Agent, Mode};
use crate::control_thread::lock;
use crate::fallback;
use crate::gate::{Attachment, Gate};
use crate::mechanisms::HintSweep;
use crate::notify;
use crate::reassert::reassert;
use crate::round_robin::RoundRobin;
use crate::startup;
use crate::systemd::unit_of;

const LOOK: Duration = Duration::from_secs(1);

/// A look at a gate reads two or three small files, 25 us: so many a second cost 0.12 % of one CPU, however many there are.
/// With more, each has its turn less often; what is shown is measured when it is asked for.
const GATES_A_LOOK: usize = 48;

/// Entries of the journal that are compared with what stands, in one look.
const ENTRIES_A_LOOK: usize = 64;

/// systemd writes over our values when units are changed, restarted or started after a reload: rarely.
const SYSTEMD_REST_NS: u64 = 5_000_000_000;

/// A gate that was measured within this is shown as it was then.
const FRESH_NS: u64 = 1_500_000_000;

/// A new gate is empty until its process is in; an ended one stays empty.
const EMPTY_LOOKS_MAX: u32 = 2;

/// An agent that was started on demand leaves when it has had no gate for this many looks.
const IDLE_LOOKS_MAX: u32 = 3;

/// A group that uses this much of what it is given wants all it gets.
const HUNGRY_PER_CENT: u64 = 85;

/// Whether the process is there (a zombie is, until it is waited for).
pub fn is_alive(pid: i32) -> bool {
    Pid::from_raw(pid)
        .filter(|_| pid > 0)
        .is_some_and(|pid| test_kill_process(pid).is_ok())
}

/// What housekeeping remembers between looks.
pub struct Housekeeping {
    looks: u32,
    /// A service manager kills an agent that stays silent.
    is_watched: bool,
    idle_looks: u32,
    gate_turns: RoundRobin,
    journal_turns: RoundRobin,
    hints: HintSweep,
    /// How often an outside write was answered, by entry of the journal.
    answered: BTreeMap<u64, u32>,
    /// When systemd's own value was last written over, by entry of the journal.
    systemds: BTreeMap<u64, u64>,
    /// The guardian's fallbacks that were answered; none before the first look.
    fallbacks: Option<u64>,
    guardian: Option<std::process::Child>,
    /// What the agent was asked for by name, which its guardian is to know.
    engine: Option<Engine>,
    own_cpu: Option<(u64, u64)>,
}

impl Housekeeping {
    /// With the guardian that was started already.
    pub fn new(guardian: Option<std::process::Child>) -> Self {
        Self {
            looks: 0,
            is_watched: notify::is_watched(),
            idle_looks: 0,
            gate_turns: RoundRobin::new(GATES_A_LOOK),
            journal_turns: RoundRobin::new(ENTRIES_A_LOOK),
            hints: HintSweep::default(),
            answered: BTreeMap::new(),
            systemds: BTreeMap::new(),
            fallbacks: None,
            guardian,
            engine: None,
            own_cpu: None,
        }
    }

    /// An agent with an engine that was asked for by name.
    pub fn with_engine(self, engine: Option<Engine>) -> Self {
        Self { engine, ..self }
    }

    /// Looks until the agent leaves.
    pub fn run(mut self, agent: &Arc<Agent>) {
        while !agent.leaving.load(Ordering::Acquire) {
            agent.clock.sleep(LOOK);
            self.look(agent);
        }
        // It sees that the agent left; a zombie of ours would be its only trace. Where commands go on, so does it.
        if let Some(mut guardian) = self.guardian
            && !fallback::has_records(&agent.run_dir)
        {
            let _ = guardian.wait();
        }
    }

    /// One look.
    pub fn look(&mut self, agent: &Agent) {
        self.look_at_gates(agent);
        self.looks = self.looks.wrapping_add(1);
        agent.follow_units(self.looks);
        self.look_for_fallback(agent);
        self.look_for_outside_writes(agent);
        self.look_after_guardian(agent);
        self.look_at_self(agent);
        if self.is_watched {
            notify::tell(notify::ALIVE);
        }
        if self.idle_looks >= IDLE_LOOKS_MAX && agent.mode == Mode::OnDemand {
            agent.leave_if_unused();
        }
    }

    pub(crate) fn look_at_gates(&mut self, agent: &Agent) {
        let mut gates = lock(&agent.gates);
        self.look_for_ended(agent, &mut gates);
        let has_been_empty = |gate: &Gate| gate.empty_looks >= EMPTY_LOOKS_MAX;
        if gates.iter().any(has_been_empty) {
            let (ended, left): (Vec<Gate>, Vec<Gate>) = std::mem::take(&mut *gates)
                .into_iter()
                .partition(has_been_empty);
            *gates = left;
            for gate in &ended {
                info!(gate = gate.record.name, "the gate has ended");
            }
            agent.release_all(&ended);
            agent.remove_unused_roots(&gates);
            if let Err(error) = agent.publish(&gates) {
                lock(&agent.alerts).insert(error.to_string());
            }
        }
        self.idle_looks = if gates.is_empty() {
            self.idle_looks + 1
        } else {
            0
        };
        agent.judge_demands(&gates);
        self.hints.look(agent, &mut gates);
    }

    /// Looks at those whose turn it is, at what was found empty before, and on where many have just ended: others have, too.
    fn look_for_ended(&mut self, agent: &Agent, gates: &mut [Gate]) {
        let now_ns = agent.clock.now_ns();
        let again = (0..gates.len()).filter(|index| gates[*index].empty_looks > 0);
        let mut due: Vec<usize> = again.chain(self.gate_turns.turn(gates.len())).collect();
        let mut looked = BTreeSet::new();
        loop {
            let mut newly_empty = 0;
            for index in due.into_iter().filter(|index| looked.insert(*index)) {
                let gate = &mut gates[index];
                gate.empty_looks = if agent.has_ended(gate) {
                    newly_empty += usize::from(gate.empty_looks == 0);
                    gate.empty_looks + 1
                } else {
                    0
                };
                agent.measure(gate, now_ns);
            }
            if newly_empty * 2 < GATES_A_LOOK || looked.len() == gates.len() {
                return;
            }
            due = self.gate_turns.turn(gates.len()).collect();
        }
    }

    /// What the guardian wrote was no outside write, and what it put back is wanted again.
    fn look_for_fallback(&mut self, agent: &Agent) {
        let fallbacks = lock(&agent.control).fallbacks;
        if self.fallbacks.replace(fallbacks).unwrap_or(0) != fallbacks {
            self.answered.clear();
            agent.renew_all();
        }
    }

    /// What another writer wrote over what is ours: written again once, then left alone. What cannot be written again (a
    /// process that was moved away) is left at once.
    pub(crate) fn look_for_outside_writes(&mut self, agent: &Agent) {
        // A call that is under way has in the journal what it is about to write: it is waited for.
        let gates = lock(&agent.gates);
        // The loop writes quotas under the journal's lock, so what is read here is not half of one.
        let differing = {
            let journal = lock(&agent.journal);
            let turn = self.journal_turns.turn(journal.entries().len());
            journal.outside_writes(turn)
        };
        // What the guardian wrote is ours: the next look writes everything again.
        let fallbacks = lock(&agent.control).fallbacks;
        if agent.lease.has_fallback() || self.fallbacks.is_some_and(|seen| seen != fallbacks) {
            return;
        }
        for (entry, found) in differing {
            if self.is_systemds_turn(agent, &gates, &entry) && reassert(agent, &entry) {
                info!(
                    "{} of group {}: systemd wrote its own ({found}); written again",
                    entry.change.name(),
                    entry.group
                );
                continue;
            }
            let mut times = self.answered.get(&entry.id).copied().unwrap_or(0);
            let is_quota = matches!(entry.change, Change::Bandwidth { .. });
            if is_quota && times > 1 && !lock(&agent.control).quotas.is_left_alone(&entry.group) {
                // The gate was set again.
                times = 0;
            }
            times = times.saturating_add(1);
            let what = format!("{} of group {}", entry.change.name(), entry.group);
            match times {
                1 if reassert(agent, &entry) => {
                    warn!("{what}: somebody else wrote {found}; written again once");
                }
                1 | 2 => {
                    // Once: what is found may change every second.
                    times = 2;
                    if is_quota {
                        lock(&agent.control).quotas.leave_alone(&entry.group);
                        // Theirs for the scheduler, too.
                        agent.tell_ext(&gates);
                    }
                    if matches!(entry.change, Change::Cpuset { .. }) {
                        lock(&agent.cpuset).leave_alone();
                        lock(&agent.control).set_confined(false);
                    }
                    let alert = format!(
                        "{what}: somebody else changed it ({found}); left alone until the gate is set again"
                    );
                    warn!("{alert}");
                    lock(&agent.alerts).insert(alert);
                }
                _ => {}
            }
            self.answered.insert(entry.id, times);
        }
    }

    /// systemd writes what it was told when it has a reason, which is no fight over the knob; more often than every few seconds
    /// it has none, and another writer sets that value.
    fn is_systemds_turn(&mut self, agent: &Agent, gates: &[Gate], entry: &Entry) -> bool {
        if !agent.is_systemds(gates, entry) {
            return false;
        }
        let now_ns = agent.clock.now_ns();
        let last_ns = self.systemds.insert(entry.id, now_ns);
        last_ns.is_none_or(|last_ns| now_ns.saturating_sub(last_ns) >= SYSTEMD_REST_NS)
    }

    fn look_after_guardian(&mut self, agent: &Agent) {
        let ended = match &mut self.guardian {
            Some(guardian) => !matches!(guardian.try_wait(), Ok(None)),
            None => true,
        };
        if ended && !agent.leaving.load(Ordering::Acquire) {
            warn!("the guardian has ended; starting another");
            self.guardian = startup::start_guardian(&agent.run_dir, agent.mode, self.engine)
                .inspect_err(|error| warn!("guardian: {error}"))
                .ok();
        }
    }

    /// The agent's own CPU between two looks.
    fn look_at_self(&mut self, agent: &Agent) {
        let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let now = (
            agent.clock.now_ns(),
            spent.tv_sec as u64 * 1_000_000_000 + spent.tv_nsec as u64,
        );
        if let Some(last) = self.own_cpu.replace(now) {
            let wall_ns = (now.0 - last.0).max(1);
            let latest = 100.0 * (now.1 - last.1) as f64 / wall_ns as f64;
            let mut mean = lock(&agent.own_cpu_pct);
            // A mean over about a minute.
            *mean = if *mean == 0.0 {
                latest
            } else {
                *mean + (latest - *mean) / 60.0
            };
        }
    }
}

impl Agent {
    /// Whether the process has exited, also if its number is another's by now. What cannot be looked at (no descriptor
    /// left) has not ended: its limits stay.
    pub(crate) fn process_gone(&self, pid: i32, start_ticks: u64) -> bool {
        match ProcessRef::look_up(&*self.fs, pid) {
            Ok(now) => now.start_ticks != start_ticks,
            Err(error) => !matches!(error, TargetError::Kfs { .. }),
        }
    }

    /// Whether the gate is empty.
    pub(crate) fn has_ended(&self, gate: &Gate) -> bool {
        let empty = |group: &GroupPath| match self.groups.populated(group) {
            Ok(populated) => !populated,
            Err(error) => error.is_gone(),
        };
        match &gate.record.attachment {
            Attachment::Observed {
                pid, start_ticks, ..
            } => self.process_gone(*pid, *start_ticks),
            Attachment::Owned { group } => empty(group) && !self.has_units(&gate.record.name),
            Attachment::Moved {
                placement,
                start_ticks,
            } => {
                self.process_gone(placement.pid, *start_ticks)
                    && empty(&placement.group)
                    && !self.has_units(&gate.record.name)
            }
            // A unit may come back; whether it does is looked at by itself.
            Attachment::InPlace { group } => unit_of(gate).is_none() && !self.groups.exists(group),
        }
    }

    /// Measures a gate for a call, where that was not done for a while.
    pub(crate) fn measure_for_show(&self, gate: &mut Gate, now_ns: u64) {
        let is_fresh = |(at_ns, _): &(u64, u64)| now_ns.saturating_sub(*at_ns) < FRESH_NS;
        if !gate.usage.as_ref().is_some_and(is_fresh) {
            self.measure(gate, now_ns);
        }
    }

    /// What the gate used since the last look.
    fn measure(&self, gate: &mut Gate, now_ns: u64) {
        let usage_ns = match &gate.record.attachment {
            Attachment::Observed { pid, .. } => process_cpu_ns(&*self.fs, *pid),
            attachment => self.usage_with_units(&gate.record.name, attachment.group()),
        };
        let stat = match gate.own_limit() {
            Some(_) => self.limit_stat(gate.record.attachment.group()).ok(),
            None => self.units_stat(&gate.record.name),
        };
        let cap = match &gate.record.attachment {
            Attachment::Observed { .. } => None,
            attachment => self.ext_cap(attachment.group()),
        };
        let background_us = cap.map(|cap| cap.background_us);
        let background_before_us = std::mem::replace(&mut gate.background_us, background_us);
        if stat.is_some() || cap.is_some() {
            // The parks of a cap for each are not its own limit's.
            let parks = cap
                .filter(|cap| {
                    gate.own_limit().is_none() || cap.terms.scope == tidegate_ext::CapScope::Group
                })
                .map_or(0, |cap| cap.throttles);
            let throttled = stat.map_or(0, |stat| stat.nr_throttled) + parks;
            let last = gate.throttled.replace(throttled);
            gate.throttled_lately = last.map_or(0, |last| throttled.saturating_sub(last));
        }
        let Some(usage_ns) = usage_ns else { return };
        if let Some((last_ns, last_usage_ns)) = gate.usage.replace((now_ns, usage_ns)) {
            let wall_ns = now_ns.saturating_sub(last_ns).max(1);
            gate.usage_cpus = usage_ns.saturating_sub(last_usage_ns) as f64 / wall_ns as f64;
            let lately_us = background_us
                .zip(background_before_us)
                .map_or(0, |(now, before)| now.saturating_sub(before));
            gate.background_cpus = lately_us as f64 * 1e3 / wall_ns as f64;
        }
    }

    /// With several limited groups, what each would use: all it gets if it uses most of what it is given, else a
    /// quarter more than it uses.
    fn judge_demands(&self, gates: &[Gate]) {
        let given = lock(&self.control).quotas.allotments();
        if given.len() < 2 {
            return;
        }
        let mut used: BTreeMap<GroupPath, u64> = BTreeMap::new();
        for gate in gates {
            if let Some(group) = self.limited_group(gate) {
                *used.entry(group).or_default() += (gate.usage_cpus * 1e6) as u64;
            }
        }
        let mut control = lock(&self.control);
        for target in control.quotas.targets() {
            let Some(given) = given.iter().find(|one| one.group == target.group) else {
                continue;
            };
            let used_ucpu = used.get(&target.group).copied().unwrap_or(0);
            let hungry = used_ucpu >= given.ucpu / 100 * HUNGRY_PER_CENT;
            target.demand_ucpu = if hungry {
                u64::MAX
            } else {
                used_ucpu + used_ucpu / 4
            };
        }
    }

    /// Removes our roots when no gate is in them.
    pub(crate) fn remove_unused_roots(&self, gates: &[Gate]) {
        for root in [self.side_root(), self.main_root()] {
            let used = gates
                .iter()
                .any(|gate| gate.record.attachment.group().is_within(&root));
            if !used && self.groups.exists(&root) {
                lock(&self.control).quotas.drop(&root);
                self.remove_group(&root);
            }
        }
    }
}

/// CPU time of a process with its threads, at clock ticks.
fn process_cpu_ns(fs: &dyn KernelFs, pid: i32) -> Option<u64> {
    let stat = fs.read(Path::new(&format!("/proc/{pid}/stat"))).ok()?;
    let ticks = tidegate_knobs::target::stat_field(&stat, 14)?
        + tidegate_knobs::target::stat_field(&stat, 15)?;
    Some(ticks * (1_000_000_000 / rustix::param::clock_ticks_per_second()))
}
