//! Main waits for a file lock that side work holds: the holder goes first.
//!
//! The kernel reports the start of a wait to a thread next to the loop, or the thread polls
//! `/proc/locks`. Where a task that is not side work waits for a lock of side work, the holder gets
//! turns before all of the fair class ([`tidegate_engine::locks::boost`]), one after the other
//! until it lets go, within what its budget holds ([`tidegate_engine::locks::budget`]). Quota, idle
//! class and neighbours stay as they are. A gate with a limit of its own keeps that: its cap is a
//! promise, too.

mod own_priority;
mod stats;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_cgroup::group::GroupPath;
use tidegate_cgroup::sched::tasks::TaskId;
use tidegate_engine::clock::{ClockId, clock_ns};
use tidegate_engine::control::Write;
use tidegate_engine::locks::boost::Boost;
use tidegate_engine::locks::budget::BoostBudgets;
use tidegate_engine::locks::watch::Watch;
use tidegate_engine::locks::{self, Kind, Lock, Wait};
use tidegate_engine::sync::lock;
use tracing::{debug, info, warn};

use crate::control_loop::ControlLoop;
use crate::gates::Gates;
use crate::kernel::Kernel;
use crate::process::Life;
use crate::runtime::Runtime;
use own_priority::OwnPriority;
use stats::Side;

pub(crate) use stats::LockBoostStats;

/// Between two polls while a task waits, or where waits are not told as they begin.
const POLL_NS: u64 = 20_000_000;
/// Most waits for a lock are over by themselves before this.
const SETTLE: Duration = Duration::from_millis(1);
/// A poll costs as much of a CPU as the rest that follows it allows: one percent, and five where a
/// wait was told.
const REST_BY_COST: u64 = 100;
const REST_BY_COST_TOLD: u64 = 20;
const POLL_MAX_NS: u64 = 1_000_000_000;
/// A wait may have begun before it could be told, or before its lock's holder was side work: while
/// tasks wait, the table is read so often.
const TABLE_NS: u64 = 2_000_000_000;
/// The thread looks again after this; a wait that the kernel reports wakes it at once.
const IDLE_NS: u64 = 1_000_000_000;
const WAITS_MAX: usize = 32;
const PROCESSES_MAX: usize = 512;
const THREADS_MAX: usize = 4;
/// A turn that is not used up is over so much later.
const TURN_SLACK_NS: u64 = 2_000_000;
const STEP: Duration = Duration::from_micros(500);
const KEPT_MAX: usize = 64;
/// So many turns may pass before a lock is let go of: 100 ms of CPU time. A holder that keeps it
/// then rests for a second, and twice as long after each further turn, up to a minute.
const TURNS_MAX: u32 = 10;
const REST_MIN_NS: u64 = 1_000_000_000;
const REST_MAX_NS: u64 = 60_000_000_000;

pub(crate) fn run(registry: &Gates, runtime: &Runtime, life: &Life) {
    if !runtime.settings.lock_boost.value.0 {
        lock(&runtime.lock_boost).off = true;
        return;
    }
    let watch = Watch::open()
        .inspect_err(|why| info!("locks: waits are looked for, not told: {why}"))
        .ok();
    poll_waits(registry, runtime, life, watch.as_ref());
}

/// The polls: at waits as they are told, or in the kernel's table where nothing tells.
pub(crate) fn poll_waits(registry: &Gates, runtime: &Runtime, life: &Life, watch: Option<&Watch>) {
    let kernel = &runtime.kernel;
    let mut lock_boost = LockBoost::new(kernel, &runtime.control_loop);
    lock_boost.own_priority.rest(&*kernel.fs);
    let mut left = false;
    let mut read_ns = 0;
    let mut are_waits = true;
    let mut stuck: u32 = 0;
    while !life.leaving.load(Ordering::Acquire) {
        let told = match watch {
            Some(watch) if !left => {
                let told = watch.rest(Duration::from_nanos(IDLE_NS));
                if !told.is_empty() {
                    kernel.clock.sleep(SETTLE);
                    Some(told)
                } else if are_waits && kernel.clock.now_ns() - read_ns >= TABLE_NS {
                    None
                } else {
                    continue;
                }
            }
            _ => None,
        };
        let is_told = told.is_some();
        if !is_told {
            read_ns = kernel.clock.now_ns();
        }
        let polled = lock_boost.poll(registry, runtime, life, told);
        left = polled.left;
        are_waits = polled.are_waits;
        // A holder that sleeps may sleep for long.
        stuck = if left { stuck + 1 } else { 0 };
        let rest_ns = match watch {
            _ if polled.idle => IDLE_NS,
            Some(_) if !left && is_told => polled.rest_ns,
            // The table is not read again before TABLE_NS.
            Some(_) if !left => continue,
            None | Some(_) => polled.rest_ns.max(POLL_NS << (stuck / 16).min(4)),
        };
        kernel.clock.sleep(Duration::from_nanos(rest_ns));
    }
}

pub(crate) struct PollOutcome {
    idle: bool,
    are_waits: bool,
    left: bool,
    rest_ns: u64,
}

pub(crate) struct LockBoost {
    budgets: BoostBudgets,
    /// Which thread of several is first in its turn.
    nth: usize,
    /// Who was found to hold the lock on a file, when the lock's own word did not lead there.
    known: VecDeque<(String, i32)>,
    /// Locks that their holders did not release in their turns.
    kept: VecDeque<Kept>,
    /// This thread's own time during turns, in the present poll.
    turns_ns: u64,
    own_priority: OwnPriority,
}

struct Holder {
    side: Side,
    pid: i32,
}

/// A lock that its holder has kept through its turns.
struct Kept {
    file: String,
    pid: i32,
    turns: u32,
    rests_until_ns: u64,
}

impl Kept {
    fn is(&self, holder: &Holder, wait: &Wait) -> bool {
        self.pid == holder.pid && self.file == wait.held.file
    }
}

impl LockBoost {
    pub fn new(kernel: &Kernel, control_loop: &ControlLoop) -> Self {
        let cpus = control_loop.lock().online_cpus();
        Self {
            budgets: BoostBudgets::new(kernel.clock.now_ns(), cpus),
            nth: 0,
            known: VecDeque::new(),
            kept: VecDeque::new(),
            turns_ns: 0,
            own_priority: OwnPriority::default(),
        }
    }

    pub fn poll(
        &mut self,
        registry: &Gates,
        runtime: &Runtime,
        life: &Life,
        told: Option<Vec<Wait>>,
    ) -> PollOutcome {
        let began_ns = clock_ns(ClockId::ThreadCPUTime);
        self.turns_ns = 0;
        let by_cost = match told {
            Some(_) => REST_BY_COST_TOLD,
            None => REST_BY_COST,
        };
        let waits = told.unwrap_or_else(|| table(&runtime.kernel));
        let sides = sides(registry, runtime);
        let are_waits = !waits.is_empty();
        let left = are_waits && self.boost_holders(runtime, life, &sides, waits);
        // What turns cost, their budgets bound.
        let cost_ns = clock_ns(ClockId::ThreadCPUTime).saturating_sub(began_ns + self.turns_ns);
        let mut stats = lock(&runtime.lock_boost);
        stats.poll_ns = match stats.poll_ns {
            0 => cost_ns,
            // A mean of about the last fifty.
            mean_ns => mean_ns - mean_ns / 50 + cost_ns / 50,
        };
        PollOutcome {
            idle: sides.is_empty(),
            are_waits,
            left,
            rest_ns: (cost_ns * by_cost).min(POLL_MAX_NS),
        }
    }

    /// Says whether a task still waits for side work.
    fn boost_holders(
        &mut self,
        runtime: &Runtime,
        life: &Life,
        sides: &[Side],
        waits: Vec<Wait>,
    ) -> bool {
        let kernel = &runtime.kernel;
        let side_of = |pid: i32| {
            let at = kernel.groups.group_of(pid).ok()??;
            let mut around = sides.iter().filter(|side| at.is_within(&side.group));
            around.next().cloned()
        };
        let mut left = false;
        for wait in waits.into_iter().take(WAITS_MAX) {
            // What side work waits for of side work's is its own business.
            let lives = TaskId::now(&*kernel.fs, wait.waiter).is_some();
            if !lives || side_of(wait.waiter).is_some() {
                continue;
            }
            let Some(holder) = self.holder(kernel, sides, &wait.held, side_of) else {
                continue;
            };
            if self.rests(kernel.clock.now_ns(), &holder, &wait) {
                continue;
            }
            lock(&runtime.lock_boost).waits += 1;
            if holder.side.bounded {
                lock(&runtime.lock_boost).refused = Some(format!(
                    "gate {}: it has a limit of its own, which is kept",
                    holder.side.gate
                ));
                continue;
            }
            left |= !self.boost_holder(runtime, life, &holder, &wait);
        }
        left
    }

    fn rests(&self, now_ns: u64, holder: &Holder, wait: &Wait) -> bool {
        let mut kept = self.kept.iter();
        kept.any(|kept| kept.is(holder, wait) && now_ns < kept.rests_until_ns)
    }

    fn note_turn(&mut self, now_ns: u64, holder: &Holder, wait: &Wait, released: bool) {
        let mut kept = self.kept.iter();
        let at = kept.position(|kept| kept.is(holder, wait));
        let before = at.and_then(|at| self.kept.remove(at));
        if released {
            return;
        }
        let turns = before.map_or(0, |kept| kept.turns) + 1;
        let rest_ns = match turns.checked_sub(TURNS_MAX) {
            Some(more) => (REST_MIN_NS << more.min(6)).min(REST_MAX_NS),
            None => 0,
        };
        self.kept.push_front(Kept {
            file: wait.held.file.clone(),
            pid: holder.pid,
            turns,
            rests_until_ns: now_ns + rest_ns,
        });
        self.kept.truncate(KEPT_MAX);
    }

    /// The process of side work that holds the lock: one that wants to run, where there is one.
    fn holder(
        &mut self,
        kernel: &Kernel,
        sides: &[Side],
        held: &Lock,
        side_of: impl Fn(i32) -> Option<Side>,
    ) -> Option<Holder> {
        let fs = &*kernel.fs;
        let holds = |pid: i32| locks::holds(fs, pid, held).unwrap_or(false);
        let wants = |pid: i32| !locks::runnable(fs, pid, 0, 1).is_empty();
        // `flock LOCK tidegate run CMD`: the command has the open file, and its end frees nothing.
        if held.pid > 0 && side_of(held.pid).is_none() && holds(held.pid) {
            return None;
        }
        let known = self.known.iter().find(|(file, _)| *file == held.file);
        let mut asleep = None;
        for pid in [Some(held.pid), known.map(|(_, pid)| *pid)] {
            let pid = pid.filter(|pid| *pid > 0 && holds(*pid));
            if let Some(pid) = pid
                && let Some(side) = side_of(pid)
            {
                let holder = Holder { side, pid };
                if wants(pid) {
                    return Some(holder);
                }
                asleep = Some(holder);
            }
        }
        // A POSIX lock is the process's own. The others go with the open file, which may have been
        // handed on.
        if held.kind == Kind::Posix {
            return asleep;
        }
        let named = side_of(held.pid).map(|side| side.group);
        let mut order: Vec<&Side> = sides.iter().collect();
        order.sort_by_key(|side| Some(&side.group) != named.as_ref());
        let mut left = PROCESSES_MAX;
        for side in order {
            for pid in processes(kernel, &side.group, &mut left) {
                if wants(pid) && holds(pid) {
                    self.known.retain(|(file, _)| *file != held.file);
                    self.known.push_front((held.file.clone(), pid));
                    self.known.truncate(KEPT_MAX);
                    let side = side.clone();
                    return Some(Holder { side, pid });
                }
            }
        }
        asleep
    }

    /// Says whether there is nothing left to do.
    fn boost_holder(
        &mut self,
        runtime: &Runtime,
        life: &Life,
        holder: &Holder,
        wait: &Wait,
    ) -> bool {
        let kernel = &runtime.kernel;
        let fs = &*kernel.fs;
        self.nth = self.nth.wrapping_add(1);
        let tids = locks::runnable(fs, holder.pid, self.nth, THREADS_MAX);
        let mut boost = Boost::plan(fs, &tids);
        let threads = boost.tasks.len() as u64;
        let Some(process) = TaskId::now(fs, holder.pid) else {
            return true;
        };
        let Some(turn_ns) = self
            .budgets
            .pay(kernel.clock.now_ns(), process, boost.tasks.len())
        else {
            return false;
        };
        boost.turn_ns = turn_ns;
        let own_ns = clock_ns(ClockId::ThreadCPUTime);
        // Without it the rest of a turn is taken back a little later.
        let lifted = self.own_priority.begin_turn(fs);
        let began_ns = kernel.clock.now_ns();
        let given = give(kernel, &holder.side, boost);
        let released = match &given {
            Ok(_) => watch(
                kernel,
                life,
                holder.pid,
                &wait.held,
                turn_ns + TURN_SLACK_NS,
            ),
            Err(_) => false,
        };
        let went_ns = kernel.clock.now_ns().saturating_sub(began_ns);
        match given {
            Ok(id) => {
                for line in runtime.journal().end_boost(id) {
                    warn!("locks: {line}");
                }
                // One CPU for each at most, and no more than its turn.
                let used_ns = went_ns.min(turn_ns) * threads;
                self.budgets.give_back(process, turn_ns * threads - used_ns);
                if !released {
                    self.budgets.used_up(process, began_ns);
                }
                tell(runtime, holder, wait, used_ns);
            }
            Err(why) => {
                self.budgets.give_back(process, turn_ns * threads);
                // Not again at every poll.
                self.budgets.used_up(process, began_ns);
                lock(&runtime.lock_boost).refused =
                    Some(format!("gate {}: {why}", holder.side.gate));
            }
        }
        // It runs, so its part goes back (what sleeps is another matter, see `put_back`).
        if lifted {
            self.own_priority.rest(fs);
        }
        self.turns_ns += clock_ns(ClockId::ThreadCPUTime).saturating_sub(own_ns);
        self.note_turn(kernel.clock.now_ns(), holder, wait, released);
        released
    }
}

/// In the journal first; what was given before a refusal is taken back.
fn give(kernel: &Kernel, side: &Side, boost: Boost) -> Result<u64, String> {
    let mut journal = kernel.journal();
    let id = journal
        .record_boost(&side.group, &side.gate, boost)
        .map_err(|error| error.to_string())?;
    journal.start_boost(id).map(|_| id).map_err(|error| {
        let mut why = vec![error.to_string()];
        why.extend(journal.end_boost(id));
        why.join("; ")
    })
}

fn watch(kernel: &Kernel, life: &Life, pid: i32, held: &Lock, most_ns: u64) -> bool {
    let began_ns = kernel.clock.now_ns();
    while kernel.clock.now_ns().saturating_sub(began_ns) < most_ns {
        kernel.clock.sleep(STEP);
        let gone = !locks::holds(&*kernel.fs, pid, held).unwrap_or(false);
        if gone || life.leaving.load(Ordering::Acquire) {
            return true;
        }
    }
    false
}

fn tell(runtime: &Runtime, holder: &Holder, wait: &Wait, used_ns: u64) {
    let ms = used_ns as f64 / 1e6;
    let kind = wait.held.kind.as_str();
    let (pid, waiter) = (holder.pid, wait.waiter);
    let gate = &holder.side.gate;
    info!(
        gate,
        pid,
        waiter,
        file = wait.held.file,
        "main waits for its {kind}: it went first for {ms:.1} ms"
    );
    let last = format!("process {pid} for {ms:.1} ms, process {waiter} waited for its {kind}");
    lock(&runtime.lock_boost).add(gate, used_ns, last);
    runtime.control().quotas.log.add(Write {
        at_ns: runtime.kernel.clock.now_ns(),
        path: holder.side.group.to_string(),
        value: format!("process {pid} went first for {ms:.1} ms"),
        was: None,
        reason: format!("main waits for its {kind}"),
    });
}

fn processes(kernel: &Kernel, group: &GroupPath, left: &mut usize) -> Vec<i32> {
    let mut found = Vec::new();
    let mut open = vec![(group.clone(), 4_u32)];
    while let Some((at, depth)) = open.pop() {
        let pids = kernel.groups.procs(&at).unwrap_or_default();
        let room = (*left).min(pids.len());
        *left -= room;
        found.extend(&pids[..room]);
        if depth > 0 && *left > 0 {
            let children = kernel.groups.children(&at).unwrap_or_default();
            open.extend(children.into_iter().map(|child| (child, depth - 1)));
        }
    }
    found
}

fn table(kernel: &Kernel) -> Vec<Wait> {
    match kernel.fs.read(Path::new(locks::TABLE)) {
        Ok(table) => locks::waits(&table),
        Err(error) => {
            debug!("locks: {error}");
            Vec::new()
        }
    }
}

/// Side work that is limited; as it was when the gates could last be looked at, since a call may
/// hold them for long.
fn sides(registry: &Gates, runtime: &Runtime) -> Vec<Side> {
    if let Ok(gates) = registry.list.try_lock() {
        let limited = gates.iter().filter(|gate| gate.is_limited() && !gate.away);
        lock(&runtime.lock_boost).sides = limited
            .map(|gate| Side {
                gate: gate.record.name.clone(),
                group: gate.record.attachment.group().clone(),
                bounded: gate.terms.is_bounded(),
            })
            .collect();
    }
    lock(&runtime.lock_boost).sides.clone()
}
