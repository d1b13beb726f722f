//! The kernel as the sched_ext supervisor sees it: it loads what it is given, and keeps what it was
//! told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_engine::sync::lock;
use tidegate_law::HeadroomDecision;
use tidegate_sched_ext::{CapStat, GateTerms, LimitStat, SchedExtError, SchedulerEnd, WorkStat};

use crate::sched_ext::kernel::{Kernel, Scheduler, SchedulerError};

/// What the scheduler was told, and what the test makes of it.
#[derive(Default)]
pub(super) struct Told {
    pub gates: BTreeMap<u64, GateTerms>,
    pub mirrors: BTreeSet<u64>,
    pub machine: (u32, u32),
    pub ended: Option<SchedulerEnd>,
    pub refuses: Option<&'static str>,
    /// Another's scheduler that is in force.
    pub other: Option<&'static str>,
    /// The side root's quota and idle class at the moment of attaching.
    pub at_attach: Vec<(Option<Bandwidth>, bool)>,
    pub unloads: u32,
    pub limits: Vec<LimitStat>,
    pub caps: Vec<CapStat>,
    /// A CPU whose place it was not told.
    pub misplaced: Option<u32>,
    /// There are more gates than accounts.
    pub without_account: bool,
}

/// What stands on the side root: its quota, and whether it is idle.
type Probe = Arc<dyn Fn() -> (Option<Bandwidth>, bool) + Send + Sync>;

#[derive(Default)]
pub(super) struct FakeKernel {
    pub told: Arc<Mutex<Told>>,
    pub in_force: Arc<AtomicBool>,
    pub probe: Mutex<Option<Probe>>,
}

struct FakeScheduler {
    told: Arc<Mutex<Told>>,
    in_force: Arc<AtomicBool>,
    probe: Option<Probe>,
}

impl Kernel for FakeKernel {
    fn can_load(&self) -> Result<(), SchedExtError> {
        Ok(())
    }
    fn other(&self) -> Option<String> {
        lock(&self.told).other.map(str::to_owned)
    }
    fn prepare(&self) -> Result<Box<dyn Scheduler>, SchedulerError> {
        let mut told = lock(&self.told);
        match told.refuses {
            Some("prepare") => Err(SchedExtError::Machine("no room".to_owned()).into()),
            _ => {
                *told = Told {
                    refuses: told.refuses,
                    other: told.other,
                    at_attach: std::mem::take(&mut told.at_attach),
                    unloads: told.unloads,
                    ..Told::default()
                };
                Ok(Box::new(FakeScheduler {
                    told: Arc::clone(&self.told),
                    in_force: Arc::clone(&self.in_force),
                    probe: lock(&self.probe).clone(),
                }))
            }
        }
    }
    fn in_force(&self) -> bool {
        self.in_force.load(Ordering::Relaxed)
    }
}

impl Scheduler for FakeScheduler {
    fn attach(&mut self) -> Result<(), SchedExtError> {
        let mut told = lock(&self.told);
        told.at_attach.extend(self.probe.as_ref().map(|f| f()));
        if told.refuses == Some("attach") {
            return Err(SchedExtError::Machine("the kernel said no".to_owned()));
        }
        self.in_force.store(true, Ordering::Relaxed);
        Ok(())
    }
    fn ended(&self) -> Option<SchedulerEnd> {
        lock(&self.told).ended.clone()
    }
    fn unload(self: Box<Self>) -> Option<SchedulerEnd> {
        self.in_force.store(false, Ordering::Relaxed);
        let mut told = lock(&self.told);
        told.unloads += 1;
        told.ended.clone()
    }
    fn set_gate(&mut self, id: u64, terms: &GateTerms) -> Result<(), SchedExtError> {
        let mut told = lock(&self.told);
        if told.refuses == Some("gate") {
            return Err(SchedExtError::Machine("the table is full".to_owned()));
        }
        told.gates.insert(id, *terms);
        Ok(())
    }
    fn unset_gate(&mut self, id: u64) -> Result<(), SchedExtError> {
        lock(&self.told).gates.remove(&id);
        Ok(())
    }
    fn set_mirror(&mut self, id: u64, mirror: bool) -> Result<(), SchedExtError> {
        let mirrors = &mut lock(&self.told).mirrors;
        if mirror {
            mirrors.insert(id);
        } else {
            mirrors.remove(&id);
        }
        Ok(())
    }
    fn set_machine(&mut self, headroom_ppm: u32, tolerance_ppm: u32) -> Result<(), SchedExtError> {
        lock(&self.told).machine = (headroom_ppm, tolerance_ppm);
        Ok(())
    }
    fn misplaced(&self) -> Option<u32> {
        lock(&self.told).misplaced
    }
    fn sees_quotas(&self) -> bool {
        true
    }
    fn headroom(&self) -> Option<HeadroomDecision> {
        None
    }
    fn limits(&self) -> Vec<LimitStat> {
        lock(&self.told).limits.clone()
    }
    fn caps(&self) -> Vec<CapStat> {
        lock(&self.told).caps.clone()
    }

    fn work(&self, _id: u64) -> Option<WorkStat> {
        if lock(&self.told).without_account {
            return None;
        }
        let mut work = WorkStat {
            side_ns: 2_500_000_000,
            ..WorkStat::default()
        };
        work.run_delay.counts[4] = 10;
        work.run_delay.longest_ns = 16_000;
        work.run_delay.sum_ns = 100_000;
        Some(work)
    }
}
