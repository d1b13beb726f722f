//! What a node pays: the DaemonSet's processes on this machine, as root, with as many pods as
//! kubelet allows by default; then how long a new pod is without its gate: `cargo xtask kube cost
//! [PODS]`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::bed::{Bed, Keeper, bed};

/// The programs of a release build: `cargo xtask kube cost` says where the agent's is.
const TIDEGATE: &str = "TIDEGATE_PROGRAM";
const NODE: &str = "node-0";
/// The number of pods; 110, kubelet's default limit, unless it is set.
const PODS: &str = "TIDEGATE_PODS";
/// One pod in so many requests side CPU: 40 of 110.
const PODS_FOR_A_SIDE_POD: f64 = 2.75;
/// Before it is measured: the first promise is made after three minutes, and is then written.
const WARM_UP: Duration = Duration::from_secs(200);
const MEASURED: Duration = Duration::from_secs(120);
const NS_PER_S: f64 = 1e9;
/// So many new pods get their groups one after the other, evenly over the second of a step.
const NEW_PODS: u32 = 50;
const STEP: Duration = Duration::from_secs(1);

#[test]
#[ignore = "needs root and eight minutes: cargo xtask kube cost"]
fn a_node_full_of_pods() {
    let bed = bed();
    bed.namespace("cost", "");
    let pods = std::env::var(PODS).map_or(110, |text| text.parse().expect("a number"));
    let side_pods = (pods as f64 / PODS_FOR_A_SIDE_POD) as usize;
    let pod = |at| pod(at, at < side_pods);
    bed.apply(&(0..pods).map(pod).collect::<Vec<_>>().join("---\n"));
    let uids = bed.field("-n cost pods", ".items[*].metadata.uid");
    let uids: Vec<&str> = uids.split_whitespace().collect();
    assert_eq!(uids.len(), pods);
    let mut groups = Groups::new();
    uids.iter().for_each(|uid| groups.make(uid));
    let folder = tempfile::tempdir().expect("a folder");
    let tidegate = std::env::var(TIDEGATE).expect("run this by `cargo xtask kube cost`");
    let start = |arguments: &[&str]| {
        let mut command = Command::new(&tidegate);
        command.env("TIDEGATE_RUN_DIR", folder.path());
        command.env("TIDEGATE_PREFIX", "tgcost-kube");
        Keeper::start(command.args(arguments))
    };
    let agent = start(&["agent", "run", "--service"]);
    let socket = folder.path().join("tidegate.sock");
    bed.until(|| socket.exists(), "the agent's socket is there");
    let guardian = start(&["guardian"]);
    let mut command = bed.tidegate_kube(&["run", "--node", NODE, "--socket"]);
    command.env("KUBECONFIG", bed.kubeconfig_with(&bed.token(NODE)));
    let kube = Keeper::start(command.arg(&socket));

    std::thread::sleep(WARM_UP);
    println!("published: {}", bed.published(NODE));
    let calls_before = calls(bed);
    // The agent has a guardian of its own as well.
    let own_guardian = child_of(agent.0.id());
    let measured = [
        ("agent", agent.0.id()),
        ("its own guardian", own_guardian),
        ("guardian", guardian.0.id()),
        ("tidegate-kube", kube.0.id()),
    ];
    let before = measured.map(|(_, pid)| spent_ns(pid));
    std::thread::sleep(MEASURED);
    let spent = measured.map(|(_, pid)| spent_ns(pid));
    for (at, (name, pid)) in measured.iter().enumerate() {
        let percent = |ns: f64| ns / MEASURED.as_secs_f64() / NS_PER_S * 100.0;
        let total = |spent: &ByThread| spent.values().sum::<f64>();
        let all = percent(total(&spent[at]) - total(&before[at]));
        println!("{name}: {all:.3} % of a CPU, {:.1} MB", memory_mb(*pid));
        for (thread, ns) in &spent[at] {
            let of_thread = percent(ns - before[at].get(thread).unwrap_or(&0.0));
            println!("    {thread}: {of_thread:.3} %");
        }
    }
    let minutes = MEASURED.as_secs_f64() / 60.0;
    let calls_a_minute = (calls(bed) - calls_before) as f64 / minutes;
    println!("{calls_a_minute:.1} calls of the API server a minute");
    without_gate(bed, &mut groups, pods);
    kube.terminate();
    agent.terminate();
    drop((guardian, groups));
}

/// How long a new side pod's group, which kubelet makes before the pod's containers, has no gate.
fn without_gate(bed: &Bed, groups: &mut Groups, pods: usize) {
    let mut delays = Vec::new();
    for at in 0..NEW_PODS {
        let name = pods + at as usize;
        bed.apply(&pod(name, true));
        let uid = bed.field(&format!("-n cost pod p{name}"), ".metadata.uid");
        // kubectl takes as long as it takes.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let into_step = Duration::from_nanos(now.expect("a time").subsec_nanos().into());
        std::thread::sleep((STEP + STEP * at / NEW_PODS).saturating_sub(into_step));
        groups.make(&uid);
        let made = Instant::now();
        while !groups.is_idle(&uid) {
            assert!(made.elapsed() < Duration::from_secs(60), "no gate");
            std::thread::sleep(Duration::from_millis(1));
        }
        delays.push(made.elapsed().as_secs_f64());
    }
    delays.sort_by(f64::total_cmp);
    let part = |part: usize| delays[(delays.len() - 1) * part / 100];
    println!(
        "{NEW_PODS} new groups had no gate for {:.2} to {:.2} s, in the median for {:.2} s",
        part(0),
        part(100),
        part(50)
    );
}

fn pod(at: usize, is_side: bool) -> String {
    let annotations = match is_side {
        true => "tidegate.dev/side-cpu: 10m",
        false => "",
    };
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: p{at}, namespace: cost, annotations: {{{annotations}}}}}\n\
         spec: {{nodeName: {NODE}, containers: [{{name: c, image: x}}]}}\n"
    )
}

/// How often `tidegate-kube` has asked the API server; watches count when they end.
fn calls(bed: &Bed) -> usize {
    std::fs::read_to_string(bed.audit()).map_or(0, |text| text.lines().count())
}

/// The CPU time of a process's threads, by their names.
type ByThread = BTreeMap<String, f64>;

fn spent_ns(pid: u32) -> ByThread {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let mut spent = ByThread::new();
    for thread in threads.flatten() {
        let read = |file| std::fs::read_to_string(thread.path().join(file)).ok();
        // A thread may have ended since.
        let of_thread = || {
            let name = read("comm")?.trim().to_owned();
            let ns: f64 = read("schedstat")?.split_whitespace().next()?.parse().ok()?;
            Some((name, ns))
        };
        if let Some((name, ns)) = of_thread() {
            *spent.entry(name).or_default() += ns;
        }
    }
    spent
}

fn memory_mb(pid: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kb = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kb.expect("a size") / 1024.0
}

fn child_of(pid: u32) -> u32 {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = std::fs::read_to_string(path).expect("it runs");
    let first = text.split_whitespace().next().expect("it has a child");
    first.parse().expect("a number")
}

/// Each pod's group, as kubelet makes them for cpu and cpuacct, with a container and a process in
/// it.
struct Groups {
    tops: Vec<PathBuf>,
    processes: Vec<Keeper>,
}

impl Groups {
    fn new() -> Self {
        let mount = tidegate_kube::groups::cpu_mount(Path::new("/sys/fs/cgroup"));
        let cpuacct = mount.with_file_name("cpuacct");
        let mounts = [mount, cpuacct].into_iter().filter(|mount| mount.is_dir());
        Groups {
            tops: mounts.map(|mount| mount.join("kubepods")).collect(),
            processes: Vec::new(),
        }
    }

    fn make(&mut self, uid: &str) {
        // The first one works, so that there is something to limit.
        let work = match self.processes.is_empty() {
            true => "while :; do :; done",
            false => "exec sleep 3600",
        };
        let process = Keeper::start(Command::new("sh").args(["-c", work]));
        let pid = process.0.id().to_string();
        for top in &self.tops {
            let container = top.join(format!("besteffort/pod{uid}/container"));
            std::fs::create_dir_all(&container).expect("run this as root");
            std::fs::write(container.join("cgroup.procs"), &pid).expect("a group takes it");
        }
        self.processes.push(process);
    }

    /// Whether the kernel has the pod in the idle class, by its gate.
    fn is_idle(&self, uid: &str) -> bool {
        let file = format!("besteffort/pod{uid}/cpu.idle");
        let text = std::fs::read_to_string(self.tops[0].join(file)).expect("the kernel has it");
        text.trim() == "1"
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        self.processes.clear();
        // Deepest first; what is left is told of by the next run, which cannot make it.
        let _ = Command::new("find")
            .args(&self.tops)
            .args(["-depth", "-type", "d", "-exec", "rmdir", "{}", ";"])
            .status();
    }
}
