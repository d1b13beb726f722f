//! How side work yields: in the idle class (or, on kernels without one, by the least weight); and,
//! while it is confined to some CPUs, by the least weight in place of the idle class.

use std::sync::Arc;

use super::journal::{Journal, JournalResult};
use tidegate_cgroup::class::set_yielding;
use tidegate_cgroup::group::{GroupPath, WEIGHT_DEFAULT, WEIGHT_MIN};

/// Out of the idle class and of the least weight (or, while side work starves, of the default one).
pub fn leave_idle_class(
    journal: &mut Journal,
    group: &GroupPath,
    yielding: bool,
) -> JournalResult<()> {
    let groups = Arc::clone(&journal.groups);
    let weight = if yielding { WEIGHT_MIN } else { WEIGHT_DEFAULT };
    let class = groups.class(group)?;
    if class.idle != Some(true) && class.weight_raw == groups.weight_raw(weight) {
        return Ok(());
    }
    // Without an agent it goes back into the idle class.
    match class.idle {
        Some(_) => journal.record_idle_class_change(group, false)?,
        None => journal.record_idle_class_change(group, yielding)?,
    }
    if class.idle == Some(true) {
        groups.set_idle(group, false)?;
    }
    Ok(groups.set_weight(group, weight)?)
}

pub fn enter_idle_class(journal: &mut Journal, group: &GroupPath) -> JournalResult<()> {
    journal.record_idle_class_change(group, true)?;
    Ok(set_yielding(&journal.groups, group, true)?)
}
