//! Older API servers, which the newest one emulates.

use crate::bed::{Bed, Printed};

/// The newest program itself asks for the policies in v1, which it serves with the last option.
const BETA: [&str; 6] = [
    "-apiserver",
    "--runtime-config=admissionregistration.k8s.io/v1beta1=true",
    "-apiserver",
    "--feature-gates=MutatingAdmissionPolicy=true",
    "-apiserver",
    "--emulation-forward-compatible=true",
];

/// What becomes of a pod that asks for side CPU by annotation, and of one that requests it too.
fn tried(bed: &Bed, resources: &str) -> Printed {
    bed.try_create(&format!(
        "apiVersion: v1\nkind: Pod\n\
         metadata: {{name: p, namespace: tidegate, annotations: {{tidegate.dev/side-cpu: 1500m}}}}\n\
         spec: {{containers: [{{name: c, image: x, resources: {{{resources}}}}}]}}\n"
    ))
}

const REQUESTED: &str =
    r#"requests: {tidegate.dev/side-cpu: "1500"}, limits: {tidegate.dev/side-cpu: "1500"}"#;

fn refuses_what_it_cannot_mutate(version: &str) {
    let bed = Bed::start(&["-emulated", version]);
    bed.install(&["tidegate.yaml"]);
    let refused = tried(&bed, "");
    let remedy = format!("write into a container: resources: {{{REQUESTED}}}");
    refused.must_refuse(&remedy, version);
    let taken = tried(&bed, REQUESTED);
    assert!(taken.is_ok, "{version}: {}", taken.text);
}

#[test]
#[ignore = "needs a control plane: make kube"]
fn without_a_mutating_policy_a_pod_must_request_what_it_asks_for() {
    for version in ["1.33", "1.35"] {
        refuses_what_it_cannot_mutate(version);
    }
}

#[test]
#[ignore = "needs a control plane: make kube"]
fn a_mutating_policy_in_beta_adds_the_resource() {
    let bed = Bed::start(&[&["-emulated", "1.35"][..], &BETA].concat());
    bed.install(&["tidegate.yaml"]);
    let policy = include_str!("../../../../packaging/kubernetes/side-cpu.yaml");
    bed.apply(&policy.replace("k8s.io/v1\n", "k8s.io/v1beta1\n"));
    bed.until(
        || {
            tried(&bed, "")
                .text
                .contains(r#"tidegate.dev/side-cpu: "1500""#)
        },
        "the policy mutates",
    );
}
