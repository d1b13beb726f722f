//! The limit that `explain` names, on the running kernel: of hogs under each limit, of a sleeper,
//! and never `demand` of a hog.

use serde_json::Value;

use crate::common::{Background, Instance, cgroups_of, cpu_mount, or_skip, quota_file, wait_for};

const HOG: [&str; 3] = ["sh", "-c", "while :; do :; done"];

fn hog(instance: &Instance, name: &str, flags: &[&str]) -> Background {
    let flags = [flags, &["--name", name]].concat();
    let job = instance.background(&flags, &HOG);
    wait_for("the command in its group", || {
        cgroups_of(job.pid()).contains(name)
    });
    job
}

fn held(instance: &Instance, target: &str) -> Value {
    instance.json(&["explain", target])["gate"]["held"].clone()
}

/// The gate comes to be held by one of these.
fn is_held_by(instance: &Instance, target: &str, limits: &[&str]) {
    wait_for(&format!("{target} to be held by {limits:?}"), || {
        let held = held(instance, target);
        limits.iter().any(|limit| held["limit"] == **limit)
    });
}

#[test]
fn a_hog_is_held_by_its_own_limits() {
    let instance = or_skip!(Instance::new("own"));
    for (flags, limit) in [
        (["--quota", "20ms"], "quota"),
        (["--cap", "200‰"], "cap"),
        (["--cap-soft", "0"], "soft_cap"),
    ] {
        let job = hog(&instance, limit, &flags);
        is_held_by(&instance, limit, &[limit]);
        drop(job);
    }
    instance.gone();
}

#[test]
fn a_hog_of_side_work_is_held_by_the_headroom_and_never_called_idle() {
    let instance = or_skip!(Instance::new("awake"));
    let job = hog(&instance, "job", &["--side", "--headroom", "90%"]);
    // On a machine that is busy with other work, main leaves nothing above the headroom.
    is_held_by(&instance, "job", &["headroom", "tolerance"]);
    for _ in 0..20 {
        let held = held(&instance, "job");
        assert_ne!(held["limit"], "demand", "{held}");
        std::thread::sleep(std::time::Duration::from_millis(150));
    }
    drop(job);
    let sleeper = instance.sleeper("sleeper");
    is_held_by(&instance, "sleeper", &["demand"]);
    drop(sleeper);
    instance.gone();
}

#[test]
fn a_hog_without_a_headroom_is_held_by_main_s_use() {
    let instance = or_skip!(Instance::new("free"));
    let job = hog(&instance, "job", &["--side"]);
    let cpus = std::thread::available_parallelism().unwrap().get();
    let main: Vec<Background> = (0..cpus)
        .map(|_| instance.background(&["--main"], &HOG))
        .collect();
    // The tolerance holds it where main leaves less than that.
    is_held_by(&instance, "job", &["idle_class", "tolerance"]);
    drop((job, main));
    instance.gone();
}

#[test]
fn two_hogs_of_side_work_are_held_by_their_weights() {
    let instance = or_skip!(Instance::new("two"));
    let job = hog(&instance, "job", &["--side", "--headroom", "50%"]);
    let other = instance.background(&["--side", "--name", "other"], &HOG);
    // Where the rest of the machine is full it is the tolerance that both share.
    is_held_by(&instance, "job", &["weight", "tolerance"]);
    drop((job, other));
    instance.gone();
}

#[test]
fn a_hog_is_held_by_limits_of_others() {
    let instance = or_skip!(Instance::new("others"));
    let job = hog(&instance, "job", &["--main"]);
    let group = instance.gate("job")["cgroup"].as_str().unwrap().to_owned();
    let dir = cpu_mount().0.join(group.trim_start_matches('/'));
    for (dir, limit) in [(&*dir, "outside"), (dir.parent().unwrap(), "parent")] {
        let (file, quota) = quota_file(dir, Some(20_000));
        std::fs::write(&file, quota).unwrap();
        is_held_by(&instance, "job", &[limit]);
        std::fs::write(&file, quota_file(dir, None).1).unwrap();
    }
    drop(job);
    instance.gone();
}
