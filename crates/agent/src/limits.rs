//! Putting a gate's terms on the machine and taking them off again: groups, membership, weight, `cpu.idle`; and telling the loop.
//!
//! Every change is in the journal before it is in a kernel file. Moving quotas are the loop's; here a group only gets the
//! floor, so that nothing runs unlimited until the loop's next step. What is not ours is limited in `foreign`.

use tidegate_api::{ApiError, ErrorKind};
use tidegate_knobs::bandwidth::Bandwidth;
use tidegate_knobs::control::{Demand, QuotaTarget};
use tidegate_knobs::group::{GroupError, GroupPath, Groups, Placement, WEIGHT_DEFAULT, WEIGHT_MIN};
use tidegate_knobs::ledger::Fallback;
use tidegate_knobs::plan::{PlanConfig, bandwidth_for};
use tidegate_knobs::sense::Group as SensedGroup;
use tidegate_knobs::target::ProcessRef;
use tidegate_terms::Class;
use tracing::warn;

use crate::agent::{Agent, limited_below, refuse};
use crate::control_thread::lock;
use crate::gate::{Attachment, Gate};

/// The kernel's least quota over the longest period we use: side work is never slower than this (1 % of one CPU).
const FLOOR_MIN_UCPU: u64 = 10_000;

impl Agent {
    /// The static limit that side work falls back to: the tolerance.
    pub fn floor(&self, demand: &Demand) -> Bandwidth {
        let cpus = u64::from(lock(&self.control).online_cpus().max(1));
        // 8192 CPUs · 10^6 ppm fits easily: a CPU is 10^6 ucpu, so ppm · CPUs is the rate in ucpu.
        let floor_ucpu = (cpus * u64::from(demand.tolerance_ppm)).max(FLOOR_MIN_UCPU);
        let periods = PlanConfig::default();
        bandwidth_for(floor_ucpu, periods.period_us, periods.period_max_us)
    }

    /// The floor by what the gates ask for now.
    pub(crate) fn floor_now(&self) -> Bandwidth {
        let demand = lock(&self.control).demand().clone();
        self.floor(&demand)
    }

    /// Makes a `run` gate's group and puts the process into it.
    pub(crate) fn enter(&self, gate: &mut Gate, process: &ProcessRef) -> Result<(), ApiError> {
        let (root, name) = match self.soft_group(gate) {
            Some(name) => (self.groups.base().clone(), name),
            None if gate.class() == Class::Side => (self.side_root(), gate.record.name.clone()),
            None => (self.main_root(), gate.record.name.clone()),
        };
        let group = root
            .join(&name)
            .map_err(|error| refuse(ErrorKind::Usage)(&error))?;
        if gate.class() == Class::Side {
            self.ensure_side_root()?;
        } else if root == self.main_root() {
            self.ensure_made(&root, "")?;
        }
        self.ensure_made(&group, &gate.record.name)?;
        gate.record.attachment = Attachment::Owned {
            group: group.clone(),
        };
        let possible = self.check_feasible(gate);
        let placed = possible
            .and_then(|()| self.write_weight(gate))
            .and_then(|()| {
                let placed = self.groups.place(&group, process.pid);
                let placement = placed.map_err(|error| refuse(kind_of(&error))(&error))?;
                self.check_moved(&placement, process.start_ticks)?;
                self.gather_cpuset();
                self.put_on(gate).inspect_err(|_| {
                    self.take_off(gate);
                    if let Err(error) = self.groups.place_back(&placement) {
                        warn!("process {}: {error}", process.pid);
                    }
                })
            });
        if placed.is_err() {
            self.remove_group(&group);
        }
        placed
    }

    /// PID reuse between the check and the move is detected: the later process goes back.
    pub(crate) fn check_moved(
        &self,
        placement: &Placement,
        start_ticks: u64,
    ) -> Result<(), ApiError> {
        let pid = placement.pid;
        if !self.process_gone(pid, start_ticks) {
            return Ok(());
        }
        if let Err(error) = self.groups.place_back(placement) {
            warn!("process {pid}: {error}");
        }
        let detail = format!("process {pid}: it exited meanwhile");
        Err(ApiError::new(ErrorKind::NotFound, detail).with_mend(format!("look with: ps -p {pid}")))
    }

    /// A group of ours, in the journal as soon as it has an identity.
    pub(crate) fn ensure_made(&self, group: &GroupPath, gate: &str) -> Result<(), ApiError> {
        if self.groups.exists(group) {
            return Ok(());
        }
        self.groups
            .create(group)
            .map_err(|error| refuse(kind_of(&error))(&error))?;
        lock(&self.journal).made(group, gate).map_err(|error| {
            // What is not in the journal must not be there.
            let _ = self.groups.remove(group);
            refuse(ErrorKind::Internal)(&error)
        })
    }

    /// The side root: made, idle, and with a quota before a process is in it.
    pub(crate) fn ensure_side_root(&self) -> Result<(), ApiError> {
        let root = self.side_root();
        self.ensure_made(&root, "")?;
        let wrong = |error: GroupError| refuse(kind_of(&error))(&error);
        let floor = self.floor_now();
        let unlimited = self.groups.bandwidth(&root).map_err(wrong)?;
        self.make_yield(&root, "", Fallback::Stay)?;
        let fallback = Fallback::Floor { bandwidth: floor };
        lock(&self.journal)
            .record_limit(&root, "", unlimited, fallback)
            .map_err(|error| refuse(ErrorKind::Internal)(&error))?;
        if unlimited.quota_us.is_none() {
            self.write_floor(&root, unlimited, floor)?;
        }
        Ok(())
    }

    /// `cpu.idle` where the kernel has it, else the least weight.
    pub(crate) fn make_yield(
        &self,
        group: &GroupPath,
        gate: &str,
        fallback: Fallback,
    ) -> Result<(), ApiError> {
        let wrong = |error: GroupError| refuse(kind_of(&error))(&error);
        let was = self.groups.class(group).map_err(wrong)?;
        // Yielding already; or out of the idle class by the loop's own doing, which ends it, too.
        if was.idle == Some(true) || lock(&self.journal).relieved().contains(group) {
            return Ok(());
        }
        lock(&self.journal)
            .record_idle_class(group, gate, was, fallback)
            .map_err(|error| refuse(ErrorKind::Internal)(&error))?;
        set_yielding(&self.groups, group, true).map_err(wrong)
    }

    pub(crate) fn write_floor(
        &self,
        group: &GroupPath,
        from: Bandwidth,
        floor: Bandwidth,
    ) -> Result<(), ApiError> {
        self.mark_moved(group);
        lock(&self.journal)
            .write_quota(group, &from, &floor)
            .map_err(|error| refuse(error.kind())(&error))
    }

    /// A gate's weight among its siblings. Groups that are not ours keep theirs.
    pub(crate) fn write_weight(&self, gate: &Gate) -> Result<(), ApiError> {
        let Attachment::Owned { group } = &gate.record.attachment else {
            return Ok(());
        };
        if gate.terms.weight.is_default()
            && self.groups.weight(group).is_ok_and(|weight| weight == 100)
        {
            return Ok(());
        }
        let mut journal = lock(&self.journal);
        let capped = journal
            .record_weight(group, gate.weight())
            .map_err(|error| refuse(error.kind())(&error))?;
        // The kernel refuses weights in the background; the loop writes it with the end of that.
        if capped && self.groups.idle(group).is_ok_and(|idle| idle == Some(true)) {
            return Ok(());
        }
        self.groups
            .set_weight(group, gate.weight())
            .map_err(|error| refuse(kind_of(&error))(&error))
    }

    /// Takes off all that a gate put on, as far as it is still ours; says what was not put back.
    pub(crate) fn release(&self, gate: &Gate) -> Vec<String> {
        let mut left = self.take_off(gate);
        left.extend(self.release_place(gate));
        left
    }

    fn release_place(&self, gate: &Gate) -> Vec<String> {
        // The loop must not write behind the restore.
        lock(&self.control)
            .quotas
            .drop(gate.record.attachment.group());
        match &gate.record.attachment {
            Attachment::Owned { group } => {
                self.remove_group(group);
                Vec::new()
            }
            Attachment::Observed { .. } => Vec::new(),
            Attachment::InPlace { .. } | Attachment::Moved { .. } => {
                self.unmark(gate.record.attachment.group());
                let mut left = self.restore(&gate.record.name);
                // Last: systemd then writes what it would have without us.
                left.extend(self.untell_systemd(gate));
                left
            }
        }
    }

    /// Removes a group of ours; one that is still in use stays in the journal for the next try.
    pub(crate) fn remove_group(&self, group: &GroupPath) {
        match self.groups.remove(group) {
            Ok(_) => lock(&self.journal).forget(group),
            Err(error) => warn!("{error}"),
        }
    }

    /// Tells the loop, the guardian and the next agent what the gates are now.
    pub(crate) fn publish(&self, gates: &[Gate]) -> Result<(), ApiError> {
        let demand = self.demand_of(gates);
        let floor = self.floor(&demand);
        let own_of = |name: &str| {
            let gate = gates.iter().find(|gate| gate.record.name == name);
            gate.and_then(Gate::own_limit)
        };
        lock(&self.journal).set_floor(floor, own_of);
        let root = self.side_root();
        let mut side = Vec::new();
        let mut main = Vec::new();
        let mut targets: Vec<QuotaTarget> = Vec::new();
        for gate in gates {
            let group = gate.record.attachment.group();
            match (gate.class(), &gate.record.attachment) {
                (_, Attachment::Observed { .. }) => {}
                (Class::Side, _) => {
                    let Some(limited) = limited_below(&root, gate) else {
                        continue;
                    };
                    match targets.iter_mut().find(|known| known.group == *limited) {
                        Some(known) => {
                            known.unequal |= gate.weight() != known.first_weight;
                            known.weight += gate.weight();
                        }
                        None => targets.push(QuotaTarget {
                            weight: gate.weight(),
                            first_weight: gate.weight(),
                            unequal: false,
                            cap_ucpu: lock(&self.journal).limit_before(limited),
                            own: gate
                                .own_limit()
                                .filter(|_| limited == group)
                                .map(|own| self.as_kernel_has(own)),
                            group: limited.clone(),
                        }),
                    }
                }
                (Class::Main, _) => main.extend(self.sensed(group)),
                (Class::Neutral, _) => {}
            }
        }
        side.extend(
            targets
                .iter()
                .filter_map(|limited| self.sensed(&limited.group)),
        );
        self.publish_soft_caps(gates);
        let mut control = lock(&self.control);
        control.set_demand(demand);
        control.quotas.set(targets, self.tick_ns);
        control.set_groups(side, main);
        drop(control);
        self.tell_ext(gates);
        self.save(gates)
    }

    pub(crate) fn sensed(&self, group: &GroupPath) -> Option<SensedGroup> {
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
    pub(crate) fn save(&self, gates: &[Gate]) -> Result<(), ApiError> {
        let records: Vec<_> = gates.iter().map(|gate| &gate.record).collect();
        let text =
            serde_json::to_vec(&records).map_err(|error| refuse(ErrorKind::Internal)(&error))?;
        self.fs
            .replace(&self.run_dir.gates(), &text)
            .map_err(|error| refuse(ErrorKind::Internal)(&error))
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
pub fn kind_of(error: &GroupError) -> ErrorKind {
    if error.is_gone() {
        ErrorKind::NotFound
    } else if error.is_denied() {
        ErrorKind::Denied
    } else {
        match error {
            GroupError::NotPossible { .. } => ErrorKind::Unsupported,
            _ => ErrorKind::Internal,
        }
    }
}
