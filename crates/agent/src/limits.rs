//! Putting a gate's terms on the machine and taking them off again: groups, membership, weight, `cpu.idle`; and telling the loop.
//!
//! Every change is in the books before it is in a kernel file. Moving quotas are the loop's; here a group only gets the
//! floor, so that nothing runs unlimited until the loop's next step.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use tidegate_knobs::bandwidth::Bandwidth;
use tidegate_knobs::group::{GroupError, GroupPath, Groups, WEIGHT_DEFAULT, WEIGHT_MIN};
use tidegate_knobs::ledger::Fallback;
use tidegate_knobs::plan::bandwidth_for;
use tidegate_knobs::sense::Group as SensedGroup;
use tidegate_knobs::target::ProcessRef;
use tidegate_terms::{self as terms, Class};
use tracing::{info, warn};

use crate::books::fallback_of;
use crate::gate::{Demand, Gate, Place, demand};
use crate::lease::monotonic_ns;
use crate::looper::lock;
use crate::owner::{Owner, refuse};
use crate::server::Refusal;

/// Period of the floor: the longest, so that the least quota is small.
const FLOOR_PERIOD_MAX_US: u64 = 100_000;
/// Period of quotas that are large enough for it.
const FLOOR_PERIOD_US: u64 = 10_000;
/// The kernel's least quota over the longest period we use: side work is never slower than this (1 % of one CPU).
const FLOOR_MIN_UCPU: u64 = 10_000;

impl Owner {
    /// The static limit that side work falls back to: the tolerance.
    pub fn floor(&self, demand: &Demand) -> Bandwidth {
        let cpus = u64::from(lock(&self.control).online_cpus().max(1));
        // 8192 CPUs · 10^6 ppm fits easily: a CPU is 10^6 ucpu, so ppm · CPUs is the rate in ucpu.
        let floor_ucpu = (cpus * u64::from(demand.tolerance_ppm)).max(FLOOR_MIN_UCPU);
        bandwidth_for(floor_ucpu, FLOOR_PERIOD_US, FLOOR_PERIOD_MAX_US)
    }

    /// The floor by what the gates ask for now.
    fn floor_now(&self) -> Bandwidth {
        let demand = lock(&self.control).demand().clone();
        self.floor(&demand)
    }

    /// Makes a `run` gate's group and puts the process into it.
    pub(crate) fn enter(&self, gate: &mut Gate, pid: i32) -> Result<(), Refusal> {
        let root = if gate.class() == Class::Side {
            self.side_root()
        } else {
            self.main_root()
        };
        let group = root
            .join(&gate.record.name)
            .map_err(|error| refuse("usage")(&error))?;
        if gate.class() == Class::Side {
            self.ensure_side_root()?;
        } else {
            self.ensure_made(&root, "")?;
        }
        self.ensure_made(&group, &gate.record.name)?;
        gate.record.place = Place::Own {
            group: group.clone(),
        };
        let placed = self.write_weight(gate).and_then(|()| {
            self.groups
                .place(&group, pid)
                .map(drop)
                .map_err(|error| refuse(kind_of(&error))(&error))
        });
        if placed.is_err() {
            self.remove_group(&group);
        }
        placed
    }

    /// A group of ours, in the books as soon as it has an identity.
    pub(crate) fn ensure_made(&self, group: &GroupPath, gate: &str) -> Result<(), Refusal> {
        if self.groups.exists(group) {
            return Ok(());
        }
        self.groups
            .create(group)
            .map_err(|error| refuse(kind_of(&error))(&error))?;
        lock(&self.books).made(group, gate).map_err(|error| {
            // What is not in the books must not be there.
            let _ = self.groups.remove(group);
            refuse("internal")(&error)
        })
    }

    /// The side root: made, idle, and with a quota before anybody is in it.
    pub(crate) fn ensure_side_root(&self) -> Result<(), Refusal> {
        let root = self.side_root();
        self.ensure_made(&root, "")?;
        let wrong = |error: GroupError| refuse(kind_of(&error))(&error);
        let floor = self.floor_now();
        let unlimited = self.groups.bandwidth(&root).map_err(wrong)?;
        self.make_yield(&root, "", Fallback::Stay)?;
        let fallback = Fallback::Floor { bandwidth: floor };
        lock(&self.books)
            .will_limit(&root, "", unlimited, fallback)
            .map_err(|error| refuse("internal")(&error))?;
        if unlimited.quota_us.is_none() {
            self.write_floor(&root, unlimited, floor)?;
        }
        Ok(())
    }

    /// `cpu.idle` where the kernel has it, else the least weight.
    fn make_yield(&self, group: &GroupPath, gate: &str, fallback: Fallback) -> Result<(), Refusal> {
        let wrong = |error: GroupError| refuse(kind_of(&error))(&error);
        let was = self.groups.class(group).map_err(wrong)?;
        if was.idle == Some(true) {
            return Ok(());
        }
        lock(&self.books)
            .will_yield(group, gate, was, fallback)
            .map_err(|error| refuse("internal")(&error))?;
        set_yielding(&self.groups, group, true).map_err(wrong)
    }

    fn write_floor(
        &self,
        group: &GroupPath,
        from: Bandwidth,
        floor: Bandwidth,
    ) -> Result<(), Refusal> {
        let mut books = lock(&self.books);
        books
            .will_write(group, &from, &floor)
            .map_err(|error| refuse("internal")(&error))?;
        self.groups
            .set_bandwidth(group, Some(from), floor)
            .map(drop)
            .map_err(|error| refuse(kind_of(&error))(&error))
    }

    /// A gate's weight among its siblings. Groups that are not ours keep theirs.
    pub(crate) fn write_weight(&self, gate: &Gate) -> Result<(), Refusal> {
        let Place::Own { group } = &gate.record.place else {
            return Ok(());
        };
        if gate.terms.weight.is_default()
            && self.groups.weight(group).is_ok_and(|weight| weight == 100)
        {
            return Ok(());
        }
        self.groups
            .set_weight(group, gate.weight())
            .map_err(|error| refuse(kind_of(&error))(&error))
    }

    /// Limits a process or group that was there before, as its class asks.
    pub(crate) fn limit_place(&self, gate: &mut Gate, place: Place) -> Result<(), Refusal> {
        gate.record.notes.clear();
        gate.record.place = place;
        if !gate.is_limited() {
            return Ok(());
        }
        let name = gate.record.name.clone();
        let before = gate.record.place.clone();
        let limited = self.limit(gate, &name);
        if limited.is_err() {
            // Nothing half done: what is in the books for it is put back, in the opposite order.
            for line in lock(&self.books).restore_gate(&name) {
                info!(gate = name, "not limited: {line}");
            }
            gate.record.place = before;
        }
        limited
    }

    fn limit(&self, gate: &mut Gate, name: &str) -> Result<(), Refusal> {
        let fallback = gate.terms.fallback.value;
        match gate.record.place.clone() {
            Place::Known {
                pid, start_ticks, ..
            } => self.lend(gate, pid, start_ticks, fallback),
            Place::Foreign { group } => {
                self.limit_foreign(&group, name, fallback)?;
                gate.record.notes.push(
                    "it has a quota of its own beside the side root's, because it stays where it is; the allowance is \
                     shared out between them"
                        .to_owned(),
                );
                Ok(())
            }
            Place::Own { .. } | Place::Lent { .. } => Ok(()),
        }
    }

    /// Moves a process that ran already: within the cpu hierarchy on v1, into a child group in place on v2.
    fn lend(
        &self,
        gate: &mut Gate,
        pid: i32,
        start_ticks: u64,
        fallback: terms::Fallback,
    ) -> Result<(), Refusal> {
        let name = gate.record.name.clone();
        let wrong = |error: GroupError| refuse(kind_of(&error))(&error);
        self.ensure_side_root()?;
        let in_place = format!("{}-{name}", self.run_dir.prefix());
        let in_root = self
            .side_root()
            .join(&name)
            .map_err(|error| refuse("usage")(&error))?;
        let plan = self
            .groups
            .plan_in_place(pid, &in_place, &in_root)
            .map_err(wrong)?;
        // What is in the side root stays there with the floor; only who is to be restored is moved back without an owner.
        let moved_back = match fallback_of(fallback, self.floor_now()) {
            Fallback::Floor { .. } => Fallback::Stay,
            other => other,
        };
        lock(&self.books)
            .will_move(&name, plan, start_ticks, moved_back)
            .map_err(|error| refuse("internal")(&error))?;
        let placement = self
            .groups
            .place_in_place(pid, &in_place, &in_root)
            .map_err(wrong)?;
        let at = placement.group.clone();
        gate.record.place = Place::Lent {
            placement,
            start_ticks,
        };
        if !at.is_within(&self.side_root()) {
            self.limit_foreign(&at, &name, fallback)?;
            gate.record.notes.push(
                "it stays in its unit (memory accounting, KillMode): it has a quota of its own in a child group there"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// Puts on again what a fallback took off: an owner that is in control again goes on with a gate's terms.
    pub(crate) fn renew(&self, gate: &mut Gate) -> Result<(), Refusal> {
        let name = gate.record.name.clone();
        match gate.record.place.clone() {
            Place::Foreign { group } if gate.is_limited() => {
                let wrong = |error: GroupError| refuse(kind_of(&error))(&error);
                let unlimited = self
                    .groups
                    .bandwidth(&group)
                    .map_err(wrong)?
                    .quota_us
                    .is_none();
                let idle = self.groups.idle(&group).map_err(wrong)? != Some(false);
                if unlimited || !idle {
                    return self.limit_foreign(&group, &name, gate.terms.fallback.value);
                }
            }
            Place::Lent {
                placement,
                start_ticks,
            } => {
                // Gone, or where it was put: nothing to do.
                let now = ProcessRef::look_up(&*self.fs, placement.pid);
                let is_same = now.is_ok_and(|now| now.start_ticks == start_ticks);
                let at = self.groups.group_of(placement.pid).ok().flatten();
                if let Some(group) = at.filter(|at| is_same && *at != placement.group) {
                    // What is left of the old placement is settled first.
                    lock(&self.books).restore_gate(&name);
                    let place = Place::Known {
                        pid: placement.pid,
                        start_ticks,
                        group,
                    };
                    return self.limit_place(gate, place);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// All gates, after the guardian wrote the fallback.
    pub(crate) fn renew_all(&self) {
        let mut gates = lock(&self.gates);
        for gate in gates.iter_mut() {
            if let Err(error) = self.renew(gate) {
                warn!("gate {}: {error}", gate.record.name);
                lock(&self.alerts).insert(error.to_string());
            }
        }
        for line in crate::fallback::yield_again(&self.groups, &mut lock(&self.books)) {
            info!("{line}");
        }
        if let Err(error) = self.publish(&gates) {
            lock(&self.alerts).insert(error.to_string());
        }
    }

    /// Saves what stands on somebody's group, then makes it yield and gives it the floor.
    fn limit_foreign(
        &self,
        group: &GroupPath,
        gate: &str,
        fallback: terms::Fallback,
    ) -> Result<(), Refusal> {
        let wrong = |error: GroupError| refuse(kind_of(&error))(&error);
        let bandwidth = self.groups.bandwidth(group).map_err(wrong)?;
        let floor = self.floor_now();
        let fallback = fallback_of(fallback, floor);
        // Idle is no danger to main: with the floor it stays, else it goes the way of the quota.
        let idle_fallback = match fallback {
            Fallback::Floor { .. } => Fallback::Stay,
            other => other,
        };
        self.make_yield(group, gate, idle_fallback)?;
        lock(&self.books)
            .will_limit(group, gate, bandwidth, fallback)
            .map_err(|error| refuse("internal")(&error))?;
        self.write_floor(group, bandwidth, floor)
    }

    /// Takes off all that a gate put on, as far as it is still ours.
    pub(crate) fn release(&self, gate: &Gate) -> Result<(), Refusal> {
        if !gate.is_limited() && !matches!(gate.record.place, Place::Own { .. }) {
            return Ok(());
        }
        // The loop must not write behind the restore.
        lock(&self.control).drop_target(gate.record.place.group());
        match &gate.record.place {
            Place::Own { group } => self.remove_group(group),
            Place::Known { .. } => {}
            Place::Foreign { .. } | Place::Lent { .. } => {
                for line in lock(&self.books).restore_gate(&gate.record.name) {
                    info!(gate = gate.record.name, "{line}");
                }
            }
        }
        Ok(())
    }

    /// Removes a group of ours; one that is still in use stays in the books for the next try.
    pub(crate) fn remove_group(&self, group: &GroupPath) {
        match self.groups.remove(group) {
            Ok(_) => lock(&self.books).forget(group),
            Err(error) => warn!("{error}"),
        }
    }

    /// Tells the loop, the guardian and the next owner what the gates are now.
    pub(crate) fn publish(&self, gates: &[Gate]) -> Result<(), Refusal> {
        let demand = demand(gates.iter(), &self.settings);
        let floor = self.floor(&demand);
        lock(&self.books).set_floor(floor);
        let root = self.side_root();
        let mut side = Vec::new();
        let mut main = Vec::new();
        let mut targets: Vec<(GroupPath, u32)> = Vec::new();
        for gate in gates {
            let group = gate.record.place.group();
            match (gate.class(), &gate.record.place) {
                (_, Place::Known { .. }) => {}
                (Class::Side, _) => {
                    let limited = if group.is_within(&root) { &root } else { group };
                    match targets.iter_mut().find(|(known, _)| known == limited) {
                        Some((_, weight)) => *weight += gate.weight(),
                        None => targets.push((limited.clone(), gate.weight())),
                    }
                }
                (Class::Main, _) => main.extend(self.sensed(group)),
                (Class::Neutral, _) => {}
            }
        }
        side.extend(targets.iter().filter_map(|(group, _)| self.sensed(group)));
        let mut control = lock(&self.control);
        control.set_demand(demand);
        control.set_targets(targets, self.tick_ns);
        control.set_groups(&side, &main);
        drop(control);
        self.save(gates)
    }

    fn sensed(&self, group: &GroupPath) -> Option<SensedGroup> {
        let cpu = self.groups.dir(group);
        let usage = self
            .machine
            .cpuacct
            .as_ref()
            .map_or_else(|| cpu.clone(), |other| other.dir(group));
        SensedGroup::new(&cpu, &usage)
            .map_err(|error| warn!("{error}"))
            .ok()
    }

    /// Writes down which gates there are.
    pub(crate) fn save(&self, gates: &[Gate]) -> Result<(), Refusal> {
        let records: Vec<_> = gates.iter().map(|gate| &gate.record).collect();
        let text =
            serde_json::to_vec_pretty(&records).map_err(|error| refuse("internal")(&error))?;
        self.fs
            .replace(&self.run_dir.gates(), &text)
            .map_err(|error| refuse("internal")(&error))
    }

    /// Leaves: foreign targets are restored, empty groups of ours removed; side commands that still run keep `cpu.idle` and
    /// the floor. Says how many.
    pub fn leave(&self) -> usize {
        self.leave_with(lock(&self.gates))
    }

    /// Leaves, unless a gate has come up since it was last looked.
    pub(crate) fn leave_if_unused(&self) {
        let gates = lock(&self.gates);
        if gates.is_empty() {
            info!("the last gate has ended; leaving");
            self.leave_with(gates);
        }
    }

    fn leave_with(&self, mut gates: MutexGuard<'_, Vec<Gate>>) -> usize {
        self.leaving.store(true, Ordering::Release);
        let root = self.side_root();
        lock(&self.control).set_targets(Vec::new(), self.tick_ns);
        let mut orphans = 0;
        for gate in gates.iter() {
            let alive = self.processes_below(gate.record.place.group(), 4);
            if matches!(gate.record.place, Place::Own { .. }) && alive > 0 {
                orphans += usize::from(gate.is_limited());
                continue;
            }
            if let Err(error) = self.release(gate) {
                lock(&self.alerts).insert(error.to_string());
                warn!("{error}");
            }
        }
        gates.retain(|gate| {
            matches!(gate.record.place, Place::Own { .. })
                && self.processes_below(gate.record.place.group(), 4) > 0
        });
        let floor = self.floor_now();
        if orphans > 0 {
            let written = self
                .groups
                .bandwidth(&root)
                .map_err(|error| refuse(kind_of(&error))(&error))
                .and_then(|standing| self.write_floor(&root, standing, floor));
            if let Err(error) = written {
                warn!("{error}");
            }
        } else if self.groups.exists(&root) {
            self.remove_group(&root);
        }
        let main = self.main_root();
        if gates.iter().all(Gate::is_limited) && self.groups.exists(&main) {
            self.remove_group(&main);
        }
        if let Err(error) = self.save(&gates) {
            warn!("{error}");
        }
        if gates.is_empty() {
            lock(&self.books).close();
            let _ = self.fs.unlink(&self.run_dir.gates());
        }
        self.lease.beat(monotonic_ns());
        self.lease.leave();
        self.left.notify_waiters();
        self.left.notify_one();
        orphans
    }
}

/// Puts a group into the idle class (or, on kernels without one, to the least weight) or takes it out.
pub fn set_yielding(groups: &Groups, group: &GroupPath, yielding: bool) -> Result<(), GroupError> {
    match groups.idle(group)? {
        Some(idle) if idle == yielding => Ok(()),
        // Out of the idle class, the kernel gives the default weight.
        Some(_) => groups.set_idle(group, yielding),
        None => groups.set_weight(group, if yielding { WEIGHT_MIN } else { WEIGHT_DEFAULT }),
    }
}

/// A failed operation on a group as the socket names it.
pub fn kind_of(error: &GroupError) -> &'static str {
    if error.is_gone() {
        "not_found"
    } else if error.is_denied() {
        "denied"
    } else {
        match error {
            GroupError::NotPossible { .. } => "unsupported",
            _ => "internal",
        }
    }
}
