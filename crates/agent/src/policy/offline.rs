//! What the policy files would change on a machine on which no agent runs.

use std::sync::Arc;

use tidegate_api::{ApiError, ApiResult, ErrorKind, PolicyChangeView};
use tidegate_cgroup::discover::discover;
use tidegate_cgroup::{RealFs, cpus};
use tidegate_engine::clock::SystemClock;
use tidegate_terms::{Config, ConfigErrors};

use crate::errors::internal;
use crate::kernel::Kernel;
use crate::paths::RunDir;
use crate::policy::find::Finder;
use crate::policy::rehearse::Rehearsal;

/// The times of an agent that started now, which no write depends on.
const TIMES_NS: (u64, u64) = (4_000_000, 5_000_000);

/// What an agent that started now would change: it has no gates yet.
pub fn diff_without_agent(run_dir: &RunDir) -> ApiResult<PolicyChangeView> {
    let wrong = |errors: ConfigErrors| {
        let remedy = "correct the files; `tidegate policy check` shows each place";
        ApiError::new(ErrorKind::Usage, errors.to_string()).with_remedy(remedy)
    };
    let texts = run_dir.config_roots().read().map_err(wrong)?;
    let config = Config::from_texts(&texts).map_err(wrong)?;
    let machine = discover(&RealFs::new(), None).map_err(internal)?;
    let fs = tidegate_cgroup::machine(machine.roots()).map_err(internal)?;
    let online = cpus::online(&*fs).map_err(internal)?.len() as u32;
    let own = std::env::temp_dir().join(format!("tidegate-diff-{}", std::process::id()));
    let files = RunDir::new(&own, run_dir.prefix());
    files.make().map_err(internal)?;
    let opened = Kernel::open(fs, machine, files, Arc::new(SystemClock));
    let (kernel, _) = opened.map_err(internal)?;
    let settings = config.settings().clone();
    let matches = Finder::new(&kernel, &config, &[]).all();
    let beside = own.join("rehearsal");
    let view = Rehearsal::beside(&kernel, &beside, &[], &settings, online, TIMES_NS)
        .and_then(|rehearsal| rehearsal.view(&[], &config, &matches));
    let _ = std::fs::remove_dir_all(&own);
    view
}
