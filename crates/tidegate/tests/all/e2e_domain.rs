//! Headroom on main's own CPUs, on the running kernel with v1's cpuset: side work is off them, and what its CPUs used says so.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::common::{Background, Instance, describe, wait_for};

const CPUSET: &str = "/sys/fs/cgroup/cpuset";

/// A cpuset of CPU 0, removed in the end.
struct First(PathBuf);

impl First {
    fn new(prefix: &str) -> First {
        let first = First(Path::new(CPUSET).join(format!("{prefix}-first")));
        std::fs::create_dir(&first.0).unwrap();
        for name in ["cpuset.mems", "cpuset.cpus"] {
            std::fs::write(first.0.join(name), "0").unwrap();
        }
        first
    }
}

impl Drop for First {
    fn drop(&mut self) {
        // Its processes may take a moment to end.
        for _ in 0..50 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

#[test]
fn side_work_leaves_mains_cpu_and_comes_back() {
    let Some(instance) = Instance::new("domain") else {
        return;
    };
    let online = read(Path::new("/sys/devices/system/cpu/online"));
    let here = Path::new(CPUSET).join("cpuset.cpus");
    if !here.exists() || online == "0" {
        println!("skipped: v1's cpuset hierarchy and two CPUs are wanted");
        return;
    }
    let first = First::new(instance.prefix());
    let burn = "while :; do :; done";
    let side = instance.background(&["--side", "--name", "job"], &["sh", "-c", burn]);
    // Not the first command: an agent that it started would be in its cpuset, too.
    instance.gate("job");
    let enter = format!(
        "echo $$ >{}/cgroup.procs; exec {} run --main --name web --headroom 30% -- sleep 20",
        first.0.display(),
        instance.binary().display()
    );
    let mut shell = instance.on(Command::new("sh"));
    let main = Background(shell.args(["-c", &enter]).process_group(0).spawn().unwrap());
    instance.gate("web");
    let root = format!("{}-side", instance.prefix());
    let cpus = Path::new(CPUSET).join(&root).join("cpuset.cpus");
    let confined = || !read(&cpus).is_empty() && !read(&cpus).starts_with('0');
    wait_for("side work off CPU 0", confined);
    let status = instance.json(&["status"]);
    assert_eq!(status["domains"][0]["cpus"], "0", "{status}");
    assert_eq!(status["domains"][0]["by"], "cpuset");
    // The loop takes the quota off a moment after the cpuset stands.
    wait_for("side work without a quota", || {
        instance.json(&["status"])["free_cpus"] == *read(&cpus)
    });
    let explained = instance.output(&["explain", "job"]);
    assert!(
        describe(&explained).contains("30 % by gate web"),
        "{}",
        describe(&explained)
    );
    let acct = ["cpuacct", "cpu,cpuacct"].map(|mount| {
        Path::new("/sys/fs/cgroup")
            .join(mount)
            .join(&root)
            .join("cpuacct.usage_percpu")
    });
    let used = || -> Vec<u64> {
        let text = acct
            .iter()
            .map(|path| read(path))
            .find(|text| !text.is_empty());
        let text = text.unwrap_or_default();
        text.split_ascii_whitespace()
            .map(|word| word.parse().unwrap())
            .collect()
    };
    std::thread::sleep(Duration::from_millis(300));
    let from = used();
    std::thread::sleep(Duration::from_secs(2));
    let to = used();
    println!(
        "side work in 2 s by CPU: {:?} ms",
        from.iter()
            .zip(&to)
            .map(|(a, b)| (b - a) / 1_000_000)
            .collect::<Vec<_>>()
    );
    assert_eq!(from[0], to[0], "none of it on main's CPU");
    drop(main);
    // Without main's gate nothing is left of it.
    wait_for("side work let go", || read(&cpus).is_empty());
    drop(side);
    drop(first);
    instance.gone();
}
