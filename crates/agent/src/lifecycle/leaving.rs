//! The end of gates and of the agent.

use std::collections::BTreeSet;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use tidegate_cgroup::group::GroupPath;
use tidegate_engine::limit::caps_for_each;
use tidegate_engine::sync::lock;
use tracing::{info, warn};

use crate::errors::of_group;
use crate::gates::{Attachment, Gate, Gates};
use crate::kernel::limited_below;
use crate::lifecycle::repair::forget_gates;
use crate::process::Life;
use crate::process::lease::monotonic_ns;
use crate::runtime::Runtime;
use crate::runtime::cpuset_controller::end_cpuset;
use crate::runtime::limits::{release_all, restore, write_floor};
use crate::runtime::mechanisms::caps::leave_in_background;
use crate::runtime::mechanisms::subgroups::{enforce_subgroups, has_subgroups};
use crate::runtime::publish::save;
use crate::runtime::supervise::end_sched_ext;
use crate::systemd::bus::forget_silence;

/// Leaves: foreign targets are restored, empty groups of ours removed; side commands that still run
/// keep `cpu.idle` and the floor. Says how many.
pub(crate) fn leave(registry: &Gates, runtime: &Runtime, life: &Life) -> usize {
    leave_with(runtime, life, registry.lock())
}

/// Leaves, unless a gate has come up since it was last polled.
pub(crate) fn leave_if_unused(registry: &Gates, runtime: &Runtime, life: &Life) {
    let gates = registry.lock();
    if gates.is_empty() && runtime.unread_names().is_empty() {
        info!("the last gate has ended; leaving");
        leave_with(runtime, life, gates);
    }
}

/// Whether a process is in the gate's group or in a group for one each, which may lie beside it.
fn is_alive(runtime: &Runtime, gate: &Gate) -> bool {
    runtime
        .kernel
        .processes_below(gate.record.attachment.group(), 4)
        > 0
        || has_subgroups(runtime, &gate.record.name)
}

/// Ends for another agent to take this one's place within the lease, as a restarted service does:
/// all gates and their limits stand as they are, and the guardian acts if none comes.
pub(crate) fn hand_over(registry: &Gates, runtime: &Runtime, life: &Life) {
    // The lease is marked before anything slow, because a waiting agent that gets SIGTERM reads
    // the mark to decide whether it stays to take over.
    runtime.control_loop.lease.hand_over();
    let mut gates = registry.lock();
    life.leaving.store(true, Ordering::Release);
    end_sched_ext(runtime);
    // Turns of lock holders end with the agent that gave them.
    runtime
        .journal()
        .restore_where(|entry| entry.change.is_boost());
    for gate in gates.iter_mut() {
        runtime.control_loop.lease.beat(monotonic_ns());
        copy_caps_of_sched_ext(runtime, gate);
    }
    if let Err(error) = save(runtime, &gates) {
        warn!("{error}");
    }
    runtime.control_loop.lease.beat(monotonic_ns());
    life.tell_left();
}

/// Caps for each process or task have no copy while the scheduler keeps them.
fn copy_caps_of_sched_ext(runtime: &Runtime, gate: &mut Gate) {
    if runtime.sched_ext.is_wanted()
        && caps_for_each(&gate.terms).is_some()
        && let Err(error) = enforce_subgroups(runtime, gate)
    {
        warn!("gate {}: {error}", gate.record.name);
    }
}

fn leave_with(runtime: &Runtime, life: &Life, mut gates: MutexGuard<'_, Vec<Gate>>) -> usize {
    let kernel = &runtime.kernel;
    life.leaving.store(true, Ordering::Release);
    forget_silence();
    let root = kernel.side_root();
    runtime
        .control()
        .quotas
        .set(Vec::new(), runtime.control_loop.tick_ns);
    end_sched_ext(runtime);
    end_cpuset(runtime);
    runtime
        .journal()
        .restore_where(|entry| entry.change.is_boost());
    // Looked at once: one that ends meanwhile is an orphan, whose group is removed later.
    let (orphaned, ended): (Vec<Gate>, Vec<Gate>) =
        std::mem::take(&mut *gates).into_iter().partition(|gate| {
            matches!(gate.record.attachment, Attachment::Owned { .. }) && is_alive(runtime, gate)
        });
    *gates = orphaned;
    // Another version's gates end as well: what is in the journal for them is put back.
    let unread = std::mem::take(&mut *lock(&runtime.unread_records));
    for record in unread {
        restore(runtime, record.name());
    }
    for gate in gates.iter_mut() {
        runtime.control_loop.lease.beat(monotonic_ns());
        copy_caps_of_sched_ext(runtime, gate);
        leave_in_background(runtime, gate);
    }
    release_all(runtime, &ended);
    // What starved may be out of the idle class, where only a loop may leave it.
    for line in runtime.journal().yield_again() {
        info!("{line}");
    }
    let orphans = gates.iter().filter(|gate| gate.is_limited()).count();
    let floor = runtime.control_loop.floor_now();
    let limited: BTreeSet<&GroupPath> = gates
        .iter()
        .filter_map(|gate| limited_below(&root, gate))
        .collect();
    for group in &limited {
        let standing = kernel.groups.bandwidth(group).map_err(of_group);
        let written = standing.and_then(|standing| write_floor(runtime, group, standing, floor));
        if let Err(error) = written {
            warn!("{error}");
        }
    }
    if !limited.contains(&root) && kernel.groups.exists(&root) {
        kernel.remove_group(&root);
    }
    let main = kernel.main_root();
    if gates.iter().all(Gate::is_limited) && kernel.groups.exists(&main) {
        kernel.remove_group(&main);
    }
    if let Err(error) = save(runtime, &gates) {
        warn!("{error}");
    }
    if gates.is_empty() {
        runtime.journal().close();
        forget_gates(&*kernel.fs, &kernel.run_dir);
    }
    runtime.control_loop.lease.beat(monotonic_ns());
    runtime.control_loop.lease.leave();
    life.tell_left();
    orphans
}
