//! The two doors of the control step: what it reads and what it writes.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_cgroup::group::GroupPath;
use tidegate_engine::control::{Apply, ApplyError, Usage};
use tidegate_engine::sense::{Counters, Group as SensedGroup, SenseError, Sensor, Waits};

use super::terms::{Side, SoftCap};
use super::{READ_ERROR_NS, Sensing, Yields, group_of};
use crate::machine::Machine;
use crate::prng::Prng;
use crate::{Bandwidth, CpuId, GroupId, Ns, SimError};

#[derive(Default)]
struct Reading {
    counters: Counters,
    /// Main's time on each CPU.
    main_by_cpu_ns: Vec<u64>,
    /// What counts as late from now on, until the machine is told.
    late_after_ns: Option<u64>,
}

/// The last reading, between the engine (which has the machine) and the sensor (which the control
/// step owns).
#[derive(Clone, Default)]
pub(super) struct Shared(Arc<Mutex<Reading>>);

impl Shared {
    fn last(&self) -> MutexGuard<'_, Reading> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the machine. Each CPU's part of a reading is up to [`READ_ERROR_NS`] old, so that a
    /// busy machine's counters lack up to that much a CPU; they never go back.
    pub(super) fn read(
        &self,
        machine: &Machine,
        sensing: Sensing,
        side: &[Side],
        main: &[GroupId],
        prng: &mut Prng,
    ) {
        let used = |group: GroupId| match sensing {
            Sensing::Bpf => machine.usage_ns(group),
            Sensing::Usage => machine.usage_accounted_ns(group),
        };
        let now_ns = machine.now_ns();
        let cpus = machine.cpus();
        let lacks_ns = |prng: &mut Prng| prng.between(0, READ_ERROR_NS) * u64::from(cpus) / 2;
        let capacity_ns = now_ns * u64::from(cpus);
        let side_ns: u64 = side.iter().map(|side| used(side.group)).sum();
        let main_ns: u64 = main.iter().map(|&group| used(group)).sum();
        let last = &mut self.last().counters;
        let busy_ns = used(GroupId::ROOT).min(capacity_ns);
        let side_ns = side_ns.saturating_sub(lacks_ns(prng)).max(last.side_ns);
        let busy_ns = busy_ns
            .saturating_sub(lacks_ns(prng))
            .max(last.busy_ns)
            .max(side_ns);
        *last = Counters {
            now_ns,
            online_cpus: cpus,
            capacity_ns,
            busy_ns,
            side_ns,
            main_ns: main_ns.max(last.main_ns),
            steal_ns: 0,
            behind_side_ns: 0,
            waits: match sensing {
                Sensing::Bpf => waits(machine, side, main),
                Sensing::Usage => Waits::default(),
            },
            valid: true,
        };
    }

    /// Main's time on each CPU, at the instant of the reading.
    pub(super) fn read_main_by_cpu(&self, machine: &Machine, sensing: Sensing, main: &[GroupId]) {
        let used = |group: GroupId, cpu: CpuId| match sensing {
            Sensing::Bpf => machine.usage_on_ns(group, cpu),
            Sensing::Usage => machine.usage_on_accounted_ns(group, cpu),
        };
        let main_on = |cpu| main.iter().map(|group| used(*group, cpu)).sum::<u64>();
        let main_ns = (0..machine.cpus()).map(CpuId).map(main_on);
        self.last().main_by_cpu_ns = main_ns.collect();
    }

    /// What is to be counted as late, told to the machine.
    pub(super) fn count_runs(
        &self,
        machine: &mut Machine,
        side: &[Side],
        main: &[GroupId],
    ) -> Result<(), SimError> {
        let Some(late_after_ns) = self.last().late_after_ns.take() else {
            return Ok(());
        };
        let side = side.iter().map(|side| side.group);
        for group in main.iter().copied().chain(side).chain([GroupId::ROOT]) {
            machine.count_runs(group, late_after_ns)?;
        }
        Ok(())
    }
}

/// A group as the control step names it: it need only be told from others.
pub(super) fn sensed(group: GroupId) -> SensedGroup {
    SensedGroup {
        id: u64::from(group.0),
        usage: PathBuf::new(),
    }
}

/// Main's waits, as the sensor's program tells them: of main groups, or of all that is not side
/// work.
fn waits(machine: &Machine, side: &[Side], main: &[GroupId]) -> Waits {
    let of = |group: GroupId| {
        let (runs, late) = machine.runs(group);
        (runs, late, machine.run_delay_ns(group))
    };
    let sum = |groups: &mut dyn Iterator<Item = GroupId>| {
        groups.map(of).fold((0, 0, 0), |a: (u64, u64, u64), b| {
            (a.0 + b.0, a.1 + b.1, a.2 + b.2)
        })
    };
    let (runs, late, wait_ns) = if main.is_empty() {
        let (all, side) = (
            of(GroupId::ROOT),
            sum(&mut side.iter().map(|side| side.group)),
        );
        (all.0 - side.0, all.1 - side.1, all.2 - side.2)
    } else {
        sum(&mut main.iter().copied())
    };
    Waits {
        runs,
        late,
        wait_ns,
        unknown: 0,
    }
}

/// The sensor that the control step holds.
pub(super) struct Reader {
    pub(super) shared: Shared,
    pub(super) sensing: Sensing,
    pub(super) tick_ns: u64,
}

impl Sensor for Reader {
    fn sample(&mut self, out: &mut Counters) -> Result<(), SenseError> {
        *out = self.shared.last().counters;
        Ok(())
    }

    fn set_groups(&mut self, _: &[SensedGroup], _: &[SensedGroup]) -> Result<(), SenseError> {
        Ok(())
    }

    fn kind(&self) -> &'static str {
        self.sensing.name()
    }

    fn min_window_ns(&self) -> u64 {
        self.sensing.period_ns()
    }

    fn granularity_ns(&self) -> u64 {
        match self.sensing {
            Sensing::Bpf => 0,
            Sensing::Usage => self.tick_ns,
        }
    }

    fn tells_waits(&self) -> bool {
        self.sensing == Sensing::Bpf
    }

    fn main_by_cpu(&self, out: &mut Vec<u64>) {
        out.clone_from(&self.shared.last().main_by_cpu_ns);
    }

    fn set_late_after(&mut self, late_after_ns: u64) {
        self.shared.last().late_after_ns = Some(late_after_ns);
    }

    fn online_cpus(&self) -> u32 {
        self.shared.last().counters.online_cpus
    }
}

/// One write on its way to the kernel.
pub(super) struct Pending {
    pub(super) at_ns: Ns,
    pub(super) group: GroupId,
    pub(super) what: What,
}

#[derive(Clone, Copy)]
pub(super) enum What {
    Max(Bandwidth),
    Yielding(Yields, bool),
    /// Into the background, or out of it with this weight.
    Background(bool, u32),
}

impl Pending {
    pub(super) fn perform(&self, machine: &mut Machine) -> Result<(), SimError> {
        match self.what {
            What::Max(bandwidth) => machine.set_bandwidth(self.group, bandwidth),
            What::Yielding(how, yielding) => how.set(machine, self.group, yielding),
            What::Background(true, _) => machine.set_idle(self.group, true),
            What::Background(false, weight) => {
                machine.set_idle(self.group, false)?;
                // The end of idle is the default weight.
                match weight {
                    100 => Ok(()),
                    weight => machine.set_weight(self.group, weight),
                }
            }
        }
    }
}

/// From the decision to the kernel's file, least and most.
const WRITE_NS: (u64, u64) = (100_000, 300_000);

/// Where the control step's writes go.
pub(super) struct Queue<'a> {
    pub(super) now_ns: Ns,
    pub(super) yields: Yields,
    pub(super) soft: &'a BTreeMap<GroupId, SoftCap>,
    pub(super) prng: &'a mut Prng,
    pub(super) pending: &'a mut VecDeque<Pending>,
}

impl Queue<'_> {
    /// One thread writes: a write waits for the one before it.
    fn push(&mut self, group: GroupId, what: What) {
        let from_ns = self
            .pending
            .back()
            .map_or(self.now_ns, |last| last.at_ns.max(self.now_ns));
        let at_ns = from_ns + self.prng.between(WRITE_NS.0, WRITE_NS.1);
        self.pending.push_back(Pending { at_ns, group, what });
    }
}

/// What capped groups have used, read by the loop.
pub(super) struct Meters<'a>(pub(super) &'a Machine);

impl Usage for Meters<'_> {
    fn usage_ns(&mut self, path: &GroupPath) -> Option<u64> {
        group_of(path).map(|group| self.0.usage_ns(group))
    }
}

fn found(path: &GroupPath) -> Result<GroupId, String> {
    group_of(path).ok_or_else(|| {
        format!("simulated kernel: {path}: no such group; this is a bug of the engine")
    })
}

impl Apply for Queue<'_> {
    fn set_quota(
        &mut self,
        path: &GroupPath,
        _: Option<Bandwidth>,
        to: Bandwidth,
    ) -> Result<(), ApplyError> {
        self.push(found(path)?, What::Max(to));
        Ok(())
    }

    fn set_yielding(&mut self, path: &GroupPath, yielding: bool) -> Result<(), ApplyError> {
        self.push(found(path)?, What::Yielding(self.yields, yielding));
        Ok(())
    }

    fn set_background(&mut self, path: &GroupPath, background: bool) -> Result<(), ApplyError> {
        let group = found(path)?;
        let weight = self.soft.get(&group).map_or(100, |soft| soft.weight);
        self.push(group, What::Background(background, weight));
        Ok(())
    }
}
