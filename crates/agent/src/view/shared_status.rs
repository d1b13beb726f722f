//! What readers without privilege share: one status for all of them, and how often each may ask.

use std::sync::{Arc, Mutex};

use tidegate_api::StatusView;
use tidegate_engine::sync::lock;

use super::Detail;
use crate::gates::RateLimit;

const SNAPSHOT_NS: u64 = 1_000_000_000;

#[derive(Default)]
pub struct SharedStatus {
    rate: Mutex<RateLimit>,
    /// By `Detail`, when it was made, and the status.
    snapshots: [Mutex<Option<(u64, Arc<StatusView>)>>; 3],
}

impl SharedStatus {
    pub(crate) fn admit(&self, user: u32, now_ns: u64) -> bool {
        lock(&self.rate).admit(user, now_ns)
    }

    /// A status that is no older than a second; `make` makes one.
    pub(crate) fn snapshot(
        &self,
        detail: Detail,
        now_ns: u64,
        make: impl FnOnce() -> StatusView,
    ) -> Arc<StatusView> {
        let mut kept = lock(&self.snapshots[detail as usize]);
        match &*kept {
            Some((made_ns, view)) if now_ns.saturating_sub(*made_ns) < SNAPSHOT_NS => {
                Arc::clone(view)
            }
            _ => {
                let view = Arc::new(make());
                *kept = Some((now_ns, Arc::clone(&view)));
                view
            }
        }
    }
}
