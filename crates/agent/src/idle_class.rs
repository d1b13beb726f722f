//! How side work yields while it is confined to some CPUs: by the least weight in place of the idle class, and back.

use tidegate_knobs::group::{GroupPath, GroupResult, Groups, WEIGHT_DEFAULT, WEIGHT_MIN};

use crate::journal::Journal;

/// Out of the idle class and of the least weight (or, while side work starves, of the default one).
pub(crate) fn leave_idle_class(
    groups: &Groups,
    journal: &mut Journal,
    group: &GroupPath,
    yielding: bool,
) -> Result<(), String> {
    let weight = if yielding { WEIGHT_MIN } else { WEIGHT_DEFAULT };
    let class = groups.class(group).map_err(|error| error.to_string())?;
    if class.idle != Some(true) && class.weight_raw == groups.weight_raw(weight) {
        return Ok(());
    }
    // Without an agent it goes back into the idle class.
    let noted = match class.idle {
        Some(_) => journal.record_idle_class_change(group, false),
        None => journal.record_idle_class_change(group, yielding),
    };
    noted.map_err(|error| error.to_string())?;
    let out_of_idle = |groups: &Groups| -> GroupResult<()> {
        if class.idle == Some(true) {
            groups.set_idle(group, false)?;
        }
        groups.set_weight(group, weight)
    };
    out_of_idle(groups).map_err(|error| error.to_string())
}

/// Back into the idle class.
pub(crate) fn enter_idle_class(
    groups: &Groups,
    journal: &mut Journal,
    group: &GroupPath,
) -> Result<(), String> {
    journal
        .record_idle_class_change(group, true)
        .map_err(|error| error.to_string())?;
    crate::limits::set_yielding(groups, group, true).map_err(|error| error.to_string())
}
