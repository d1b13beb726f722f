//! What systemd has to do with this process: the unit that it belongs to.

use std::time::Duration;

use tidegate_cgroup::bandwidth::Bandwidth;
use zbus::{OwnedObjectPath, Variant};

use super::bus::{
    BusError, CpuValues, MANAGER, MANAGER_PATH, SYSTEMD, forget_silence, on_bus, on_own_bus,
    refused,
};

/// Puts the processes into a scope of their own, so that they do not end with the session of the
/// command that started them.
pub fn own_scope(name: &str, pids: &[u32]) -> Result<(), BusError> {
    on_bus(async |bus| start_scope(&bus, name, pids, "Tidegate, started on demand", None).await)
}

/// Puts this process into a scope of the user's own manager, in the idle class and within the
/// limit. Returns once it is there.
pub fn user_scope(description: &str, limit: Bandwidth) -> Result<(), BusError> {
    let pid = std::process::id();
    let name = format!("tidegate-{pid}.scope");
    let values = CpuValues::yielding(limit);
    on_own_bus(async |bus| {
        start_scope(&bus, &name, &[pid], description, Some(values)).await?;
        let is_there = || {
            let cgroups = std::fs::read_to_string("/proc/self/cgroup");
            cgroups.is_ok_and(|cgroups| cgroups.contains(&name))
        };
        while !is_there() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    })
}

async fn start_scope(
    bus: &zbus::Connection,
    name: &str,
    pids: &[u32],
    description: &str,
    values: Option<CpuValues>,
) -> Result<(), BusError> {
    let mut properties: Vec<(&str, Variant<'_>)> = vec![
        ("PIDs", pids.to_vec().into()),
        ("Description", description.into()),
        ("CollectMode", "inactive-or-failed".into()),
    ];
    if let Some(values) = values {
        properties.extend([
            ("CPUWeight", values.weight.into()),
            ("CPUQuotaPerSecUSec", values.quota_us_per_s.into()),
            ("CPUQuotaPeriodUSec", values.period_us.into()),
        ]);
    }
    let others: Vec<(&str, Vec<(&str, Variant<'_>)>)> = Vec::new();
    let body = (name, "fail", properties, others);
    let method = "StartTransientUnit";
    let call = bus.call_method(Some(SYSTEMD), MANAGER_PATH, Some(MANAGER), method, &body);
    call.await.map(drop).map_err(refused(name))
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
        let body = (pid,);
        let method = "GetUnitByPID";
        let call = bus.call_method(Some(SYSTEMD), MANAGER_PATH, Some(MANAGER), method, &body);
        let reply = call.await.map_err(&wrong)?;
        let unit: OwnedObjectPath = reply.body().deserialize().map_err(&wrong)?;
        let method = "ListJobs";
        let call = bus.call_method(Some(SYSTEMD), MANAGER_PATH, Some(MANAGER), method, &());
        let reply = call.await.map_err(&wrong)?;
        let jobs: Vec<Job> = reply.body().deserialize().map_err(&wrong)?;
        Ok(jobs
            .iter()
            .any(|(_, _, kind, _, _, of)| *of == unit && kind == "restart"))
    })
}
