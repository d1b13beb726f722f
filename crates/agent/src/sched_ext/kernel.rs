//! What the agent needs of a scheduler in the kernel, and the one that there is; tests have
//! another.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use tidegate_api::ApiError;
use tidegate_cgroup::KernelFs;
use tidegate_cgroup::cpus;
use tidegate_law::HeadroomDecision;
use tidegate_sched_ext::{
    CapStat, GateTerms, LimitStat, Machine, SchedExt, SchedExtError, SchedulerEnd, WorkStat,
};

use super::machine::{self, MachineError};

/// The kernel's word on which scheduler is in force.
const STATE: &str = "/sys/kernel/sched_ext/state";

const NAME: &str = "/sys/kernel/sched_ext/root/ops";

#[derive(Debug, thiserror::Error)]
pub(crate) enum SchedulerError {
    #[error(transparent)]
    Engine(#[from] SchedExtError),
    #[error(transparent)]
    Machine(#[from] MachineError),
    #[error("{0}")]
    Copies(ApiError),
}

pub(crate) trait Kernel: Send + Sync {
    /// Whether one can be loaded here at all; why not, and the remedy.
    fn can_load(&self) -> Result<(), SchedExtError>;
    /// The name of the scheduler that is in force, asked while none of ours is.
    fn other(&self) -> Option<String>;
    /// The long part of loading: the kernel checks the programs. Nothing runs yet.
    fn prepare(&self) -> Result<Box<dyn Scheduler>, SchedulerError>;
    /// Whether one is in force. The control loop asks at each turn.
    fn in_force(&self) -> bool;
}

/// A scheduler that was prepared; dropping it takes it out.
pub(crate) trait Scheduler: Send {
    fn attach(&mut self) -> Result<(), SchedExtError>;
    fn ended(&self) -> Option<SchedulerEnd>;
    /// Takes it out; the cause where it had ended before.
    fn unload(self: Box<Self>) -> Option<SchedulerEnd>;
    fn set_gate(&mut self, id: u64, terms: &GateTerms) -> Result<(), SchedExtError>;
    fn unset_gate(&mut self, id: u64) -> Result<(), SchedExtError>;
    /// A group's quota is not to be enforced here, from now on; or it is again.
    fn set_mirror(&mut self, id: u64, mirror: bool) -> Result<(), SchedExtError>;
    /// A CPU that is online by now and of whose core and cache it was not told.
    fn misplaced(&self) -> Option<u32>;
    fn set_machine(&mut self, headroom_ppm: u32, tolerance_ppm: u32) -> Result<(), SchedExtError>;
    fn sees_quotas(&self) -> bool;
    fn headroom(&self) -> Option<HeadroomDecision>;
    fn limits(&self) -> Vec<LimitStat>;
    fn caps(&self) -> Vec<CapStat>;
    fn work(&self, id: u64) -> Option<WorkStat>;
}

pub(crate) struct RealKernel {
    fs: Arc<dyn KernelFs>,
    state: Option<File>,
}

impl RealKernel {
    pub fn new(fs: Arc<dyn KernelFs>) -> Self {
        Self {
            fs,
            state: File::open(STATE).ok(),
        }
    }
}

impl Kernel for RealKernel {
    fn can_load(&self) -> Result<(), SchedExtError> {
        tidegate_sched_ext::support()?;
        if !rustix::process::geteuid().is_root() {
            return Err(SchedExtError::NotRoot);
        }
        Ok(())
    }

    fn other(&self) -> Option<String> {
        let name = || self.fs.read(Path::new(NAME)).ok();
        self.in_force()
            .then(|| name().map_or("without a name".to_owned(), |name| name.trim().to_owned()))
    }

    fn prepare(&self) -> Result<Box<dyn Scheduler>, SchedulerError> {
        let options = machine::options(&*self.fs, None)?;
        let sched_ext = SchedExt::prepare(&options)?;
        Ok(Box::new(Loaded {
            sched_ext,
            machine: options.machine,
            fs: Arc::clone(&self.fs),
        }))
    }

    fn in_force(&self) -> bool {
        let mut text = [0_u8; 16];
        let read = self.state.as_ref().map(|state| state.read_at(&mut text, 0));
        matches!(read, Some(Ok(length)) if text[..length].starts_with(b"enabled"))
    }
}

struct Loaded {
    sched_ext: SchedExt,
    machine: Machine,
    fs: Arc<dyn KernelFs>,
}

impl Scheduler for Loaded {
    fn attach(&mut self) -> Result<(), SchedExtError> {
        self.sched_ext.attach()
    }

    fn ended(&self) -> Option<SchedulerEnd> {
        self.sched_ext.ended().ok().flatten()
    }

    fn unload(self: Box<Self>) -> Option<SchedulerEnd> {
        self.sched_ext.unload().ok().flatten()
    }

    fn set_gate(&mut self, id: u64, terms: &GateTerms) -> Result<(), SchedExtError> {
        self.sched_ext.set_gate(id, terms)
    }

    fn unset_gate(&mut self, id: u64) -> Result<(), SchedExtError> {
        self.sched_ext.unset_gate(id)
    }

    fn set_mirror(&mut self, id: u64, mirror: bool) -> Result<(), SchedExtError> {
        self.sched_ext.set_mirror(id, mirror)
    }

    fn set_machine(&mut self, headroom_ppm: u32, tolerance_ppm: u32) -> Result<(), SchedExtError> {
        self.sched_ext.set_machine(headroom_ppm, tolerance_ppm)
    }

    fn misplaced(&self) -> Option<u32> {
        let online = cpus::online(&*self.fs).ok()?;
        online.into_iter().find(|&cpu| !self.machine.knows(cpu))
    }

    fn sees_quotas(&self) -> bool {
        tidegate_sched_ext::kernel_tells_quotas()
    }

    fn headroom(&self) -> Option<HeadroomDecision> {
        self.sched_ext.headroom().ok().flatten()
    }

    fn limits(&self) -> Vec<LimitStat> {
        self.sched_ext.limits().unwrap_or_default()
    }

    fn caps(&self) -> Vec<CapStat> {
        self.sched_ext.caps().unwrap_or_default()
    }

    fn work(&self, id: u64) -> Option<WorkStat> {
        self.sched_ext.work(id).ok().flatten()
    }
}
