//! Terms that no scheduler of the kernel's can keep: its watchdog ejects one that leaves a task
//! alone for 30 s, so each task that is held back needs a little CPU now and then, and so many
//! tasks need so much.

use tidegate_cgroup::group::GroupPath;
use tidegate_sched_ext::{CAPS_NESTED_MAX, SIDE_TASK_UCPU, WAITING_TASK_UCPU};

use crate::gates::Gate;

/// Terms that leave the watchdog too little for their tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Infeasible {
    #[error(
        "tolerance: {} of {cpus} CPUs is {} millionths of a CPU, but {tasks} side tasks need {tasks} x {SIDE_TASK_UCPU} = {}: \
         the kernel ejects a scheduler that leaves a task alone for 30 s, so each has 1 ms in 15 s; ask for at least {}, or \
         take engine = cgroup",
        percent(u64::from(*tolerance_ppm)),
        given_ucpu(*tolerance_ppm, *cpus),
        tasks * SIDE_TASK_UCPU,
        percent((tasks * SIDE_TASK_UCPU).div_ceil(u64::from((*cpus).max(1)))),
        SIDE_TASK_UCPU = SIDE_TASK_UCPU
    )]
    Tolerance {
        tolerance_ppm: u32,
        cpus: u32,
        tasks: u64,
    },
    #[error(
        "{what}: {rate_ucpu} millionths of a CPU for {tasks} tasks, which need {tasks} x {WAITING_TASK_UCPU} = {}: the kernel \
         ejects a scheduler that leaves a task alone for 30 s, so one that is held back runs 50 us in 10 s; ask for at least \
         {}m (thousandths of a CPU), or take engine = cgroup",
        tasks * WAITING_TASK_UCPU,
        (tasks * WAITING_TASK_UCPU).div_ceil(1_000),
        WAITING_TASK_UCPU = WAITING_TASK_UCPU
    )]
    Limit {
        what: &'static str,
        rate_ucpu: u64,
        tasks: u64,
    },
    #[error(
        "cap_hard, cap_soft: {0} caps of groups that lie in each other, of which a task is held to {CAPS_NESTED_MAX}; remove one \
         of a group above or below, or take engine = cgroup"
    )]
    Nested(usize),
}

fn percent(ppm: u64) -> String {
    format!("{}.{:04} %", ppm / 10_000, ppm % 10_000)
}

fn given_ucpu(tolerance_ppm: u32, cpus: u32) -> u64 {
    u64::from(tolerance_ppm) * u64::from(cpus)
}

/// Whether a tolerance, of a machine of so many CPUs, is enough for its side tasks.
pub(crate) fn tolerance(tolerance_ppm: u32, cpus: u32, tasks: usize) -> Result<(), Infeasible> {
    let tasks = tasks.max(1) as u64;
    if given_ucpu(tolerance_ppm, cpus) >= tasks * SIDE_TASK_UCPU {
        return Ok(());
    }
    Err(Infeasible::Tolerance {
        tolerance_ppm,
        cpus,
        tasks,
    })
}

/// Whether a limit of this rate leaves its tasks what the watchdog wants for them.
pub(crate) fn limit(what: &'static str, rate_ucpu: u64, tasks: usize) -> Result<(), Infeasible> {
    let tasks = tasks as u64;
    if rate_ucpu >= tasks * WAITING_TASK_UCPU {
        return Ok(());
    }
    Err(Infeasible::Limit {
        what,
        rate_ucpu,
        tasks,
    })
}

/// The groups of all gates with a cap but that of this name.
pub(crate) fn capped_groups(gates: &[Gate], but: &str) -> Vec<GroupPath> {
    gates
        .iter()
        .filter(|gate| gate.record.name != but && is_capped(gate))
        .filter_map(|gate| gate.record.attachment.placed().cloned())
        .collect()
}

pub(crate) fn is_capped(gate: &Gate) -> bool {
    gate.terms.cap_hard.value.ppt().is_some() || gate.terms.soft_ppt().is_some()
}

/// Whether the caps of the groups above and below `own`, with its own, are all kept. `others` are
/// the groups with a cap.
pub(crate) fn nested_caps(own: &GroupPath, others: &[GroupPath]) -> Result<(), Infeasible> {
    let others = || others.iter().filter(|other| *other != own);
    let above = others().filter(|other| own.is_within(other)).count();
    let below = |of: &GroupPath| {
        others()
            .filter(|other| of.is_within(other) && other.is_within(own))
            .count()
    };
    let deepest = others().filter(|other| other.is_within(own)).map(below);
    let nested = above + 1 + deepest.max().unwrap_or(0);
    if nested <= CAPS_NESTED_MAX {
        return Ok(());
    }
    Err(Infeasible::Nested(nested))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cap_that_would_be_one_too_many_is_refused() {
        let path = |text: &str| GroupPath::parse(text).unwrap();
        let others = ["/a", "/a/b", "/a/b/c/d", "/x", "/a/other"].map(path);
        assert!(nested_caps(&path("/a/b/c"), &others).is_ok(), "four");
        assert!(nested_caps(&path("/a/b"), &others).is_ok(), "its own again");
        let others = ["/a", "/a/b", "/a/b/c/d", "/a/b/c/d/e", "/a/b/c/x"].map(path);
        for fifth in ["/a/b/c", "/a/b/c/d/e/f"] {
            let why = nested_caps(&path(fifth), &others).unwrap_err().to_string();
            assert!(why.contains("5 caps") && why.contains("held to 4"), "{why}");
        }
        assert!(nested_caps(&path("/y"), &others).is_ok(), "elsewhere");
    }

    #[test]
    fn a_tolerance_that_the_watchdog_does_not_allow_is_refused_with_the_sum() {
        assert!(tolerance(10_000, 2, 298).is_ok());
        let why = tolerance(10_000, 2, 299).unwrap_err().to_string();
        assert!(why.contains("299 x 67 = 20033"), "{why}");
        assert!(why.contains("1.0017 %"), "{why}");
        let none = tolerance(0, 4, 0).unwrap_err().to_string();
        assert!(none.contains("1 x 67"), "{none}");
    }

    #[test]
    fn a_limit_that_its_tasks_exceed_by_being_visited_is_refused_with_the_sum() {
        assert!(limit("cap_hard", 1_000, 200).is_ok());
        let why = limit("cap_hard", 1_000, 1_001).unwrap_err().to_string();
        assert!(
            why.contains("1001 x 5 = 5005") && why.contains("6m"),
            "{why}"
        );
    }
}
