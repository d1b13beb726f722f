//! Pods that kubelet resizes in place.
//!
//! Kubelet writes the weight and the limit of a pod's group. The kernel refuses the weight of a
//! group in the idle class, and a limit below the group's burst. So such a pod has no gate
//! meanwhile; the next gate starts from what kubelet has written.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

/// A resize that takes longer is stuck for another reason, and the pod gets its gate back.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Since when each pod is resized, by its UID.
#[derive(Default)]
pub struct Resizes(HashMap<String, Instant>);

impl Resizes {
    pub fn follow(&mut self, pods: &[Arc<Pod>], now: Instant) {
        let resized = pods.iter().filter(|pod| is_resized(pod));
        let resized: HashSet<String> = resized.filter_map(|pod| pod.uid()).collect();
        self.0.retain(|uid, _| resized.contains(uid));
        for uid in resized {
            self.0.entry(uid).or_insert(now);
        }
    }

    pub fn is_paused(&self, pod: &Pod, now: Instant) -> bool {
        let since = pod.uid().and_then(|uid| self.0.get(&uid));
        since.is_some_and(|since| now.duration_since(*since) < PAUSE_MAX)
    }
}

fn is_resized(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let mut conditions = status
        .and_then(|status| status.conditions.as_ref())
        .into_iter()
        .flatten();
    conditions.any(|one| one.type_ == "PodResizeInProgress" && one.status == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_that_is_resized_has_no_gate_for_a_while() {
        let pod = |conditions: serde_json::Value| {
            let pod = json!({"metadata": {"uid": "1"}, "status": {"conditions": conditions}});
            [Arc::new(serde_json::from_value::<Pod>(pod).expect("a pod"))]
        };
        let resized = pod(json!([{"type": "PodResizeInProgress", "status": "True"}]));
        let plain = pod(json!([{"type": "Ready", "status": "True"}]));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut resizes = Resizes::default();
        for (seconds, pods, is_paused) in [
            (0, &plain, false),
            (1, &resized, true),
            (50, &resized, true),
            (61, &resized, false),
            (62, &plain, false),
            (63, &resized, true),
        ] {
            resizes.follow(pods, at(seconds));
            assert_eq!(
                resizes.is_paused(&pods[0], at(seconds)),
                is_paused,
                "{seconds}"
            );
        }
    }
}
