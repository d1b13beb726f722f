//! Who runs gives way at the end of his slice, to one that waits for it: a timer, and not the next tick.
//! crates/ext/bpf/timers/resched_timer.h is the same.

use super::{Alarm, Ext, Run};
use crate::kernel::Kernel;
use crate::{CpuId, Ns, TaskId};

/// Where more tasks than this compete for each CPU of a cache, the tick is soon enough.
const FEW: u64 = 8;

/// The timer of a CPU.
#[derive(Default)]
pub(super) struct Call {
    /// When it is due; none: it is not set.
    armed_ns: Option<Ns>,
    /// A task waits.
    wanted: bool,
}

impl Ext {
    /// When the task there has had its slice.
    fn due_ns(&self, run: &Run) -> Ns {
        run.since_ns + self.task(run.task).slice_ns
    }

    /// One of main's waits for that.
    pub(super) fn call_by(&mut self, k: &mut Kernel, task: TaskId, cpu: CpuId) {
        let (_, members) = self.line(task).weight();
        let cpus = u64::from(self.topology.cpus()) / self.caches.len() as u64;
        let Some(run) = &self.cpus[cpu.index()].run else {
            return;
        };
        if members > FEW * cpus {
            return;
        }
        let due_ns = self.due_ns(run);
        self.cpus[cpu.index()].call.wanted = true;
        self.call_arm(k, cpu, due_ns);
    }

    /// A timer that is set for an earlier time is left, rings for nothing and is set again.
    fn call_arm(&mut self, k: &mut Kernel, cpu: CpuId, due_ns: Ns) {
        let call = &mut self.cpus[cpu.index()].call;
        if call.armed_ns.is_none_or(|armed_ns| due_ns < armed_ns) {
            let at_ns = due_ns.max(k.now + 1);
            call.armed_ns = Some(at_ns);
            k.events.set_timer(at_ns, Alarm::Call(cpu).pack());
        }
    }

    /// It rings: the choice looks at the line.
    pub(super) fn call_rings(&mut self, k: &mut Kernel, cpu: CpuId) {
        let own = &mut self.cpus[cpu.index()];
        if own.call.armed_ns != Some(k.now) {
            return;
        }
        own.call.armed_ns = None;
        let own = &self.cpus[cpu.index()];
        let Some(run) = own.run.as_ref().filter(|_| own.call.wanted) else {
            return;
        };
        if self.claimed.contains(cpu) {
            return;
        }
        let due_ns = self.due_ns(run);
        if due_ns > k.now {
            self.call_arm(k, cpu, due_ns);
            return;
        }
        self.cpus[cpu.index()].call.wanted = false;
        k.resched(cpu);
    }
}
