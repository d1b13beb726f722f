//! Groups and tasks as the class knows them: what they are, whose buckets they draw on, what they ask of the headroom law.

use tidegate_law::cap::State;
use tidegate_law::hweight::{WEIGHT_IDLE, nice_weight};
use tidegate_terms::{Tolerance, combine};

use super::caps::Caps;
use super::hweight::Tree;
use super::runqueue::Standing;
use super::{ExtGroup, ExtTask, Kind, Origin, Place};
use crate::kernel::Kernel;
use crate::spec::{CapScope, Class, Policy};
use crate::{GroupId, Ns, TaskId};

/// Groups, tasks and what is known of each.
pub(super) struct Members {
    pub(super) groups: Vec<ExtGroup>,
    pub(super) tasks: Vec<ExtTask>,
    pub(super) tree: Tree,
    pub(super) caps: Caps,
}

impl Members {
    pub(super) fn new() -> Self {
        Self {
            groups: Vec::new(),
            tasks: Vec::new(),
            tree: Tree::new(),
            caps: Caps::default(),
        }
    }

    pub(super) fn task(&self, task: TaskId) -> &ExtTask {
        &self.tasks[task.index()]
    }

    pub(super) fn task_mut(&mut self, task: TaskId) -> &mut ExtTask {
        &mut self.tasks[task.index()]
    }

    /// What the caps above a task say, and which slot does.
    pub(super) fn cap_state(&mut self, task: TaskId, now_ns: Ns) -> (State, u32) {
        self.caps.state(&self.tasks[task.index()].slots, now_ns)
    }

    pub(super) fn add_group(&mut self, k: &Kernel, group: GroupId) {
        let g = &k.groups[group.index()];
        let spec = &g.spec;
        let root = group == GroupId::ROOT;
        let above = (!root).then(|| &self.groups[spec.parent.index()]);
        let side = match spec.class {
            Class::Side => true,
            Class::Main => false,
            Class::Neutral => above.is_some_and(|above| above.side),
        };
        let yields = spec.idle || above.is_some_and(|above| above.yields);
        let is_main = spec.class == Class::Main;
        let slot = spec.cap.as_ref().map(|cap| self.caps.add(cap, None, k.now));
        self.groups.push(ExtGroup {
            parent: spec.parent,
            side,
            yields,
            slot,
            headroom_ppm: if is_main { spec.headroom_ppm } else { 0 },
            tolerance_ppm: spec.tolerance_ppm.filter(|_| is_main),
        });
        if !root {
            self.tree.add(spec.parent, spec.weight, spec.idle);
        }
    }

    /// Headroom and tolerance that the groups ask for, in ppm; none while there may be no side work.
    pub(super) fn headroom_terms(&self) -> Option<(u32, u32)> {
        if !self.groups.iter().any(|group| group.side) {
            return None;
        }
        let headrooms = self.groups.iter().map(|group| group.headroom_ppm);
        let tolerances = self.groups.iter().filter_map(|group| group.tolerance_ppm);
        Some((
            combine::headroom(headrooms, |ppm| *ppm).unwrap_or(0),
            combine::tolerance(tolerances, |ppm| *ppm).unwrap_or(Tolerance::ONE_PERCENT.ppm()),
        ))
    }

    pub(super) fn add_task(&mut self, k: &Kernel, task: TaskId, slice_ns: Ns) {
        debug_assert_eq!(task.index(), self.tasks.len(), "tasks come in order");
        let t = k.task(task);
        let cold = &k.cold[task.index()];
        self.tasks.push(ExtTask {
            group: t.group,
            weight: task_weight(t.policy, t.nice),
            slice_ns,
            hint: 0,
            narrow: !t.anywhere,
            yields: false,
            kind: Kind::Main,
            place: Place::Away,
            cache: 0,
            standing: Standing::default(),
            lag: 0,
            left: (0, Kind::Main),
            left_ns: 0,
            sync: false,
            origins: Vec::new(),
            slots: Vec::new(),
            loans: Vec::new(),
            soft_slot: None,
            booked: None,
        });
        self.set_hint(k, task);
        let parent = cold
            .parent
            .filter(|parent| self.task(*parent).group == t.group);
        if let Some(terms) = &cold.cap {
            let forked = parent.and_then(|parent| self.slot_of(parent, Origin::Own));
            let slot = match forked {
                Some(slot) => self.caps.fork(slot, k.now),
                None => self.caps.add(terms, None, k.now),
            };
            self.give_slot(task, Origin::Own, slot);
        }
        self.group_slots(k, task, parent);
    }

    fn slot_of(&self, task: TaskId, origin: Origin) -> Option<u32> {
        let t = self.task(task);
        let at = t.origins.iter().position(|own| *own == origin)?;
        Some(t.slots[at])
    }

    fn give_slot(&mut self, task: TaskId, origin: Origin, slot: u32) {
        self.caps.enter(&[slot]);
        let t = self.task_mut(task);
        t.origins.push(origin);
        t.slots.push(slot);
    }

    /// The buckets of the capped groups above a task.
    fn group_slots(&mut self, k: &Kernel, task: TaskId, parent: Option<TaskId>) {
        let mut group = self.task(task).group;
        while group != GroupId::ROOT {
            let origin = Origin::Group(group);
            let spec = &k.groups[group.index()].spec;
            if let (Some(family), Some(terms)) = (self.groups[group.index()].slot, &spec.cap) {
                let slot = match (terms.scope, parent.and_then(|p| self.slot_of(p, origin))) {
                    (CapScope::Group, _) => family,
                    (_, Some(forked)) => self.caps.fork(forked, k.now),
                    (_, None) => self.caps.add(terms, Some(family), k.now),
                };
                self.give_slot(task, origin, slot);
            }
            group = self.groups[group.index()].parent;
        }
    }

    /// A task's own hint, or that of the nearest group above which has one.
    pub(super) fn set_hint(&mut self, k: &Kernel, task: TaskId) {
        let t = k.task(task);
        let mut hint = i32::from(t.latency);
        let mut group = t.group;
        while hint == 0 && group != GroupId::ROOT {
            hint = i32::from(k.groups[group.index()].spec.latency);
            group = self.groups[group.index()].parent;
        }
        self.task_mut(task).hint = hint;
    }

    /// What a task is now, and whether it yields to whatever is not of the idle class.
    pub(super) fn kind_of(&self, k: &Kernel, task: TaskId) -> (Kind, bool) {
        let t = k.task(task);
        let group = &self.groups[t.group.index()];
        let kind = if group.side { Kind::Side } else { Kind::Main };
        (kind, group.yields || t.policy == Policy::Idle)
    }

    /// A task was put into another group while it was not queued.
    pub(super) fn change_group(&mut self, k: &Kernel, task: TaskId) {
        let slots = std::mem::take(&mut self.task_mut(task).slots);
        let origins = std::mem::take(&mut self.task_mut(task).origins);
        self.task_mut(task).loans.clear();
        let mut left = Vec::new();
        for (origin, slot) in origins.into_iter().zip(slots) {
            if origin == Origin::Own {
                self.task_mut(task).origins.push(origin);
                self.task_mut(task).slots.push(slot);
            } else {
                left.push(slot);
            }
        }
        self.caps.leave(&left, k.now);
        self.task_mut(task).group = k.task(task).group;
        self.set_hint(k, task);
        self.group_slots(k, task, None);
    }

    /// cpu.weight or cpu.idle.
    pub(super) fn set_shares(&mut self, k: &Kernel, group: GroupId) {
        let spec = &k.groups[group.index()].spec;
        self.tree.set_weight(group, spec.weight, spec.idle);
        for index in group.index()..self.groups.len() {
            let above = self.groups[index].parent.index();
            let idle = k.groups[index].spec.idle;
            self.groups[index].yields = idle || (index != above && self.groups[above].yields);
        }
    }
}

/// A task's own weight.
fn task_weight(policy: Policy, nice: i8) -> u32 {
    if policy == Policy::Idle {
        WEIGHT_IDLE
    } else {
        nice_weight(nice.into())
    }
}
