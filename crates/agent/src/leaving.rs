//! The end of gates and of the agent.

use std::collections::BTreeSet;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use tracing::{info, warn};

use crate::agent::{Agent, refuse};
use crate::control_thread::lock;
use crate::gate::{Attachment, Gate};
use crate::journal::is_boost;
use crate::lease::monotonic_ns;
use crate::limits::kind_of;

impl Agent {
    /// Releases gates that have ended, newest first. The groups that are gone leave the journal at once: a file for each would
    /// keep everybody waiting where thousands end together.
    pub(crate) fn release_all(&self, ended: &[Gate]) {
        let mut removed = BTreeSet::new();
        for gate in ended.iter().rev() {
            // Each may take a while; the guardian is not to think that we hang.
            self.lease.beat(monotonic_ns());
            let Attachment::Owned { group } = &gate.record.attachment else {
                self.release(gate);
                continue;
            };
            self.take_off(gate);
            // The loop must not write behind the removal.
            lock(&self.control).quotas.drop(group);
            match self.groups.remove(group) {
                Ok(_) => {
                    removed.insert(group.clone());
                }
                // It stays in the journal for the next try.
                Err(error) => warn!("{error}"),
            }
        }
        lock(&self.journal).forget_all(&removed);
    }

    /// Leaves: foreign targets are restored, empty groups of ours removed; side commands that still run keep `cpu.idle` and
    /// the floor. Says how many.
    pub fn leave(&self) -> usize {
        self.leave_with(lock(&self.gates))
    }

    /// Leaves, unless a gate has come up since it was last looked.
    pub(crate) fn leave_if_unused(&self) {
        let gates = lock(&self.gates);
        if gates.is_empty() {
            info!("the last gate has ended; leaving");
            self.leave_with(gates);
        }
    }

    /// Whether a process is in the gate's group or in a group for one each, which may lie beside it.
    fn is_alive(&self, gate: &Gate) -> bool {
        self.processes_below(gate.record.attachment.group(), 4) > 0
            || self.has_units(&gate.record.name)
    }

    fn leave_with(&self, mut gates: MutexGuard<'_, Vec<Gate>>) -> usize {
        self.leaving.store(true, Ordering::Release);
        let root = self.side_root();
        lock(&self.control).quotas.set(Vec::new(), self.tick_ns);
        self.end_ext();
        self.end_cpuset();
        lock(&self.journal).restore_where(is_boost);
        // Looked at once: one that ends meanwhile is an orphan, whose group is removed later.
        let (orphaned, ended): (Vec<Gate>, Vec<Gate>) =
            std::mem::take(&mut *gates).into_iter().partition(|gate| {
                matches!(gate.record.attachment, Attachment::Owned { .. }) && self.is_alive(gate)
            });
        *gates = orphaned;
        for gate in gates.iter_mut() {
            self.lease.beat(monotonic_ns());
            // They had no copy while the scheduler kept them.
            if self.ext.is_wanted()
                && gate.caps_for_each().is_some()
                && let Err(error) = self.put_on_units(gate)
            {
                warn!("gate {}: {error}", gate.record.name);
            }
            self.leave_in_background(gate);
        }
        self.release_all(&ended);
        let orphans = gates.iter().filter(|gate| gate.is_limited()).count();
        let floor = self.floor_now();
        if orphans > 0 {
            let written = self
                .groups
                .bandwidth(&root)
                .map_err(|error| refuse(kind_of(&error))(&error))
                .and_then(|standing| self.write_floor(&root, standing, floor));
            if let Err(error) = written {
                warn!("{error}");
            }
        } else if self.groups.exists(&root) {
            self.remove_group(&root);
        }
        let main = self.main_root();
        if gates.iter().all(Gate::is_limited) && self.groups.exists(&main) {
            self.remove_group(&main);
        }
        if let Err(error) = self.save(&gates) {
            warn!("{error}");
        }
        if gates.is_empty() {
            lock(&self.journal).close();
            let _ = self.fs.unlink(&self.run_dir.gates());
        }
        self.lease.beat(monotonic_ns());
        self.lease.leave();
        self.left.notify_waiters();
        self.left.notify_one();
        orphans
    }
}
