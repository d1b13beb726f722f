//! The cluster's controller: it withdraws what a node promises when nobody on that node vouches for
//! it any more, and reports on policies. Two of them do no harm: each write is the same whoever
//! makes it, and a withdrawal holds only for the node's status as it was read.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Patch, PatchParams};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::follow::{Failures, store};
use crate::policy::{self, Labels, Place, PolicyStatus, TidegatePolicy};
use crate::publish::patch_status;
use crate::resource::{has_ended, standing_milli};
use crate::{daemonset, node};

const STEP: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub struct Settings {
    /// Tidegate's own.
    pub namespace: String,
    /// How long a node's lease may stay as it is.
    pub silence: Duration,
    /// The key of the taint that a node loses once its pod of the DaemonSet is ready.
    pub startup_taint: Option<String>,
}

struct Controller {
    settings: Settings,
    client: Client,
    nodes: Store<Node>,
    leases: Store<Lease>,
    pods: Store<Pod>,
    namespaces: Store<Namespace>,
    policies: Store<TidegatePolicy>,
    heard: Heard,
    _watches: JoinSet<()>,
}

pub async fn run(client: Client, settings: Settings, ended: impl Future<Output = ()>) {
    let mut watches = JoinSet::new();
    let failures = Failures::default();
    let all = watcher::Config::default;
    let api = || client.clone();
    let leases = Api::namespaced(api(), &settings.namespace);
    let mut controller = Controller {
        nodes: store(&mut watches, Api::all(api()), all(), "nodes", &failures),
        leases: store(&mut watches, leases, all(), "leases", &failures),
        pods: store(&mut watches, Api::all(api()), all(), "pods", &failures),
        namespaces: store(
            &mut watches,
            Api::all(api()),
            all(),
            "namespaces",
            &failures,
        ),
        policies: store(&mut watches, Api::all(api()), all(), "policies", &failures),
        heard: Heard::default(),
        client: api(),
        settings,
        _watches: watches,
    };
    let steps = async {
        // A store's writer is never dropped, so waiting cannot fail.
        let _ = controller.nodes.wait_until_ready().await;
        let _ = controller.leases.wait_until_ready().await;
        let _ = controller.pods.wait_until_ready().await;
        let _ = controller.namespaces.wait_until_ready().await;
        loop {
            controller.withdraw().await;
            controller.report().await;
            controller.untaint().await;
            tokio::time::sleep(STEP).await;
        }
    };
    tokio::select! {
        () = steps => {}
        () = ended => {}
    }
}

impl Controller {
    async fn withdraw(&mut self) {
        let nodes = self.nodes.state();
        let leases: HashMap<String, Option<MicroTime>> = self
            .leases
            .state()
            .iter()
            .map(|lease| (lease.name_any(), renewed(lease)))
            .collect();
        self.heard.keep(&nodes);
        for node in nodes {
            let name = node.name_any();
            let renewed = leases.get(&name).cloned().flatten();
            let silence = self.heard.silence(&name, renewed, Instant::now());
            let promises =
                standing_milli(&node).is_some() || node::standing_condition(&node).is_some();
            if !promises || silence < self.settings.silence {
                continue;
            }
            let mut patch = node::patch_of_removal();
            patch["metadata"] = json!({"resourceVersion": node.resource_version()});
            let seconds = silence.as_secs();
            match patch_status(self.client.clone(), &name, patch, PATIENCE).await {
                Ok(_) => info!("node {name}: withdrawn: no sign of its publisher for {seconds} s"),
                Err(error) => warn!("node {name}: {error:#}; it is tried again"),
            }
        }
    }

    async fn untaint(&self) {
        let Some(key) = &self.settings.startup_taint else {
            return;
        };
        let pods = self.pods.state();
        let ready: BTreeSet<&str> = pods
            .iter()
            .filter(|pod| daemonset::is_ready(pod, &self.settings.namespace))
            .filter_map(|pod| pod.spec.as_ref()?.node_name.as_deref())
            .collect();
        for node in self.nodes.state() {
            let name = node.name_any();
            let lease = ObjectRef::new(&name).within(&self.settings.namespace);
            let lease = self.leases.get(&lease);
            let is_ready =
                ready.contains(name.as_str()) && lease.is_some_and(|lease| is_of(&lease, &node));
            let patch = patch_without_taint(&node, key);
            let Some(patch) = patch.filter(|_| is_ready) else {
                continue;
            };
            let api: Api<Node> = Api::all(self.client.clone());
            let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
            let call = api.patch(&name, &parameters, &patch);
            match tokio::time::timeout(PATIENCE, call).await {
                Ok(Ok(_)) => info!("node {name}: taint {key} removed: its pod is ready"),
                Ok(Err(error)) => warn!("node {name}: taint {key}: {error}; it is tried again"),
                Err(_) => warn!("node {name}: taint {key}: no answer; it is tried again"),
            }
        }
    }

    async fn report(&self) {
        let policies = self.policies.state();
        let of_each = self.statuses(&policies);
        for (policy, status) in policies.iter().zip(of_each) {
            if policy.status.as_ref() == Some(&status) {
                continue;
            }
            let name = policy.name_any();
            let patch = Patch::Merge(json!({"status": status}));
            let api: Api<TidegatePolicy> = Api::all(self.client.clone());
            let parameters = PatchParams::default();
            let call = api.patch_status(&name, &parameters, &patch);
            match tokio::time::timeout(PATIENCE, call).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => warn!("policy {name}: its status: {error}"),
                Err(_) => warn!("policy {name}: its status: no answer"),
            }
        }
    }

    /// What to report about each policy, in their order.
    fn statuses(&self, policies: &[Arc<TidegatePolicy>]) -> Vec<PolicyStatus> {
        let none = Labels::new();
        let nodes = self.nodes.state();
        let nodes: HashMap<String, &Labels> = nodes
            .iter()
            .map(|node| (node.name_any(), node.labels()))
            .collect();
        let mut found: HashMap<String, (u32, BTreeSet<String>)> = HashMap::new();
        for pod in self.pods.state().iter().filter(|pod| !has_ended(pod)) {
            let namespace = pod.namespace().unwrap_or_default();
            let namespace = self.namespaces.get(&ObjectRef::new(&namespace));
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
            let place = Place {
                namespace: namespace.as_ref().map_or(&none, |one| one.labels()),
                node: node
                    .and_then(|name| nodes.get(name))
                    .copied()
                    .unwrap_or(&none),
                own: &self.settings.namespace,
            };
            let in_force = policy::in_force(policies.iter().map(Arc::as_ref), pod, place);
            for (at, policy) in in_force.iter().enumerate() {
                let (pods, conflicts) = found.entry(policy.name_any()).or_default();
                *pods += 1;
                conflicts.extend(policy::conflicts(policy, &in_force[..at]));
            }
        }
        let status = |policy: &Arc<TidegatePolicy>| {
            let (matched_pods, conflicts) = found.remove(&policy.name_any()).unwrap_or_default();
            PolicyStatus {
                observed_generation: policy.metadata.generation.unwrap_or_default(),
                matched_pods,
                conflicts: conflicts.into_iter().collect(),
                errors: policy.spec.errors(),
            }
        };
        policies.iter().map(status).collect()
    }
}

/// The merge patch that takes a taint from the node as it was read; none where it has no such
/// taint.
fn patch_without_taint(node: &Node, key: &str) -> Option<Value> {
    let taints = node.spec.as_ref()?.taints.as_ref()?;
    let others: Vec<_> = taints.iter().filter(|taint| taint.key != key).collect();
    (others.len() < taints.len()).then(|| {
        json!({
            "metadata": {"resourceVersion": node.resource_version()},
            "spec": {"taints": others},
        })
    })
}

/// Whether this node's publisher wrote the lease. The lease and the ready pod of an earlier node
/// with the same name can remain for a while.
fn is_of(lease: &Lease, node: &Node) -> bool {
    let uid = node.uid();
    let owners = lease.owner_references();
    owners.iter().any(|one| Some(&one.uid) == uid.as_ref())
}

fn renewed(lease: &Lease) -> Option<MicroTime> {
    lease.spec.as_ref()?.renew_time.clone()
}

/// When each node's lease was last seen to change, by this process' own clock: those of the nodes
/// may differ.
#[derive(Default)]
struct Heard(HashMap<String, (Option<MicroTime>, Instant)>);

impl Heard {
    fn silence(&mut self, node: &str, renewed: Option<MicroTime>, now: Instant) -> Duration {
        let (last, since) = self.0.entry(node.to_owned()).or_insert((None, now));
        if *last != renewed {
            (*last, *since) = (renewed, now);
        }
        now.duration_since(*since)
    }

    fn keep(&mut self, nodes: &[Arc<Node>]) {
        let there: BTreeSet<String> = nodes.iter().map(|node| node.name_any()).collect();
        self.0.retain(|node, _| there.contains(node));
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    #[test]
    fn a_node_loses_the_startup_taint_and_no_other() {
        let node = |taints: Value| {
            let node = json!({"metadata": {"resourceVersion": "7"}, "spec": {"taints": taints}});
            serde_json::from_value::<Node>(node).expect("a node")
        };
        let other = json!({"key": "gpu", "value": "yes", "effect": "NoSchedule"});
        let ours = json!({"key": "tidegate.dev/agent-not-ready", "effect": "NoSchedule"});
        let without = |node: &Node| patch_without_taint(node, "tidegate.dev/agent-not-ready");
        assert_eq!(
            without(&node(json!([ours, other]))),
            Some(json!({"metadata": {"resourceVersion": "7"}, "spec": {"taints": [other]}}))
        );
        assert_eq!(without(&node(json!([other]))), None);
        assert_eq!(without(&node(Value::Null)), None);
    }

    #[test]
    fn a_lease_is_of_the_node_that_owns_it_and_not_of_its_name() {
        let node = |uid: Value| {
            let node = json!({"metadata": {"name": "a", "uid": uid}});
            serde_json::from_value::<Node>(node).expect("a node")
        };
        let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "1"}]);
        let lease = |owners: Value| {
            let lease = json!({"metadata": {"name": "a", "ownerReferences": owners}});
            serde_json::from_value::<Lease>(lease).expect("a lease")
        };
        assert!(is_of(&lease(owner.clone()), &node(json!("1"))));
        assert!(!is_of(&lease(owner.clone()), &node(json!("2"))));
        assert!(!is_of(&lease(owner), &node(Value::Null)));
        assert!(!is_of(&lease(Value::Null), &node(json!("1"))));
    }

    #[test]
    fn a_node_is_silent_from_the_last_change_of_its_lease() {
        let mut heard = Heard::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let renewed = |second| Timestamp::from_second(second).ok().map(MicroTime);
        let seconds = |duration: Duration| duration.as_secs();
        assert_eq!(seconds(heard.silence("none", None, at(0))), 0);
        assert_eq!(seconds(heard.silence("none", None, at(60))), 60);
        // The node's clock is far from ours.
        assert_eq!(seconds(heard.silence("a", renewed(5), at(0))), 0);
        assert_eq!(seconds(heard.silence("a", renewed(15), at(10))), 0);
        assert_eq!(seconds(heard.silence("a", renewed(15), at(70))), 60);
        assert_eq!(seconds(heard.silence("a", renewed(16), at(71))), 0);
    }
}
