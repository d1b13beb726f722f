//! Pods' terms as gates of the node's agent.

use crate::agent::FakeAgent;
use crate::bed::{Bed, bed};

#[test]
#[ignore = "needs a control plane: make kube"]
fn a_policy_and_annotations_become_a_gate_that_ends_with_them() {
    let bed = bed();
    bed.namespace("gated", "team: gated");
    bed.apply(
        "apiVersion: tidegate.dev/v1alpha2\nkind: TidegatePolicy\nmetadata: {name: gated}\n\
         spec: {namespaceSelector: {matchLabels: {team: gated}}, class: side, terms: {weight: \"30\"}}\n",
    );
    bed.apply(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: gated, annotations: {tidegate.dev/cap-hard: 2cpu}}\n\
         spec: {nodeName: node-3, containers: [{name: c, image: x}]}\n",
    );
    let uid = bed.field("-n gated pod p", ".metadata.uid");
    let agent = FakeAgent::start(1.0);
    let group = format!(
        "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{}.slice",
        uid.replace('-', "_")
    );
    std::fs::create_dir_all(agent.cgroups().join(&group)).expect("a folder");
    let holds = "its group was limited to 0.5 CPUs by another program, which holds";
    agent.with(|state| state.notes = vec![format!("binds: {holds}")]);
    let keeper = bed.keeper("node-3", &agent, &[]);

    let gate_terms = || agent.terms_of(&group);
    bed.until(
        || gate_terms() == ["cap_hard=2cpu", "class=side", "weight=30"],
        "the pod has its gate",
    );

    let events = || bed.kubectl("-n gated get events");
    bed.until(|| events().contains(holds), "an event says what holds");
    explains(bed, &agent);

    drop(keeper);
    agent.with(|state| state.calls.clear());
    let _keeper = bed.keeper("node-3", &agent, &[]);
    bed.until(
        || agent.with(|state| !state.calls.is_empty()),
        "another process gives it again",
    );
    agent.with(|state| {
        let kept = state.calls.iter().all(|(path, _)| path == "/v1/set");
        assert!(kept, "no gate ends meanwhile: {:?}", state.calls);
    });

    resized(bed, &gate_terms);

    bed.kubectl("-n gated annotate pod p tidegate.dev/cap-hard-");
    bed.until(
        || gate_terms() == ["class=side", "weight=30"],
        "a term goes with its annotation",
    );
    bed.kubectl("delete tidegatepolicy gated");
    bed.until(|| gate_terms().is_empty(), "the gate ends with the policy");
    bed.kubectl("-n gated annotate pod p tidegate.dev/latencyy=1");
    bed.until(
        || {
            bed.kubectl("-n gated get events")
                .contains("tidegate.dev/latencyy: no such term")
        },
        "an event names the mistake",
    );
}

/// Kubelet may write the pod's group while it resizes the pod.
fn resized(bed: &Bed, gate_terms: &dyn Fn() -> Vec<String>) {
    let condition = |status: &str| {
        let patch = format!(
            r#"{{"status":{{"conditions":[{{"type":"PodResizeInProgress","status":"{status}"}}]}}}}"#
        );
        bed.kubectl(&format!(
            "-n gated patch pod p --subresource=status -p {patch}"
        ));
    };
    condition("True");
    bed.until(|| gate_terms().is_empty(), "the gate ends for a resize");
    condition("False");
    bed.until(|| !gate_terms().is_empty(), "the gate is back after it");
}

fn explains(bed: &Bed, agent: &FakeAgent) {
    let explained = bed
        .tidegate_kube(&["explain", "--node", "node-3", "pod:gated/p"])
        .arg("--socket")
        .arg(agent.socket())
        .arg("--cgroups")
        .arg(agent.cgroups())
        .output()
        .expect("it starts");
    let page = String::from_utf8_lossy(&explained.stdout).into_owned();
    for line in [
        "2cpu  (annotation tidegate.dev/cap-hard)",
        "side  (policy gated)",
        "it yields to other best-effort pods",
    ] {
        assert!(
            page.contains(line),
            "{page}{}",
            String::from_utf8_lossy(&explained.stderr)
        );
    }
}
