//! What is known of the original: its shares under the recorded terms, and under others.

use tidegate_lab::replay::view::AS_IT_WAS;

use super::support::{
    FILE, Seen, near, policy, recording, replay, simulate, used_cpus, used_in, value,
};

/// Main follows a day of 30 seconds; side work takes what it can get; another group has work of its
/// own.
const SERVER: &str = r#"
duration = "63s"
warmup = "3s"
window = "1s"
[machine]
cpus = 4
contention = "none"
[engine]
name = "cgroup"
[group.web]
class = "main"
headroom = "30%"
[group.encode]
class = "side"
[group.cron]
[workload.requests]
kind = "open-loop"
group = "web"
arrivals = "curve"
points = [["0s", "20%"], ["15s", "100%"], ["30s", "20%"]]
repeat = "30s"
load = "50%"
work = "800us"
work_shape = "exponential"
[workload.encoder]
kind = "hog"
group = "encode"
tasks = 4
[workload.cron]
kind = "hog"
group = "cron"
tasks = 1
busy = "20%"
start = "10s"
"#;

const WEB: Seen = Seen {
    group: "web",
    cgroup: "/system.slice/web.service",
    class: "main",
    terms: &[("class", "main", FILE), ("headroom", "30%", FILE)],
    processes: 8,
};
const ENCODE: Seen = Seen {
    group: "encode",
    cgroup: "/system.slice/encode.service",
    class: "side",
    terms: &[("class", "side", FILE)],
    processes: 4,
};
const CRON: Seen = Seen {
    group: "cron",
    cgroup: "/system.slice/cron.service",
    class: "neutral",
    terms: &[],
    processes: 1,
};

fn policy_of(headroom: &str) -> tidegate_lab::replay::Policy {
    let toml = format!(
        "[[rule]]\nname = \"web\"\nmatch = {{ unit = \"web.service\" }}\nterms = {{ class = \"main\", headroom = \"{headroom}\" }}\n\
         [[rule]]\nname = \"encode\"\nmatch = {{ unit = \"encode.service\" }}\nterms = {{ class = \"side\" }}\n"
    );
    policy(headroom, &toml)
}

#[test]
fn under_the_recorded_terms_a_replay_is_what_was() {
    let original = simulate(SERVER, &[]);
    let recorded = recording(&original, 0.3, &[WEB, ENCODE, CRON]);
    let view = replay(&recorded, &[]);
    let [was, again] = view.arms.as_slice() else {
        panic!("{} arms", view.arms.len())
    };
    assert_eq!((was.name.as_str(), was.is_recorded), (AS_IT_WAS, true));
    for work in ["web", "encode", "/system.slice/cron.service"] {
        near(work, used_in(again, work), used_in(was, work));
    }
    let shares = [
        (
            "idle",
            was.figures.idle_kept_pct,
            again.figures.idle_kept_pct,
        ),
        ("side", was.figures.side_cpus, again.figures.side_cpus),
        ("main", was.figures.main_cpus, again.figures.main_cpus),
    ];
    for (what, was, again) in shares {
        near(what, value(again), value(was));
    }
    let (was_us, again_us) = (
        was.figures.main_wait_mean_us,
        again.figures.main_wait_mean_us,
    );
    println!("wait {} us for {} us", value(again_us), value(was_us));
    assert_eq!(again.points.len(), 60);
    // The valley and the peak are where they were.
    for (was, again) in was.points.iter().zip(&again.points) {
        assert_eq!(was.time_unix_seconds, again.time_unix_seconds);
        let off = (was.main_cpus - again.main_cpus).abs();
        assert!(off < 0.45, "{off} at {}", was.time_unix_seconds);
    }
}

#[test]
fn under_other_terms_a_replay_is_what_the_original_does_under_them() {
    let recorded = recording(&simulate(SERVER, &[]), 0.3, &[WEB, ENCODE, CRON]);
    let headrooms = ["0%", "10%", "20%", "45%", "60%"];
    let policies = headrooms.map(policy_of);
    let view = replay(&recorded, &policies);
    let mut before = f64::MAX;
    for (headroom, arm) in headrooms.iter().zip(&view.arms[1..]) {
        let original = simulate(SERVER, &[("group.web.headroom", headroom)]);
        let side = value(arm.figures.side_cpus);
        near(
            &format!("{headroom} side"),
            side,
            used_cpus(&original, "encode"),
        );
        near(
            &format!("{headroom} main"),
            value(arm.figures.main_cpus),
            used_cpus(&original, "web") + used_cpus(&original, "cron"),
        );
        assert!(side < before, "{headroom}: {side} is not below {before}");
        before = side;
        let waits = &original.groups.iter().find(|group| group.name == "web");
        println!(
            "{headroom} wait {:.1} us for {:.1} us",
            value(arm.figures.main_wait_mean_us),
            waits.unwrap().wakeup.mean_ns() as f64 / 1e3
        );
    }
}

/// Side work with little to do is not held back: under a tight limit it does as much, only later.
#[test]
fn what_is_not_served_at_once_is_served_later() {
    const BACKUP: &str = r#"
duration = "63s"
warmup = "3s"
window = "1s"
[machine]
cpus = 4
contention = "none"
[engine]
name = "cgroup"
[group.web]
class = "main"
headroom = "10%"
[group.backup]
class = "side"
[workload.requests]
kind = "open-loop"
group = "web"
load = "25%"
work = "1ms"
[workload.backup]
kind = "hog"
group = "backup"
tasks = 1
start = "6s"
end = "15s"
"#;
    let original = simulate(BACKUP, &[]);
    let seen = || Seen {
        group: "backup",
        cgroup: "/system.slice/backup.service",
        processes: 1,
        ..ENCODE
    };
    let recorded = recording(&original, 0.1, &[WEB, seen()]);
    let policy_of = |quota: &str| {
        let toml = format!(
            "[[rule]]\nname = \"web\"\nmatch = {{ unit = \"web.service\" }}\nterms = {{ class = \"main\", headroom = \"10%\" }}\n\
             [[rule]]\nname = \"backup\"\nmatch = {{ unit = \"backup.service\" }}\nterms = {{ class = \"side\", quota = \"{quota}\" }}\n"
        );
        policy(quota, &toml)
    };
    let view = replay(&recorded, &[policy_of("0.4cpu"), policy_of("0.1cpu")]);
    let was = used_cpus(&original, "backup");
    near("0.4 CPUs", used_in(&view.arms[1], "backup"), was);
    near(
        "0.1 CPUs",
        used_in(&view.arms[2], "backup"),
        0.1 * 57.0 / 60.0,
    );
    let late = view.arms[1]
        .points
        .iter()
        .rfind(|point| point.side_cpus > 0.1);
    let last = late.unwrap().time_unix_seconds - view.recording.from_unix_seconds;
    assert!((20.0..=30.0).contains(&last), "{last}");
}

/// Of a quota and a cap the stricter holds, and a cap for each task is as many as there are tasks.
#[test]
fn caps_hold_as_on_a_host() {
    const JOB: &str = r#"
duration = "13s"
warmup = "3s"
window = "1s"
[machine]
cpus = 4
[group.job]
[workload.job]
kind = "hog"
group = "job"
tasks = 4
"#;
    const CGROUP: &str = "/system.slice/job.service";
    let seen = Seen {
        group: "job",
        cgroup: CGROUP,
        class: "neutral",
        terms: &[],
        processes: 4,
    };
    let recorded = recording(&simulate(JOB, &[]), 0.0, &[seen]);
    let terms = [
        ("quota = '0.5cpu', cap_hard = '0.2cpu'", 0.2),
        ("cap_hard = '0.2cpu', cap_scope = 'task'", 0.8),
        (
            "class = 'side', cap_hard = '0.2cpu', cap_scope = 'task'",
            0.8,
        ),
    ];
    let policies = terms.map(|(terms, _)| {
        let rule = "name = 'job'\nmatch = { unit = 'job.service' }";
        policy(terms, &format!("[[rule]]\n{rule}\nterms = {{ {terms} }}\n"))
    });
    let view = replay(&recorded, &policies);
    for ((terms, cpus), arm) in terms.iter().zip(&view.arms[1..]) {
        near(terms, used_in(arm, CGROUP), *cpus);
    }
}
