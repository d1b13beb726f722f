//! The scheduler's life in the agent: loaded with the copies standing, told of gates, watched, and what happens when it ends.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_api::{ApiError, ErrorKind};
use tidegate_ext::Ended;
use tidegate_knobs::kfs::KernelFs;
use tracing::{error, info, warn};

use super::kernel::Scheduler;
use super::machine::LEVELS_MAX;
use super::{ARMING, ExtSupervisor, Inner, OFF, ON, feasible};
use crate::agent::{Agent, refuse};
use crate::control_thread::lock;
use crate::gate::{Attachment, Gate, tighter};
use crate::limits::kind_of;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);
/// The kernel is asked so often whether the scheduler that is in force is ours.
const ASK_NS: u64 = 1_000_000_000;

/// Another scheduler is in force: whether it still is, is looked at so often.
const OTHER_NS: u64 = 30_000_000_000;

fn threads_of(fs: &dyn KernelFs, pid: i32) -> usize {
    let tasks = PathBuf::from(format!("/proc/{pid}/task"));
    fs.list(&tasks).map_or(1, |threads| threads.len().max(1))
}

/// What is due.
enum Due {
    Nothing,
    Load,
    Look,
    Ended,
}

/// Looks until the agent leaves.
pub(crate) fn run(agent: &Arc<Agent>) {
    if !agent.ext.is_wanted() {
        return;
    }
    while !agent.leaving.load(Ordering::Acquire) {
        agent.supervise(agent.clock.now_ns());
        agent.clock.sleep(LOOK);
    }
}

impl ExtSupervisor {
    /// Whether a scheduler of ours is there to be told something.
    pub fn is_loaded(&self) -> bool {
        self.is_wanted() && lock(&self.inner).loaded.is_some()
    }

    /// Whether the kernel tells the scheduler of quotas.
    pub fn sees_quotas(&self) -> bool {
        let inner = lock(&self.inner);
        inner.loaded.as_ref().is_some_and(|one| one.sees_quotas())
    }

    fn due(&self, now_ns: u64) -> Due {
        let mut inner = lock(&self.inner);
        match &inner.loaded {
            None if inner.next_ns.is_some_and(|at_ns| now_ns >= at_ns) => Due::Load,
            None => Due::Nothing,
            Some(_) if !self.holds() => Due::Ended,
            Some(scheduler) if now_ns.saturating_sub(inner.looked_ns) >= ASK_NS => {
                let ended = scheduler.ended().is_some();
                inner.looked_ns = now_ns;
                if ended { Due::Ended } else { Due::Look }
            }
            Some(_) => Due::Look,
        }
    }

    /// It could not be loaded, or it ended: when to try again, and what is said meanwhile.
    fn failed(&self, why: String, asked: bool, now_ns: u64) {
        self.set_watch(OFF);
        let mut inner = lock(&self.inner);
        inner.next_ns = inner.backoff.next_ns(now_ns, asked);
        inner.history.since_ns = None;
        match inner.next_ns {
            Some(at_ns) => {
                let seconds = at_ns.saturating_sub(now_ns) / 1_000_000_000;
                warn!("ext off: {why}; reload in {seconds} s");
            }
            None => error!(
                "ext off: {why}; {} ends within an hour are enough: not loaded again by this agent",
                inner.backoff.ends()
            ),
        }
        inner.history.why = Some(why);
    }

    /// Another's scheduler is in force, which is no end of ours: it is waited for.
    fn put_off(&self, other: &str, now_ns: u64) {
        let why = format!(
            "another scheduler, {other}, is in force and is waited for; stop it (`tidegate stop`, or Ctrl-C where `tidegate ext` runs, if \
             it is ours)"
        );
        let mut inner = lock(&self.inner);
        if inner.history.why.as_ref() != Some(&why) {
            warn!("ext off: {why}");
        }
        inner.next_ns = Some(now_ns + OTHER_NS);
        inner.history.why = Some(why);
    }

    fn tell(inner: &mut Inner, plan: super::plan::Plan) -> Result<(), String> {
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
        let mut note = |done: Result<(), String>| {
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

impl Agent {
    /// One look at the scheduler.
    pub(crate) fn supervise(&self, now_ns: u64) {
        match self.ext.due(now_ns) {
            Due::Nothing => {}
            Due::Load => self.load_ext(now_ns),
            Due::Look => self.tell_machine(),
            Due::Ended => self.ext_ended(now_ns),
        }
    }

    fn load_ext(&self, now_ns: u64) {
        let Some(kernel) = &self.ext.kernel else {
            return;
        };
        if let Some(other) = kernel.other() {
            return self.ext.put_off(&other, now_ns);
        }
        // The long part, without any lock.
        let scheduler = match kernel.prepare() {
            Ok(scheduler) => scheduler,
            Err(why) => return self.ext.failed(why, false, self.clock.now_ns().max(now_ns)),
        };
        let gates = lock(&self.gates);
        if self.leaving.load(Ordering::Acquire) {
            return;
        }
        self.ext.set_watch(ARMING);
        lock(&self.control).set_enforced_by_ext(true);
        if let Err(why) = self.arm(&gates, scheduler) {
            // The loop writes its quotas again.
            self.ext.set_watch(OFF);
            lock(&self.control).set_enforced_by_ext(false);
            return self.ext.failed(why, false, self.clock.now_ns().max(now_ns));
        }
        self.ext.set_watch(ON);
        let mut inner = lock(&self.ext.inner);
        inner.looked_ns = now_ns;
        inner.history.loads += 1;
        inner.history.since_ns = Some(now_ns);
        inner.history.why = None;
        drop(inner);
        info!("ext: the scheduler is in force; kernel files hold copies of the limits on groups");
        // Caps for each process or task are the scheduler's now.
        for gate in gates.iter().filter(|gate| gate.caps_for_each().is_some()) {
            for line in self.take_off_units(gate) {
                warn!("{line}");
            }
        }
    }

    /// The copies first, then the scheduler.
    fn arm(&self, gates: &[Gate], mut scheduler: Box<dyn Scheduler>) -> Result<(), String> {
        let plan = self.ext_plan(gates, scheduler.sees_quotas());
        self.write_mirrors().map_err(|error| error.to_string())?;
        let machine = self.ext_machine();
        scheduler.set_machine(machine.0, machine.1)?;
        let mut inner = lock(&self.ext.inner);
        inner.gates.clear();
        inner.mirrors.clear();
        inner.earlier.keep_work_of(&plan.gates);
        inner.machine = Some(machine);
        inner.loaded = Some(scheduler);
        let told = ExtSupervisor::tell(&mut inner, plan);
        let attached = match (told, &mut inner.loaded) {
            (Ok(()), Some(scheduler)) => scheduler.attach(),
            (told, _) => told,
        };
        if attached.is_err() {
            inner.loaded = None;
        }
        attached
    }

    /// Side work's floor and idle class, as they are to hold whenever the scheduler ends.
    pub(crate) fn write_mirrors(&self) -> Result<(), ApiError> {
        for line in crate::fallback::yield_again(&self.groups, &mut lock(&self.journal)) {
            info!("ext: {line}");
        }
        let floor = self.floor_now();
        let moved: Vec<_> = {
            let mut control = lock(&self.control);
            let targets = control.quotas.targets().iter();
            targets
                .map(|target| (target.group.clone(), target.own()))
                .collect()
        };
        for (group, own) in moved {
            match self.groups.bandwidth(&group) {
                Ok(standing) => self.write_floor(&group, standing, tighter(floor, own))?,
                Err(error) if error.is_gone() => {}
                Err(error) => return Err(refuse(kind_of(&error))(&error)),
            }
        }
        Ok(())
    }

    /// Tells the scheduler what the gates are now.
    pub(crate) fn tell_ext(&self, gates: &[Gate]) {
        if !self.ext.is_loaded() {
            return self.forget_gone(gates);
        }
        let plan = self.ext_plan(gates, self.ext.sees_quotas());
        let told = ExtSupervisor::tell(&mut lock(&self.ext.inner), plan);
        let trouble = told.err();
        if let Some(why) = &trouble {
            warn!("ext: {why}");
        }
        lock(&self.ext.inner).history.trouble = trouble;
        self.tell_machine();
    }

    /// While no scheduler is there to be told that a gate has gone, what earlier ones counted of it goes all the same.
    fn forget_gone(&self, gates: &[Gate]) {
        if self.ext.is_wanted() {
            let plan = self.ext_plan(gates, false);
            let mut inner = lock(&self.ext.inner);
            inner.earlier.keep_work_of(&plan.gates);
        }
    }

    fn tell_machine(&self) {
        let machine = self.ext_machine();
        let mut inner = lock(&self.ext.inner);
        if inner.machine == Some(machine) {
            return;
        }
        let told = inner
            .loaded
            .as_mut()
            .map(|scheduler| scheduler.set_machine(machine.0, machine.1));
        match told {
            Some(Ok(())) => inner.machine = Some(machine),
            Some(Err(why)) => inner.history.trouble = Some(why),
            None => {}
        }
    }

    /// It is no more: the loop has taken over already, since the copies stand.
    fn ext_ended(&self, now_ns: u64) {
        let Some(scheduler) = lock(&self.ext.inner).take() else {
            return;
        };
        self.ext.set_watch(OFF);
        // Until the kernel is done with it, which is when it tells why.
        let ended = scheduler.unload().unwrap_or_else(|| Ended {
            kind: 0,
            code: 0,
            reason: "the kernel did not say why".to_owned(),
            message: String::new(),
            dump: String::new(),
        });
        for line in ended.dump.lines() {
            info!("ext: dump: {line}");
        }
        let asked = !ended.is_failure();
        let why = ended.to_string();
        {
            let mut inner = lock(&self.ext.inner);
            inner.history.ends += 1;
            inner.history.last = Some((ended, now_ns));
            inner.history.trouble = None;
            inner.gates = Default::default();
            inner.mirrors = BTreeSet::new();
            inner.notes.clear();
        }
        self.ext.failed(why, asked, now_ns);
        // What had no copy: caps for each process or task.
        let mut gates = lock(&self.gates);
        for gate in gates
            .iter_mut()
            .filter(|gate| gate.caps_for_each().is_some())
        {
            if let Err(error) = self.put_on_units(gate) {
                lock(&self.alerts).insert(error.to_string());
            }
        }
    }

    /// The agent leaves: all tasks go back to the kernel's own scheduler while the copies still stand.
    pub(crate) fn end_ext(&self) {
        let loaded = lock(&self.ext.inner).loaded.take();
        self.ext.set_watch(OFF);
        // Meant, so not for the loop to warn of.
        lock(&self.control).set_enforced_by_ext(false);
        if let Some(scheduler) = loaded {
            scheduler.unload();
            info!("ext: the scheduler is taken out");
        }
    }

    /// Refuses terms that no scheduler can keep, where one is to: asked when they are set, with the tasks that are there then.
    /// Later ones have their floors all the same.
    pub(crate) fn check_feasible(&self, gate: &Gate) -> Result<(), ApiError> {
        if !self.ext.is_wanted() {
            return Ok(());
        }
        let refused = |why: String| {
            ApiError::new(
                ErrorKind::Usage,
                format!("engine ext: gate {}: {why}", gate.record.name),
            )
        };
        let cpus = lock(&self.control).online_cpus().max(1);
        let tasks = match &gate.record.attachment {
            Attachment::Observed { pid, .. } => threads_of(&*self.fs, *pid),
            // Threads, for the kernel's watchdog looks at each.
            attachment => self.tasks_below(attachment.group(), LEVELS_MAX),
        };
        if !gate.terms.tolerance.is_default() {
            let side = tasks * usize::from(gate.is_limited());
            feasible::tolerance(gate.terms.tolerance.value.ppm(), cpus, side).map_err(refused)?;
        }
        if let Some(rate_ucpu) = gate.own_limit().and_then(|own| own.rate_ucpu()) {
            feasible::limit("its quota or hard cap", rate_ucpu, tasks).map_err(refused)?;
        }
        Ok(())
    }
}
