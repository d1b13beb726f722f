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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn is_ready_with(pointer: &str, value: Value) -> bool {
        let mut pod = json!({
            "metadata": {
                "name": "tidegate-x",
                "namespace": "tidegate",
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": NAME, "uid": "1"}],
                "deletionTimestamp": null,
            },
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        *pod.pointer_mut(pointer).expect("it has the field") = value;
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        is_ready(&pod, "tidegate")
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
