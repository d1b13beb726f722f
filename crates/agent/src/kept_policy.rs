//! Which texts are in force, which were before, and until when a trial lasts. Kept in the run
//! directory, so that a trial and the way back outlive the agent.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use serde::{Deserialize, Serialize};
use tidegate_api::{GateChangeView, ObservedView};
use tidegate_cgroup::{KernelFs, RealFs};
use tidegate_engine::sync::lock;
use tidegate_terms::{Config, ConfigErrors, Roots};
use tracing::warn;

use crate::paths::RunDir;

pub(crate) type Texts = Vec<(PathBuf, String)>;

pub(crate) struct Policy {
    pub roots: Roots,
    state: Mutex<PolicyState>,
}

#[derive(Default)]
pub(crate) struct PolicyState {
    pub kept: KeptPolicy,
    pub refused: Option<String>,
    pub observed: Vec<ObservedView>,
    pub watch: String,
    /// What the agent's start changed when it put the files in force, and no call since.
    pub unasked: Option<Vec<GateChangeView>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptPolicy {
    pub texts: Texts,
    pub before: Option<Texts>,
    /// On trial until then, `CLOCK_MONOTONIC`.
    pub trial_until_ns: Option<u64>,
    /// What is on trial was in force before, so that the end of the trial changes nothing.
    pub is_same_on_trial: bool,
    /// The files were left as they are when their policy was rolled back: they are not read until
    /// they are applied again.
    pub is_rolled_back: bool,
}

impl KeptPolicy {
    /// Whether the files are not what is to be in force at the agent's next start.
    pub fn outweighs_files(&self) -> bool {
        self.trial_until_ns.is_some() || self.is_rolled_back
    }
}

fn file(run_dir: &RunDir) -> PathBuf {
    run_dir.dir().join("policy.json")
}

/// What an agent before this one kept; nothing, where that cannot be read.
fn kept(fs: &dyn KernelFs, run_dir: &RunDir) -> Option<KeptPolicy> {
    let path = file(run_dir);
    let text = match fs.read(&path) {
        Ok(text) => text,
        Err(error) if error.is_gone() => return None,
        Err(error) => {
            warn!("{error}");
            return None;
        }
    };
    let read = serde_json::from_str(&text);
    read.inspect_err(|error| warn!("{}: {error}; the files count", path.display()))
        .ok()
}

pub(crate) fn keep(fs: &dyn KernelFs, run_dir: &RunDir, kept: &KeptPolicy) -> Result<(), String> {
    let text = serde_json::to_vec(kept).map_err(|error| error.to_string())?;
    let path = file(run_dir);
    fs.replace(&path, &text).map_err(|error| error.to_string())
}

/// The agent ends for good: the files count again at the next start.
pub(crate) fn forget(run_dir: &RunDir) {
    let _ = std::fs::remove_file(file(run_dir));
}

/// The policy to begin with: the files', but not where one is on trial or was rolled back. Where
/// the files are wrong, it is the one that was in force last, with what is wrong.
pub(crate) fn at_start(run_dir: &RunDir) -> Result<(Policy, Config, Option<String>), ConfigErrors> {
    let roots = run_dir.config_roots();
    let kept = kept(&RealFs::new(), run_dir);
    let of_kept = |kept: &KeptPolicy| Config::from_texts(&kept.texts).ok();
    if let Some(kept) = kept.as_ref().filter(|kept| kept.outweighs_files())
        && let Some(config) = of_kept(kept)
    {
        return Ok((Policy::new(roots, kept.clone()), config, None));
    }
    let read = roots.read().and_then(|texts| {
        let config = Config::from_texts(&texts)?;
        Ok((texts, config))
    });
    match (read, kept) {
        (Ok((texts, config)), kept) => {
            let unasked = kept.is_none().then(Vec::new);
            let before = kept.and_then(|kept| match kept.texts == texts {
                true => kept.before,
                false => Some(kept.texts),
            });
            let kept = KeptPolicy {
                before,
                texts,
                ..KeptPolicy::default()
            };
            let policy = Policy::new(roots, kept);
            policy.lock().unasked = unasked;
            Ok((policy, config, None))
        }
        (Err(errors), Some(kept)) if of_kept(&kept).is_some() => {
            let config = of_kept(&kept).unwrap_or_default();
            Ok((Policy::new(roots, kept), config, Some(errors.to_string())))
        }
        (Err(errors), _) => Err(errors),
    }
}

impl Policy {
    pub fn new(roots: Roots, kept: KeptPolicy) -> Self {
        let state = PolicyState {
            kept,
            ..PolicyState::default()
        };
        Self {
            roots,
            state: Mutex::new(state),
        }
    }

    /// Locked before the gates.
    pub fn lock(&self) -> MutexGuard<'_, PolicyState> {
        lock(&self.state)
    }
}
