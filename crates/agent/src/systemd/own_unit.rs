//! What systemd has to do with this process: the unit that it belongs to.

use std::time::Duration;

use tidegate_api::{ApiError, ApiResult, ErrorKind};
use tidegate_cgroup::sched::tasks::{TaskId, descendants};
use tidegate_cgroup::target::ProcessRef;
use zbus::{OwnedObjectPath, Variant};

use crate::errors::not_found;
use crate::kernel::Kernel;

use super::bus::{BusError, ask_manager, forget_silence, is_booted, on_bus, refused};

/// Puts the processes into a scope of their own, named after the first, so that they do not end
/// with the session of the command that started them. Returns once that one is there.
pub fn own_scope(pids: &[u32], description: &str) -> Result<(), BusError> {
    if !is_booted() {
        return Err(BusError::NoSystemd);
    }
    let first = pids.first().copied().unwrap_or_default();
    let name = format!("run-tidegate-{first}.scope");
    on_bus(async |bus| {
        let properties: Vec<(&str, Variant<'_>)> = vec![
            ("PIDs", pids.to_vec().into()),
            ("Description", description.into()),
            ("CollectMode", "inactive-or-failed".into()),
            // So that the groups above it hand the controller down, and one can be made in it.
            ("DelegateControllers", vec!["cpu".to_owned()].into()),
        ];
        let others: Vec<(&str, Vec<(&str, Variant<'_>)>)> = Vec::new();
        let body = (name.as_str(), "fail", properties, others);
        ask_manager(&bus, "StartTransientUnit", &body, &name).await?;
        let is_there = || {
            let cgroups = std::fs::read_to_string(format!("/proc/{first}/cgroup"));
            cgroups.map_or(true, |cgroups| cgroups.contains(&name))
        };
        while !is_there() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    })
}

/// A user cannot move a process out of a session: the user's own systemd does it. The process is
/// inside when this returns, with all that it has started unless `is_alone`.
pub(crate) fn bring_in(kernel: &Kernel, pid: i32, is_alone: bool) -> ApiResult<()> {
    if !kernel.fs.is_machine() || rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let is_outside = |pid: i32| {
        let at = kernel.groups.group_of(pid).ok().flatten();
        at.is_some_and(|at| !at.is_within(kernel.groups.base()))
    };
    if !is_outside(pid) {
        return Ok(());
    }
    let process = ProcessRef::look_up(&*kernel.fs, pid).map_err(not_found)?;
    let parent = TaskId {
        tid: pid,
        start_ticks: process.start_ticks,
    };
    let family = match is_alone {
        true => Vec::new(),
        false => descendants(&*kernel.fs, parent, 0),
    };
    let family = family.iter().map(|task| task.tid);
    let outside = std::iter::once(pid).chain(family.filter(|pid| is_outside(*pid)));
    let outside: Vec<u32> = outside.map(i32::unsigned_abs).collect();
    own_scope(&outside, "In a gate of Tidegate")
        .map_err(|error| ApiError::new(ErrorKind::Unsupported, error.to_string()))
}

/// Whether systemd is restarting the unit that this process belongs to: what it stops, it starts
/// again at once.
pub fn is_restarting() -> Result<bool, BusError> {
    let pid = std::process::id();
    /// Number, unit, type, state, the job's object, the unit's object.
    type Job = (
        u32,
        String,
        String,
        String,
        OwnedObjectPath,
        OwnedObjectPath,
    );
    let whose = format!("of process {pid}");
    forget_silence();
    on_bus(async |bus| {
        let wrong = refused(&whose);
        let reply = ask_manager(&bus, "GetUnitByPID", &(pid,), &whose).await?;
        let unit: OwnedObjectPath = reply.body().deserialize().map_err(&wrong)?;
        let reply = ask_manager(&bus, "ListJobs", &(), &whose).await?;
        let jobs: Vec<Job> = reply.body().deserialize().map_err(&wrong)?;
        Ok(jobs
            .iter()
            .any(|(_, _, kind, _, _, of)| *of == unit && kind == "restart"))
    })
}
