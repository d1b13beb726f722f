//! What a node pays: the DaemonSet's processes on this machine, as root, beside as many pods as
//! kubelet allows: `cargo xtask kube cost`.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use crate::bed::{Bed, bed};

/// The programs of a release build: `cargo xtask kube cost` says where the agent's is.
const TIDEGATE: &str = "TIDEGATE_PROGRAM";
const NODE: &str = "node-0";
const PODS: usize = 110;
/// Of those, the ones that request side CPU.
const SIDE_PODS: usize = 40;
/// Before it is measured: the first promise is made after three minutes, and is then written.
const WARM_UP: Duration = Duration::from_secs(200);
const MEASURED: Duration = Duration::from_secs(120);
const NS_PER_S: f64 = 1e9;

#[test]
#[ignore = "needs root and six minutes: cargo xtask kube cost"]
fn a_node_with_110_pods() {
    let bed = bed();
    bed.namespace("cost", "");
    bed.apply(&(0..PODS).map(pod).collect::<Vec<_>>().join("---\n"));
    let uids = bed.field("-n cost pods", ".items[*].metadata.uid");
    let uids: Vec<&str> = uids.split_whitespace().collect();
    assert_eq!(uids.len(), PODS);
    let groups = Groups::make(&uids);
    let folder = tempfile::tempdir().expect("a folder");
    let tidegate = std::env::var(TIDEGATE).expect("run this by `cargo xtask kube cost`");
    let start = |arguments: &[&str]| {
        let mut command = Command::new(&tidegate);
        command.env("TIDEGATE_RUN_DIR", folder.path());
        command.env("TIDEGATE_PREFIX", "tgcost-kube");
        Process::start(command.args(arguments))
    };
    let agent = start(&["agent", "run", "--service"]);
    let socket = folder.path().join("tidegate.sock");
    bed.until(|| socket.exists(), "the agent's socket is there");
    let guardian = start(&["guardian"]);
    let mut command = bed.tidegate_kube(&["run", "--node", NODE, "--socket"]);
    let kube = Process::start(command.arg(&socket));

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
        let percent = (spent[at] - before[at]) / MEASURED.as_secs_f64() / NS_PER_S * 100.0;
        println!("{name}: {percent:.3} % of a CPU, {:.1} MB", memory_mb(*pid));
    }
    let minutes = MEASURED.as_secs_f64() / 60.0;
    let calls_a_minute = (calls(bed) - calls_before) as f64 / minutes;
    println!("{calls_a_minute:.1} calls of the API server a minute");
    kube.terminate();
    agent.terminate();
    drop((guardian, groups));
}

fn pod(at: usize) -> String {
    let annotations = match at < SIDE_PODS {
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

/// The CPU time of all threads of a process.
fn spent_ns(pid: u32) -> f64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let of_thread = |path: PathBuf| -> Option<f64> {
        let text = std::fs::read_to_string(path.join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse().ok()
    };
    threads
        .flatten()
        .filter_map(|one| of_thread(one.path()))
        .sum()
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

/// A process that ends with the test.
struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> Self {
        Process(command.spawn().expect("it starts"))
    }

    /// Lets it end as kubelet does.
    fn terminate(mut self) {
        let pid = self.0.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(sent.expect("kill is there").success());
        self.0.wait().expect("it ends");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Each pod's group, as kubelet makes them, with a container and a process in it.
struct Groups {
    top: PathBuf,
    processes: Vec<Process>,
}

impl Groups {
    fn make(uids: &[&str]) -> Self {
        let mount = tidegate_kube::groups::cpu_mount(Path::new("/sys/fs/cgroup"));
        let mut groups = Groups {
            top: mount.join("kubepods"),
            processes: Vec::new(),
        };
        for uid in uids {
            let container = groups.top.join(format!("besteffort/pod{uid}/container"));
            std::fs::create_dir_all(&container).expect("run this as root");
            // The first one works, so that there is something to limit.
            let work = match groups.processes.is_empty() {
                true => "while :; do :; done",
                false => "exec sleep 3600",
            };
            let process = Process::start(Command::new("sh").args(["-c", work]));
            let pid = process.0.id().to_string();
            std::fs::write(container.join("cgroup.procs"), pid).expect("a group takes it");
            groups.processes.push(process);
        }
        groups
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        self.processes.clear();
        // Deepest first; what is left is told of by the next run, which cannot make it.
        let _ = Command::new("find")
            .arg(&self.top)
            .args(["-depth", "-type", "d", "-exec", "rmdir", "{}", ";"])
            .status();
    }
}
