//! Every mechanism of `doctor` once on the running kernel, by what stands in the gate's group: for
//! root, and for a user beside an agent. docs/support.md names these tests; its table is held
//! against `doctor` here.

use std::os::unix::process::CommandExt;
use std::sync::Arc;

use crate::common::{Background, Instance, cpu_mount, ends_with, or_skip, wait_for};
use crate::support_kill::watch::Limit;
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::discover::discover;
use tidegate_cgroup::group::{GroupPath, Groups};
use tidegate_cgroup::sched::probe;
use tidegate_cgroup::{KernelFs, RealFs};

struct Bed {
    instance: Instance,
    groups: Groups,
}

impl Bed {
    fn new(name: &str) -> Option<Bed> {
        let instance = Instance::new(name)?;
        let machine = discover(&RealFs::new(), None).unwrap();
        let groups = Groups::new(Arc::new(RealFs::new()), &machine);
        Some(Bed { instance, groups })
    }

    /// A gate around a sleeper.
    fn sleeper(&self, name: &str, flags: &[&str]) -> (Background, GroupPath) {
        let flags: Vec<&str> = flags.iter().copied().chain(["--name", name]).collect();
        let running = self.instance.background(&flags, &["sleep", "60"]);
        (running, self.group(name))
    }

    fn group(&self, name: &str) -> GroupPath {
        let gate = self.instance.gate(name);
        GroupPath::parse(gate["cgroup"].as_str().unwrap()).unwrap()
    }

    fn stands(&self, group: &GroupPath) -> Bandwidth {
        self.groups.bandwidth(group).unwrap()
    }

    /// What the side root may use, in µCPU of the whole machine's.
    fn side_share_ppm(&self, group: &GroupPath) -> u64 {
        let root = group.parent().unwrap();
        let ucpu = self.stands(&root).rate_ucpu().unwrap_or(u64::MAX);
        ucpu / std::thread::available_parallelism().unwrap().get() as u64
    }
}

#[test]
fn headroom_and_tolerance_bound_side_work() {
    let bed = or_skip!(Bed::new("sup-side"));
    let (side, group) = bed.sleeper("side", &["--side", "--headroom", "40%"]);
    let limited = || bed.side_share_ppm(&group) <= 600_000;
    wait_for("a quota for all side work", limited);
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(limited(), "{} ppm", bed.side_share_ppm(&group));
    drop(side);
    bed.instance.gone();
    // With all of the machine as headroom, the tolerance is left.
    let flags = ["--side", "--headroom", "100%", "--tolerance", "5%"];
    let (_side, group) = bed.sleeper("side", &flags);
    wait_for("the tolerance", || {
        (49_000..=51_000).contains(&bed.side_share_ppm(&group))
    });
}

#[test]
fn side_work_is_idle_class_and_has_its_weight() {
    let bed = or_skip!(Bed::new("sup-weight"));
    let words = ["--side", "--weight", "300", "--headroom", "10%"];
    let (_side, group) = bed.sleeper("heavy", &words);
    assert_eq!(bed.groups.weight(&group).unwrap(), 300);
    let root = group.parent().unwrap();
    if bed.groups.idle(&root).unwrap().is_some() {
        let root = Limit::open(&bed.groups.dir(&root)).unwrap();
        assert_eq!(root.wrong(), None, "all side work");
    }
}

#[test]
fn an_objective_is_followed() {
    let bed = or_skip!(Bed::new("sup-objective"));
    let (_main, _) = bed.sleeper("main", &["--main", "--objective", "p99<5ms"]);
    let (_side, _) = bed.sleeper("side", &["--side"]);
    let status = bed.instance.json(&["status"]);
    if status["sensing"] != "bpf" {
        eprintln!("skipped: an objective: sensing by {}", status["sensing"]);
        return;
    }
    assert!(
        status["objective"].to_string().contains("p99<5ms"),
        "{status}"
    );
}

#[test]
fn a_user_beside_an_agent_tightens_their_own_work() {
    let bed = or_skip!(Bed::new("sup-user"));
    let (_keeper, _) = bed.sleeper("keeper", &["--side"]);
    let words = "run --quiet --side --name mine --weight 50 --quota 1ms --burst 500us --cap-soft 100‰ --latency 5";
    let mut words: Vec<&str> = words.split(' ').collect();
    words.extend(["--", "sleep", "60"]);
    let mut command = bed.instance.by_nobody(&words);
    let running = Background(command.process_group(0).spawn().unwrap());
    let group = bed.group("mine");
    // Below what all side work has at least: on v1 a limit above its parent's would wait for that
    // to rise.
    let stands = bed.stands(&group);
    assert_eq!((stands.quota_us, stands.burst_us), (Some(1_000), 500));
    assert_eq!(bed.instance.gate("mine")["uid"], 65534);
    let support = probe(&RealFs::new()).unwrap();
    if support.slices {
        let slice_ns = RealFs::new().sched(running.pid() as i32).unwrap().slice_ns;
        assert!(slice_ns > support.base_ns, "{slice_ns}");
    }
    // Those that take CPU from others are refused.
    for term in [
        "--tolerance=5%",
        "--headroom=30%",
        "--objective=p99<5ms",
        "--latency=-1",
        "--weight=200",
    ] {
        let words = ["run", "--side", term, "--", "true"];
        let output = bed.instance.by_nobody(&words).output().unwrap();
        ends_with(&output, 125);
    }
}

/// A column of the table in docs/support.md: each mechanism with its cell.
fn column(number: usize) -> Vec<(String, String)> {
    let page = include_str!("../../../../docs/support.md");
    let table = page
        .lines()
        .skip_while(|line| !line.starts_with("| mechanism"));
    let rows = table.take_while(|line| line.starts_with('|')).skip(2);
    rows.map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        (cells[1].to_owned(), cells[number + 1].to_owned())
    })
    .collect()
}

fn by_doctor(output: &std::process::Output) -> Vec<(String, String)> {
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let word = |row: &serde_json::Value, key: &str| row[key].as_str().unwrap().to_owned();
    let rows = report["mechanisms"].as_array().unwrap().iter();
    rows.map(|row| (word(row, "name"), word(row, "now")))
        .collect()
}

#[test]
fn doctor_says_what_the_support_page_says() {
    let instance = or_skip!(Instance::new("sup-page"));
    let (_, is_v1) = cpu_mount();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    if !is_v1 || !kernel.starts_with("6.18.") || !rustix::process::geteuid().is_root() {
        eprintln!("skipped: the support table: not its first machine (root, cgroup v1, 6.18)");
        return;
    }
    let root = instance.output(&["doctor", "--json"]);
    assert_eq!(by_doctor(&root), column(1));
    let _keeper = instance.sleeper("keeper");
    let user = instance.by_nobody(&["doctor", "--json"]).output().unwrap();
    assert_eq!(by_doctor(&user), column(4));
}
