//! A running task gives way at the end of its slice to one that waits for it: a timer, and not the next tick.
//! crates/ext/bpf/timers/resched_timer.h is the same.

use super::ClassTimer;
use crate::kernel::Kernel;
use crate::{CpuId, Ns};

/// The timer of a CPU.
#[derive(Default)]
pub(super) struct ReschedTimer {
    /// When it is due; none: it is not set.
    armed_ns: Option<Ns>,
    /// A task waits.
    wanted: bool,
}

impl ReschedTimer {
    /// A task waits until `due_ns`.
    pub(super) fn want(&mut self, k: &mut Kernel, cpu: CpuId, due_ns: Ns) {
        self.wanted = true;
        self.arm(k, cpu, due_ns);
    }

    /// A timer that is set for an earlier time is left, fires for nothing and is set again.
    fn arm(&mut self, k: &mut Kernel, cpu: CpuId, due_ns: Ns) {
        if self.armed_ns.is_none_or(|armed_ns| due_ns < armed_ns) {
            let at_ns = due_ns.max(k.now + 1);
            self.armed_ns = Some(at_ns);
            k.events.set_timer(at_ns, ClassTimer::Resched(cpu).pack());
        }
    }

    /// It fires; `due_ns`: the end of the slice of the task that runs there. Whether the CPU is to choose again.
    pub(super) fn is_due(&mut self, k: &mut Kernel, cpu: CpuId, due_ns: Option<Ns>) -> bool {
        if self.armed_ns != Some(k.now) {
            return false;
        }
        self.armed_ns = None;
        let Some(due_ns) = due_ns.filter(|_| self.wanted) else {
            return false;
        };
        if due_ns > k.now {
            self.arm(k, cpu, due_ns);
            return false;
        }
        self.wanted = false;
        true
    }
}
