//! A running task gives way to one that waits for it, at the end of its slice or once it has run for a while: a timer, and not the
//! next tick.
//! crates/sched-ext/bpf/timers/resched_timer.h is the same.

use super::{ClassTimer, Run};
use crate::kernel::Kernel;
use crate::{CpuId, Ns};

/// When a running task gives way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Moment {
    End,
    Soon,
}

impl Run {
    fn due_ns(&self, moment: Moment) -> Ns {
        match moment {
            Moment::End => self.since_ns + self.slice_ns,
            Moment::Soon => self.undisturbed_until_ns(),
        }
    }
}

/// The timer of a CPU.
#[derive(Default)]
pub(super) struct ReschedTimer {
    /// When it is due; none: it is not set.
    armed_ns: Option<Ns>,
    /// A task waits for that.
    wanted: Option<Moment>,
}

impl ReschedTimer {
    /// A task waits for that moment of what runs there.
    pub(super) fn want(&mut self, k: &mut Kernel, cpu: CpuId, run: &Run, moment: Moment) {
        self.wanted = self.wanted.max(Some(moment));
        self.arm(k, cpu, run.due_ns(moment));
    }

    /// A task begins to run there, and none has won against it: what waited for the one before waits for the end of this one's
    /// slice.
    pub(super) fn begin(&mut self) {
        self.wanted = self.wanted.map(|_| Moment::End);
    }

    /// A timer that is set for an earlier time is left, fires for nothing and is set again.
    fn arm(&mut self, k: &mut Kernel, cpu: CpuId, due_ns: Ns) {
        if self.armed_ns.is_none_or(|armed_ns| due_ns < armed_ns) {
            let at_ns = due_ns.max(k.now + 1);
            self.armed_ns = Some(at_ns);
            k.events.set_timer(at_ns, ClassTimer::Resched(cpu).pack());
        }
    }

    /// It fires. Whether the CPU, which runs that, is to choose again.
    pub(super) fn is_due(&mut self, k: &mut Kernel, cpu: CpuId, run: Option<&Run>) -> bool {
        if self.armed_ns != Some(k.now) {
            return false;
        }
        self.armed_ns = None;
        let (Some(moment), Some(run)) = (self.wanted, run) else {
            return false;
        };
        let due_ns = run.due_ns(moment);
        if due_ns > k.now {
            self.arm(k, cpu, due_ns);
            return false;
        }
        self.wanted = None;
        true
    }
}
