//! The headroom that was found, written down for the next agent: it begins there, and measures it again, instead of at 0 %.

use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::runtime::Runtime;

/// The file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FoundHeadroom {
    /// Percent of the machine.
    headroom_pct: u32,
}

/// Begins where an earlier agent was; a file that cannot be read is none.
pub(crate) fn take_up(runtime: &Runtime) {
    let kernel = &runtime.kernel;
    let text = kernel.fs.read(&kernel.run_dir.found_headroom());
    let found = serde_json::from_str::<FoundHeadroom>(&text.unwrap_or_default());
    if let Ok(FoundHeadroom { headroom_pct }) = found {
        runtime.control().begin_headroom_at(headroom_pct);
    }
}

/// Writes down what is known now, where that is not what was `written`. It is only a beginning: a failure is no harm.
pub(crate) fn keep(runtime: &Runtime, written: &mut Option<FoundHeadroom>) {
    let Some(headroom_pct) = runtime.control().known_headroom_pct() else {
        return;
    };
    let found = FoundHeadroom { headroom_pct };
    if written.replace(found) == Some(found) {
        return;
    }
    let kernel = &runtime.kernel;
    let file = kernel.run_dir.found_headroom();
    let done = serde_json::to_string(&found).map(|text| kernel.fs.replace(&file, text.as_bytes()));
    if let Ok(Err(error)) = done {
        warn!("{}: {error}", file.display());
    }
}
