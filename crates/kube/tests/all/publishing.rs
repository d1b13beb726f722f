//! Side CPU as a resource: placed, protected, starved, moved, removed.

use crate::agent::FakeAgent;
use crate::bed::{Bed, bed};

/// A pod for one node: other tests' nodes publish beside it.
fn side_pod(namespace: &str, name: &str, milli: u32, node: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: {namespace}, annotations: {{tidegate.dev/side-cpu: {milli}m}}}}\n\
         spec: {{nodeSelector: {{kubernetes.io/hostname: {node}}}, containers: [{{name: c, image: x}}]}}\n"
    )
}

/// One pod that comes back, for two nodes.
const ENCODER: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: encoder, namespace: moves}
spec:
  selector: {matchLabels: {app: encoder}}
  template:
    metadata: {labels: {app: encoder}, annotations: {tidegate.dev/side-cpu: 2000m}}
    spec:
      containers: [{name: c, image: x}]
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
              - matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node-0, node-4]}]
";

fn pod_field(bed: &Bed, namespace: &str, name: &str, path: &str) -> String {
    bed.field(&format!("-n {namespace} pod {name}"), path)
}

fn is_running_on(bed: &Bed, namespace: &str, name: &str, node: &str) -> bool {
    pod_field(bed, namespace, name, ".status.phase") == "Running"
        && pod_field(bed, namespace, name, ".spec.nodeName") == node
}

fn an_event_says(bed: &Bed, namespace: &str, text: &str) {
    bed.until(
        || {
            bed.kubectl(&format!("-n {namespace} get events"))
                .contains(text)
        },
        "an event says so",
    );
}

#[test]
#[ignore = "needs a control plane: make kube"]
fn a_side_pod_waits_is_placed_stays_when_main_comes_and_moves_when_starved() {
    let bed = bed();
    bed.namespace("moves", "");
    bed.apply(ENCODER);
    let pod = |path: &str| bed.field("-n moves pods -l app=encoder", &format!(".items[*]{path}"));
    let runs_on = |node: &str| pod(".status.phase") == "Running" && pod(".spec.nodeName") == node;
    bed.until(
        || pod(".status.conditions[0].message").contains("Insufficient tidegate.dev/side-cpu"),
        "the pod waits for the resource",
    );

    let agent = FakeAgent::start(10.0);
    let starved = [
        "--evict",
        "enabled",
        "--with",
        "starved_s=4",
        "--with",
        "evict_gap_s=2",
    ];
    let keeper = bed.keeper("node-0", &agent, &starved);
    bed.until(
        || runs_on("node-0"),
        "the pod is placed where there is side CPU",
    );
    assert_eq!(bed.published("node-0"), "6k");

    agent.with(|state| state.main_cpus = 15.5);
    bed.until(
        || bed.published("node-0").is_empty(),
        "the key goes when main needs its CPU",
    );
    assert!(runs_on("node-0"), "what runs stays");
    let condition = r#".status.conditions[?(@.type=="TidegateSidePressure")].status"#;
    bed.until(
        || bed.field("node node-0", condition) == "True",
        "the condition says so",
    );

    let other = FakeAgent::start(4.0);
    let other_keeper = bed.keeper("node-4", &other, &[]);
    bed.until(|| bed.published("node-4") == "12k", "another node has room");
    agent.with(|state| state.is_starved = true);
    bed.until(
        || runs_on("node-4"),
        "the starved pod is evicted, and lands elsewhere",
    );
    an_event_says(bed, "moves", "TidegateStarved");

    agent.with(|state| (state.main_cpus, state.is_starved) = (2.0, false));
    bed.until(|| !bed.published("node-0").is_empty(), "the key is back");
    keeper.terminate();
    other_keeper.terminate();
    for node in ["node-0", "node-4"] {
        assert_eq!(
            bed.published(node),
            "",
            "nothing is promised by a node that nobody follows"
        );
    }
    assert!(runs_on("node-4"), "an end of ours leaves pods alone");
}

#[test]
#[ignore = "needs a control plane: make kube"]
fn an_eviction_that_is_not_enabled_says_so_without_the_right_to_evict_and_moves_nothing() {
    let bed = bed();
    bed.namespace("dry", "");
    let agent = FakeAgent::start(8.0);
    let _keeper = bed.keeper_of_node("node-1", &agent, &["--with", "starved_s=2"]);
    bed.until(|| bed.published("node-1") == "8k", "the node publishes");
    bed.apply(&side_pod("dry", "stays", 7_500, "node-1"));
    bed.until(
        || is_running_on(bed, "dry", "stays", "node-1"),
        "the pod is placed",
    );
    agent.with(|state| (state.main_cpus, state.is_starved) = (16.0, true));
    an_event_says(
        bed,
        "dry",
        "it would be told to move, were eviction enabled",
    );
    assert!(is_running_on(bed, "dry", "stays", "node-1"));
    bed.kubectl("-n dry delete pod stays");
}

/// A pod that a budget keeps where it is.
const KEPT: &str = "
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: kept, namespace: kept}
spec: {minAvailable: 1, selector: {matchLabels: {app: kept}}}
---
apiVersion: v1
kind: Pod
metadata: {name: stays, namespace: kept, labels: {app: kept}, annotations: {tidegate.dev/side-cpu: 7500m}}
spec: {nodeSelector: {kubernetes.io/hostname: node-6}, containers: [{name: c, image: x}]}
";

#[test]
#[ignore = "needs a control plane: make kube"]
fn a_disruption_budget_keeps_a_starved_pod_and_an_event_says_so() {
    let bed = bed();
    bed.namespace("kept", "");
    let agent = FakeAgent::start(8.0);
    let enabled = ["--evict", "enabled", "--with", "starved_s=2"];
    let _keeper = bed.keeper("node-6", &agent, &enabled);
    bed.until(|| bed.published("node-6") == "8k", "the node publishes");
    bed.apply(KEPT);
    bed.until(
        || is_running_on(bed, "kept", "stays", "node-6"),
        "the pod is placed",
    );
    agent.with(|state| (state.main_cpus, state.is_starved) = (16.0, true));
    an_event_says(bed, "kept", "a disruption budget keeps it here for now");
    assert!(is_running_on(bed, "kept", "stays", "node-6"));
    bed.kubectl("-n kept delete pod stays");
}

#[test]
#[ignore = "needs a control plane: make kube"]
fn without_its_agent_a_node_publishes_nothing_and_remove_clears_a_crash() {
    let bed = bed();
    let agent = FakeAgent::start(4.0);
    let keeper = bed.keeper("node-2", &agent, &["--with", "stale_s=3"]);
    bed.until(|| bed.published("node-2") == "12k", "the node publishes");
    agent.leave();
    bed.until(
        || bed.published("node-2").is_empty(),
        "the key goes with the agent",
    );

    let agent = FakeAgent::start(4.0);
    drop(keeper);
    let keeper = bed.keeper("node-2", &agent, &[]);
    bed.until(
        || bed.published("node-2") == "12k",
        "the node publishes again",
    );
    drop(keeper);
    assert_eq!(bed.published("node-2"), "12k", "a crash leaves what stands");
    let removed = bed.tidegate_kube(&["remove"]).output().expect("it starts");
    assert!(
        removed.status.success(),
        "{}",
        String::from_utf8_lossy(&removed.stderr)
    );
    assert_eq!(bed.published("node-2"), "");
    let condition = r#".status.conditions[?(@.type=="TidegateSidePressure")].status"#;
    assert_eq!(bed.field("node node-2", condition), "");
}

#[test]
#[ignore = "needs a control plane: make kube"]
fn what_main_needs_during_an_outage_of_the_api_server_is_written_after_it() {
    let bed = bed();
    bed.namespace("outage", "");
    let agent = FakeAgent::start(4.0);
    let _keeper = bed.keeper("node-5", &agent, &[]);
    bed.until(|| bed.published("node-5") == "12k", "the node publishes");
    bed.apply(&side_pod("outage", "stays", 3_000, "node-5"));
    bed.until(
        || is_running_on(bed, "outage", "stays", "node-5"),
        "the pod is placed",
    );
    bed.during_an_outage(|| {
        agent.with(|state| state.main_cpus = 15.0);
        // Longer than a call to the API server may take.
        std::thread::sleep(std::time::Duration::from_secs(15));
    });
    bed.until(|| bed.published("node-5").is_empty(), "the key goes");
    assert!(
        is_running_on(bed, "outage", "stays", "node-5"),
        "what runs stays"
    );
    agent.with(|state| state.main_cpus = 4.0);
    bed.until(|| bed.published("node-5") == "12k", "the key is back");
    bed.kubectl("-n outage delete pod stays");
}
