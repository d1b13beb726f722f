//! Where recordings are.

use std::path::PathBuf;

use tidegate_agent::paths::RunDir;

use crate::connect;

const OF_THE_SERVICE: &str = "/var/lib/tidegate/recording";

/// The directory of the agent that runs, or where the last one left one.
pub fn directory() -> PathBuf {
    let of_agent = connect::to_agent()
        .ok()
        .and_then(|agent| agent.status().ok()?.recording);
    if let Some(view) = of_agent {
        return view.directory.into();
    }
    let on_demand = RunDir::from_env().recording();
    match on_demand.is_dir() {
        true => on_demand,
        false => OF_THE_SERVICE.into(),
    }
}
