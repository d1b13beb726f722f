//! The whole DaemonSet on a node with a real kubelet, from an empty cluster on: side work is
//! placed, gets what the headroom leaves, survives an upgrade, a kubelet that starts again and an
//! agent that is killed, starves, moves, is resized, and keeps running when Tidegate is removed.

use std::process::Command;
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
    "starved_s=60",
    "evict_gap_s=10",
    "no_rise_s=5",
];

/// Where side work goes that must leave the machine.
const ELSEWHERE: &str = "node-0";

/// One pod that burns on one thread and comes back where it is evicted: on the machine, or
/// elsewhere. It would starve on a busy emulator, too: its budget keeps it until it is deleted.
const ENCODER: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: encoder, namespace: work}
spec:
  selector: {matchLabels: {app: encoder}}
  template:
    metadata: {labels: {app: encoder}, annotations: {tidegate.dev/side-cpu: 300m}}
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
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: encoder, namespace: work}
spec: {minAvailable: 1, selector: {matchLabels: {app: encoder}}}
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

/// The capabilities of the manifests, as bits of CapEff: CHOWN, DAC_OVERRIDE, SYS_PTRACE,
/// SYS_ADMIN, SYS_NICE, SYS_RESOURCE, PERFMON, BPF.
const OF_AGENT: [u8; 8] = [0, 1, 19, 21, 23, 24, 38, 39];
const OF_GUARDIAN: [u8; 4] = [1, 19, 21, 23];

/// Agent and guardian have these and a seccomp filter, and that is enough for BPF, a real-time
/// control loop and locked memory.
fn rights(machine: &Machine) {
    for (command, bits) in [
        ("agent run --service", &OF_AGENT[..]),
        ("guardian --host-cgroups", &OF_GUARDIAN),
    ] {
        let mask = bits.iter().fold(0, |mask, bit| mask | 1_u64 << bit);
        let said = machine.shell(&format!(
            r"for pid in $(pidof tidegate); do
                tr '\0' ' ' </proc/$pid/cmdline | grep -q '{command}' || continue
                grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/$pid/status
            done"
        ));
        let said: Vec<&str> = said.split_whitespace().collect();
        let wanted = format!("CapEff: {mask:016x} CapBnd: {mask:016x} NoNewPrivs: 1 Seccomp: 2");
        assert_eq!(said.join(" "), wanted, "{command}");
    }
    let log = "/var/log/pods/tidegate_*/agent/*.log";
    machine.shell(&format!(
        "grep -q 'sensing by BPF' {log} && grep -q SCHED_FIFO {log} && ! grep -q 'not pinned' {log}"
    ));
}

/// What tells one life of the pod's container from the next.
fn life(bed: &Bed, pod: &str) -> String {
    bed.field(
        &format!("-n work pod {pod}"),
        ".status.containerStatuses[*].containerID",
    )
}

/// As it is in the name of the pod's group.
fn uid(bed: &Bed, pod: &str) -> String {
    let uid = bed.field(&format!("-n work pod {pod}"), ".metadata.uid");
    uid.replace('-', "_")
}

/// The pod's group in the guest.
fn group(bed: &Bed, pod: &str) -> String {
    let uid = uid(bed, pod);
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
    // The controller is on the machine, too: no other node says that it has Linux.
    let of_daemonset = format!("-n {NAMESPACE} pods -l app.kubernetes.io/name=tidegate");
    let path = format!(".items[*]{path}");
    bed.field(&of_daemonset, &path)
}

fn is_ready(bed: &Bed) -> bool {
    our_pod(bed, ".status.containerStatuses[*].ready") == "true true true"
}

/// A namespace for pods, and nothing of an earlier test.
fn clear(bed: &Bed) {
    bed.namespace("work", "tidegate.dev/may-be-main: 'true'");
    bed.kubectl("-n work delete deployments,pods --all --force --grace-period=0");
    bed.kubectl(&format!("delete node {NAME} --ignore-not-found"));
}

/// Installs Tidegate in a cluster without pods, with eviction on and the rule's numbers made short.
fn install(bed: &Bed) {
    for file in ["tidegate.yaml", "side-cpu.yaml"] {
        bed.apply_manifests(file);
    }
    clear(bed);
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
    let machine = Machine::boot(bed);
    Diary::of(bed, &machine, |diary| story(bed, &machine, diary));
}

#[test]
#[ignore = "needs a machine: make kube-node"]
fn a_node_that_loses_power_and_comes_back_with_the_driver_cgroupfs() {
    let bed = bed();
    install(bed);
    let mut machine = Machine::boot(bed);
    installed(bed, &machine);
    let name = placed(bed, &machine);
    let before = life(bed, &name);
    machine.shell(
        "sed -i 's/SystemdCgroup = true/SystemdCgroup = false/' /etc/containerd/config.toml
        sed -i 's/cgroupDriver: systemd/cgroupDriver: cgroupfs/' /etc/kubernetes/kubelet.yaml",
    );
    machine.reboot(bed);
    bed.until(
        || is_running(bed, &name) && before != life(bed, &name),
        "the side pod runs again",
    );
    let uid = bed.field(&format!("-n work pod {name}"), ".metadata.uid");
    let side = format!("/sys/fs/cgroup/kubepods/burstable/pod{uid}");
    bed.until(|| machine.is_side(&side), "its group is side again");
    has_room(bed, 300);
    let rejected = bed.kubectl("get pods -A --field-selector status.phase=Failed -o name");
    assert_eq!(rejected, "");
}

/// Kubelet gives main a CPU of its own. The pods run before Tidegate is installed, and afterwards.
#[test]
#[ignore = "needs a machine and helm: make kube-node"]
fn a_node_with_static_cpus_from_helm_install_to_uninstall() {
    let bed = bed();
    bed.kubectl(&format!(
        "-n {NAMESPACE} delete daemonsets,deployments --all"
    ));
    clear(bed);
    let machine = Machine::boot(bed);
    machine.shell(
        r"printf 'cpuManagerPolicy: static\nsystemReserved: {cpu: 500m}\n' >>/etc/kubernetes/kubelet.yaml
        rm /var/lib/kubelet/cpu_manager_state && systemctl restart kubelet",
    );
    let cpu = || bed.field(&format!("node {NAME}"), ".status.allocatable.cpu");
    bed.until(|| cpu() == "1500m", "kubelet reserves a CPU");
    bed.kubectl(&format!("taint node {NAME} tidegate.dev/agent-not-ready-"));
    let main = pod("main", "tidegate.dev/class: main", "duty, '20', '10000'");
    let whole = "{limits: {cpu: 1, memory: 16Mi}}";
    bed.apply(&main.replace("{requests: {cpu: 50m, memory: 8Mi}}", whole));
    let terms = "tidegate.dev/class: side, tidegate.dev/cap-hard: 200m";
    let limited = "{limits: {cpu: 500m}, requests";
    bed.apply(&pod("side", terms, "burn").replace("{requests", limited));
    let cpus = |pod: &str| {
        let id = life(bed, pod).replace("containerd://", "");
        let scope = format!("cri-containerd-{id}.scope");
        machine.shell(&format!(
            "find /sys/fs/cgroup/kubepods.slice -name {scope} -exec cat {{}}/cpuset.cpus ';'"
        ))
    };
    bed.until(
        || cpus("main") == "1\n" && cpus("side") == "0\n",
        "kubelet keeps the pods apart",
    );
    let [of_main, of_side] = ["main", "side"].map(|pod| uid(bed, pod));
    let limits = || {
        machine.shell(&format!(
            r"find /sys/fs/cgroup/kubepods.slice \( -path '*{of_main}*' -o -path '*{of_side}*' \) \
            \( -name 'cpu.[imuw]*' -o -name cpuset.cpus \) | sort | xargs grep ''"
        ))
    };
    let before = limits();

    helm(
        bed,
        &format!("upgrade --install tidegate {CHART} --take-ownership"),
    );
    installed(bed, &machine);
    let side = group(bed, "side");
    bed.until(|| machine.is_side(&side), "its group is side");
    let used = machine.shell(&format!(
        "used() {{ read -r _ used <{side}/cpu.stat; echo $used; }}
        before=$(used); sleep 20; echo $(($(used) - before))"
    ));
    let used_s = used.trim().parse::<f64>().expect("a number") / 1e6;
    assert!((1.0..4.4).contains(&used_s), "{used_s} s of 20 s");
    let of_containers = |all: &str| {
        let lines = all.lines().filter(|line| line.contains(".scope/"));
        lines.map(str::to_owned).collect::<Vec<String>>()
    };
    assert_eq!(of_containers(&before), of_containers(&limits()));

    helm(bed, "uninstall tidegate");
    assert_eq!(our_pod(bed, ".metadata.name"), "", "our pod is gone");
    assert_eq!(before, limits());
    nothing_is_left(&machine);
}

const CHART: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../packaging/kubernetes/chart"
);

fn helm(bed: &Bed, command: &str) {
    let mut helm = Command::new("helm");
    helm.args(["--namespace", NAMESPACE, "--kubeconfig"]);
    helm.arg(bed.kubeconfig()).args(command.split_whitespace());
    let output = helm.output().expect("helm is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {said}");
}

fn installed(bed: &Bed, machine: &Machine) {
    bed.until(|| is_ready(bed), "agent, guardian and kube are ready");
    rights(machine);
}

/// The first side pod.
fn placed(bed: &Bed, machine: &Machine) -> String {
    has_room(bed, 300);
    bed.apply(ENCODER);
    bed.until(
        || encoder_runs_on(bed, NAME),
        "the scheduler places by the node's side CPU",
    );
    let name = encoder(bed, ".metadata.name");
    let side = group(bed, &name);
    bed.until(|| machine.is_side(&side), "its group is side");
    name
}

fn story(bed: &Bed, machine: &Machine, diary: &Diary<'_>) {
    installed(bed, machine);
    diary.says("installed");
    let name = placed(bed, machine);
    let side = group(bed, &name);
    diary.watches("side", &side);
    diary.says("side pod placed");

    // A kubelet that starts again admits the pods that run by what the node's status promises.
    // It starts no other pod before.
    let before = life(bed, &name);
    bed.until(|| !bed.published(NAME).is_empty(), "side CPU is published");
    machine.shell("systemctl restart kubelet");
    diary.says("kubelet restarted, with side CPU published");
    headroom_is_kept(bed, diary);
    assert_eq!(before, life(bed, &name), "the side pod runs on");
    assert!(is_running(bed, &name), "the side pod runs on");

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
    has_room(bed, 100);
    let terms = "tidegate.dev/side-cpu: 100m, tidegate.dev/cap-hard: 200m";
    bed.apply(&pod("side", terms, "burn"));
    bed.until(|| is_running(bed, "side"), "another side pod runs");
    let side = group(bed, "side");
    diary.watches("side", &side);
    bed.until(|| machine.is_side(&side), "its group is side");
    diary.says("side pod with a cap of 200m placed");
    let shares = diary.shares(Duration::from_secs(20));
    diary.says(&format!("over 20 s {shares}"));
    assert!((1.0..11.0).contains(&shares.side_pct), "{shares}");

    // No gate has ever been on the first one's group.
    bed.apply(&pod("plain", "", "duty, '1', '100000'"));
    bed.until(|| is_running(bed, "plain"), "a pod without terms runs");
    for pod in ["plain", "main", "side"] {
        resized(bed, pod);
        diary.says(&format!("pod {pod} resized"));
    }
    bed.until(|| machine.is_side(&side), "its group is side again");
    diary.says("its group is side again");
    bursts(bed, machine);
    diary.says("bursts followed the limits of a resized pod");
    uninstalled(bed, machine);
    assert!(encoder_runs_on(bed, ELSEWHERE), "what moved runs on");
    diary.says("uninstalled");
    std::thread::sleep(Duration::from_secs(10));
}

/// Waits until the scheduler would place a side pod, and kubelet has seen that.
fn has_room(bed: &Bed, for_milli: u64) {
    let (node, side_cpu) = (
        format!("node {NAME}"),
        r".status.allocatable.tidegate\.dev/side-cpu",
    );
    bed.until(
        || milli(&bed.field(&node, side_cpu)) >= for_milli,
        "the node has side CPU",
    );
    // Kubelet refuses a pod that is bound by a raise which it has not seen itself.
    std::thread::sleep(Duration::from_secs(10));
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

/// Kubelet gives a running pod another request of CPU, which is a weight of its group.
fn resized(bed: &Bed, pod: &str) {
    let request =
        r#"{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"100m"}}}]}}"#;
    bed.kubectl(&format!(
        "-n work patch pod {pod} --subresource resize -p {request}"
    ));
    let is_done = || {
        let path = ".status.containerStatuses[*].resources.requests.cpu";
        let resizes = r#".status.conditions[?(@.type=="PodResizeInProgress")].status"#;
        bed.field(&format!("-n work pod {pod}"), path) == "100m"
            && bed.field(&format!("-n work pod {pod}"), resizes).is_empty()
    };
    bed.until(is_done, "the pod is resized");
}

/// The limits of a pod and of its container have a burst, also after kubelet has lowered and raised
/// them in place, and none after the pod's gate.
fn bursts(bed: &Bed, machine: &Machine) {
    let limited = "{limits: {cpu: 200m}, requests";
    let asked = "tidegate.dev/burst: max";
    let web = pod("web", asked, "duty, '1', '100000'").replace("{requests", limited);
    bed.apply(&web);
    bed.until(|| is_running(bed, "web"), "a pod with a limit runs");
    let pod = group(bed, "web");
    let are = |quota_us: u64, burst_us: u64| {
        let found = machine.shell(&format!(
            "cd {pod}; for group in . cri-*; do echo $(cat $group/cpu.max $group/cpu.max.burst); \
            done | grep -v ^max; true"
        ));
        found == format!("{quota_us} 100000 {burst_us}\n").repeat(2)
    };
    bed.until(|| are(20_000, 20_000), "its limits have a burst");
    for milli in [100, 300] {
        let limit = format!(
            r#"{{"spec":{{"containers":[{{"name":"c","resources":{{"limits":{{"cpu":"{milli}m"}}}}}}]}}}}"#
        );
        bed.kubectl(&format!(
            "-n work patch pod web --subresource resize -p {limit}"
        ));
        let us = milli * 100;
        bed.until(|| are(us, us), "the burst follows kubelet's limits");
    }
    bed.kubectl("-n work annotate pod web tidegate.dev/burst-");
    bed.until(|| are(30_000, 0), "the limits are as kubelet made them");
}

/// Another version's pod takes over; the pods that it keeps in their places do not notice.
fn upgraded(bed: &Bed, machine: &Machine, diary: &Diary<'_>, side: &str) {
    let before = [life(bed, side), life(bed, "main")];
    let ours = our_pod(bed, ".metadata.uid");
    let version = r#"{"spec":{"template":{"metadata":{"annotations":{"version":"next"}}}}}"#;
    let (looks, free) = machine.looks(&group(bed, side), || {
        bed.kubectl(&format!(
            "-n {NAMESPACE} patch daemonset tidegate -p {version}"
        ));
        // The older one is ready until it has ended.
        let is_alone = |uids: &str| !uids.is_empty() && !uids.contains(&ours);
        bed.until(
            || is_alone(&our_pod(bed, ".metadata.uid")) && is_ready(bed),
            "the next version's pod is ready",
        );
        // Its agent has the limits, and its publisher looks at the pods' gates.
        std::thread::sleep(Duration::from_secs(15));
    });
    let log = machine.shell("cat /var/log/pods/tidegate_*/agent/*.log");
    assert!(
        looks > 20 && free.is_empty(),
        "of {looks} looks: {free}\n{log}"
    );
    assert_eq!(before, [life(bed, side), life(bed, "main")], "pods run on");
    diary.says(&format!("upgraded; side work limited in {looks} looks"));
}

/// Main takes all; side work that has nothing but its tolerance moves to a node that has room.
fn starved(bed: &Bed, diary: &Diary<'_>) {
    let room = FakeAgent::start(4.0);
    let _keeper = bed.keeper(ELSEWHERE, &room, &[]);
    bed.until(
        || !bed.published(ELSEWHERE).is_empty(),
        "another node has room",
    );
    bed.kubectl("-n work delete poddisruptionbudget encoder");
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
fn uninstalled(bed: &Bed, machine: &Machine) {
    // The logs go with the pod.
    machine.shell("for one in agent guardian; do tail -n 4 -f /var/log/pods/tidegate_*/$one/*.log >/tmp/$one.log 2>&1 </dev/null & done");
    let removed = bed.controller(&["remove"]).output().expect("it starts");
    let said = String::from_utf8_lossy(&removed.stderr);
    assert!(removed.status.success(), "{said}");
    assert_eq!(our_pod(bed, ".metadata.name"), "", "our pod is gone");
    assert_eq!(bed.published(NAME), "", "nothing is promised any more");
    for pod in ["main", "side"] {
        assert!(is_running(bed, pod), "{pod} runs on");
        assert_eq!(
            machine.limits(&group(bed, pod)),
            machine.limits(&group(bed, "plain")),
            "{pod}'s group is as kubelet made it: {}",
            machine.shell("cat /tmp/agent.log /tmp/guardian.log")
        );
    }
    nothing_is_left(machine);
}

fn nothing_is_left(machine: &Machine) {
    let left = machine.shell("pidof tidegate; find /sys/fs/cgroup -name '*tidegate*'; true");
    assert_eq!(left, "", "processes and groups of Tidegate's");
}
