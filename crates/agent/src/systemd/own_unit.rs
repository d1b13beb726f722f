//! What systemd has to do with this process: the unit that it belongs to.

use zbus::{OwnedObjectPath, Variant};

use super::bus::{BusError, MANAGER, MANAGER_PATH, SYSTEMD, forget_silence, on_bus, refused};

/// Puts the processes into a scope of their own, so that they do not end with the session of the
/// command that started them.
pub fn own_scope(name: &str, pids: &[u32]) -> Result<(), BusError> {
    on_bus(async |bus| {
        let properties: Vec<(&str, Variant<'_>)> = vec![
            ("PIDs", pids.to_vec().into()),
            ("Description", "Tidegate, started on demand".into()),
            ("CollectMode", "inactive-or-failed".into()),
        ];
        let others: Vec<(&str, Vec<(&str, Variant<'_>)>)> = Vec::new();
        let body = (name, "fail", properties, others);
        let method = "StartTransientUnit";
        let call = bus.call_method(Some(SYSTEMD), MANAGER_PATH, Some(MANAGER), method, &body);
        call.await.map(drop).map_err(refused(name))
    })
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
