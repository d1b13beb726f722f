//! What the kernel's watchdog makes necessary. It ejects a scheduler that leaves a task alone for 30 s, so each task that is kept
//! from running needs a little CPU now and then, and so many tasks need so much. Terms that leave less cannot be kept, and are
//! refused with the sum.

use crate::caps::CapScope;
use crate::error::ExtError;
use crate::intf::{GateTerms, Kind};

/// A task that a quota or a hard cap keeps from running, or weights: 50 us in 10 s (`MIN_RUNTIME_NS` in
/// `STARVATION_NS`, bpf/limits/throttle.h), in millionths of a CPU.
pub const WAITING_TASK_UCPU: u64 = 5;
/// A task of side work that main leaves nothing to: 1 ms in 15 s (`SIDE_MIN_RUNTIME_NS` in `SIDE_ROUND_NS`, bpf/side/headroom_ctl.h), in millionths
/// of a CPU.
pub const SIDE_TASK_UCPU: u64 = 67;

/// Whether a gate's terms leave so many tasks in it what the watchdog wants for them; a gate without any will have one.
///
/// # Errors
/// Names the gate, the term, the floor as a sum, and what to ask for instead.
pub fn feasible(gate: &str, terms: &GateTerms, cpus: u32, tasks: u64) -> Result<(), ExtError> {
    let tasks = tasks.max(1);
    let refused = |term: &'static str, asked: String, floor: String, mend: String| {
        Err(ExtError::Infeasible {
            gate: gate.to_owned(),
            term,
            asked,
            floor,
            mend,
        })
    };
    if let Some(cap) = terms.cap
        && let Some(hard_ppt) = cap.hard_ppt
        // In the other scopes a bucket is one task's or one process', which cannot be told from here.
        && cap.scope == CapScope::Group
        && u64::from(hard_ppt) * 1_000 < tasks * WAITING_TASK_UCPU
    {
        let needs_ucpu = tasks * WAITING_TASK_UCPU;
        return refused(
            "cap_hard",
            format!("{hard_ppt}‰ of a CPU"),
            format!(
                "its {tasks} tasks need 50 us in 10 s each: {tasks} x {WAITING_TASK_UCPU} = {needs_ucpu} millionths of a CPU"
            ),
            format!(
                "ask for at least {}‰, or have at most {} tasks in it (pids.max)",
                needs_ucpu.div_ceil(1_000),
                u64::from(hard_ppt) * 1_000 / WAITING_TASK_UCPU
            ),
        );
    }
    if let Some(tolerance_ppm) = terms.tolerance_ppm
        && terms.kind == Some(Kind::Side)
        && u64::from(tolerance_ppm) * u64::from(cpus) < tasks * SIDE_TASK_UCPU
    {
        let needs_ucpu = tasks * SIDE_TASK_UCPU;
        let least_ppm = needs_ucpu.div_ceil(u64::from(cpus.max(1)));
        return refused(
            "tolerance",
            format!("{} of {cpus} CPUs", percent(u64::from(tolerance_ppm))),
            format!(
                "its {tasks} tasks need 1 ms in 15 s each: {tasks} x {SIDE_TASK_UCPU} = {needs_ucpu} millionths of a CPU"
            ),
            format!("ask for at least {}", percent(least_ppm)),
        );
    }
    Ok(())
}

fn percent(ppm: u64) -> String {
    let text = format!("{}.{:04}", ppm / 10_000, ppm % 10_000);
    let short = text.trim_end_matches('0').trim_end_matches('.');
    format!("{short} %")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caps::CapTerms;

    fn capped(hard_ppt: u32, scope: CapScope) -> GateTerms {
        GateTerms {
            cap: Some(CapTerms {
                hard_ppt: Some(hard_ppt),
                soft_ppt: None,
                scope,
            }),
            ..GateTerms::default()
        }
    }

    fn side(tolerance_ppm: u32) -> GateTerms {
        GateTerms {
            kind: Some(Kind::Side),
            tolerance_ppm: Some(tolerance_ppm),
            ..GateTerms::default()
        }
    }

    #[test]
    fn a_cap_that_least_runs_alone_exceed_is_refused_with_the_sum() {
        assert!(feasible("cgroup:/a", &capped(1, CapScope::Group), 2, 200).is_ok());
        let why = feasible("cgroup:/a", &capped(1, CapScope::Group), 2, 201)
            .expect_err("201 tasks in a thousandth of a CPU")
            .to_string();
        assert!(why.contains("cgroup:/a: cap_hard: 1‰"), "{why}");
        assert!(why.contains("201 x 5 = 1005 millionths"), "{why}");
        assert!(
            why.contains("at least 2‰") && why.contains("at most 200 tasks"),
            "{why}"
        );
        assert!(feasible("cgroup:/a", &capped(1, CapScope::Task), 2, 10_000).is_ok());
    }

    #[test]
    fn a_tolerance_that_side_tasks_exceed_is_refused_with_the_sum() {
        assert!(feasible("cgroup:/b", &side(10_000), 2, 298).is_ok());
        let why = feasible("cgroup:/b", &side(10_000), 2, 299)
            .expect_err("299 tasks in 1 % of two CPUs")
            .to_string();
        assert!(why.contains("tolerance: 1 % of 2 CPUs"), "{why}");
        assert!(
            why.contains("299 x 67 = 20033") && why.contains("1.0017 %"),
            "{why}"
        );
        assert!(
            feasible("cgroup:/b", &side(0), 64, 0).is_err(),
            "one task at least"
        );
        let main = GateTerms {
            kind: Some(Kind::Main),
            ..side(0)
        };
        assert!(
            feasible("cgroup:/b", &main, 2, 1_000).is_ok(),
            "a main gate's tolerance is for others"
        );
    }
}
