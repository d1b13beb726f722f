//! One hint within another: the nearer holds, and what it covers is not touched for the farther.

use tidegate_cgroup::KernelFs;
use tidegate_cgroup::group::GroupPath;
use tidegate_cgroup::sched::HintSetting;
use tidegate_cgroup::sched::hint::Apart;
use tidegate_cgroup::sched::tasks::{self, Whose};
use tidegate_engine::apply::HintPlace;

/// What lies within a gate's tasks and has a hint of its own.
pub(crate) fn apart_from(
    fs: &dyn KernelFs,
    places: &[HintPlace],
    gate: &str,
    group: &GroupPath,
    whose: Whose,
) -> Apart {
    let mut apart = Apart::default();
    let others = places.iter().filter(|place| place.gate != gate);
    for other in others.filter(|_| whose == Whose::Group) {
        match other.whose {
            Whose::Group if is_below(&other.group, group) => apart.groups.push(other.group.clone()),
            Whose::Group => {}
            Whose::Process(process) => apart.tids.extend(tasks::threads(fs, process)),
            Whose::Thread(thread) => {
                apart.tids.insert(thread.tid);
            }
        }
    }
    apart
}

/// What other gates' hints come to that a gate's tasks may have had until now: those of groups
/// around it; for a process, which may have been in any, those of all groups.
pub(crate) fn hints_around(
    places: &[HintPlace],
    gate: &str,
    group: &GroupPath,
    whose: Whose,
) -> Vec<HintSetting> {
    let around = |other: &&HintPlace| {
        let is_around = whose != Whose::Group || is_below(group, &other.group);
        other.gate != gate && other.whose == Whose::Group && is_around
    };
    places
        .iter()
        .filter(around)
        .map(|other| other.ours)
        .collect()
}

fn is_below(group: &GroupPath, above: &GroupPath) -> bool {
    group != above && group.is_within(above)
}
