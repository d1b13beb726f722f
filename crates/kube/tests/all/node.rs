//! The whole DaemonSet on a node with a real kubelet, from an empty cluster on: side work is
//! placed, gets what the headroom leaves, survives an upgrade, a kubelet that starts again and an
//! agent that is killed, starves, moves, and keeps running when Tidegate is removed.

use std::time::Duration;

use crate::agent::FakeAgent;
use crate::bed::{Bed, NAMESPACE, bed};
use crate::diary::Diary;
use crate::machine::{Machine, NAME};

/// The rule's numbers made short, and one test for all: a boot takes a minute.
const SHORT: [&str; 10] = [
    "warm_up_s=5",
    "mean_s=5",
    "window_s=10",
    "write_gap_s=2",
    "settle_s=5",
    "short_gap_s=5",
    "rise_gap_s=2",
    "starved_s=20",
    "evict_gap_s=10",
    "no_rise_s=5",
];

/// Where side work goes that must leave the machine.
const ELSEWHERE: &str = "node-0";

/// One pod that burns on one thread and comes back where it is evicted: on the machine, or
/// elsewhere.
const ENCODER: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: encoder, namespace: work}
spec:
  selector: {matchLabels: {app: encoder}}
  template:
    metadata: {labels: {app: encoder}, annotations: {tidegate.dev/side-cpu: 500m}}
    spec:
      terminationGracePeriodSeconds: 2
      automountServiceAccountToken: false
      containers:
        - {name: c, image: 'localhost/work:1', imagePullPolicy: Never, command: [/bin/vmtool, burn], resources: {requests: {cpu: 50m, memory: 8Mi}}}
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
              - matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [machine, node-0]}]
";

/// A pod of the machine's.
fn pod(name: &str, annotations: &str, command: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: work, annotations: {{{annotations}}}}}\n\
         spec:\n  nodeSelector: {{kubernetes.io/hostname: {NAME}}}\n  terminationGracePeriodSeconds: 2\n  automountServiceAccountToken: false\n  containers:\n  \
         - {{name: c, image: 'localhost/work:1', imagePullPolicy: Never, command: [/bin/vmtool, {command}], resources: {{requests: {{cpu: 50m, memory: 8Mi}}}}}}\n"
    )
}

fn is_running(bed: &Bed, pod: &str) -> bool {
    bed.field(&format!("-n work pod {pod}"), ".status.phase") == "Running"
}

/// A field of the encoder's pod.
fn encoder(bed: &Bed, path: &str) -> String {
    let path = format!(".items[*]{path}");
    bed.field("-n work pods -l app=encoder", &path)
}

fn encoder_runs_on(bed: &Bed, node: &str) -> bool {
    encoder(bed, ".status.phase") == "Running" && encoder(bed, ".spec.nodeName") == node
}

/// What tells one life of the pod's container from the next.
fn life(bed: &Bed, pod: &str) -> String {
    bed.field(
        &format!("-n work pod {pod}"),
        ".status.containerStatuses[*].containerID",
    )
}

/// The pod's group in the guest.
fn group(bed: &Bed, pod: &str) -> String {
    let uid = bed.field(&format!("-n work pod {pod}"), ".metadata.uid");
    let uid = uid.replace('-', "_");
    format!(
        "/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice"
    )
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
        &format!("-n {NAMESPACE} pods --field-selector {on_machine}"),
        &path,
    )
}

fn is_ready(bed: &Bed) -> bool {
    our_pod(bed, ".status.containerStatuses[*].ready") == "true true true"
}

/// Installs Tidegate in a cluster without pods, with eviction on and the rule's numbers made short.
fn install(bed: &Bed) {
    bed.apply_manifests("tidegate.yaml");
    bed.namespace("work", "tidegate.dev/may-be-main: 'true'");
    bed.kubectl("-n work delete deployments,pods --all --force --grace-period=0");
    bed.kubectl(&format!("delete node {NAME} --ignore-not-found"));
    let with = SHORT.map(|number| ["--with", number]);
    let words: Vec<&str> = with
        .into_iter()
        .flatten()
        .chain(["--evict", "enabled"])
        .collect();
    let add = words.iter().map(|word| {
        format!(
            r#"{{"op":"add","path":"/spec/template/spec/containers/2/command/-","value":"{word}"}}"#
        )
    });
    // The manifests have eviction off, once; the chart gives the right with it.
    let off = r#"{"op":"remove","path":"/spec/template/spec/containers/2/command/2"}"#.to_owned();
    let all: Vec<String> = [off.clone(), off].into_iter().chain(add).collect();
    let patch = format!("[{}]", all.join(","));
    bed.kubectl(&format!(
        "-n {NAMESPACE} patch daemonset tidegate --type=json -p {patch}"
    ));
    let right = r#"[{"op":"add","path":"/rules/-","value":{"apiGroups":[""],"resources":["pods/eviction"],"verbs":["create"]}}]"#;
    bed.kubectl(&format!(
        "patch clusterrole tidegate-kube --type=json -p {right}"
    ));
}

#[test]
#[ignore = "needs a machine: make kube-node"]
fn a_node_from_install_to_uninstall() {
    let bed = bed();
    install(bed);
    bed.apply(ENCODER);
    let machine = Machine::boot(bed);
    Diary::of(bed, &machine, |diary| story(bed, &machine, diary));
}

/// The first side pod, and its group.
fn placed(bed: &Bed, machine: &Machine, diary: &Diary<'_>) -> (String, String) {
    bed.until(|| is_ready(bed), "agent, guardian and kube are ready");
    diary.says("installed");
    bed.until(
        || encoder_runs_on(bed, NAME),
        "the node has side CPU, and the scheduler places by it",
    );
    let name = encoder(bed, ".metadata.name");
    let side = group(bed, &name);
    diary.watches("side", &side);
    bed.until(|| machine.is_side(&side), "its group is side");
    diary.says("side pod placed");
    (name, side)
}

fn story(bed: &Bed, machine: &Machine, diary: &Diary<'_>) {
    let (name, side) = placed(bed, machine, diary);
    headroom_is_kept(bed, diary);
    upgraded(bed, machine, diary, &name);

    // A kubelet that starts again while the node is short rejects nothing.
    machine.shell("systemctl restart kubelet");
    std::thread::sleep(Duration::from_secs(30));
    for pod in [name.as_str(), "main"] {
        assert!(is_running(bed, pod), "{pod} runs on");
    }
    diary.says("kubelet restarted");

    killed(bed, machine, &side);
    diary.says("agent killed");
    starved(bed, diary);

    // What is left of main leaves room again.
    bed.until(
        || milli(&allocatable(bed)) >= 500,
        "the node has side CPU again",
    );
    // A pod that is bound before kubelet has seen the raise itself would be refused.
    std::thread::sleep(Duration::from_secs(10));
    bed.apply(&pod("side", "tidegate.dev/side-cpu: 500m", "burn"));
    bed.until(|| is_running(bed, "side"), "another side pod runs");
    let side = group(bed, "side");
    diary.watches("side", &side);
    bed.until(|| machine.is_side(&side), "its group is side");
    diary.says("side pod placed");
    uninstalled(bed, machine, &side);
    assert!(encoder_runs_on(bed, ELSEWHERE), "what moved runs on");
    assert!(is_running(bed, "side"), "the side pod runs on");
    diary.says("uninstalled");
    std::thread::sleep(Duration::from_secs(10));
}

fn allocatable(bed: &Bed) -> String {
    bed.field(
        &format!("node {NAME}"),
        r".status.allocatable.tidegate\.dev/side-cpu",
    )
}

/// Main asks for 30 % and works a fifth of the time; seen from outside, so much stays idle, and
/// side work has the rest.
fn headroom_is_kept(bed: &Bed, diary: &Diary<'_>) {
    let terms = "tidegate.dev/class: main, tidegate.dev/headroom: 30%";
    bed.apply(&pod("main", terms, "duty, '20', '10000'"));
    bed.until(|| is_running(bed, "main"), "the main pod runs");
    diary.watches("main", &group(bed, "main"));
    diary.says("main pod asks for 30 % idle");
    std::thread::sleep(Duration::from_secs(15));
    let shares = diary.shares(Duration::from_secs(40));
    diary.says(&format!("over 40 s {shares}"));
    // Where others use the emulator's CPUs, the guest counts the time that it did not get as work.
    if shares.rest_pct() > 50.0 {
        diary.says("that is not judged: the machine under the emulator is busy");
        return;
    }
    assert!((25.0..40.0).contains(&shares.idle_pct), "{shares}");
    assert!(shares.side_pct > 5.0, "{shares}");
}

/// Another version's pod takes over; the pods that it keeps in their places do not notice.
fn upgraded(bed: &Bed, machine: &Machine, diary: &Diary<'_>, side: &str) {
    let before = [life(bed, side), life(bed, "main")];
    let ours = our_pod(bed, ".metadata.uid");
    let version = r#"{"spec":{"template":{"metadata":{"annotations":{"version":"next"}}}}}"#;
    bed.kubectl(&format!(
        "-n {NAMESPACE} patch daemonset tidegate -p {version}"
    ));
    bed.until(
        || ours != our_pod(bed, ".metadata.uid") && is_ready(bed),
        "the next version's pod is ready",
    );
    let group = group(bed, side);
    bed.until(|| machine.is_side(&group), "it holds side work");
    assert_eq!(before, [life(bed, side), life(bed, "main")], "pods run on");
    diary.says("upgraded");
}

/// Main takes all; side work that has nothing but its tolerance moves to a node that has room.
fn starved(bed: &Bed, diary: &Diary<'_>) {
    let room = FakeAgent::start(4.0);
    let _keeper = bed.keeper(ELSEWHERE, &room.socket(), room.cgroups(), &[]);
    bed.until(
        || !bed.published(ELSEWHERE).is_empty(),
        "another node has room",
    );
    bed.apply(&pod("surge", "tidegate.dev/class: main", "threads, '4'"));
    bed.until(|| is_running(bed, "surge"), "main surges");
    diary.says("main surges");
    bed.until(
        || encoder_runs_on(bed, ELSEWHERE),
        "the starved pod is evicted, and lands elsewhere",
    );
    diary.says("side pod moved");
    bed.kubectl("-n work delete pod surge");
    diary.says("the surge is over");
}

/// All that is in the agent's container is killed: the guardian beside it holds side work, and the
/// next agent takes over.
fn killed(bed: &Bed, machine: &Machine, side: &str) {
    let state = |when: &str| {
        let shown = machine.shell(&format!(
            "cat {side}/cpu.idle; tail -n 12 /var/log/pods/tidegate_*/agent/*.log"
        ));
        format!("side work is held {when}: {shown}")
    };
    assert!(machine.is_side(side), "{}", state("beside a new kubelet"));

    let kill = r"for pid in $(pidof tidegate); do
        tr '\0' ' ' </proc/$pid/cmdline | grep -q 'agent run --service' || continue
        echo 1 >/sys/fs/cgroup$(cut -d: -f3 /proc/$pid/cgroup)/cgroup.kill
    done";
    machine.shell(kill);
    assert!(machine.is_side(side), "{}", state("without an agent"));
    bed.until(
        || our_pod(bed, ".status.containerStatuses[0].restartCount") == "1",
        "kubelet saw it",
    );
    bed.until(|| is_ready(bed), "the agent is there again");
    assert!(machine.is_side(side), "the next agent holds it");
}

/// Pods run on, and their groups are as kubelet made them.
fn uninstalled(bed: &Bed, machine: &Machine, side: &str) {
    // The logs go with the pod.
    machine.shell("for one in agent guardian; do tail -n 4 -f /var/log/pods/tidegate_*/$one/*.log >/tmp/$one.log 2>&1 </dev/null & done");
    bed.kubectl(&format!(
        "-n {NAMESPACE} delete daemonset tidegate --wait=true"
    ));
    bed.until(
        || our_pod(bed, ".metadata.name").is_empty(),
        "our pod is gone",
    );
    assert_eq!(bed.published(NAME), "", "nothing is promised any more");
    assert!(is_running(bed, "main"), "the main pod runs on");
    assert!(
        machine.is_plain(side),
        "the pod's group is as kubelet made it: {}",
        machine.shell(&format!(
            "cat {side}/cpu.idle /tmp/agent.log /tmp/guardian.log"
        ))
    );
}
