//! Gates: what is written down of each, what their terms come to, and the registry that holds them.

pub(crate) mod budget;
mod gate;
mod hint;
pub(crate) mod privilege;
mod rate;
mod record;
pub(crate) mod stored;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tidegate_api::{ApiError, ApiResult, ErrorKind};
use tidegate_cgroup::target::{GateName, Target};
use tidegate_engine::sync::lock;
use tidegate_terms::Config;

use crate::errors::no_gate;

#[cfg(test)]
pub(crate) use gate::tests::gate as of_terms;
pub(crate) use gate::{Gate, demand, unused_objectives};
pub(crate) use hint::{HintCounts, HintRound, HintState};
pub(crate) use rate::RateLimit;
pub(crate) use record::{Attachment, Record};

pub struct Gates {
    pub(crate) list: Mutex<Vec<Gate>>,
    config: Mutex<Arc<Config>>,
    policy_generation: AtomicU64,
    pub(crate) is_policy_refused: AtomicBool,
    pub(crate) rate: Mutex<RateLimit>,
}

impl Gates {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            list: Mutex::default(),
            config: Mutex::new(Arc::new(config)),
            policy_generation: AtomicU64::new(0),
            is_policy_refused: AtomicBool::new(false),
            rate: Mutex::default(),
        }
    }

    pub(crate) fn config(&self) -> Arc<Config> {
        Arc::clone(&lock(&self.config))
    }

    pub(crate) fn set_config(&self, config: Arc<Config>) {
        *lock(&self.config) = config;
        self.policy_generation.fetch_add(1, Ordering::Relaxed);
        self.is_policy_refused.store(false, Ordering::Relaxed);
    }

    /// How many policies were put in force, and whether the files were refused when they were last
    /// read.
    pub(crate) fn policy(&self) -> (u64, bool) {
        (
            self.policy_generation.load(Ordering::Relaxed),
            self.is_policy_refused.load(Ordering::Relaxed),
        )
    }

    /// The gates. The first of the locks.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Vec<Gate>> {
        lock(&self.list)
    }
}

/// The first name like that of this program, group or unit that is not taken.
pub(crate) fn free_name(like: &str, taken: impl Fn(&str) -> bool) -> ApiResult<GateName> {
    // Endless, but for a machine with 2^32 gates of one name.
    (0..=u32::MAX)
        .filter(|number| *number != 1)
        .map(|number| GateName::from_command(like, number))
        .find(|name| !taken(name.as_str()))
        .ok_or_else(|| ApiError::new(ErrorKind::Busy, format!("gate name: {like}: all are taken")))
}

/// A gate by its target, by `gate:NAME`, or by its bare name. A process that `is_gone`, by its
/// number and start time, is no target: its number may be another's by now.
pub(crate) fn find_in(
    gates: &[Gate],
    target: &str,
    is_gone: impl Fn(i32, u64) -> bool,
) -> ApiResult<usize> {
    let name = target.strip_prefix("gate:").unwrap_or(target);
    // `unit:nginx` is `unit:nginx.service`, and a gate is also found by its group.
    let parsed = Target::parse(target).ok();
    let full = parsed.as_ref().map_or(target.to_owned(), Target::to_string);
    let is_on = |gate: &Gate| match (&parsed, &gate.record.attachment) {
        (Some(Target::Cgroup(asked)), attachment) => attachment.placed() == Some(asked),
        (Some(of @ (Target::Pid(asked) | Target::Thread(asked))), attachment) => {
            let is_kind = matches!(of, Target::Thread(_)) == gate.record.is_of_thread();
            let process = attachment.process().filter(|_| is_kind);
            process.is_some_and(|(pid, start_ticks)| pid == *asked && !is_gone(pid, start_ticks))
        }
        _ => gate.record.target == full && target != "run",
    };
    gates
        .iter()
        .position(|gate| gate.record.name == name || is_on(gate))
        .ok_or_else(|| no_gate(target))
}
