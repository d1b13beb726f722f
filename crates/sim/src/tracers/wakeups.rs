//! How long each group's tasks wait from waking to running.

use std::sync::{Arc, Mutex, PoisonError};

use crate::Ns;
use crate::hist::Histogram;
use crate::ids::TaskId;
use crate::names::Names;
use crate::trace::{Event, Tracer};

/// Collects the wait of each wakeup, by group.
pub struct Wakeups {
    names: Names,
    from_ns: Ns,
    /// When each task was woken, while it has not run since.
    woken_ns: Vec<Option<Ns>>,
    groups: Arc<Mutex<Vec<Histogram>>>,
}

impl Wakeups {
    /// From a time on; the histograms are shared, one a group, the root's first.
    pub fn new(names: &Names, from_ns: Ns) -> (Wakeups, Arc<Mutex<Vec<Histogram>>>) {
        let groups = vec![Histogram::new(); names.groups().len()];
        let groups = Arc::new(Mutex::new(groups));
        let tracer = Wakeups {
            names: names.clone(),
            from_ns,
            woken_ns: Vec::new(),
            groups: Arc::clone(&groups),
        };
        (tracer, groups)
    }

    fn slot(&mut self, task: TaskId) -> &mut Option<Ns> {
        if self.woken_ns.len() <= task.index() {
            self.woken_ns.resize(task.index() + 1, None);
        }
        &mut self.woken_ns[task.index()]
    }
}

impl Tracer for Wakeups {
    fn event(&mut self, now_ns: Ns, event: &Event) {
        match *event {
            Event::Wake { task, .. } => *self.slot(task) = Some(now_ns),
            Event::Switch {
                next: Some(next), ..
            } => {
                let Some(woken_ns) = self.slot(next).take() else {
                    return;
                };
                if woken_ns >= self.from_ns {
                    let group = self.names.group_of(next);
                    let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
                    if let Some(histogram) = groups.get_mut(group.index()) {
                        histogram.record(now_ns - woken_ns);
                    }
                }
            }
            Event::Fork { .. } => self.names.learn(event),
            _ => {}
        }
    }
}
