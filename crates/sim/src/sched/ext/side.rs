//! Which CPUs run side work: as many as the tide allows, packed onto as few cores as will do, so that the others stay whole.

use super::tide::Ledger;
use super::{Alarm, Ext, Kind};
use crate::kernel::Kernel;
use crate::{CpuId, Ns, TaskId};

/// How long the tolerance is taken from main at a time.
const FORCED_NS: Ns = 1_000_000;

impl Ext {
    /// What side work there costs: 0 fills a core that side work is on, 1 takes a whole core, 2 sits beside main.
    fn side_rank(&self, cpu: CpuId) -> u32 {
        let mut rank = 1;
        if self.topology.threads_per_core() == 1 {
            return 0;
        }
        for sibling in self
            .topology
            .siblings(cpu)
            .filter(|sibling| *sibling != cpu.0)
        {
            match &self.cpus[sibling as usize].run {
                Some(run) if run.kind != Kind::Side => return 2,
                Some(_) => rank = 0,
                None => {}
            }
        }
        rank
    }

    fn side_allowed(&self) -> u32 {
        self.tide.as_ref().map_or(u32::MAX, |tide| tide.cpus())
    }

    pub(super) fn is_forced(&self, k: &Kernel, cpu: CpuId) -> bool {
        self.cpus[cpu.index()].forced_ns > k.now
    }

    /// Side work is to run on `cpu` now, before main.
    pub(super) fn side_first(&self, k: &Kernel, cpu: CpuId) -> bool {
        self.side_waiting > 0 && self.is_forced(k, cpu)
    }

    /// May side work start on this CPU, for which main has no use? If a better place is idle, that one is woken instead.
    pub(super) fn side_may_start(&mut self, k: &mut Kernel, cpu: CpuId) -> bool {
        if self.side_waiting == 0 {
            return false;
        }
        if self.is_forced(k, cpu) {
            return true;
        }
        if self.side_running >= self.side_allowed() {
            return false;
        }
        let own = self.side_rank(cpu);
        if own == 0 {
            return true;
        }
        match self.best_free(k, cpu) {
            Some((better, rank)) if rank < own => {
                k.resched(better);
                false
            }
            _ => true,
        }
    }

    /// The idle CPU where side work costs least; of equals the nearest from `from` on.
    fn best_free(&self, k: &Kernel, from: CpuId) -> Option<(CpuId, u32)> {
        let mut best: Option<(CpuId, u32)> = None;
        for cache in self.caches_from(self.topology.llc_of(from)) {
            let ideal = self.scan(&k.idle, cache, from, |cpu| {
                if self.claimed.contains(cpu) || k.needs_resched(cpu) {
                    return false;
                }
                let rank = self.side_rank(cpu);
                if best.is_none_or(|(_, least)| rank < least) {
                    best = Some((cpu, rank));
                }
                rank == 0
            });
            if ideal.is_some() {
                break;
            }
        }
        best
    }

    /// Has the CPUs that run side work agree with what is allowed: a level, looked at each time, not an edge.
    pub(super) fn level_side(&mut self, k: &mut Kernel) {
        let allowed = self.side_allowed();
        if self.side_running > allowed {
            let mut surplus = self.side_running - allowed;
            for rank in [2, 1, 0] {
                for cpu in 0..self.topology.cpus() {
                    let cpu = CpuId(cpu);
                    let runs =
                        matches!(&self.cpus[cpu.index()].run, Some(run) if run.kind == Kind::Side);
                    let stays = k.needs_resched(cpu) || self.is_forced(k, cpu);
                    if surplus > 0 && runs && !stays && self.side_rank(cpu) == rank {
                        k.resched(cpu);
                        surplus -= 1;
                    }
                }
            }
            return;
        }
        let spare = (allowed - self.side_running).min(self.side_waiting);
        for _ in 0..spare {
            let Some((cpu, _)) = self.best_free(k, CpuId(0)) else {
                break;
            };
            k.resched(cpu);
        }
    }

    /// What all CPUs did and what side work used, to the nanosecond.
    fn ledger(&self, k: &Kernel) -> Ledger {
        let mut ledger = Ledger {
            now_ns: k.now,
            busy_ns: 0,
            side_ns: self.side_ns,
        };
        for (cpu, own) in k.cpus.iter().zip(&self.cpus) {
            ledger.busy_ns += cpu.busy_ns;
            if cpu.curr.is_some() {
                let open_ns = k.now - cpu.charged_to;
                ledger.busy_ns += open_ns;
                if matches!(&own.run, Some(run) if run.kind == Kind::Side) {
                    ledger.side_ns += open_ns;
                }
            }
        }
        ledger
    }

    /// There is side work: the timer runs from now on.
    pub(super) fn begin_tide(&mut self, k: &mut Kernel) {
        if let Some(tide) = &mut self.tide
            && tide.begin()
        {
            k.events.set_timer(k.now, Alarm::Tide.pack());
        }
    }

    /// The timer of the ledger.
    pub(super) fn tide_timer(&mut self, k: &mut Kernel) {
        let ledger = self.ledger(k);
        let members = self.side_members;
        let Some(tide) = &mut self.tide else {
            return;
        };
        if !tide.goes_on(k.now, members) {
            return;
        }
        k.interrupt(CpuId(0), self.cfg.look_ns);
        tide.step(ledger, members);
        let must_run = tide.must_run();
        k.events
            .set_timer(k.now + self.cfg.timer_ns, Alarm::Tide.pack());
        self.settle_side(k);
        self.level_side(k);
        if must_run && self.side_waiting > 0 && self.side_running == 0 {
            self.force(k);
        }
    }

    /// Lets main in where it waits beside side work whose stretch at main's cost is over.
    fn settle_side(&mut self, k: &mut Kernel) {
        for cpu in (0..self.topology.cpus()).map(CpuId) {
            let runs = matches!(&self.cpus[cpu.index()].run, Some(run) if run.kind == Kind::Side);
            if !runs || self.is_forced(k, cpu) {
                continue;
            }
            let cache = &self.caches[self.topology.llc_of(cpu) as usize];
            let line = &cache.lines[Kind::Main as usize];
            if line.first(|task| k.allowed(task, cpu)).is_some() {
                k.resched(cpu);
            }
        }
    }

    /// Side work gets its tolerance at main's cost, on each CPU in turn.
    fn force(&mut self, k: &mut Kernel) {
        let cpus = self.topology.cpus();
        for step in 1..=cpus {
            let cpu = CpuId((self.forced_cpu.0 + step) % cpus);
            if self.side_fits(k, cpu) {
                self.forced_cpu = cpu;
                self.cpus[cpu.index()].forced_ns = k.now + FORCED_NS;
                k.resched(cpu);
                return;
            }
        }
    }

    /// Whether some waiting side task may run there.
    fn side_fits(&self, k: &Kernel, cpu: CpuId) -> bool {
        let fits = |task: TaskId| k.allowed(task, cpu);
        self.caches
            .iter()
            .any(|cache| cache.lines[Kind::Side as usize].first(fits).is_some())
    }
}
