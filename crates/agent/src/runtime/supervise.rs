//! The scheduler's life in the agent: loaded with the copies standing, told of gates, watched, and
//! what happens when it ends.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_api::ApiResult;
use tidegate_engine::limit::{caps_for_each, tighter};
use tidegate_engine::sync::lock;
use tidegate_sched_ext::{SchedExtError, SchedulerEnd};
use tracing::{error, info, warn};

use crate::errors::of_group;
use crate::events::EventKind;
use crate::gates::{Gate, Gates};
use crate::process::Life;
use crate::runtime::Runtime;
use crate::runtime::limits::write_floor;
use crate::runtime::mechanisms::subgroups::{enforce_subgroups, withdraw_subgroups};
use crate::runtime::scheduler_plan::{Plan, sched_ext_machine, sched_ext_plan};
use crate::sched_ext::backoff::End;
use crate::sched_ext::kernel::{Scheduler, SchedulerError};
use crate::sched_ext::{ARMING, Inner, OFF, ON, Prepared, SchedExtSupervisor};

const POLL_PERIOD: Duration = Duration::from_millis(100);
/// Without a scheduler of ours there is nothing to poll.
const IDLE_PERIOD: Duration = Duration::from_secs(3600);
/// The kernel is asked so often whether the scheduler that is in force is ours.
const ASK_NS: u64 = 1_000_000_000;

/// Another scheduler is in force: whether it still is, is looked at so often.
const OTHER_NS: u64 = 30_000_000_000;

enum Due {
    Nothing,
    Load,
    Prepared(Prepared),
    Poll,
    Ended,
    /// A CPU has come online of whose core and cache it was not told.
    Misplaced(u32),
}

pub(crate) fn period(runtime: &Runtime) -> Duration {
    if !runtime.sched_ext.is_wanted() {
        return IDLE_PERIOD;
    }
    POLL_PERIOD
}

impl SchedExtSupervisor {
    fn due(&self, now_ns: u64) -> Due {
        let mut inner = lock(&self.inner);
        if let Some(preparing) = inner.preparing.take_if(|thread| thread.is_finished()) {
            let ended =
                |_| Err(SchedExtError::Machine("the thread that loads it ended".to_owned()).into());
            return Due::Prepared(preparing.join().unwrap_or_else(ended));
        }
        match &inner.loaded {
            None if inner.preparing.is_some() => Due::Nothing,
            None if inner.next_ns.is_some_and(|at_ns| now_ns >= at_ns) => Due::Load,
            None => Due::Nothing,
            Some(_) if !self.holds() => Due::Ended,
            Some(scheduler) if now_ns.saturating_sub(inner.polled_ns) >= ASK_NS => {
                let due = match (scheduler.ended(), scheduler.misplaced()) {
                    (Some(_), _) => Due::Ended,
                    (None, Some(cpu)) => Due::Misplaced(cpu),
                    (None, None) => Due::Poll,
                };
                inner.polled_ns = now_ns;
                due
            }
            Some(_) => Due::Poll,
        }
    }

    /// It could not be loaded, or it ended: when to try again, and what is said meanwhile.
    fn failed(&self, why: String, end: End, now_ns: u64) {
        self.set_watch(OFF);
        let mut inner = lock(&self.inner);
        inner.next_ns = inner.backoff.next_ns(now_ns, end);
        inner.history.since_ns = None;
        match inner.next_ns {
            Some(at_ns) => {
                let seconds = at_ns.saturating_sub(now_ns) / 1_000_000_000;
                warn!("sched_ext off: {why}; reload in {seconds} s");
            }
            None => error!(
                "sched_ext off: {why}; {} ends within an hour are enough: not loaded again by this agent",
                inner.backoff.ends()
            ),
        }
        inner.history.why = Some(why);
    }

    /// Another's scheduler is in force, which is no end of ours: it is waited for.
    fn put_off(&self, other: &str, now_ns: u64) {
        let why = format!(
            "another scheduler, {other}, is in force and is waited for; stop it (`tidegate agent stop`, if \
             it is ours)"
        );
        let mut inner = lock(&self.inner);
        if inner.history.why.as_ref() != Some(&why) {
            warn!("sched_ext off: {why}");
        }
        inner.next_ns = Some(now_ns + OTHER_NS);
        inner.history.why = Some(why);
    }

    fn tell(inner: &mut Inner, plan: Plan) -> Result<(), SchedExtError> {
        let mut told = Ok(());
        let known = inner.mirrors.symmetric_difference(&plan.mirrors);
        let changed: Vec<u64> = known.copied().collect();
        for id in changed {
            if let Err(why) = inner.set_mirror(id, plan.mirrors.contains(&id)) {
                told = Err(why);
            }
        }
        let Inner {
            loaded,
            gates,
            notes,
            earlier,
            ..
        } = inner;
        let Some(scheduler) = loaded else {
            return Ok(());
        };
        let mut note = |done: Result<(), SchedExtError>| {
            if let Err(why) = done {
                told = Err(why);
                return false;
            }
            true
        };
        let gone: Vec<u64> = gates
            .keys()
            .filter(|id| !plan.gates.contains_key(id))
            .copied()
            .collect();
        for id in gone {
            if note(scheduler.unset_gate(id)) {
                gates.remove(&id);
                earlier.forget(id);
            }
        }
        for (id, terms) in plan.gates {
            if gates.get(&id) != Some(&terms) && note(scheduler.set_gate(id, &terms)) {
                gates.insert(id, terms);
            }
        }
        *notes = plan.notes;
        told
    }
}

pub(crate) fn supervise(registry: &Gates, runtime: &Runtime, life: &Life, now_ns: u64) {
    match runtime.sched_ext.due(now_ns) {
        Due::Nothing => {}
        Due::Load => begin_load(runtime, now_ns),
        Due::Prepared(prepared) => load_sched_ext(registry, runtime, life, prepared, now_ns),
        Due::Poll => tell_machine(runtime),
        Due::Ended => sched_ext_ended(registry, runtime, now_ns),
        Due::Misplaced(cpu) => load_again(registry, runtime, cpu, now_ns),
    }
}

/// Begins the long part, in a thread that ends with it: the kernel checks the programs for seconds,
/// and housekeeping goes on. An agent that leaves meanwhile does not wait for it.
fn begin_load(runtime: &Runtime, now_ns: u64) {
    let Some(kernel) = &runtime.sched_ext.kernel else {
        return;
    };
    if let Some(other) = kernel.other() {
        return runtime.sched_ext.put_off(&other, now_ns);
    }
    let kernel = Arc::clone(kernel);
    let thread = std::thread::Builder::new()
        .name("sched-ext-load".to_owned())
        .spawn(move || kernel.prepare());
    match thread {
        Ok(thread) => lock(&runtime.sched_ext.inner).preparing = Some(thread),
        Err(error) => {
            let why = format!("no thread to load it: {error}");
            runtime.sched_ext.failed(why, End::Failed, now_ns);
        }
    }
}

fn load_sched_ext(
    registry: &Gates,
    runtime: &Runtime,
    life: &Life,
    prepared: Prepared,
    now_ns: u64,
) {
    let failed = |why: SchedulerError| {
        let at_ns = runtime.kernel.clock.now_ns().max(now_ns);
        runtime
            .sched_ext
            .failed(why.to_string(), End::Failed, at_ns);
    };
    let scheduler = match prepared {
        Ok(scheduler) => scheduler,
        Err(why) => return failed(why),
    };
    let gates = registry.lock();
    if life.leaving.load(Ordering::Acquire) {
        return;
    }
    runtime.sched_ext.set_watch(ARMING);
    runtime.control().set_enforced_by_sched_ext(true);
    if let Err(why) = arm(runtime, &gates, scheduler) {
        // The loop writes its quotas again.
        runtime.sched_ext.set_watch(OFF);
        runtime.control().set_enforced_by_sched_ext(false);
        return failed(why);
    }
    runtime.sched_ext.set_watch(ON);
    let mut inner = lock(&runtime.sched_ext.inner);
    inner.polled_ns = now_ns;
    inner.history.loads += 1;
    inner.history.since_ns = Some(now_ns);
    inner.history.why = None;
    drop(inner);
    let what =
        "sched_ext: the scheduler is in force; kernel files hold copies of the limits on groups";
    runtime.events.tell(EventKind::SchedExtLoaded, None, what);
    // Caps for each process or task are the scheduler's now.
    let is_split = |gate: &&Gate| caps_for_each(&gate.terms).is_some();
    for gate in gates.iter().filter(is_split) {
        for line in withdraw_subgroups(runtime, gate) {
            warn!("{line}");
        }
    }
}

fn arm(
    runtime: &Runtime,
    gates: &[Gate],
    mut scheduler: Box<dyn Scheduler>,
) -> Result<(), SchedulerError> {
    let plan = sched_ext_plan(runtime, gates, scheduler.sees_quotas());
    write_mirrors(runtime).map_err(SchedulerError::Copies)?;
    let machine = sched_ext_machine(&runtime.control_loop);
    scheduler.set_machine(machine.0, machine.1)?;
    let mut inner = lock(&runtime.sched_ext.inner);
    inner.gates.clear();
    inner.mirrors.clear();
    inner.earlier.keep_work_of(&plan.gates);
    inner.machine = Some(machine);
    inner.loaded = Some(scheduler);
    let told = SchedExtSupervisor::tell(&mut inner, plan);
    let attached = match (told, &mut inner.loaded) {
        (Ok(()), Some(scheduler)) => scheduler.attach(),
        (told, _) => told,
    };
    if attached.is_err() {
        inner.loaded = None;
    }
    Ok(attached?)
}

/// Side work's floor and idle class, as they are to hold whenever the scheduler ends.
pub(crate) fn write_mirrors(runtime: &Runtime) -> ApiResult<()> {
    for line in runtime.journal().yield_again() {
        info!("sched_ext: {line}");
    }
    let floor = runtime.control_loop.floor_now();
    let moved: Vec<_> = {
        let mut control = runtime.control();
        let targets = control.quotas.targets().iter();
        targets
            .map(|target| (target.group.clone(), target.own()))
            .collect()
    };
    for (group, own) in moved {
        match runtime.kernel.groups.bandwidth(&group) {
            Ok(standing) => write_floor(runtime, &group, standing, tighter(floor, own))?,
            Err(error) if error.is_gone() => {}
            Err(error) => return Err(of_group(error)),
        }
    }
    Ok(())
}

pub(crate) fn tell_sched_ext(runtime: &Runtime, gates: &[Gate]) {
    if !runtime.sched_ext.is_loaded() {
        return forget_gone(runtime, gates);
    }
    let plan = sched_ext_plan(runtime, gates, runtime.sched_ext.sees_quotas());
    let told = SchedExtSupervisor::tell(&mut lock(&runtime.sched_ext.inner), plan);
    let error = told.err().map(|why| why.to_string());
    if let Some(why) = &error {
        warn!("sched_ext: {why}");
    }
    lock(&runtime.sched_ext.inner).history.update_error = error;
    tell_machine(runtime);
}

/// While no scheduler is there to be told that a gate has gone, what earlier ones counted of it
/// goes all the same.
fn forget_gone(runtime: &Runtime, gates: &[Gate]) {
    if runtime.sched_ext.is_wanted() {
        let plan = sched_ext_plan(runtime, gates, false);
        let mut inner = lock(&runtime.sched_ext.inner);
        inner.earlier.keep_work_of(&plan.gates);
    }
}

pub(crate) fn tell_machine(runtime: &Runtime) {
    let machine = sched_ext_machine(&runtime.control_loop);
    let mut inner = lock(&runtime.sched_ext.inner);
    if inner.machine == Some(machine) {
        return;
    }
    let told = inner
        .loaded
        .as_mut()
        .map(|scheduler| scheduler.set_machine(machine.0, machine.1));
    match told {
        Some(Ok(())) => inner.machine = Some(machine),
        Some(Err(why)) => inner.history.update_error = Some(why.to_string()),
        None => {}
    }
}

/// It is no more: the loop has taken over already, since the copies stand.
fn sched_ext_ended(registry: &Gates, runtime: &Runtime, now_ns: u64) {
    let Some(scheduler) = lock(&runtime.sched_ext.inner).take() else {
        return;
    };
    runtime.sched_ext.set_watch(OFF);
    // Until the kernel is done with it, which is when it tells why.
    let ended = scheduler.unload().unwrap_or_else(|| SchedulerEnd {
        kind: 0,
        code: 0,
        reason: "the kernel did not say why".to_owned(),
        message: String::new(),
        dump: String::new(),
    });
    for line in ended.dump.lines() {
        info!("sched_ext: dump: {line}");
    }
    let end = match &ended {
        ended if ended.left_for_real_time() => End::LeftRealTime,
        ended if ended.is_failure() => End::Failed,
        _ => End::Asked,
    };
    let why = ended.to_string();
    {
        let mut inner = lock(&runtime.sched_ext.inner);
        inner.history.ends += 1;
        inner.history.last = Some((ended, now_ns));
        forget_told(&mut inner);
    }
    let what = format!("sched_ext: {why}");
    runtime.events.tell(EventKind::SchedExtEjected, None, what);
    runtime.sched_ext.failed(why, end, now_ns);
    divide_again(registry, runtime);
}

/// The kernel tells the place of a CPU only while it is online, so the scheduler has taken one that
/// comes later for one of the first cache; until it is loaded again, kernel files enforce the
/// terms.
fn load_again(registry: &Gates, runtime: &Runtime, cpu: u32, now_ns: u64) {
    let Some(scheduler) = lock(&runtime.sched_ext.inner).take() else {
        return;
    };
    runtime.sched_ext.set_watch(OFF);
    scheduler.unload();
    let why =
        format!("CPU {cpu} has come online, and which cores and caches there are is read again");
    info!("sched_ext off: {why}");
    {
        let mut inner = lock(&runtime.sched_ext.inner);
        forget_told(&mut inner);
        inner.history.since_ns = None;
        inner.history.why = Some(why);
        inner.next_ns = Some(now_ns);
    }
    divide_again(registry, runtime);
}

fn forget_told(inner: &mut Inner) {
    inner.history.update_error = None;
    inner.gates = Default::default();
    inner.mirrors = BTreeSet::new();
    inner.notes.clear();
}

fn divide_again(registry: &Gates, runtime: &Runtime) {
    let mut gates = registry.lock();
    let is_split = |gate: &&mut Gate| caps_for_each(&gate.terms).is_some();
    for gate in gates.iter_mut().filter(is_split) {
        if let Err(error) = enforce_subgroups(runtime, gate) {
            lock(&runtime.alerts).insert(error.to_string());
        }
    }
}

/// The agent leaves: all tasks go back to the kernel's own scheduler while the copies still stand.
pub(crate) fn end_sched_ext(runtime: &Runtime) {
    let loaded = lock(&runtime.sched_ext.inner).loaded.take();
    runtime.sched_ext.set_watch(OFF);
    // Meant, so not for the loop to warn of.
    runtime.control().set_enforced_by_sched_ext(false);
    if let Some(scheduler) = loaded {
        scheduler.unload();
        info!("sched_ext: the scheduler is taken out");
    }
}
