//! Which CPUs run side work: as many as the headroom controller allows, packed onto as few cores as will do, so that the others stay whole.

use tidegate_law::tuning::SIDE_FORCED_NS;

use super::headroom_ctl::CpuTime;
use super::place::Search;
use super::{ClassTimer, Ext, Kind};
use crate::kernel::Kernel;
use crate::{CpuId, TaskId};

impl Search<'_> {
    /// What side work there costs: 0 fills a core that side work is on, 1 takes a whole core, 2 sits beside main.
    fn side_rank(&self, cpu: CpuId) -> u32 {
        let mut rank = 1;
        if self.ext.topology.threads_per_core() == 1 {
            return 0;
        }
        let siblings = self.ext.topology.siblings(cpu);
        for sibling in siblings.filter(|sibling| *sibling != cpu.0) {
            match &self.ext.cpus[sibling as usize].run {
                Some(run) if run.kind != Kind::Side => return 2,
                Some(_) => rank = 0,
                None => {}
            }
        }
        rank
    }

    pub(super) fn is_forced(&self, cpu: CpuId) -> bool {
        self.ext.cpus[cpu.index()].forced_ns > self.k.now
    }

    /// Side work is to run on `cpu` now, before main.
    pub(super) fn side_first(&self, cpu: CpuId) -> bool {
        self.ext.side_waiting > 0 && self.is_forced(cpu)
    }

    /// The idle CPU where side work costs least; of equals the nearest from `from` on.
    fn best_free(&self, from: CpuId) -> Option<(CpuId, u32)> {
        let mut best: Option<(CpuId, u32)> = None;
        let topology = &self.ext.topology;
        for cache in topology.llcs_from(topology.llc_of(from)) {
            let ideal = self.scan(&self.k.idle, cache, from, |cpu| {
                if self.ext.claimed.contains(cpu) || self.k.needs_resched(cpu) {
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

    /// What all CPUs did and what side work used, to the nanosecond.
    fn cpu_time(&self) -> CpuTime {
        let mut time = CpuTime {
            now_ns: self.k.now,
            busy_ns: 0,
            side_ns: self.ext.side_ns,
        };
        for (cpu, own) in self.k.cpus.iter().zip(&self.ext.cpus) {
            time.busy_ns += cpu.busy_ns;
            if cpu.curr.is_some() {
                let open_ns = self.k.now - cpu.charged_to;
                time.busy_ns += open_ns;
                if own.runs_side() {
                    time.side_ns += open_ns;
                }
            }
        }
        time
    }

    /// CPUs on which side work has to give way: its stretch at main's cost is over, and main waits.
    fn main_waits(&self, cpu: CpuId) -> bool {
        let cache = &self.ext.caches[self.ext.topology.llc_of(cpu) as usize];
        let runqueue = &cache.runqueues[Kind::Main as usize];
        self.ext.cpus[cpu.index()].runs_side()
            && !self.is_forced(cpu)
            && runqueue.first(|task| self.k.allowed(task, cpu)).is_some()
    }

    /// Whether some waiting side task may run there.
    fn side_fits(&self, cpu: CpuId) -> bool {
        let fits = |task: TaskId| self.k.allowed(task, cpu);
        let mut caches = self.ext.caches.iter();
        caches.any(|cache| cache.runqueues[Kind::Side as usize].first(fits).is_some())
    }
}

impl Ext {
    fn side_allowed(&self) -> u32 {
        self.headroom.as_ref().map_or(u32::MAX, |ctl| ctl.cpus())
    }

    /// May side work start on this CPU, for which main has no use? If a better place is idle, that one is woken instead.
    pub(super) fn side_may_start(&mut self, k: &mut Kernel, cpu: CpuId) -> bool {
        if self.side_waiting == 0 {
            return false;
        }
        if self.search(k).is_forced(cpu) {
            return true;
        }
        if self.side_running >= self.side_allowed() {
            return false;
        }
        let own = self.search(k).side_rank(cpu);
        if own == 0 {
            return true;
        }
        match self.search(k).best_free(cpu) {
            Some((better, rank)) if rank < own => {
                k.resched(better);
                false
            }
            _ => true,
        }
    }

    /// Has the CPUs that run side work agree with what is allowed: a level, looked at each time, not an edge.
    pub(super) fn level_side(&mut self, k: &mut Kernel) {
        let allowed = self.side_allowed();
        if self.side_running > allowed {
            let mut surplus = self.side_running - allowed;
            for rank in [2, 1, 0] {
                for cpu in 0..self.topology.cpus() {
                    let cpu = CpuId(cpu);
                    let runs = self.cpus[cpu.index()].runs_side();
                    let stays = k.needs_resched(cpu) || self.search(k).is_forced(cpu);
                    if surplus > 0 && runs && !stays && self.search(k).side_rank(cpu) == rank {
                        k.resched(cpu);
                        surplus -= 1;
                    }
                }
            }
            return;
        }
        let spare = (allowed - self.side_running).min(self.side_waiting);
        for _ in 0..spare {
            let Some((cpu, _)) = self.search(k).best_free(CpuId(0)) else {
                break;
            };
            k.resched(cpu);
        }
    }

    /// There is side work: the timer runs from now on.
    pub(super) fn begin_headroom(&mut self, k: &mut Kernel) {
        if let Some(ctl) = &mut self.headroom
            && ctl.begin()
        {
            k.events.set_timer(k.now, ClassTimer::Headroom.pack());
        }
    }

    /// The headroom controller's timer.
    pub(super) fn headroom_timer(&mut self, k: &mut Kernel) {
        let time = self.search(k).cpu_time();
        let members = self.side_members;
        let Some(ctl) = &mut self.headroom else {
            return;
        };
        if !ctl.goes_on(k.now, members) {
            return;
        }
        k.interrupt(CpuId(0), self.cfg.look_ns);
        ctl.step(time, members);
        let must_run = ctl.must_run();
        k.events
            .set_timer(k.now + self.cfg.timer_ns, ClassTimer::Headroom.pack());
        self.settle_side(k);
        self.level_side(k);
        if must_run && self.side_waiting > 0 && self.side_running == 0 {
            self.force(k);
        }
    }

    /// Lets main in where it waits beside side work whose stretch at main's cost is over.
    fn settle_side(&mut self, k: &mut Kernel) {
        for cpu in (0..self.topology.cpus()).map(CpuId) {
            if self.search(k).main_waits(cpu) {
                k.resched(cpu);
            }
        }
    }

    /// Side work gets its tolerance at main's cost, on each CPU in turn.
    fn force(&mut self, k: &mut Kernel) {
        let cpus = self.topology.cpus();
        for step in 1..=cpus {
            let cpu = CpuId((self.forced_cpu.0 + step) % cpus);
            if self.search(k).side_fits(cpu) {
                self.forced_cpu = cpu;
                self.cpus[cpu.index()].forced_ns = k.now + SIDE_FORCED_NS;
                k.resched(cpu);
                return;
            }
        }
    }
}
