//! The admission policies of the manifests, on the real API server.

use std::process::Command;

use crate::bed::bed;

/// A pod that no node takes.
fn pod(namespace: &str, name: &str, annotations: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: {namespace}, annotations: {{{annotations}}}}}\n\
         spec: {{nodeSelector: {{kubernetes.io/hostname: none}}, containers: [{{name: c, image: x}}]}}\n"
    )
}

#[test]
#[ignore = "needs a control plane: make kube"]
fn an_annotation_becomes_the_resource() {
    let bed = bed();
    bed.namespace("admit", "");
    for (name, asked, milli) in [("m", "1500m", "1500"), ("whole", "\"2\"", "2k")] {
        bed.apply(&pod(
            "admit",
            name,
            &format!("tidegate.dev/side-cpu: {asked}"),
        ));
        for list in ["requests", "limits"] {
            let path = format!(r".spec.containers[0].resources.{list}.tidegate\.dev/side-cpu");
            assert_eq!(
                bed.field(&format!("-n admit pod {name}"), &path),
                milli,
                "{name} {list}"
            );
        }
    }
}

/// Another policy, of which the API server asks after ours.
const ANNOTATES: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: z-annotates}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: late}}
    resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  mutations:
    - patchType: ApplyConfiguration
      applyConfiguration:
        expression: \"Object{metadata: Object.metadata{annotations: {'tidegate.dev/side-cpu': '1500m'}}}\"
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: z-annotates}
spec: {policyName: z-annotates}
";

#[test]
#[ignore = "needs a control plane: make kube"]
fn an_annotation_that_another_policy_adds_becomes_the_resource_too() {
    let bed = bed();
    bed.namespace("late", "");
    bed.apply(ANNOTATES);
    let plain = pod("late", "p", "");
    let annotated = || bed.try_create(&plain).text;
    bed.until(
        || annotated().contains("tidegate.dev/side-cpu: 1500m"),
        "the other policy acts",
    );
    let mutated = annotated();
    assert!(
        mutated.contains("tidegate.dev/side-cpu: 1500\n")
            || mutated.contains("tidegate.dev/side-cpu: \"1500\""),
        "{mutated}"
    );
    for kind in ["binding", ""] {
        let kind = format!("mutatingadmissionpolicy{kind}");
        bed.kubectl(&format!("delete {kind} z-annotates"));
    }
}

#[test]
#[ignore = "needs a control plane: make kube"]
fn what_a_pod_may_not_say_is_refused_with_the_remedy() {
    let bed = bed();
    bed.namespace("refuse", "");
    let refused = [
        (
            "tidegate.dev/side-cpu: lots",
            "lots: not an amount of CPU; write millicores as 1500m",
        ),
        ("tidegate.dev/side-cpu: \"0\"", "0: not an amount of CPU"),
        (
            "tidegate.dev/class: fast",
            "fast: no such class; write main, side or neutral",
        ),
        (
            "tidegate.dev/class: main",
            "may not have main pods; ask for the label tidegate.dev/may-be-main=true",
        ),
        (
            "tidegate.dev/class: main, tidegate.dev/side-cpu: 500m",
            "take one of them away",
        ),
        ("tidegate.dev/latency: \"-21\"", "-21: not a latency hint"),
        (
            "}, labels: {tidegate.dev/side-cpu: 500m",
            "have no effect; write annotations",
        ),
    ];
    for (annotations, says) in refused {
        let printed = bed.try_with("apply", &pod("refuse", "x", annotations));
        printed.must_refuse(says, annotations);
    }
    bed.apply(&pod(
        "refuse",
        "fine",
        "tidegate.dev/class: side, tidegate.dev/latency: \"19\"",
    ));
    bed.namespace("mains", "tidegate.dev/may-be-main: \"true\"");
    bed.apply(&pod(
        "mains",
        "fine",
        "tidegate.dev/class: main, tidegate.dev/latency: \"-20\"",
    ));
    bed.kubectl("label namespace mains tidegate.dev/may-be-main-");
    let annotate = |what| bed.try_kubectl(&format!("-n mains annotate pod fine {what}"));
    let other = annotate("other.dev/note=1");
    assert!(
        other.is_ok,
        "what stands is not asked about again: {}",
        other.text
    );
    let gone = annotate("tidegate.dev/latency-");
    assert!(gone.is_ok, "{}", gone.text);
    bed.kubectl("-n mains annotate pod fine tidegate.dev/class-");
    annotate("tidegate.dev/class=main").must_refuse("may-be-main", "it is asked about again");
}

#[test]
#[ignore = "needs a control plane: make kube"]
fn a_mistake_in_a_template_is_a_warning() {
    let bed = bed();
    let tried = |annotations: &str| {
        bed.try_create(&format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: d, namespace: default}}\n\
             spec:\n  selector: {{matchLabels: {{a: b}}}}\n  template:\n    \
             metadata: {{labels: {{a: b}}, annotations: {{{annotations}}}}}\n    \
             spec: {{containers: [{{name: c, image: x}}]}}\n"
        ))
    };
    for (annotations, says) in [
        (
            "tidegate.dev/latencyy: '1'",
            "tidegate.dev/latencyy: no such term; there are side_cpu",
        ),
        ("tidegate.dev/side-cpu: lots", "lots: not an amount of CPU"),
        ("tidegate.dev/class: fast", "fast: no such class"),
    ] {
        let printed = tried(annotations);
        let is_warned = printed.text.contains("Warning: ") && printed.text.contains(says);
        assert!(
            printed.is_ok && is_warned,
            "{annotations}: {}",
            printed.text
        );
    }
    let names = tidegate_terms::Term::names()
        .into_iter()
        .filter(|name| *name != "class");
    let all: Vec<String> = names
        .map(|name| format!("tidegate.dev/{}: '1'", name.replace('_', "-")))
        .chain(["tidegate.dev/class: side, tidegate.dev/side-cpu: 500m".to_owned()])
        .collect();
    let printed = tried(&all.join(", "));
    assert!(
        printed.is_ok && !printed.text.contains("Warning: "),
        "{}",
        printed.text
    );
}

#[test]
#[ignore = "needs a control plane: make kube"]
fn a_nodes_token_writes_our_key_on_its_own_node_and_nothing_else() {
    let bed = bed();
    let token = bed.token("node-3");
    let as_node = |command: &str| format!("--token {token} --username= {command}");
    let patch = |node: &str, patch: &str| {
        let of_status = "--subresource=status --type=merge";
        bed.try_kubectl(&as_node(&format!(
            "patch node {node} {of_status} -p {patch}"
        )))
    };
    let key = r#"{"status":{"capacity":{"tidegate.dev/side-cpu":"100"}}}"#;
    let own = patch("node-3", key);
    assert!(own.is_ok, "{}", own.text);
    let refused = [
        ("node-2", key, "may not write the status of node node-2"),
        (
            "node-3",
            r#"{"status":{"capacity":{"cpu":"64"}}}"#,
            "no other resource",
        ),
        (
            "node-3",
            r#"{"status":{"conditions":[]}}"#,
            "no other condition",
        ),
        (
            "node-3",
            r#"{"status":{"addresses":[{"type":"Hostname","address":"x"}]}}"#,
            "no other part",
        ),
        (
            "node-3",
            r#"{"status":{"volumesInUse":["x"]}}"#,
            "no other part",
        ),
        (
            "node-3",
            r#"{"metadata":{"annotations":{"a":"b"}},"status":{}}"#,
            "no label, annotation",
        ),
        (
            "node-3",
            r#"{"metadata":{"labels":{"a":"b"}},"status":{}}"#,
            "no label, annotation",
        ),
    ];
    for (node, change, says) in refused {
        patch(node, change).must_refuse(says, change);
    }
    let lease = |name: &str| {
        let lease = format!(
            "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {{name: {name}, namespace: tidegate}}\n"
        );
        bed.try_with(&as_node("apply --server-side"), &lease)
    };
    let own = lease("node-3");
    assert!(own.is_ok, "{}", own.text);
    lease("node-2").must_refuse("no lease but that of its own node", "another lease");
    let spec = bed.try_kubectl(&as_node("label node node-3 a=b"));
    spec.must_refuse("forbidden", "a label");
    let removed = r#"{"status":{"capacity":{"tidegate.dev/side-cpu":null}}}"#;
    let removed = patch("node-3", removed);
    assert!(removed.is_ok, "{}", removed.text);
}

#[test]
#[ignore = "needs a control plane: make kube"]
fn the_policys_resource_refuses_what_it_does_not_know() {
    let bed = bed();
    let policy = |spec: &str| {
        format!(
            "apiVersion: tidegate.dev/v1alpha2\nkind: TidegatePolicy\nmetadata: {{name: tried}}\nspec: {{{spec}}}\n"
        )
    };
    for (spec, says) in [
        ("class: fast, qosClass: BestEffort", "spec.class"),
        ("class: main", "no selector: write podSelector"),
        (
            "class: main, podSelecter: {matchLabels: {a: b}}, qosClass: Guaranteed",
            "spec.podSelecter: no such field; there are podSelector",
        ),
        (
            "class: main, podSelector: {matchLables: {a: b}}",
            "podSelector",
        ),
        ("class: main, podSelector: {}", "podSelector"),
        ("class: main, podSelector: {matchLabels: {}}", "matchLabels"),
        ("class: main, qosClass: null", "no selector"),
        ("class: main, qosClass: Besteffort", "spec.qosClass"),
        (
            "qosClass: BestEffort, terms: {latencyy: '1'}",
            "no such term; there are headroom",
        ),
        ("qosClass: BestEffort, terms: {class: main}", "no such term"),
    ] {
        // As clients other than kubectl write it: the API server does not ask for known fields.
        let printed = bed.try_with("apply --validate=ignore", &policy(spec));
        printed.must_refuse(says, spec);
    }
    bed.apply(&policy(
        "podSelector: {matchLabels: {none: such}}, namespaceSelector: {matchLabels: {none: such}}, \
         nodeSelector: {matchExpressions: [{key: none, operator: Exists}]}, qosClass: Burstable, \
         priorityClass: none, workload: {kind: Job, namespace: none, name: none}, priority: 3, \
         class: side, terms: {cap_hard: 1cpu}",
    ));
    bed.kubectl("delete tidegatepolicy tried");
}

#[test]
fn the_manifests_define_the_policy_as_the_program_does() {
    let printed = Command::new(env!("CARGO_BIN_EXE_tidegate-kube"))
        .arg("crd")
        .output()
        .expect("it starts");
    let committed =
        include_str!("../../../../packaging/kubernetes/chart/crds/tidegatepolicies.json");
    let remedy =
        "target/debug/tidegate-kube crd > packaging/kubernetes/chart/crds/tidegatepolicies.json";
    assert_eq!(
        String::from_utf8_lossy(&printed.stdout),
        committed,
        "{remedy}"
    );
}
