//! Where the loop's writes go: the books first, then the group.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tidegate_knobs::bandwidth::Bandwidth;
use tidegate_knobs::control::Apply;
use tidegate_knobs::group::{GroupPath, Groups};

use crate::books::Books;
use crate::light::lighten;
use crate::limits::set_yielding;
use crate::looper::lock;
use crate::agent::Agent;

/// Quotas go to the books, then to the group.
pub(crate) struct QuotaWriter {
    pub groups: Arc<Groups>,
    pub books: Arc<Mutex<Books>>,
    /// The group that yields by the least weight while this is set, and not in the idle class.
    pub light: (GroupPath, Arc<AtomicBool>),
}

impl QuotaWriter {
    pub(crate) fn new(agent: &Agent) -> Self {
        Self {
            groups: Arc::clone(&agent.groups),
            books: Arc::clone(&agent.books),
            light: (agent.side_root(), lock(&agent.space).light()),
        }
    }
}

impl Apply for QuotaWriter {
    fn set_quota(
        &mut self,
        group: &GroupPath,
        from: Option<Bandwidth>,
        to: Bandwidth,
    ) -> Result<(), String> {
        let from = match from {
            Some(from) => from,
            None => self
                .groups
                .bandwidth(group)
                .map_err(|error| error.to_string())?,
        };
        lock(&self.books)
            .write_quota(group, &from, &to)
            .map_err(|error| error.to_string())
    }

    fn set_yielding(&mut self, group: &GroupPath, yielding: bool) -> Result<(), String> {
        let mut books = lock(&self.books);
        if *group == self.light.0 && self.light.1.load(Ordering::Acquire) {
            return lighten(&self.groups, &mut books, group, yielding);
        }
        books
            .will_change_yield(group, yielding)
            .map_err(|error| error.to_string())?;
        set_yielding(&self.groups, group, yielding).map_err(|error| {
            // It stands as before; a ledger that says otherwise would take that for somebody else's.
            let _ = books.will_change_yield(group, !yielding);
            error.to_string()
        })
    }

    fn set_background(&mut self, group: &GroupPath, background: bool) -> Result<(), String> {
        lock(&self.books)
            .set_background(group, background)
            .map_err(|error| error.to_string())
    }
}
