//! What each group went through: how long its tasks waited from waking to running, and how often
//! its files were written.

use std::sync::{Arc, Mutex, PoisonError};

use crate::Ns;
use crate::hist::Histogram;
use crate::ids::{GroupId, TaskId};
use crate::trace::{Event, Tracer};

#[derive(Clone, Debug, Default)]
pub struct GroupTally {
    /// From waking to running, of its own tasks.
    pub wakeup: Histogram,
    /// Writes of its files by engines.
    pub writes: u64,
}

pub struct Tally {
    /// The group in which each task is counted.
    group_of: Vec<GroupId>,
    from_ns: Ns,
    /// When each task was woken, while it has not run since.
    woken_ns: Vec<Option<Ns>>,
    groups: Arc<Mutex<Vec<GroupTally>>>,
}

impl Tally {
    /// From a time on; the tallies are shared, one a group, the root's first. Tasks are counted in
    /// these groups, and what they fork in theirs.
    pub fn new(
        groups: usize,
        group_of: Vec<GroupId>,
        from_ns: Ns,
    ) -> (Tally, Arc<Mutex<Vec<GroupTally>>>) {
        let groups = Arc::new(Mutex::new(vec![GroupTally::default(); groups]));
        let tracer = Tally {
            group_of,
            from_ns,
            woken_ns: Vec::new(),
            groups: Arc::clone(&groups),
        };
        (tracer, groups)
    }

    fn group_of(&self, task: TaskId) -> GroupId {
        let group = self.group_of.get(task.index());
        group.copied().unwrap_or(GroupId::ROOT)
    }

    fn slot(&mut self, task: TaskId) -> &mut Option<Ns> {
        if self.woken_ns.len() <= task.index() {
            self.woken_ns.resize(task.index() + 1, None);
        }
        &mut self.woken_ns[task.index()]
    }

    fn count(&self, group: GroupId, count: impl FnOnce(&mut GroupTally)) {
        // One thread runs a machine: the lock is held nowhere else, and a panic elsewhere leaves
        // the counts whole.
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tally) = groups.get_mut(group.index()) {
            count(tally);
        }
    }
}

impl Tracer for Tally {
    fn event(&mut self, now_ns: Ns, event: &Event) {
        match *event {
            Event::Wake { task } => *self.slot(task) = Some(now_ns),
            Event::Switch { next: Some(next) } => {
                let Some(woken_ns) = self.slot(next).take() else {
                    return;
                };
                if woken_ns >= self.from_ns {
                    let group = self.group_of(next);
                    self.count(group, |tally| tally.wakeup.record(now_ns - woken_ns));
                }
            }
            Event::Write { group, .. } if now_ns >= self.from_ns => {
                self.count(group, |tally| tally.writes += 1);
            }
            Event::Fork {
                parent: Some(parent),
                child,
            } => {
                let group = self.group_of(parent);
                self.group_of.resize(child.index() + 1, GroupId::ROOT);
                self.group_of[child.index()] = group;
            }
            _ => {}
        }
    }
}
