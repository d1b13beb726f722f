//! The node: what its agent's status comes to as a sample, and what is written to its status.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};
use tidegate_api::StatusView;
use tidegate_publish::{Step, Write};

use crate::resource::SIDE_CPU;

/// The condition of a node whose side pods request more than main leaves.
pub const CONDITION: &str = "TidegateSidePressure";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// What the law leaves to side work, before its floor.
    pub surplus_milli: u64,
    pub is_starved: bool,
}

#[derive(Default)]
pub struct Sampler {
    at_tolerance_seconds: Option<f64>,
    uptime_seconds: f64,
}

impl Sampler {
    /// A sample; `shared_cpus` is how many CPUs are no pod's own.
    pub fn take(&mut self, status: &StatusView, shared_cpus: u32) -> Sample {
        let at_tolerance = status.at_tolerance_seconds;
        let passed = status.uptime_seconds - self.uptime_seconds;
        let starved = self
            .at_tolerance_seconds
            .map_or(0.0, |before| at_tolerance - before);
        self.at_tolerance_seconds = Some(at_tolerance);
        self.uptime_seconds = status.uptime_seconds;
        Sample {
            surplus_milli: surplus_milli(status, shared_cpus),
            is_starved: passed > 0.0 && starved > passed / 2.0,
        }
    }
}

/// `(1 − headroom) · CPUs − main`. Main on CPUs of its own counts as if it were on the shared ones:
/// too little is promised, never too much.
fn surplus_milli(status: &StatusView, shared_cpus: u32) -> u64 {
    let part = f64::from(shared_cpus.min(status.cpus)) / f64::from(status.cpus.max(1));
    let for_all = status.capacity_cpus * part * (1.0 - status.headroom_ratio);
    // A cast from a negative number gives 0.
    ((for_all - status.main_cpus) * 1_000.0) as u64
}

/// CPUs that are no pod's own: those that this process may use. Kubelet's static CPU manager keeps
/// every container that was given no CPUs of its own, as ours, off those that others have.
pub fn shared_cpus() -> Option<u32> {
    rustix::thread::sched_getaffinity(None)
        .ok()
        .map(|set| set.count())
}

/// The strategic merge patch of the node's status for a step; none where nothing changes.
pub fn patch(step: &Step, condition_before: Option<bool>, now: Timestamp) -> Option<Value> {
    let mut status = json!({});
    match step.write {
        Write::Keep => {}
        Write::Set(milli) => status["capacity"] = json!({SIDE_CPU: milli.to_string()}),
        Write::Delete => status["capacity"] = json!({SIDE_CPU: null}),
    }
    if condition_before != Some(step.is_short) {
        status["conditions"] = json!([condition(step, now)]);
    }
    status
        .as_object()
        .is_some_and(|keys| !keys.is_empty())
        .then(|| json!({"status": status}))
}

pub fn patch_of_removal() -> Value {
    json!({"status": {
        "capacity": {SIDE_CPU: null},
        "conditions": [{"$patch": "delete", "type": CONDITION}],
    }})
}

fn condition(step: &Step, now: Timestamp) -> Value {
    let (status, reason) = match step.is_short {
        true => ("True", "MainNeedsItsCPU"),
        false => ("False", "SideHasRoom"),
    };
    json!({
        "type": CONDITION,
        "status": status,
        "reason": reason,
        "message": step.because.to_string(),
        "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    })
}

pub fn standing_condition(node: &Node) -> Option<bool> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let ours = conditions.iter().find(|one| one.type_ == CONDITION)?;
    Some(ours.status == "True")
}

#[cfg(test)]
mod tests {
    use tidegate_publish::Because;

    use super::*;

    fn status(headroom_ratio: f64, main_cpus: f64) -> StatusView {
        StatusView {
            cpus: 8,
            capacity_cpus: 7.5,
            headroom_ratio,
            main_cpus,
            ..StatusView::default()
        }
    }

    #[test]
    fn the_surplus_is_what_the_law_leaves_before_its_floor() {
        assert_eq!(surplus_milli(&status(0.2, 2.0), 8), 4_000);
        assert_eq!(surplus_milli(&status(0.2, 2.0), 4), 1_000);
        assert_eq!(surplus_milli(&status(0.2, 7.0), 8), 0);
    }

    #[test]
    fn a_second_is_starved_when_most_of_it_was_at_the_tolerance() {
        let mut sampler = Sampler::default();
        let mut at = |uptime_seconds, at_tolerance_seconds| {
            let status = StatusView {
                uptime_seconds,
                at_tolerance_seconds,
                ..status(0.2, 2.0)
            };
            sampler.take(&status, 8).is_starved
        };
        assert!(!at(100.0, 50.0), "the first second is not known");
        assert!(at(101.0, 51.0));
        assert!(!at(102.0, 51.2));
        assert!(!at(1.0, 0.0), "another agent");
    }

    #[test]
    fn the_patch_has_what_changes_and_nothing_else() {
        let step = Step {
            write: Write::Set(2_000),
            because: Because::Promise,
            promise_milli: Some(2_000),
            is_short: false,
            must_evict: false,
        };
        let now = Timestamp::UNIX_EPOCH;
        let only_key = patch(&step, Some(false), now);
        assert_eq!(
            only_key,
            Some(json!({"status": {"capacity": {SIDE_CPU: "2000"}}}))
        );
        let nothing = Step {
            write: Write::Keep,
            ..step
        };
        assert_eq!(patch(&nothing, Some(false), now), None);
        let short = Step {
            write: Write::Delete,
            is_short: true,
            because: Because::Short,
            ..step
        };
        let both = patch(&short, Some(false), now).expect("a patch");
        assert_eq!(both["status"]["capacity"], json!({SIDE_CPU: null}));
        assert_eq!(both["status"]["conditions"][0]["status"], "True");
        assert_eq!(
            both["status"]["conditions"][0]["lastTransitionTime"],
            "1970-01-01T00:00:00Z"
        );
    }

    #[test]
    fn the_cpus_that_this_process_may_use_are_shared() {
        let counted = std::thread::spawn(|| {
            let all = rustix::thread::sched_getaffinity(None).expect("an affinity");
            let first = (0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu));
            let mut one = rustix::thread::CpuSet::new();
            one.set(first.expect("a CPU"));
            rustix::thread::sched_setaffinity(None, &one).expect("one of our own");
            shared_cpus()
        });
        assert_eq!(counted.join().expect("it does not panic"), Some(1));
    }
}
