//! `tidegate.dev/side-cpu`: an extended resource in whole millicores.

use k8s_openapi::api::core::v1::{Container, Node, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

pub const SIDE_CPU: &str = "tidegate.dev/side-cpu";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    pub milli: u64,
    pub leaving_milli: u64,
    pub pods: u64,
}

pub fn bound<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> Bound {
    let mut sum = Bound::default();
    for pod in pods.into_iter().filter(|pod| !has_ended(pod)) {
        let milli = request_milli(pod);
        // Requests are as large as their writer likes.
        sum.milli = sum.milli.saturating_add(milli);
        sum.pods += u64::from(milli > 0);
        if pod.metadata.deletion_timestamp.is_some() {
            sum.leaving_milli = sum.leaving_milli.saturating_add(milli);
        }
    }
    sum
}

pub fn has_ended(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// What a pod requests, as the scheduler counts: its containers and sidecars together, or the
/// largest step of its start.
pub fn request_milli(pod: &Pod) -> u64 {
    let Some(spec) = &pod.spec else {
        return 0;
    };
    let is_sidecar = |one: &Container| one.restart_policy.as_deref() == Some("Always");
    let mut sidecars_milli: u64 = 0;
    let mut starting_milli: u64 = 0;
    for container in spec.init_containers.iter().flatten() {
        let with_this = sidecars_milli.saturating_add(container_milli(container));
        if is_sidecar(container) {
            sidecars_milli = with_this;
        }
        starting_milli = starting_milli.max(with_this);
    }
    let running_milli = spec.containers.iter().map(container_milli);
    running_milli
        .fold(sidecars_milli, u64::saturating_add)
        .max(starting_milli)
}

/// What a node's status says; none where the key is absent.
pub fn standing_milli(node: &Node) -> Option<u64> {
    let capacity = node.status.as_ref()?.capacity.as_ref()?;
    whole(capacity.get(SIDE_CPU)?)
}

/// Whether the scheduler may place by an amount: it looks at what is allocatable.
pub fn is_allocatable(node: &Node) -> bool {
    let status = node.status.as_ref();
    let allocatable = status.and_then(|status| status.allocatable.as_ref());
    allocatable.is_some_and(|all| all.contains_key(SIDE_CPU))
}

fn container_milli(container: &Container) -> u64 {
    let requests = container
        .resources
        .as_ref()
        .and_then(|all| all.requests.as_ref());
    requests
        .and_then(|all| all.get(SIDE_CPU))
        .and_then(whole)
        .unwrap_or(0)
}

/// An extended resource is whole; the API server writes it in its shortest form (`16k`).
fn whole(quantity: &Quantity) -> Option<u64> {
    let text = quantity.0.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    let number: u64 = digits.parse().ok()?;
    let times: u64 = match suffix {
        "" => 1,
        "k" | "e3" | "E3" => 1_000,
        "M" | "e6" | "E6" => 1_000_000,
        "G" | "e9" | "E9" => 1_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(times)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(value: serde_json::Value) -> Pod {
        serde_json::from_value(value).expect("a pod")
    }

    fn asks(milli: u64) -> serde_json::Value {
        json!({"name": "c", "resources": {"requests": {SIDE_CPU: milli.to_string()}}})
    }

    #[test]
    fn quantities_come_back_in_their_shortest_form() {
        let read = |text: &str| whole(&Quantity(text.into()));
        assert_eq!(read("1500"), Some(1_500));
        assert_eq!(read("16k"), Some(16_000));
        assert_eq!(read("2Ki"), Some(2_048));
        assert_eq!(read("1500m"), None);
        assert_eq!(read(""), None);
        assert_eq!(read("99999999999999999999"), None);
    }

    #[test]
    fn a_pod_requests_what_the_scheduler_counts() {
        let mut sidecar = asks(300);
        sidecar["restartPolicy"] = json!("Always");
        let containers = json!([asks(1_000), asks(500), {"name": "none"}]);
        let plain = pod(json!({"spec": {"containers": containers.clone()}}));
        assert_eq!(request_milli(&plain), 1_500);
        let with_start = pod(json!({"spec": {
            "containers": containers, "initContainers": [sidecar.clone(), asks(2_000)],
        }}));
        assert_eq!(request_milli(&with_start), 2_300);
    }

    #[test]
    fn what_ended_holds_nothing_and_what_leaves_is_counted_twice() {
        let pods = [
            json!({"spec": {"containers": [asks(1_000)]}, "status": {"phase": "Succeeded"}}),
            json!({"spec": {"containers": [asks(700)]}, "status": {"phase": "Pending"}}),
            json!({
                "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"},
                "spec": {"containers": [asks(200)]}, "status": {"phase": "Running"},
            }),
        ];
        let pods: Vec<Pod> = pods.into_iter().map(pod).collect();
        assert_eq!(
            bound(&pods),
            Bound {
                milli: 900,
                leaving_milli: 200,
                pods: 2
            }
        );
    }
}
