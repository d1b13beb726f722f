//! Putting knobs back: only where the value found is ours; everything else is reported and left
//! alone.

use super::{Change, Entry, Fallback, Moving, same_group};
use crate::locks::boost::{Boost, take};
use tidegate_cgroup::KfsError;
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::class;
use tidegate_cgroup::cpus::format_list;
use tidegate_cgroup::discover::CgroupVersion;
use tidegate_cgroup::group::{
    CpuClass, GroupError, GroupPath, GroupResult, Groups, Placement, PlacementUndo, WEIGHT_DEFAULT,
};
use tidegate_cgroup::sched::hint::{Apart, Latency, undo};
use tidegate_cgroup::sched::tasks::{Whose, process_lives};
use tidegate_cgroup::subgroups;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The old value stands again (or stood already).
    Restored,
    /// Another program wrote it since: left alone.
    NotOurs {
        found: String,
    },
    /// The group or the process is gone: nothing is left to do.
    Gone,
    Kept,
    /// It could not be done; it stays in the ledger.
    Failed {
        why: String,
    },
}

impl Outcome {
    pub fn is_settled(&self) -> bool {
        !matches!(self, Self::Failed { .. } | Self::Kept)
    }

    /// Only what is really gone is settled by being gone: a file that is missing from a group that
    /// stands is a failure.
    fn of(groups: &Groups, group: &GroupPath, result: GroupResult<Outcome>) -> Self {
        match result {
            Ok(outcome) => outcome,
            Err(error) if error.is_gone() && !groups.exists(group) => Self::Gone,
            Err(error) => Self::Failed {
                why: error.to_string(),
            },
        }
    }
}

/// Puts one knob back to what stood before us.
pub fn restore(groups: &Groups, moving: &Moving, entry: &Entry) -> Outcome {
    Outcome::of(groups, &entry.group, try_restore(groups, moving, entry))
}

fn try_restore(groups: &Groups, moving: &Moving, entry: &Entry) -> GroupResult<Outcome> {
    let is_in_group = match &entry.change {
        Change::Membership { .. } | Change::Boost(_) => false,
        Change::Latency(latency) => latency.whose == Whose::Group,
        _ => true,
    };
    if is_in_group && !same_group(groups, &entry.group, entry.group_id)? {
        return Ok(Outcome::Gone);
    }
    match &entry.change {
        Change::Group => {
            groups.remove(&entry.group)?;
            Ok(Outcome::Restored)
        }
        Change::Idle { was, ours } => {
            let found = groups.class(&entry.group)?;
            if found == *was {
                return Ok(Outcome::Restored);
            }
            // The end of idle leaves the default weight: the saved one is put back also after a
            // restore that died between the two writes.
            let half_restored =
                found.idle == was.idle && found.weight_raw == groups.weight_raw(WEIGHT_DEFAULT);
            // Who died between the note that a group is relieved and the write left it as it was
            // before: idle, by us.
            let not_relieved = !*ours && found.idle == Some(true);
            if found.idle != Some(*ours) && !half_restored && !not_relieved {
                return Ok(Outcome::NotOurs {
                    found: format!("idle {:?}", found.idle),
                });
            }
            class::restore_class(groups, &entry.group, was)?;
            Ok(Outcome::Restored)
        }
        Change::Subgroups(family) => {
            if subgroups::dissolve(groups, family)? {
                return Ok(Outcome::Restored);
            }
            Ok(Outcome::Failed {
                why: "its processes fork faster than they can be moved back; try again".to_owned(),
            })
        }
        Change::Background { was } => restore_background(groups, &entry.group, was),
        Change::Weight { was, ours } => {
            let found = groups.class(&entry.group)?;
            if found.weight_raw == *was {
                return Ok(Outcome::Restored);
            }
            if found.weight_raw != *ours || found.idle == Some(true) {
                return Ok(Outcome::NotOurs {
                    found: format!("weight {}", found.weight_raw),
                });
            }
            groups.set_weight_raw(&entry.group, *was)?;
            Ok(Outcome::Restored)
        }
        Change::Bandwidth { was, .. } => {
            set_if_ours(groups, moving, entry, *was, Outcome::Restored)
        }
        Change::Burst {
            was_us,
            previous_us,
            ours_us,
        } => restore_burst(groups, &entry.group, *was_us, [*previous_us, *ours_us]),
        Change::Cpuset {
            was,
            previous,
            ours,
        } => restore_cpuset(groups, &entry.group, was, [previous, ours]),
        Change::Latency(latency) => restore_hint(groups, entry, latency),
        Change::Boost(boost) => Ok(restore_boost(groups, boost)),
        Change::Membership {
            start_ticks,
            placement,
        } => restore_membership(groups, *start_ticks, placement),
    }
}

/// The quota is another program's, which may have lowered it since.
fn restore_burst(
    groups: &Groups,
    group: &GroupPath,
    was_us: u64,
    ours_us: [u64; 2],
) -> GroupResult<Outcome> {
    let found = groups.bandwidth(group)?;
    let to_us = was_us.min(found.quota_us.unwrap_or(u64::MAX));
    if found.burst_us == to_us {
        return Ok(Outcome::Restored);
    }
    if !ours_us.contains(&found.burst_us) {
        return Ok(Outcome::NotOurs {
            found: format!("{} us", found.burst_us),
        });
    }
    groups.set_burst(group, to_us)?;
    Ok(Outcome::Restored)
}

fn restore_hint(groups: &Groups, entry: &Entry, latency: &Latency) -> GroupResult<Outcome> {
    let undone = undo(
        groups,
        &entry.group,
        latency,
        entry.at_boot_ns,
        &Apart::default(),
    )?;
    Ok(of_undone(undone.failed, undone.others, "slice to"))
}

fn of_undone(failed: Option<KfsError>, others: u64, what: &str) -> Outcome {
    match (failed, others) {
        (Some(error), _) => Outcome::Failed {
            why: error.to_string(),
        },
        (None, 0) => Outcome::Restored,
        (None, others) => Outcome::NotOurs {
            found: format!("another {what} {others} tasks"),
        },
    }
}

fn restore_boost(groups: &Groups, boost: &Boost) -> Outcome {
    let undone = take(&**groups.fs(), boost);
    of_undone(undone.failed, undone.others, "deadline of")
}

fn restore_background(groups: &Groups, group: &GroupPath, was: &CpuClass) -> GroupResult<Outcome> {
    let found = groups.class(group)?;
    if found == *was {
        return Ok(Outcome::Restored);
    }
    if !class::may_be_in_or_out(groups, was, &found) {
        return Ok(Outcome::NotOurs {
            found: found.to_string(),
        });
    }
    class::restore_class(groups, group, was)?;
    Ok(Outcome::Restored)
}

/// Without an agent nothing takes it out again in time, so it stays in: a cap is never exceeded at
/// others' expense.
fn fall_to_background(groups: &Groups, entry: &Entry, was: &CpuClass) -> Outcome {
    let done = || -> GroupResult<Outcome> {
        if !same_group(groups, &entry.group, entry.group_id)? {
            return Ok(Outcome::Gone);
        }
        let found = groups.class(&entry.group)?;
        if !class::may_be_in_or_out(groups, was, &found) {
            return Ok(Outcome::NotOurs {
                found: found.to_string(),
            });
        }
        class::set_background(groups, &entry.group, was, true)?;
        Ok(Outcome::Kept)
    };
    Outcome::of(groups, &entry.group, done())
}

fn subgroups_to_background(groups: &Groups, entry: &Entry, family: &subgroups::Family) -> Outcome {
    let done = || -> GroupResult<Outcome> {
        for (_, subgroup) in family.list(groups)? {
            let was = groups.class(&subgroup)?;
            class::set_background(groups, &subgroup, &was, true)?;
        }
        Ok(Outcome::Kept)
    };
    Outcome::of(groups, &entry.group, done())
}

/// A limit is ours when each of its parts is what was recorded, or stood before that, or before us;
/// one that moves, when its slot allows it: a writer may have died between the note and the write,
/// or between v1's three writes.
fn is_ours(moving: &Moving, entry: &Entry, found: &Bandwidth) -> bool {
    if let Some(moved) = moving.get(entry.id) {
        return moved.may_be(found);
    }
    let Change::Bandwidth {
        was,
        ours,
        previous,
    } = &entry.change
    else {
        return false;
    };
    let Some(previous) = previous else {
        return found == ours;
    };
    let known = [was, previous, ours];
    known.iter().any(|one| one.quota_us == found.quota_us)
        && known.iter().any(|one| one.period_us == found.period_us)
        && known.iter().any(|one| one.burst_us == found.burst_us)
}

/// The outcome is `if_it_stands` if the group already has the limit `to`.
fn set_if_ours(
    groups: &Groups,
    moving: &Moving,
    entry: &Entry,
    to: Bandwidth,
    if_it_stands: Outcome,
) -> GroupResult<Outcome> {
    let found = groups.bandwidth(&entry.group)?;
    if found == to {
        // Not written again: a write is a refill.
        return Ok(if_it_stands);
    }
    if !is_ours(moving, entry, &found) {
        return Ok(Outcome::NotOurs {
            found: found.to_string(),
        });
    }
    if moving.get(entry.id).is_some() {
        let noted = moving.note(entry.id, &found, &to);
        debug_assert!(noted, "the slot was just read");
    }
    groups.set_bandwidth(&entry.group, Some(found), to)?;
    Ok(Outcome::Restored)
}

fn restore_membership(
    groups: &Groups,
    start_ticks: u64,
    placement: &Placement,
) -> GroupResult<Outcome> {
    if process_lives(&**groups.fs(), placement.pid, start_ticks) {
        return Ok(match groups.place_back(placement)? {
            PlacementUndo::AtHome | PlacementUndo::Moved => Outcome::Restored,
            PlacementUndo::Exited => Outcome::Gone,
            PlacementUndo::Elsewhere => Outcome::NotOurs {
                found: format!("process {} was moved elsewhere", placement.pid),
            },
        });
    }
    // Its children may still be in the group that was made for it: then that is busy, and stays.
    if placement.made_group {
        match groups.remove(&placement.group) {
            Err(GroupError::Busy { .. }) => return Ok(Outcome::Kept),
            result => result?,
        };
    }
    Ok(Outcome::Gone)
}

/// v1's group is ours whatever is in it: it was made for this, and a CPU that went away went from
/// it, too.
fn restore_cpuset(
    groups: &Groups,
    group: &GroupPath,
    was: &Vec<u32>,
    ours: [&Vec<u32>; 2],
) -> GroupResult<Outcome> {
    if !groups.has_cpuset(group) {
        return Ok(Outcome::Restored);
    }
    if groups.version() == CgroupVersion::V2 {
        let found = groups.cpuset(group)?;
        if was.is_empty() && groups.is_every_cpu(&found) {
            return Ok(Outcome::Restored);
        }
        if found != *was && !ours.contains(&&found) {
            return Ok(Outcome::NotOurs {
                found: format!("CPUs {}", format_list(&found)),
            });
        }
        if !was.is_empty() {
            groups.set_cpuset(group, was)?;
            return Ok(Outcome::Restored);
        }
    }
    groups.close_cpuset(group)?;
    Ok(Outcome::Restored)
}

/// What the guardian does with one knob, `dead_seconds` after the agent was last alive. Idempotent.
pub fn fall_back(groups: &Groups, moving: &Moving, entry: &Entry, dead_seconds: u64) -> Outcome {
    if let (Fallback::Stay | Fallback::Floor { .. }, Change::Background { was }) =
        (entry.fallback, &entry.change)
    {
        return fall_to_background(groups, entry, was);
    }
    if let (Fallback::Stay | Fallback::Floor { .. }, Change::Subgroups(family)) =
        (entry.fallback, &entry.change)
    {
        if !family.yields {
            return Outcome::Kept;
        }
        return subgroups_to_background(groups, entry, family);
    }
    let due = match entry.fallback {
        Fallback::Stay => return Outcome::Kept,
        Fallback::Hold { seconds } if dead_seconds < u64::from(seconds) => return Outcome::Kept,
        Fallback::Hold { .. } | Fallback::Restore => return restore(groups, moving, entry),
        Fallback::Floor { bandwidth } => bandwidth,
    };
    let result = match same_group(groups, &entry.group, entry.group_id) {
        Ok(true) => set_if_ours(groups, moving, entry, due, Outcome::Kept),
        Ok(false) => Ok(Outcome::Gone),
        Err(error) => Err(error),
    };
    Outcome::of(groups, &entry.group, result)
}

/// Looks for an outside write: what stands, when it is not what we wrote last. `None` when all is
/// ours. For the agent, while it is not writing itself; after a write that failed it notes what
/// stands first ([`super::Ledger::note_moving`] with that value twice), so that its own failure is
/// not taken for an outside write.
pub fn standing_differs(
    groups: &Groups,
    moving: &Moving,
    entry: &Entry,
) -> GroupResult<Option<String>> {
    let group = &entry.group;
    Ok(match &entry.change {
        Change::Group => {
            (!same_group(groups, group, entry.group_id)?).then(|| "another group".to_owned())
        }
        Change::Idle { ours, .. } => {
            let found = groups.idle(group)?;
            (found != Some(*ours)).then(|| format!("idle {found:?}"))
        }
        // They come and go with what is forked.
        Change::Subgroups(_) => None,
        Change::Background { was } => {
            let found = groups.class(group)?;
            (!class::may_be_in_or_out(groups, was, &found)).then(|| found.to_string())
        }
        Change::Weight { ours, .. } => {
            let found = groups.class(group)?.weight_raw;
            (found != *ours).then(|| format!("weight {found}"))
        }
        Change::Bandwidth { ours, .. } => {
            let found = groups.bandwidth(group)?;
            let written = moving.get(entry.id).map_or(*ours, |moved| moved.intended);
            (found != written).then(|| found.to_string())
        }
        Change::Burst { ours_us, .. } => {
            let found_us = groups.bandwidth(group)?.burst_us;
            (found_us != *ours_us).then(|| format!("{found_us} us"))
        }
        // Task by task, which is the sweep's business; a turn is over in milliseconds.
        Change::Latency(_) | Change::Boost(_) => None,
        // What a hotplug took from v1's is no outside write.
        Change::Cpuset { ours, .. } => {
            let found = groups.cpuset(group)?;
            let shrunk = groups.version() == CgroupVersion::V1
                && !found.is_empty()
                && found.iter().all(|cpu| ours.contains(cpu));
            (found != *ours && !shrunk).then(|| format!("CPUs {}", format_list(&found)))
        }
        // PID reuse: a later process with its number is left alone.
        Change::Membership {
            start_ticks,
            placement,
        } if !process_lives(&**groups.fs(), placement.pid, *start_ticks) => None,
        Change::Membership { placement, .. } => {
            let found = groups.group_of(placement.pid)?;
            (found.as_ref() != Some(&placement.group)).then(|| match found {
                Some(found) => format!("process {} is in {found}", placement.pid),
                None => format!("process {} is in another cgroup namespace", placement.pid),
            })
        }
    })
}

/// Whether Tidegate gives a group such a name after its prefix: at the top, a gate's below others'
/// (which has a `=`), or that of one process or task. Others may call theirs `tidegate-web`.
fn is_of_ours(name: &str) -> bool {
    let is_number = |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
    matches!(name, "side" | "main" | "agent" | "doctor")
        || name.contains('=')
        || name.strip_prefix(['p', 't']).is_some_and(is_number)
}

/// Our groups by their names, for when the ledger is lost: `PREFIX-side` and `PREFIX-main` at the
/// base with all below them, and those of gates in other groups. Parents come before their
/// children.
pub fn own_groups(groups: &Groups, prefix: &str) -> GroupResult<Vec<GroupPath>> {
    const DEPTH_MAX: u32 = 8;
    let mut found = Vec::new();
    let mut open = vec![(groups.base().clone(), false, DEPTH_MAX)];
    while let Some((group, ours, depth)) = open.pop() {
        let children = match groups.children(&group) {
            Err(error) if error.is_gone() => continue,
            children => children?,
        };
        for child in children {
            let rest = child.name().strip_prefix(prefix);
            let name = rest.and_then(|rest| rest.strip_prefix('-'));
            let child_ours = ours || name.is_some_and(is_of_ours);
            if child_ours {
                found.push(child.clone());
            }
            if depth > 0 {
                open.push((child, child_ours, depth - 1));
            }
        }
    }
    found.sort();
    Ok(found)
}
