//! The cluster's controller, with the rights that the manifests give it.

use std::io::{Read, Write};

use serde_json::Value;

use crate::agent::FakeAgent;
use crate::bed::{Bed, Keeper, NAMESPACE};

fn controller(bed: &Bed, silence: &str) -> Keeper {
    Keeper::start(&mut bed.controller(&["control", "--silence", silence]))
}

#[test]
#[ignore = "needs a control plane: make kube"]
fn what_a_dead_publisher_promised_is_withdrawn_and_uninstalling_leaves_nothing() {
    let bed = Bed::start(&["-nodes", "2"]);
    bed.install(&["tidegate.yaml"]);
    // The DaemonSet's own pods come, too; they run no program.
    bed.kubectl("label nodes --all kubernetes.io/os=linux");
    let checked = || bed.controller(&["check"]).output().expect("it starts");
    let unready = checked();
    let said = String::from_utf8_lossy(&unready.stderr);
    assert!(
        !unready.status.success() && said.contains("not on every node"),
        "{said}"
    );
    let agents = ["node-0", "node-1"].map(|node| (node, FakeAgent::start(4.0)));
    let [killed, alive] = agents
        .each_ref()
        .map(|(node, agent)| bed.keeper_of_node(node, agent, &[]));
    for (node, _) in &agents {
        bed.until(|| bed.published(node) == "12k", "the node publishes");
    }
    bed.until(|| checked().status.success(), "every node has a publisher");
    only_the_daemonset_needs_a_privileged_namespace(&bed);
    drop(killed);
    let controller = controller(&bed, "25");
    bed.until(
        || bed.published("node-0").is_empty(),
        "what the dead one promised is withdrawn",
    );
    assert_eq!(
        bed.published("node-1"),
        "12k",
        "what the other promises stays"
    );

    drop((alive, controller));
    assert_eq!(bed.published("node-1"), "12k", "a crash leaves what stands");
    let removed = bed.controller(&["remove"]).output().expect("it starts");
    let said = String::from_utf8_lossy(&removed.stderr);
    assert!(removed.status.success(), "{said}");
    assert_eq!(bed.published("node-1"), "");
    let left = bed.kubectl(&format!("-n {NAMESPACE} get daemonsets,leases -o name"));
    assert_eq!(left, "");
}

/// Pod security admission reports the pods that a level would refuse.
fn only_the_daemonset_needs_a_privileged_namespace(bed: &Bed) {
    let level = "pod-security.kubernetes.io/enforce=restricted";
    let label = "label --dry-run=server --overwrite namespace";
    let said = bed.kubectl(&format!("{label} {NAMESPACE} {level}"));
    assert!(said.contains("host namespaces, "), "{said}");
    assert!(!said.contains("tidegate-control"), "{said}");
}

/// What kubelet's probe gets.
fn asked(port: &str) -> String {
    got(port, "GET / HTTP/1.1\r\n\r\n")
}

fn got(port: &str, request: &str) -> String {
    let mut text = String::new();
    // The process may not listen yet.
    if let Ok(mut stream) = std::net::TcpStream::connect(format!("127.0.0.1:{port}")) {
        let _ = stream.write_all(request.as_bytes());
        let _ = stream.read_to_string(&mut text);
    }
    text
}

fn free_port() -> String {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    socket.local_addr().expect("it has one").port().to_string()
}

const ACCOUNTS: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: scraper, namespace: scrape}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: tenant, namespace: scrape}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: scraper}
rules: [{nonResourceURLs: [/metrics], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: scraper}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: scraper}
subjects: [{kind: ServiceAccount, name: scraper, namespace: scrape}]
";

fn only_accounts_that_may_read_its_metrics(bed: &Bed, port: &str) {
    bed.namespace("scrape", "");
    bed.apply(ACCOUNTS);
    let token = |account| bed.token_of("scrape", account);
    let metrics = |token: &str| {
        let bearer = format!("authorization: Bearer {token}");
        got(
            port,
            &format!("GET /metrics HTTP/1.1\r\nhost: pod\r\n{bearer}\r\n\r\n"),
        )
    };
    let scraper = token("scraper");
    let has_all = || {
        let text = metrics(&scraper);
        text.starts_with("HTTP/1.1 200")
            && text.contains("\ntidegate_agent_up 1\n")
            && text.contains("\ntidegate_kube_published_cpus 12\n")
    };
    bed.until(has_all, "an account that may reads the figures of both");
    let refused = metrics(&token("tenant"));
    assert!(
        refused.starts_with("HTTP/1.1 403") && refused.contains("scrape:tenant may not"),
        "{refused}"
    );
    assert!(metrics("made-up").starts_with("HTTP/1.1 401"));
}

#[test]
#[ignore = "needs a control plane: make kube"]
fn a_publisher_is_ready_while_it_reaches_the_api_server_and_the_agent() {
    // The other tests' API server must not stop for so long.
    let bed = Bed::start(&["-nodes", "1"]);
    bed.install(&["tidegate.yaml"]);
    let [port, scraped] = [(); 2].map(|()| free_port());
    let agent = FakeAgent::start(4.0);
    let ports = ["--ready-port", &port, "--metrics-port", &scraped];
    let ports = [&["--pod-ip", "127.0.0.1"][..], &ports].concat();
    let _keeper = bed.keeper_of_node("node-0", &agent, &ports);
    let is_ready = || asked(&port).starts_with("HTTP/1.1 200");
    bed.until(is_ready, "it is ready");
    only_accounts_that_may_read_its_metrics(&bed, &scraped);
    bed.during_an_outage(|| {
        let is_unready = || asked(&port).contains("has not taken the node's lease");
        bed.until(is_unready, "it is not ready without the API server");
    });
    bed.until(is_ready, "it is ready again");
    agent.leave();
    bed.until(
        || asked(&port).starts_with("HTTP/1.1 503"),
        "it is not ready without the agent",
    );
}

#[test]
#[ignore = "needs a control plane: make kube"]
fn the_controller_only_deletes_what_is_ours() {
    let bed = crate::bed::bed();
    for (patch, says) in [
        (
            r#"{"status":{"capacity":{"tidegate.dev/side-cpu":"100"}}}"#,
            "may only delete",
        ),
        (
            r#"{"status":{"capacity":{"cpu":"64","tidegate.dev/side-cpu":null}}}"#,
            "no other resource",
        ),
    ] {
        controller_may_not(
            bed,
            &format!("node-3 --subresource=status -p {patch}"),
            says,
        );
    }
}

/// The API server refuses this patch of a node with the controller's account.
fn controller_may_not(bed: &Bed, patch: &str, says: &str) {
    let token = bed.token_of(NAMESPACE, "tidegate-control");
    let patch = format!("--token {token} --username= patch node --type=merge {patch}");
    bed.try_kubectl(&patch).must_refuse(says, &patch);
}

#[test]
#[ignore = "needs a control plane: make kube"]
fn a_node_loses_the_startup_taint_when_its_agent_and_publisher_are_ready() {
    const KEY: &str = "tidegate.dev/agent-not-ready";
    let bed = Bed::start(&["-nodes", "1"]);
    let taint = |taint: &str| bed.kubectl(&format!("taint node node-0 {taint}"));
    taint(&format!("{KEY}=:NoSchedule"));
    taint("gpu=yes:NoSchedule");
    bed.install(&["tidegate.yaml"]);
    let _controller = Keeper::start(&mut bed.controller(&["control", "--startup-taint", KEY]));
    let keys = || bed.field("node node-0", ".spec.taints[*].key");
    std::thread::sleep(std::time::Duration::from_secs(10));
    assert!(keys().contains(KEY), "no pod of the DaemonSet is there yet");
    // The DaemonSet's pod comes with the label, and this control plane says at once that it is
    // ready, as the pod of an earlier node may.
    bed.kubectl("label node node-0 kubernetes.io/os=linux");
    std::thread::sleep(std::time::Duration::from_secs(10));
    assert!(keys().contains(KEY), "nobody has taken the node's lease");
    let agent = FakeAgent::start(4.0);
    let _keeper = bed.keeper_of_node("node-0", &agent, &[]);
    bed.until(|| keys() == "gpu", "the taint is gone, and no other");

    for (patch, says) in [
        (r#"{"spec":{"taints":null}}"#, "may write no other taint"),
        (
            r#"{"spec":{"unschedulable":true}}"#,
            "nothing of a node but",
        ),
        (
            r#"{"metadata":{"labels":{"a":"b"}}}"#,
            "nothing of a node but",
        ),
    ] {
        controller_may_not(&bed, &format!("node-0 -p {patch}"), says);
    }
}

#[test]
#[ignore = "needs a control plane: make kube"]
fn of_a_rollout_the_older_pod_works_and_what_it_published_stays() {
    let bed = crate::bed::bed();
    let owner = bed.field(
        &format!("-n {NAMESPACE} daemonset tidegate"),
        ".metadata.uid",
    );
    let pod = |name: &str| {
        bed.apply(&format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: {NAMESPACE}, ownerReferences: \
             [{{apiVersion: apps/v1, kind: DaemonSet, name: tidegate, uid: {owner}}}]}}\n\
             spec: {{nodeName: node-7, containers: [{{name: c, image: x}}]}}\n"
        ));
        bed.kubectl(&format!(
            "-n {NAMESPACE} wait --for=condition=Ready pod {name}"
        ));
    };
    let agent = FakeAgent::start(4.0);
    let keeper = |name: &str| bed.keeper_of_node("node-7", &agent, &["--pod-name", name]);
    pod("rollout-1");
    let first = keeper("rollout-1");
    bed.until(|| bed.published("node-7") == "12k", "the first publishes");
    std::thread::sleep(std::time::Duration::from_secs(1));
    pod("rollout-2");
    let next = keeper("rollout-2");
    first.terminate();
    assert_eq!(bed.published("node-7"), "12k", "it stays for the next pod");
    agent.with(|state| state.main_cpus = 12.0);
    std::thread::sleep(std::time::Duration::from_secs(10));
    assert_eq!(bed.published("node-7"), "12k", "the older pod is ready");
    bed.kubectl(&format!("-n {NAMESPACE} delete pod rollout-1"));
    bed.until(|| bed.published("node-7") == "4k", "the next publishes");
    next.terminate();
    assert_eq!(bed.published("node-7"), "", "there is no other pod");
    bed.kubectl(&format!("-n {NAMESPACE} delete pod rollout-2"));
}

/// What the examples are about, on a node without a machine.
const WORK: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: front, namespace: shop}
spec:
  selector: {matchLabels: {app: front}}
  template:
    metadata: {labels: {app: front}}
    spec: {containers: [{name: c, image: x, resources: {requests: {cpu: 100m}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web}}
spec: {containers: [{name: c, image: x, resources: {requests: {cpu: 100m}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: batch, namespace: shop, labels: {app: batch}}
spec: {containers: [{name: c, image: x}]}
";

/// The first one goes before the example; the agent would refuse the second.
const OTHERS: &str = "
apiVersion: tidegate.dev/v1alpha2
kind: TidegatePolicy
metadata: {name: first}
spec: {podSelector: {matchLabels: {app: batch}}, priority: 5, class: neutral}
---
apiVersion: tidegate.dev/v1alpha2
kind: TidegatePolicy
metadata: {name: wrong}
spec: {podSelector: {matchLabels: {app: none}}, terms: {quota: lots}}
";

fn group(bed: &Bed, label: &str) -> String {
    let pods = format!("-n shop pods -l {label}");
    let uid = || bed.field(&pods, ".items[*].metadata.uid");
    bed.until(|| !uid().is_empty(), "the pod is there");
    format!("kubepods/pod{}", uid())
}

fn status(bed: &Bed, policy: &str) -> Value {
    let text = bed.field(&format!("tidegatepolicy {policy}"), ".status");
    serde_json::from_str(&text).unwrap_or(Value::Null)
}

#[test]
#[ignore = "needs a control plane: make kube"]
fn the_examples_give_their_pods_terms_and_policies_report() {
    let bed = Bed::start(&["-nodes", "1"]);
    bed.install(&["tidegate.yaml"]);
    bed.namespace("shop", "");
    bed.apply(WORK);
    let examples = [
        "best-effort-side.yaml",
        "web-burst.yaml",
        "deployment-main.yaml",
    ];
    for file in examples {
        bed.apply_manifests(&format!("examples/{file}"));
    }
    let agent = FakeAgent::start(1.0);
    let wanted = [
        ("app=batch", "class=side"),
        ("app=web", "burst=max"),
        ("app=front", "class=main objective=p99<5ms"),
    ]
    .map(|(label, terms)| (group(&bed, label), terms));
    for (group, _) in &wanted {
        std::fs::create_dir_all(agent.cgroups().join(group)).expect("a folder");
    }
    let _keeper = bed.keeper("node-0", &agent, &[]);
    for (group, terms) in &wanted {
        bed.until(|| agent.terms_of(group).join(" ") == *terms, terms);
    }

    let _controller = controller(&bed, "60");
    for policy in ["best-effort", "web-burst", "front-main"] {
        bed.until(|| status(&bed, policy)["matchedPods"] == 1, policy);
        let status = status(&bed, policy);
        assert!(
            status["errors"] == serde_json::json!([]),
            "{policy}: {status}"
        );
    }
    bed.apply(OTHERS);
    bed.until(
        || status(&bed, "wrong")["errors"].to_string().contains("lots"),
        "a term that the agent would refuse is an error",
    );
    bed.until(
        || {
            let conflicts = status(&bed, "best-effort")["conflicts"].to_string();
            conflicts.contains("class: policy first goes first with neutral")
        },
        "a policy learns of the one that goes first",
    );
}
