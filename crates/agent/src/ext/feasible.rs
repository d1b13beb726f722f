//! Terms that no scheduler of the kernel's can keep: its watchdog ejects one that leaves a task alone for 30 s, so each task that
//! is held back needs a little CPU now and then, and so many tasks need so much.

use tidegate_ext::{SIDE_TASK_UCPU, WAITING_TASK_UCPU};

/// Terms that leave the watchdog too little for their tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Infeasible {
    /// A tolerance.
    #[error(
        "tolerance: {} of {cpus} CPUs is {} millionths of a CPU, but {tasks} side tasks need {tasks} x {SIDE_TASK_UCPU} = {}: \
         the kernel ejects a scheduler that leaves a task alone for 30 s, so each has 1 ms in 15 s; ask for at least {}, or \
         take engine = knobs",
        percent(u64::from(*tolerance_ppm)),
        given_ucpu(*tolerance_ppm, *cpus),
        tasks * SIDE_TASK_UCPU,
        percent((tasks * SIDE_TASK_UCPU).div_ceil(u64::from((*cpus).max(1)))),
        SIDE_TASK_UCPU = SIDE_TASK_UCPU
    )]
    Tolerance {
        /// What was asked for.
        tolerance_ppm: u32,
        /// Of so many CPUs.
        cpus: u32,
        /// The side tasks, one at least.
        tasks: u64,
    },
    /// A quota or a cap.
    #[error(
        "{what}: {rate_ucpu} millionths of a CPU for {tasks} tasks, which need {tasks} x {WAITING_TASK_UCPU} = {}: the kernel \
         ejects a scheduler that leaves a task alone for 30 s, so one that is held back runs 50 us in 10 s; ask for at least \
         {}‰ of a CPU, or take engine = knobs",
        tasks * WAITING_TASK_UCPU,
        (tasks * WAITING_TASK_UCPU).div_ceil(1_000),
        WAITING_TASK_UCPU = WAITING_TASK_UCPU
    )]
    Limit {
        /// Which.
        what: &'static str,
        /// What was asked for.
        rate_ucpu: u64,
        /// The tasks under it.
        tasks: u64,
    },
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

#[cfg(test)]
mod tests {
    use super::*;

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
            why.contains("1001 x 5 = 5005") && why.contains("6‰"),
            "{why}"
        );
    }
}
