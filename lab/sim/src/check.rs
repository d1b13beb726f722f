//! What must hold on any machine, checked while it runs (`MachineConfig::check`).
//!
//! The checker keeps its own books, from switches alone, and compares them with the machine's:
//!
//! - **affinity**: who is switched in may run there.
//! - **throttled**: who is switched in is in no throttled group.
//! - **charged = run**: per task, group and CPU, what was accounted is what ran between switches,
//!   to the ns.
//! - **no task lost**: every runnable task is on exactly one CPU's lists, and on the CPU that it
//!   names.
//! - **work conservation**: no CPU idles while a task waits on it; and where all tasks may run
//!   anywhere, none waits for longer than balance may take ([`Checker::patience_ns`]) while a CPU
//!   idles for as long.
//! - **bandwidth**: between changes of a quota, over any n whole periods, a group uses no more than
//!   n·quota + (quota + burst) + CPUs·slice + CPUs·tick: the bound of law/bandwidth.h, whose
//!   granularity on a stock kernel is the tick.
//!
//! The first violation ends the run and carries the seed (see [`crate::Violation`]).

use crate::Ns;
use crate::ids::{CpuId, GroupId, TaskId};
use crate::kernel::{Kernel, TaskState};
use crate::sched::Fair;

/// The lists of all CPUs are looked through at most this often.
const LOOK_NS: Ns = 1_000_000;

/// What a limited group has used against its quota.
#[derive(Clone, Copy, Debug)]
struct Limit {
    quota_ns: u64,
    period_ns: u64,
    burst_ns: u64,
    /// Whole periods since the last change, by the group's own turnovers.
    periods: u64,
    used_at_change_ns: u64,
    /// The least of `used - periods · quota` so far.
    least_ns: i64,
}

pub(crate) struct Checker {
    /// When what runs on a CPU came in, or was last written down.
    since: Vec<Ns>,
    cpu_ran: Vec<u64>,
    task_ran: Vec<u64>,
    group_ran: Vec<u64>,
    limits: Vec<Option<Limit>>,
    looked_ns: Ns,
    /// Since when a task has waited beside others at every look, and the last look at which it did.
    waits: Vec<(Ns, Ns)>,
}

impl Checker {
    pub(crate) fn new(k: &Kernel) -> Checker {
        let cpus = k.cpus.len();
        Checker {
            since: vec![0; cpus],
            cpu_ran: vec![0; cpus],
            task_ran: Vec::new(),
            group_ran: Vec::new(),
            limits: Vec::new(),
            looked_ns: 0,
            waits: Vec::new(),
        }
    }

    /// Writes down what the CPU's task ran up to now.
    fn close(&mut self, k: &Kernel, cpu: CpuId, task: Option<TaskId>) {
        let ran = k.now - std::mem::replace(&mut self.since[cpu.index()], k.now);
        let Some(task) = task else { return };
        self.cpu_ran[cpu.index()] += ran;
        add(&mut self.task_ran, task.index(), ran);
        let mut group = k.task(task).group;
        loop {
            add(&mut self.group_ran, group.index(), ran);
            if group == GroupId::ROOT {
                return;
            }
            group = k.groups[group.index()].parent;
        }
    }

    /// A CPU turned from `prev` to `next`; `throttled`: `next` is in a throttled group.
    pub(crate) fn switched(
        &mut self,
        k: &mut Kernel,
        cpu: CpuId,
        prev: Option<TaskId>,
        next: Option<TaskId>,
        throttled: bool,
    ) {
        self.close(k, cpu, prev);
        // A CPU that is vacated for a moment is empty with work queued: `look` comes after it has
        // chosen again.
        let Some(task) = next else { return };
        if !k.allowed(task, cpu) {
            let allowed = k.cold[task.index()].allowed;
            k.violate(
                "affinity",
                Some(cpu),
                Some(task),
                format!("it may run on {allowed} only"),
            );
        }
        if k.task(task).cpu != cpu || k.task(task).state != TaskState::Runnable {
            let t = k.task(task);
            let detail = format!("it is {:?} on CPU {} and was switched in", t.state, t.cpu);
            k.violate("no task lost", Some(cpu), Some(task), detail);
        }
        if throttled {
            k.violate(
                "throttled",
                Some(cpu),
                Some(task),
                "a group above it is throttled here".to_owned(),
            );
        }
    }

    /// A group's quota, period or burst was written.
    pub(crate) fn limit_changed(&mut self, k: &Kernel, group: GroupId) {
        self.close_all(k);
        let bandwidth = &k.groups[group.index()].bandwidth;
        let used = read(&self.group_ran, group.index());
        let limit = bandwidth.quota_us.map(|quota_us| Limit {
            quota_ns: quota_us * 1000,
            period_ns: bandwidth.period_us * 1000,
            burst_ns: bandwidth.burst_us * 1000,
            periods: 0,
            used_at_change_ns: used,
            least_ns: 0,
        });
        if group.index() >= self.limits.len() {
            self.limits.resize(group.index() + 1, None);
        }
        self.limits[group.index()] = limit;
    }

    /// A group's period ends; its quota is about to be refilled once.
    pub(crate) fn turns_over(&mut self, k: &mut Kernel, group: GroupId) {
        self.close_all(k);
        let used = read(&self.group_ran, group.index());
        let Some(Some(limit)) = self.limits.get_mut(group.index()) else {
            return;
        };
        // Against the quotas given so far, before this turnover's: the most that can be owed.
        let beyond = limit.beyond_ns(used);
        let cpus = k.cpus.len() as u64;
        let granularity = k.cfg.bandwidth_slice_us * 1000 + k.cfg.tick_ns;
        let bound = limit.quota_ns + limit.burst_ns + cpus * granularity;
        if beyond - limit.least_ns > bound as i64 {
            let over = beyond - limit.least_ns;
            let (quota, period, periods) = (limit.quota_ns, limit.period_ns, limit.periods);
            let detail = format!(
                "group {group} used {over} ns more than its quotas of {quota} ns in {period} ns within \
                 {periods} periods; the bound is {bound} ns"
            );
            k.violate("bandwidth", None, None, detail);
            return;
        }
        limit.periods += 1;
        limit.least_ns = limit.least_ns.min(limit.beyond_ns(used));
    }

    /// How long balance may leave a task waiting beside an idle CPU: the widest level's interval
    /// for an idle CPU is 1 ms a CPU; hot tasks move after two failures, and only one CPU of a
    /// group balances at a time.
    fn patience_ns(k: &Kernel) -> Ns {
        20 * k.cfg.tick_ns + 8 * 1_000_000 * k.cpus.len() as Ns
    }

    /// All CPUs have chosen; time is about to go on.
    pub(crate) fn look(&mut self, k: &mut Kernel, sched: &Fair) {
        if k.now - self.looked_ns < LOOK_NS {
            return;
        }
        let before_ns = std::mem::replace(&mut self.looked_ns, k.now);
        for cpu in 0..k.cpus.len() as u32 {
            stays_idle_with_work(k, CpuId(cpu));
        }
        self.look_for_the_lost(k);
        self.look_for_the_forgotten(k, sched, before_ns);
    }

    fn look_for_the_lost(&mut self, k: &mut Kernel) {
        let mut on = vec![0u32; k.tasks.len()];
        for (cpu, c) in k.cpus.iter().enumerate() {
            for task in &c.queued {
                // A task that names another CPU counts as on none.
                on[task.index()] += if k.task(*task).cpu.index() == cpu {
                    1
                } else {
                    2
                };
            }
        }
        let lost = k.tasks.iter().zip(&on).position(|(task, &lists)| {
            let expected = u32::from(task.state == TaskState::Runnable);
            lists != expected
        });
        if let Some(task) = lost {
            let detail = format!("it is {:?} and on {} lists", k.tasks[task].state, on[task]);
            k.violate("no task lost", None, Some(TaskId(task as u32)), detail);
        }
    }

    /// Where all may run anywhere, a task has waited long, neither running nor throttled nor
    /// asleep, while a CPU has idled as long.
    fn look_for_the_forgotten(&mut self, k: &mut Kernel, sched: &Fair, before_ns: Ns) {
        // Balance gives up where the busiest CPUs' tasks may not come, here as in the kernel.
        let confined = |task: &TaskId| !k.task(*task).anywhere;
        if k.cpus.iter().flat_map(|c| &c.queued).any(confined) {
            return;
        }
        let patience_ns = Checker::patience_ns(k);
        self.waits.resize(k.tasks.len(), (0, 0));
        let mut longest: Option<(Ns, TaskId)> = None;
        for cpu in k.crowded.iter() {
            let c = &k.cpus[cpu.index()];
            for &task in c.queued.iter().filter(|&&task| c.curr != Some(task)) {
                if !sched.movable(k, task) {
                    continue;
                }
                let wait = &mut self.waits[task.index()];
                if wait.1 != before_ns || before_ns == 0 || k.task(task).queued_ns > wait.0 {
                    wait.0 = k.now;
                }
                wait.1 = k.now;
                if longest.is_none_or(|(since, _)| wait.0 < since) {
                    longest = Some((wait.0, task));
                }
            }
        }
        let Some((since, task)) = longest.filter(|&(since, _)| k.now - since > patience_ns) else {
            return;
        };
        let idle = k
            .idle
            .iter()
            .find(|cpu| k.cpus[cpu.index()].idle_since <= since);
        if let Some(idle) = idle {
            let waited_ms = (k.now - since) / 1_000_000;
            let detail = format!("it has waited for {waited_ms} ms while CPU {idle} idled");
            k.violate(
                "work conservation",
                Some(k.task(task).cpu),
                Some(task),
                detail,
            );
        }
    }

    /// Compares the books. What runs now has been charged up to its CPU's last tick or switch; the
    /// rest is added here, for charging it would change what follows.
    pub(crate) fn compare(&mut self, k: &mut Kernel) {
        self.close_all(k);
        let mut tasks: Vec<u64> = k.tasks.iter().map(|t| t.usage_ns).collect();
        let mut groups: Vec<u64> = k.groups.iter().map(|g| g.usage_ns).collect();
        let mut cpus: Vec<u64> = k.cpus.iter().map(|c| c.busy_ns).collect();
        for (cpu, c) in k.cpus.iter().enumerate() {
            let Some(task) = c.curr else { continue };
            let uncharged = k.now - c.charged_to;
            cpus[cpu] += uncharged;
            tasks[task.index()] += uncharged;
            let mut group = k.task(task).group;
            while group != GroupId::ROOT {
                groups[group.index()] += uncharged;
                group = k.groups[group.index()].parent;
            }
            groups[GroupId::ROOT.index()] += uncharged;
        }
        let books = [
            ("CPU", &cpus, &self.cpu_ran),
            ("task", &tasks, &self.task_ran),
            ("group", &groups, &self.group_ran),
        ];
        let wrong = books.iter().find_map(|(name, charged, ran)| {
            let at = charged
                .iter()
                .enumerate()
                .position(|(at, &charged)| charged != read(ran, at))?;
            Some(format!(
                "{name} {at}: {} ns charged, {} ns run",
                charged[at],
                read(ran, at)
            ))
        });
        if let Some(detail) = wrong {
            k.violate("charged = run", None, None, detail);
        }
    }

    fn close_all(&mut self, k: &Kernel) {
        for (cpu, c) in k.cpus.iter().enumerate() {
            self.close(k, CpuId(cpu as u32), c.curr);
        }
    }
}

impl Limit {
    /// Used since the change, less the quotas of the periods since.
    fn beyond_ns(&self, used_ns: u64) -> i64 {
        (used_ns - self.used_at_change_ns) as i64 - (self.periods * self.quota_ns) as i64
    }
}

fn stays_idle_with_work(k: &mut Kernel, cpu: CpuId) {
    let c = &k.cpus[cpu.index()];
    if k.needs_resched(cpu) {
        // It is about to choose: what ran was only taken off, to be moved.
        return;
    }
    if c.curr.is_none() && c.nr_runnable > 0 {
        let detail = format!("it idles with {} tasks queued", c.nr_runnable);
        k.violate("work conservation", Some(cpu), None, detail);
    }
}

fn add(books: &mut Vec<u64>, index: usize, ran: u64) {
    if index >= books.len() {
        books.resize(index + 1, 0);
    }
    books[index] += ran;
}

fn read(books: &[u64], index: usize) -> u64 {
    books.get(index).copied().unwrap_or(0)
}
