//! The whole DaemonSet on a node with a real kubelet: from nothing to placed, protected, restarted, killed and uninstalled.

use std::time::Duration;

use crate::bed::{Bed, NAMESPACE, bed};
use crate::machine::{Machine, NAME};

/// The rule's numbers made short, and one test for all: a boot takes a minute.
const SHORT: [&str; 7] = [
    "warm_up_s=5",
    "mean_s=5",
    "window_s=10",
    "write_gap_s=2",
    "settle_s=5",
    "short_gap_s=5",
    "rise_gap_s=2",
];

/// A pod that burns on one thread.
fn hog(name: &str, annotations: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: work, annotations: {{{annotations}}}}}\n\
         spec:\n  nodeSelector: {{kubernetes.io/hostname: {NAME}}}\n  terminationGracePeriodSeconds: 2\n  automountServiceAccountToken: false\n  containers:\n  \
         - {{name: c, image: 'localhost/work:1', imagePullPolicy: Never, command: [/bin/vmtool, burn], resources: {{requests: {{cpu: 50m, memory: 8Mi}}}}}}\n"
    )
}

fn is_running(bed: &Bed, pod: &str) -> bool {
    bed.field(&["-n", "work", "pod", pod], ".status.phase") == "Running"
}

/// The pod's group in the guest.
fn group(bed: &Bed, pod: &str) -> String {
    let uid = bed.field(&["-n", "work", "pod", pod], ".metadata.uid");
    let uid = uid.replace('-', "_");
    format!(
        "/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice"
    )
}

/// Whether the pod is held as side work: with a quota, and in the idle class unless it starves at the tolerance (1 % of two CPUs).
fn is_side(machine: &Machine, group: &str) -> bool {
    machine.succeeds(&format!(
        "read quota period <{group}/cpu.max && [ $quota != max ] && \
         {{ [ $(cat {group}/cpu.idle) = 1 ] || [ $((quota * 25)) -le $period ]; }}"
    ))
}

/// An amount as the API server writes it.
fn milli(text: &str) -> u64 {
    match text.strip_suffix('k') {
        Some(thousands) => thousands.parse().map_or(0, |many: u64| many * 1_000),
        None => text.parse().unwrap_or(0),
    }
}

fn our_pod(bed: &Bed, path: &str) -> String {
    let on_machine = format!("spec.nodeName={NAME}");
    let path = format!(".items[*]{path}");
    bed.field(
        &["-n", NAMESPACE, "pods", "--field-selector", &on_machine],
        &path,
    )
}

fn is_ready(bed: &Bed) -> bool {
    our_pod(bed, ".status.containerStatuses[*].ready") == "true true true"
}

#[test]
#[ignore = "needs a machine: make kube-node"]
fn a_node_from_install_to_uninstall() {
    let bed = bed();
    let with = SHORT.map(|number| {
        format!(
            r#"{{"op":"add","path":"/spec/template/spec/containers/2/command/-","value":"--with"}},
               {{"op":"add","path":"/spec/template/spec/containers/2/command/-","value":"{number}"}}"#
        )
    });
    let patch = format!("[{}]", with.join(","));
    bed.kubectl(&[
        "-n",
        NAMESPACE,
        "patch",
        "daemonset",
        "tidegate",
        "--type=json",
        "-p",
        &patch,
    ]);
    bed.namespace("work", "");
    let machine = Machine::boot(bed);
    bed.until(|| is_ready(bed), "agent, guardian and kube are ready");
    let allocatable = || {
        bed.field(
            &["node", NAME],
            r".status.allocatable.tidegate\.dev/side-cpu",
        )
    };
    bed.until(
        || milli(&allocatable()) >= 800,
        "the node has side CPU, and kubelet hands it on",
    );
    // A pod that is bound before kubelet has seen the raise itself would be refused.
    std::thread::sleep(Duration::from_secs(10));

    // Placed.
    bed.apply(&hog("side", "tidegate.dev/side-cpu: 500m"));
    bed.until(|| is_running(bed, "side"), "the side pod runs");
    let side = group(bed, "side");
    bed.until(|| is_side(&machine, &side), "its group is side");

    // Protected: main takes one of two CPUs and what is left above the headroom is side's.
    bed.apply(&hog("main", ""));
    bed.until(|| is_running(bed, "main"), "the main pod runs");
    bed.until(|| is_side(&machine, &side), "its group is still side");

    // A kubelet that starts again while the node is short rejects nothing.
    machine.shell("systemctl restart kubelet");
    std::thread::sleep(Duration::from_secs(30));
    for pod in ["side", "main"] {
        assert!(is_running(bed, pod), "{pod} runs on");
    }

    killed(bed, &machine, &side);
    uninstalled(bed, &machine, &side);
}

/// All that is in the agent's container is killed: the guardian beside it holds side work, and the next agent takes over.
fn killed(bed: &Bed, machine: &Machine, side: &str) {
    let state = |when: &str| {
        let shown = machine.shell(&format!(
            "cat {side}/cpu.idle {side}/cpu.max; tail -n 12 /var/log/pods/tidegate_*/agent/*.log"
        ));
        format!("side work is held {when}: {shown}")
    };
    assert!(is_side(machine, side), "{}", state("beside a new kubelet"));

    let kill = r"for pid in $(pidof tidegate); do
        tr '\0' ' ' </proc/$pid/cmdline | grep -q 'agent --service' || continue
        echo 1 >/sys/fs/cgroup$(cut -d: -f3 /proc/$pid/cgroup)/cgroup.kill
    done";
    machine.shell(kill);
    assert!(is_side(machine, side), "{}", state("without an agent"));
    bed.until(
        || our_pod(bed, ".status.containerStatuses[0].restartCount") == "1",
        "kubelet saw it",
    );
    bed.until(|| is_ready(bed), "the agent is there again");
    assert!(is_side(machine, side), "the next agent holds it");
}

/// Pods run on, and their groups are as kubelet made them.
fn uninstalled(bed: &Bed, machine: &Machine, side: &str) {
    // The logs go with the pod.
    machine.shell("for one in agent guardian; do tail -n 4 -f /var/log/pods/tidegate_*/$one/*.log >/tmp/$one.log 2>&1 </dev/null & done");
    bed.kubectl(&[
        "-n",
        NAMESPACE,
        "delete",
        "daemonset",
        "tidegate",
        "--wait=true",
    ]);
    bed.until(
        || our_pod(bed, ".metadata.name").is_empty(),
        "our pod is gone",
    );
    assert_eq!(bed.published(NAME), "", "nothing is promised any more");
    for pod in ["side", "main"] {
        assert!(is_running(bed, pod), "{pod} runs on");
    }
    assert!(
        machine.succeeds(&format!(
            "[ $(cat {side}/cpu.idle) = 0 ] && grep -q ^max {side}/cpu.max"
        )),
        "the pod's group is as kubelet made it: {}",
        machine.shell(&format!(
            "cat {side}/cpu.idle {side}/cpu.max /tmp/agent.log /tmp/guardian.log"
        ))
    );
}
