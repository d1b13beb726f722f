//! Terms that are refused before anything is written: those that would slow the agent itself, and
//! those that no scheduler can keep.

use tidegate_api::{ApiError, ApiResult, ErrorKind};
use tidegate_cgroup::group::GroupPath;
use tidegate_cgroup::target::threads_of;

use crate::control_loop::ControlLoop;
use crate::errors::usage;
use crate::gates::{Attachment, Gate};
use crate::kernel::Kernel;
use crate::runtime::Runtime;
use crate::sched_ext::feasible::{self, Infeasible, is_capped};
use crate::sched_ext::machine::LEVELS_MAX;

pub(crate) struct OwnProcesses {
    tids: Vec<i32>,
    groups: Vec<GroupPath>,
}

impl OwnProcesses {
    pub fn now(kernel: &Kernel, control_loop: &ControlLoop) -> Self {
        let pids = [std::process::id() as i32, control_loop.lease.guardian_pid()];
        let at = |pid: &i32| kernel.groups.group_of(*pid).ok().flatten();
        let threads = pids.iter().flat_map(|pid| threads_of(&*kernel.fs, *pid));
        Self {
            tids: pids.into_iter().chain(threads).collect(),
            groups: pids.iter().filter_map(at).collect(),
        }
    }

    /// Refuses to limit the agent itself: by a limit of its own that a gate has, too.
    pub fn check_not_in(&self, target: &str, attachment: &Attachment) -> ApiResult<()> {
        let holds_own = match attachment {
            Attachment::Observed { pid, .. } => self.tids.contains(pid),
            attachment => {
                let is_in = |at: &GroupPath| at.is_within(attachment.group());
                self.groups.iter().any(is_in)
            }
        };
        if holds_own {
            let detail = format!("{target}: Tidegate itself is in it, and would be slowed with it");
            return Err(ApiError::new(ErrorKind::Usage, detail)
                .with_remedy("name what is to be limited more closely"));
        }
        Ok(())
    }
}

/// Refuses terms that no scheduler can keep, where one is to: asked when they are set, with the
/// tasks that are there then. Later ones have their floors all the same.
pub(crate) fn check_feasible(runtime: &Runtime, gate: &Gate) -> ApiResult<()> {
    let kernel = &runtime.kernel;
    if !runtime.sched_ext.is_wanted() {
        return Ok(());
    }
    let refused = |why| infeasible(gate, &why);
    let cpus = runtime.control().online_cpus().max(1);
    let tasks = match &gate.record.attachment {
        Attachment::Observed { pid, .. } => threads_of(&*kernel.fs, *pid).len().max(1),
        // Threads, for the kernel's watchdog looks at each.
        attachment => kernel.tids_below(attachment.group(), LEVELS_MAX).len(),
    };
    if !gate.terms.tolerance.is_default() {
        let side = tasks * usize::from(gate.is_limited());
        feasible::tolerance(gate.terms.tolerance.value.ppm(), cpus, side).map_err(refused)?;
    }
    if let Some(rate_ucpu) = gate.own_limit().and_then(|own| own.rate_ucpu()) {
        feasible::limit("its quota or hard cap", rate_ucpu, tasks).map_err(refused)?;
    }
    Ok(())
}

/// Refuses a cap that the scheduler would not look at, because of those of the groups above and
/// below.
pub(crate) fn check_nested(
    runtime: &Runtime,
    gate: &Gate,
    attachment: &Attachment,
    gates: &[Gate],
) -> ApiResult<()> {
    if !runtime.sched_ext.is_wanted()
        || !is_capped(gate)
        || matches!(attachment, Attachment::Observed { .. })
    {
        return Ok(());
    }
    let capped = feasible::capped_groups(gates, &gate.record.name);
    feasible::nested_caps(attachment.group(), &capped).map_err(|why| infeasible(gate, &why))
}

fn infeasible(gate: &Gate, why: &Infeasible) -> ApiError {
    usage(format!(
        "engine sched_ext: gate {}: {why}",
        gate.record.name
    ))
}
