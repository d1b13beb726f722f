//! Quotas, bursts and hard caps on the running kernel: on commands, processes and groups of any
//! class, beside the moving quota of side work, after a death of the agent, and put back.

use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::common::{
    Background, Instance, OtherGroup, cgroups_of, cpu_mount, ends_with, or_skip, quota_file,
    stdout, wait_for,
};
use crate::support_kill::processes::kill9;

/// Quota (`None` for no limit), period and burst of a group in µs.
fn limit(group: &str) -> (Option<u64>, u64, u64) {
    let (mount, v1) = cpu_mount();
    let dir = mount.join(group.trim_start_matches('/'));
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap_or_default();
    let number = |name: &str| read(name).trim().parse().unwrap_or(0);
    if v1 {
        let quota = read("cpu.cfs_quota_us").trim().parse().ok();
        return (
            quota,
            number("cpu.cfs_period_us"),
            number("cpu.cfs_burst_us"),
        );
    }
    let max = read("cpu.max");
    let mut words = max.split_ascii_whitespace();
    let quota = words.next().and_then(|word| word.parse().ok());
    let period = words.next().and_then(|word| word.parse().ok());
    (quota, period.unwrap_or(0), number("cpu.max.burst"))
}

fn group_of(gate: &serde_json::Value) -> String {
    gate["cgroup"].as_str().unwrap().to_owned()
}

#[test]
fn commands_of_any_class_have_their_limits() {
    let instance = or_skip!(Instance::new("limits"));
    for (class, flags) in [("main", &["--main"][..]), ("neutral", &[])] {
        let limits = ["--name", class, "--quota", "30ms", "--burst", "10ms"];
        let flags = [flags, &limits].concat();
        let _running = instance.background(&flags, &["sleep", "60"]);
        let gate = instance.gate(class);
        assert_eq!(limit(&group_of(&gate)), (Some(30_000), 100_000, 10_000));
        assert_eq!(gate["own_limit"]["quota_us"], 30_000, "{gate}");
        let said = instance.fails(&["set", class, "burst=31ms"], 2);
        assert!(said.contains("quota"), "{said}");
        instance.ok(&["set", class, "cap_hard=200‰"]);
        assert_eq!(limit(&group_of(&gate)), (Some(1_600), 8_000, 400));
        instance.ok(&["unset", class, "cap_hard", "burst"]);
        assert_eq!(limit(&group_of(&gate)), (Some(30_000), 100_000, 0));
        instance.ok(&["unset", class, "quota"]);
        assert_eq!(limit(&group_of(&gate)).0, None);
    }
    instance.gone();
}

#[test]
fn a_process_gets_a_group_in_place_and_goes_home() {
    let instance = or_skip!(Instance::new("inplace"));
    let process = Background::start(&["sleep", "60"]);
    let before = cgroups_of(process.pid());
    let target = format!("pid:{}", process.pid());
    instance.ok(&["set", &target, "class=main", "quota=0.25cpu", "period=20ms"]);
    let gate = instance.gate(&target);
    assert_eq!(limit(&group_of(&gate)), (Some(5_000), 20_000, 0));
    assert_ne!(cgroups_of(process.pid()), before);
    instance.ok(&["unset", &target, "quota", "period"]);
    assert_eq!(cgroups_of(process.pid()), before, "it needs no group now");
    instance.ok(&["set", &target, "cap_hard=10‰"]);
    let gate = instance.gate(&target);
    assert_eq!(limit(&group_of(&gate)), (Some(1_000), 100_000, 0));
    instance.ok(&["unset", &target]);
    assert_eq!(cgroups_of(process.pid()), before);
    drop(process);
    instance.gone();
}

#[test]
fn what_a_process_has_started_is_in_its_gate() {
    let instance = or_skip!(Instance::new("family"));
    let line = "sleep 60 & sh -c 'sleep 60 & wait' & wait";
    let parent = Background::start(&["sh", "-c", line]);
    let leader = parent.pid().to_string();
    let family = || -> Vec<u32> {
        let found = Command::new("pgrep")
            .args(["-g", &leader])
            .output()
            .unwrap();
        stdout(&found)
            .lines()
            .map(|pid| pid.parse().unwrap())
            .collect()
    };
    wait_for("four processes", || family().len() == 4);
    let groups = || -> Vec<String> { family().into_iter().map(cgroups_of).collect() };
    let before = groups();
    let target = format!("pid:{leader}");
    let said = instance.ok(&["set", &target, "class=side"]);
    assert!(said.contains("had started: 3 in the gate"), "{said}");
    let inside = groups();
    assert!(
        inside
            .iter()
            .all(|one| *one == inside[0] && *one != before[0]),
        "{inside:?}"
    );
    instance.ok(&["unset", &target]);
    assert_eq!(groups(), before);
    let said = instance.ok(&["set", "--only", &target, "class=side"]);
    assert!(!said.contains("had started"), "{said}");
    assert_eq!(groups().iter().filter(|one| **one == before[0]).count(), 3);
    instance.ok(&["unset", &target]);
    drop(parent);
    instance.gone();
}

#[test]
fn a_child_stays_in_its_own_gate() {
    let instance = or_skip!(Instance::new("own-child"));
    let parent = Background::start(&["sh", "-c", "sleep 60 & wait"]);
    let children = format!("/proc/{0}/task/{0}/children", parent.pid());
    let child = || {
        std::fs::read_to_string(&children)
            .unwrap()
            .trim()
            .to_owned()
    };
    wait_for("a child", || !child().is_empty());
    let (target, of_child) = (format!("pid:{}", parent.pid()), format!("pid:{}", child()));
    instance.ok(&["set", &of_child, "cap_hard=0.1cpu"]);
    let pid = child().parse().unwrap();
    let inside = cgroups_of(pid);
    let said = instance.ok(&["set", &target, "cap_hard=0.3cpu"]);
    assert!(said.contains("had started: 1 not in the gate"), "{said}");
    assert_eq!(cgroups_of(pid), inside);
    instance.ok(&["unset", &target]);
    assert_eq!(cgroups_of(pid), inside);
    assert_eq!(
        limit(&group_of(&instance.gate(&of_child))),
        (Some(1_000), 10_000, 0)
    );
    instance.ok(&["unset", &of_child]);
    drop(parent);
    instance.gone();
}

/// On v1 a child's quota above its parent's makes the kernel refuse to lower the parent's.
#[test]
fn the_moving_quota_is_not_held_up_by_quotas_below_it() {
    let instance = or_skip!(Instance::new("nested"));
    let flags = ["--side", "--name", "job", "--quota", "90ms"];
    let _side = instance.background(&flags, &["sh", "-c", "while :; do :; done"]);
    let gate = instance.gate("job");
    let group = group_of(&gate);
    let root = format!("/{}-side", instance.prefix());
    // A group that side work makes, with a quota, as a container runtime does.
    let inner = cpu_mount()
        .0
        .join(group.trim_start_matches('/'))
        .join("inner");
    if cpu_mount().1 {
        std::fs::create_dir(&inner).unwrap();
        // Refused where the root above is lower just now; then there is nothing in the way either.
        let _ = std::fs::write(inner.join("cpu.cfs_quota_us"), "80000");
    }
    let main = ["--main", "--name", "web", "--headroom", "30%"];
    let _main = instance.background(
        &main,
        &["sh", "-c", "while :; do :; done & while :; do :; done"],
    );
    instance.gate("web");
    let ratio = |group: &str| {
        let (quota, period, _) = limit(group);
        quota.map(|quota| quota as f64 / period as f64)
    };
    wait_for("the cut", || ratio(&root).is_some_and(|ratio| ratio < 0.5));
    let status = instance.json(&["status"]);
    assert_eq!(status["alerts"], serde_json::json!([]), "{status}");
    let below = ratio(&group);
    assert!(
        !cpu_mount().1 || below.is_none() || below <= Some(0.9),
        "{below:?}"
    );
    let page = instance.ok(&["explain", "job"]);
    assert!(page.contains("its own quota"), "{page}");
    let _ = std::fs::remove_dir(&inner);
}

#[test]
fn a_burst_follows_the_limit_of_another_program() {
    let instance = or_skip!(Instance::new("theirs"));
    let group = OtherGroup::new(&instance);
    group.write_quota();
    let (target, shown) = (group.target(), format!("/{}", group.name));
    instance.ok(&["set", &target, "burst=max"]);
    assert_eq!(limit(&shown), (Some(70_000), 100_000, 70_000));
    let limit_of = format!("the limit of {shown}, set by another program: 70000 us per 100000 us");
    let told = &instance.json(&["explain", &target])["gate"]["notes"][0];
    let is_told = told.as_str().is_some_and(|told| told.contains(&limit_of));
    assert!(is_told, "{told}");
    let write = |quota_us| {
        let (file, quota) = quota_file(&group.path, Some(quota_us));
        std::fs::write(file, quota).map_err(|error| error.raw_os_error())
    };
    assert_eq!(write(90_000), Ok(()));
    wait_for("its burst", || {
        limit(&shown) == (Some(90_000), 100_000, 90_000)
    });
    assert_eq!(write(20_000), Err(Some(22)), "EINVAL, below the burst");
    instance.ok(&["unset", &target]);
    assert_eq!(limit(&shown), (Some(90_000), 100_000, 0));
    instance.gone();
}

#[test]
fn limits_outlive_the_agent_and_are_taken_up() {
    let instance = or_skip!(Instance::new("outlive"));
    let flags = [
        "--main", "--name", "web", "--quota", "40ms", "--burst", "max",
    ];
    let _web = instance.background(&flags, &["sleep", "60"]);
    let group = group_of(&instance.gate("web"));
    let agent = instance.agent().unwrap();
    kill9(agent as i32);
    wait_for("another agent", || {
        let output = instance.output(&["status", "--json"]);
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        assert_eq!(limit(&group).0, Some(40_000));
        status["pid"].as_u64().is_some_and(|pid| pid != agent)
            && status["gates"][0]["own_limit"]["quota_us"] == 40_000
    });
    assert_eq!(limit(&group), (Some(40_000), 100_000, 40_000));
    instance.ok(&["set", "web", "quota=50ms"]);
    assert_eq!(limit(&group), (Some(50_000), 100_000, 50_000));
}

#[test]
fn a_user_tightens_what_an_administrator_set_and_never_loosens_it() {
    let instance = or_skip!(Instance::new("tighten"));
    let keeper = instance.sleeper("keeper");
    let mut run = instance.by_nobody(&[
        "run", "--side", "--quiet", "--name", "job", "--", "sleep", "60",
    ]);
    let job = Background(run.process_group(0).spawn().unwrap());
    instance.gate("job");
    let set = |term: &str, code| {
        let set = instance.by_nobody(&["set", "job", term]).output();
        ends_with(&set.unwrap(), code)
    };
    set("cap_hard=500‰", 0);
    // One's own.
    set("cap_hard=600‰", 0);
    instance.ok(&["set", "job", "cap_hard=300‰"]);
    for looser in ["cap_hard=400‰", "cap_hard=none", "cap_scope=task"] {
        let said = set(looser, 4);
        assert!(said.contains("with privilege"), "{looser}: {said}");
    }
    set("cap_hard=100‰", 0);
    drop((job, keeper));
    instance.gone();
}
