//! Which side pod moves when the node cannot give them what they request.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, EvictParams};
use kube::{Client, Error};

use crate::resource::{has_ended, request_milli};

/// Whether pods are really told to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// An event says that they would be, and the API server is not asked.
    DryRun,
    /// They are.
    Enabled,
}

/// The pod that moves: of those that request side CPU and are not leaving, the lowest priority; of
/// these the youngest. A pod of a DaemonSet or of kubelet's own files would come back to the same
/// node.
pub fn choose<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> Option<&'a Pod> {
    let may_move = |pod: &&Pod| {
        let is_of_node = pod
            .owner_references()
            .iter()
            .any(|owner| matches!(owner.kind.as_str(), "DaemonSet" | "Node"));
        !has_ended(pod)
            && pod.metadata.deletion_timestamp.is_none()
            && request_milli(pod) > 0
            && !is_of_node
    };
    let order = |pod: &&Pod| {
        let priority = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.priority)
            .unwrap_or(0);
        let made = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (priority, std::cmp::Reverse(made), pod.name_any())
    };
    pods.into_iter().filter(may_move).min_by_key(order)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Accepted,
    /// A disruption budget says not now; the next minute asks again.
    NotNow,
    Gone,
}

pub async fn evict(client: Client, namespace: &str, name: &str) -> Result<Answer, Error> {
    let pods = Api::<Pod>::namespaced(client, namespace);
    match pods.evict(name, &EvictParams::default()).await {
        Ok(_) => Ok(Answer::Accepted),
        Err(Error::Api(status)) if status.code == 429 => Ok(Answer::NotNow),
        Err(Error::Api(status)) if status.code == 404 => Ok(Answer::Gone),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::resource::SIDE_CPU;

    fn pod(name: &str, made: &str, more: Value) -> Pod {
        let mut pod = json!({
            "metadata": {"name": name, "creationTimestamp": made},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {SIDE_CPU: "500"}}}]},
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            for (field, value) in value.as_object().into_iter().flatten() {
                pod[key][field] = value.clone();
            }
        }
        serde_json::from_value(pod).expect("a pod")
    }

    #[test]
    fn the_youngest_of_the_lowest_priority_moves() {
        let pods = [
            pod(
                "important",
                "2026-01-04T00:00:00Z",
                json!({"spec": {"priority": 10}}),
            ),
            pod("old", "2026-01-01T00:00:00Z", json!({})),
            pod("young", "2026-01-02T00:00:00Z", json!({})),
            pod(
                "leaving",
                "2026-01-03T00:00:00Z",
                json!({"metadata": {"deletionTimestamp": "2026-01-03T01:00:00Z"}}),
            ),
            pod(
                "ended",
                "2026-01-03T00:00:00Z",
                json!({"status": {"phase": "Succeeded"}}),
            ),
            pod(
                "of-daemonset",
                "2026-01-03T00:00:00Z",
                json!({"metadata": {"ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "1"},
                ]}}),
            ),
        ];
        assert_eq!(
            choose(&pods).map(ResourceExt::name_any).as_deref(),
            Some("young")
        );
        assert_eq!(choose(&pods[3..]), None);
    }
}
