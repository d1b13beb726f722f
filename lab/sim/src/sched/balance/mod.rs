//! Who pulls work from whom: newidle and periodic balance as kernel/sched/fair.c (6.12) does them.
//!
//! Three levels: the threads of a core, the cores of a cache, the caches of the machine (a level
//! that spans one group only is left out). A CPU that is about to idle looks through the levels for
//! a CPU with a task that waits, and pulls one; it looks only if it expects to idle for longer than
//! looking takes. At its ticks a CPU balances each level at an interval of 1 ms a CPU of the level,
//! 16 times that while it is busy; the ticks of a CPU on which tasks wait do so for the CPUs that
//! have no tick because they idle. Of a group only one CPU balances for it. A task that ran within
//! 500 µs is cache-hot and stays, until balance has failed often enough; after more failures the
//! running task itself is pushed.
//!
//! What the model simplifies: cost of looking is a constant a CPU (the kernel measures it); a
//! task's utilisation is not tracked, so where the kernel moves spare capacity's worth of
//! utilisation between caches, tasks are counted; at most 32 waiting tasks are looked at a time
//! (sched_nr_migrate).

mod busiest;
mod pull;

use crate::Ns;
use crate::cpuset::CpuSet;
use crate::ids::CpuId;
use crate::kernel::Kernel;
use crate::sched::Fair;
use crate::sched::place::{is_idle, only_idle_policy};
use busiest::{Amount, balances_for_its_group, find_busiest};
use pull::{PullResult, pull};

const MIGRATION_COST_NS: Ns = 500_000;
/// What the kernel expects a CPU to idle before it knows, and at most.
const AVG_IDLE_MAX_NS: Ns = 2 * MIGRATION_COST_NS;
/// Looking at a level: what it takes at least, and for each of its CPUs.
const LOOK_NS: Ns = 500;
const LOOK_CPU_NS: Ns = 100;
/// Balance of a level comes every so many ns for each of its CPUs, and so many times less often
/// when busy.
const INTERVAL_CPU_NS: Ns = 1_000_000;
const BUSY_FACTOR: u64 = 16;
/// cache_nice_tries of a level above the core.
const NICE_TRIES: u32 = 1;

/// Notes what a CPU has: more than one task that could run (only such a CPU has one to give), or
/// none but those that yield to everybody (wake placement takes it for idle).
#[inline]
pub(crate) fn note_tasks(k: &mut Kernel, cpu: CpuId) {
    let c = &k.cpus[cpu.index()];
    let crowded = c.nr_runnable > 1;
    let idle_policy = c.nr_runnable > 0 && c.nr_runnable == c.nr_idle;
    k.crowded.set(cpu, crowded);
    k.idle_policy.set(cpu, idle_policy);
}

/// A CPU is about to idle: pulls a task that waits elsewhere. True if one came.
pub(crate) fn newidle(k: &mut Kernel, sched: &mut Fair, cpu: CpuId) -> bool {
    if k.crowded.is_empty() {
        return false;
    }
    // Taken out for the while, so that the class can be asked and changed.
    let mut balance = std::mem::take(&mut sched.balance);
    let pulled = balance.newidle(k, sched, cpu);
    sched.balance = balance;
    pulled
}

/// A CPU's tick.
pub(crate) fn periodic(k: &mut Kernel, sched: &mut Fair, cpu: CpuId) {
    if !sched.balance.is_due(k, cpu) {
        return;
    }
    let mut balance = std::mem::take(&mut sched.balance);
    balance.tick(k, sched, cpu);
    sched.balance = balance;
}

/// One CPU's view of one level.
#[derive(Clone, Copy, Default)]
struct Domain {
    last_ns: Ns,
    /// Balances in a row that found an imbalance and moved nothing.
    failed: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Level {
    Core,
    Cache,
    Machine,
}

/// What a CPU is when it balances.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Idle {
    No,
    Yes,
    New,
}

/// One look for work to take.
struct Search {
    dst: CpuId,
    level: Level,
    idle: Idle,
    /// How often in a row it was in vain.
    failed: u32,
    /// CPUs found to have nothing that may go there.
    without: CpuSet,
}

#[derive(Default)]
pub(crate) struct Balance {
    levels: Vec<Level>,
    domains: Vec<Domain>,
    avg_idle_ns: Vec<Ns>,
    /// When the idle CPUs are balanced next at the earliest.
    idle_next_ns: Ns,
    /// Of each cache: its utilisation, when that was last brought up to date, and its CPUs' busy
    /// time then.
    caches: Vec<Utilisation>,
}

/// A cache's CPUs together, in parts of a thousand of one CPU: a mean that forgets over about 32
/// ms.
#[derive(Clone, Copy, Default)]
struct Utilisation {
    mean_ppt: u64,
    at_ns: Ns,
    busy_ns: u64,
}

impl Utilisation {
    fn update(&mut self, now: Ns, busy_ns: u64) {
        let (elapsed_ns, ran_ns) = (now - self.at_ns, busy_ns - self.busy_ns);
        if elapsed_ns == 0 {
            return;
        }
        let recent_ppt = ran_ns * 1000 / elapsed_ns;
        // Half of what was is forgotten in 32 ms; beyond 64 ms all of it.
        let weight = elapsed_ns.min(64_000_000);
        self.mean_ppt = (self.mean_ppt * (64_000_000 - weight) + recent_ppt * weight) / 64_000_000;
        (self.at_ns, self.busy_ns) = (now, busy_ns);
    }
}

impl Balance {
    pub(crate) fn new(k: &Kernel) -> Balance {
        let topology = &k.cfg.topology;
        let (cpus, threads, llc) = (
            topology.cpus(),
            topology.threads_per_core(),
            topology.cpus_per_llc(),
        );
        let mut levels = Vec::new();
        if threads > 1 {
            levels.push(Level::Core);
        }
        if llc > threads {
            levels.push(Level::Cache);
        }
        if cpus > llc {
            levels.push(Level::Machine);
        }
        let mut domains = Vec::new();
        for _ in 0..cpus {
            domains.extend(levels.iter().map(|_| Domain::default()));
        }
        Balance {
            levels,
            domains,
            avg_idle_ns: vec![AVG_IDLE_MAX_NS; cpus as usize],
            idle_next_ns: 0,
            caches: vec![Utilisation::default(); topology.llcs() as usize],
        }
    }

    /// To be called when a wakeup ends a CPU's idling.
    #[inline]
    pub(crate) fn left_idle(&mut self, cpu: CpuId, idled_ns: Ns) {
        let avg = &mut self.avg_idle_ns[cpu.index()];
        // An eighth of the difference, as update_avg.
        *avg = (*avg - *avg / 8 + idled_ns.min(8 * AVG_IDLE_MAX_NS) / 8).min(AVG_IDLE_MAX_NS);
    }

    /// A CPU is about to idle: pulls a task that waits elsewhere. True if one came.
    pub(crate) fn newidle(&mut self, k: &mut Kernel, sched: &mut Fair, cpu: CpuId) -> bool {
        let mut cost_ns = 0;
        for index in 0..self.levels.len() {
            let level = self.levels[index];
            cost_ns += LOOK_NS + LOOK_CPU_NS * Ns::from(span(k, cpu, level).len() as u32);
            if self.avg_idle_ns[cpu.index()] < cost_ns {
                return false;
            }
            if self.balance(k, sched, cpu, index, Idle::New) > 0 {
                return true;
            }
        }
        false
    }

    fn is_due(&self, k: &Kernel, cpu: CpuId) -> bool {
        k.now >= k.cpus[cpu.index()].balance_at || self.balances_the_idle(k, cpu)
    }

    /// Whether this CPU's tick has the idle CPUs look around: it has more tasks than it can run, or
    /// its cache has more than one busy CPU and another may be emptier (nohz_balancer_kick).
    fn balances_the_idle(&self, k: &Kernel, cpu: CpuId) -> bool {
        if k.now < self.idle_next_ns || k.idle.is_empty() {
            return false;
        }
        let llc = k.cfg.topology.llc_of(cpu) as usize;
        k.cpus[cpu.index()].nr_runnable > 1 || k.busy_llc[llc] > 1
    }

    /// A CPU begins to idle: from now on it balances as often as an idle one.
    pub(crate) fn begins_idle(&mut self, k: &mut Kernel, cpu: CpuId) {
        let mut next_ns = Ns::MAX;
        for index in 0..self.levels.len() {
            let last_ns = self.domains[cpu.index() * self.levels.len() + index].last_ns;
            next_ns = next_ns.min(last_ns + interval_ns(k, cpu, self.levels[index], false));
        }
        let at = &mut k.cpus[cpu.index()].balance_at;
        *at = (*at).min(next_ns);
        self.idle_next_ns = self.idle_next_ns.min(*at);
    }

    /// A CPU's tick: balances the levels whose time has come, and for the idle CPUs.
    pub(crate) fn tick(&mut self, k: &mut Kernel, sched: &mut Fair, cpu: CpuId) {
        if k.now >= k.cpus[cpu.index()].balance_at {
            self.rebalance(k, sched, cpu, Idle::No);
        }
        if self.balances_the_idle(k, cpu) {
            let idle = k.idle;
            let mut next_ns = k.now + 60 * k.cfg.tick_ns;
            for cpu in idle.iter() {
                if k.now >= k.cpus[cpu.index()].balance_at && is_idle(k, cpu) {
                    self.rebalance(k, sched, cpu, Idle::Yes);
                }
                next_ns = next_ns.min(k.cpus[cpu.index()].balance_at);
            }
            self.idle_next_ns = next_ns.max(k.now + k.cfg.tick_ns);
        }
    }

    fn rebalance(&mut self, k: &mut Kernel, sched: &mut Fair, cpu: CpuId, mut idle: Idle) {
        let mut next_ns = Ns::MAX;
        for index in 0..self.levels.len() {
            let (level, at) = (self.levels[index], cpu.index() * self.levels.len() + index);
            let busy = |k: &Kernel, idle| idle == Idle::No && !only_idle_policy(k, cpu);
            let mut wait_ns = interval_ns(k, cpu, level, busy(k, idle));
            if k.now >= self.domains[at].last_ns + wait_ns {
                if level == Level::Cache {
                    self.note_utilisation(k, sched, cpu);
                }
                if self.balance(k, sched, cpu, index, idle) > 0 {
                    idle = Idle::No;
                }
                self.domains[at].last_ns = k.now;
                wait_ns = interval_ns(k, cpu, level, busy(k, idle));
            }
            next_ns = next_ns.min(self.domains[at].last_ns + wait_ns);
        }
        k.cpus[cpu.index()].balance_at = next_ns;
    }

    /// Tells wake placement how busy the CPU's cache is.
    fn note_utilisation(&mut self, k: &Kernel, sched: &mut Fair, cpu: CpuId) {
        let llc = k.cfg.topology.llc_of(cpu);
        let cpus = k.cfg.topology.llc_cpus(llc);
        let busy_ns = cpus.map(|cpu| k.cpus[cpu as usize].busy_ns).sum();
        let cache = &mut self.caches[llc as usize];
        cache.update(k.now, busy_ns);
        sched.placement.note_utilisation(k, llc, cache.mean_ppt);
    }

    /// Balances one level for one CPU; the number of tasks that came.
    fn balance(
        &mut self,
        k: &mut Kernel,
        sched: &mut Fair,
        dst: CpuId,
        index: usize,
        idle: Idle,
    ) -> u32 {
        let level = self.levels[index];
        if idle != Idle::New && !balances_for_its_group(k, dst, level) {
            return 0;
        }
        let at = dst.index() * self.levels.len() + index;
        let failed = self.domains[at].failed;
        let mut search = Search {
            dst,
            level,
            idle,
            failed,
            without: CpuSet::EMPTY,
        };
        let (src, amount, moved) = loop {
            let Some((src, amount)) = find_busiest(k, sched, &search) else {
                self.domains[at].failed = 0;
                return 0;
            };
            match pull(k, sched, &search, src, amount) {
                // No task there may come here: look again as if that CPU were not there.
                PullResult::AllPinned => search.without.insert(src),
                PullResult::Tasks(moved) => break (src, amount, moved),
            }
        };
        let domain = &mut self.domains[at];
        if moved > 0 {
            domain.failed = 0;
            return moved;
        }
        if idle != Idle::New {
            domain.failed += 1;
        }
        let active = matches!(amount, Amount::Tasks(_)) && domain.failed > NICE_TRIES + 2;
        let running = k.cpus[src.index()].curr;
        if active
            && let Some(task) = running
            && k.allowed(task, dst)
        {
            domain.failed = 0;
            k.cpus[src.index()].push_to = Some(dst);
            k.resched(src);
        }
        0
    }
}

/// The CPUs of a CPU's level.
fn span(k: &Kernel, cpu: CpuId, level: Level) -> std::ops::Range<u32> {
    let topology = &k.cfg.topology;
    match level {
        Level::Core => topology.siblings(cpu),
        Level::Cache => topology.llc_cpus(topology.llc_of(cpu)),
        Level::Machine => 0..topology.cpus(),
    }
}

/// How long a CPU waits between two balances of a level: its CPUs in ms, longer while it is busy.
fn interval_ns(k: &Kernel, cpu: CpuId, level: Level, busy: bool) -> Ns {
    let cpus = span(k, cpu, level).len() as u64;
    INTERVAL_CPU_NS * cpus * if busy { BUSY_FACTOR } else { 1 }
}

/// CPUs of one group of a level: groups lie side by side.
fn group_size(k: &Kernel, level: Level) -> u32 {
    match level {
        Level::Core => 1,
        Level::Cache => k.cfg.topology.threads_per_core(),
        Level::Machine => k.cfg.topology.cpus_per_llc(),
    }
}

fn group_of(k: &Kernel, cpu: u32, level: Level) -> std::ops::Range<u32> {
    let size = group_size(k, level);
    let first = cpu / size * size;
    first..first + size
}
