//! The priority of the thread that gives turns to lock holders.

use tidegate_cgroup::KernelFs;
use tidegate_cgroup::sched::{NORMAL, SchedWrite};
use tracing::info;

/// While a holder has its turn, the thread has turns of its own, which are due sooner: it takes the
/// rest back at once, also where there is one CPU.
const TURN: SchedWrite = SchedWrite::Deadline {
    runtime_ns: 1_000_000,
    period_ns: 4_000_000,
};
const REST: SchedWrite = SchedWrite::Policy {
    policy: NORMAL,
    nice: -20,
    reset_on_fork: false,
    slice_ns: 0,
};

/// Changes the calling thread's priority. A refusal costs some of the precision of turns, so it is
/// told of once and no more.
#[derive(Debug, Default)]
pub(super) struct OwnPriority {
    told: bool,
}

impl OwnPriority {
    pub fn begin_turn(&mut self, fs: &dyn KernelFs) -> bool {
        self.set(fs, &TURN)
    }

    pub fn rest(&mut self, fs: &dyn KernelFs) {
        self.set(fs, &REST);
    }

    fn set(&mut self, fs: &dyn KernelFs, write: &SchedWrite) -> bool {
        let done = fs.set_sched(0, write);
        if let Err(error) = &done
            && !self.told
        {
            self.told = true;
            info!("locks: {error}; turns are taken back a little later");
        }
        done.is_ok()
    }
}
