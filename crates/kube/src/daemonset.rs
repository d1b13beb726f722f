//! The pods of Tidegate's own DaemonSet.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

pub const NAME: &str = "tidegate";

pub fn owns(pod: &Pod) -> bool {
    let owners = pod.owner_references();
    owners
        .iter()
        .any(|one| one.kind == "DaemonSet" && one.name == NAME)
}

/// Whether agent and publisher of this pod are ready, and kubelet has not been told to end it.
/// Anyone may claim the DaemonSet as the owner of a pod in another namespace.
pub fn is_ready(pod: &Pod, namespace: &str) -> bool {
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let is_ready = conditions.is_some_and(|all| {
        all.iter()
            .any(|one| one.type_ == "Ready" && one.status == "True")
    });
    is_ready
        && owns(pod)
        && pod.namespace().as_deref() == Some(namespace)
        && pod.metadata.deletion_timestamp.is_none()
}

/// Whether another ready pod of the DaemonSet is on the node of the pod called `own`: a rollout
/// starts the next pod beside the one that it replaces. `pods` are the node's.
pub fn has_other<'a>(pods: impl IntoIterator<Item = &'a Pod>, own: &str, namespace: &str) -> bool {
    pods.into_iter()
        .any(|pod| pod.name_any() != own && is_ready(pod, namespace))
}

/// Whether an older pod is ready on the node. The older pod does the node's work until it is
/// deleted.
pub fn has_older(pods: &[impl AsRef<Pod>], own: &str, namespace: &str) -> bool {
    let age = |pod: &Pod| (pod.creation_timestamp().map(|at| at.0), pod.name_any());
    let pods = || pods.iter().map(AsRef::as_ref);
    let is_own =
        |pod: &&Pod| pod.name_any() == own && pod.namespace().as_deref() == Some(namespace);
    let Some(own_age) = pods().find(is_own).map(age) else {
        return false;
    };
    has_other(pods().filter(|pod| age(pod) < own_age), own, namespace)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod_with(name: &str, second: u8, pointer: &str, value: Value) -> Pod {
        let mut pod = json!({
            "metadata": {
                "name": name,
                "creationTimestamp": format!("2026-11-29T00:00:0{second}Z"),
                "namespace": "tidegate",
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": NAME, "uid": "1"}],
                "deletionTimestamp": null,
            },
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        *pod.pointer_mut(pointer).expect("it has the field") = value;
        serde_json::from_value(pod).expect("a pod")
    }

    fn is_ready_with(pointer: &str, value: Value) -> bool {
        is_ready(&pod_with("tidegate-x", 0, pointer, value), "tidegate")
    }

    #[test]
    fn of_two_pods_on_a_node_the_older_works_until_it_is_to_end() {
        let has = |first: Pod, own: &str| {
            let next = pod_with("b", 5, "/metadata/namespace", json!("tidegate"));
            let pods = [first, next].map(std::sync::Arc::new);
            let has_other = has_other(pods.iter().map(AsRef::as_ref), own, "tidegate");
            (has_older(&pods, own, "tidegate"), has_other)
        };
        let first = || pod_with("c", 1, "/metadata/namespace", json!("tidegate"));
        assert_eq!(has(first(), "b"), (true, true));
        assert_eq!(has(first(), "c"), (false, true));
        let ends = pod_with(
            "c",
            1,
            "/metadata/deletionTimestamp",
            json!("2026-11-29T00:00:09Z"),
        );
        assert_eq!(has(ends, "b"), (false, false));
        let of_tenant = pod_with("c", 1, "/metadata/namespace", json!("tenant"));
        assert_eq!(has(of_tenant, "b"), (false, false));
        assert!(!has(first(), "not-listed-yet").0);
    }

    #[test]
    fn only_a_pod_of_our_own_that_goes_on_is_ready() {
        assert!(is_ready_with("/metadata/name", json!("tidegate-y")));
        for (pointer, value) in [
            ("/metadata/namespace", json!("tenant")),
            ("/metadata/ownerReferences/0/name", json!("other")),
            ("/metadata/deletionTimestamp", json!("2026-11-29T00:00:00Z")),
            ("/status/conditions/0/status", json!("False")),
        ] {
            assert!(!is_ready_with(pointer, value), "{pointer}");
        }
    }
}
