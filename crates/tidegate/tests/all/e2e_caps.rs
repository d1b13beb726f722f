//! Caps on the running kernel, as a person asks for them: soft ones of commands, hard ones of each
//! task and of a process.

use crate::common::{Background, Instance, cgroups_of, children, or_skip, wait_for};

#[test]
fn a_soft_capped_command_lies_at_the_top_and_tells_of_its_bucket() {
    let instance = or_skip!(Instance::new("soft"));
    let flags = ["--cap-soft", "0", "--name", "job"];
    let command = instance.background(&flags, &["sleep", "60"]);
    let gate = instance.gate("job");
    let group = gate["cgroup"].as_str().unwrap();
    assert!(
        group.ends_with(&format!("/{}-soft=job", instance.prefix())),
        "{group}"
    );
    wait_for("the command in its group", || {
        cgroups_of(command.pid()).contains(group)
    });
    wait_for("the background", || {
        instance.gate("job")["cap"]["in_background_seconds"].is_number()
    });
    assert!(instance.ok(&["status", "job"]).contains("for good"));
    // It has run a little, to begin with.
    wait_for("demand as the limit of one that sleeps", || {
        instance.json(&["explain", "job"])["gate"]["held"]["limit"] == "demand"
    });
    instance.ok(&["set", "gate:job", "cap_soft=30%"]);
    assert_eq!(instance.gate("job")["cap"]["soft_cpus"], 0.3);
    wait_for("one that sleeps to come out of the background", || {
        let cap = &instance.gate("job")["cap"];
        cap["in_background_seconds"].is_null() && cap["level_us"].as_f64() > Some(0.0)
    });
    drop(command);
    instance.gone();
}

#[test]
fn each_task_of_a_command_has_a_group_of_its_own() {
    let instance = or_skip!(Instance::new("each"));
    let flags = ["--cap", "200‰", "--cap-scope", "task", "--name", "job"];
    let two = "sleep 60 & sleep 60 & wait";
    let command = instance.background(&flags, &["sh", "-c", two]);
    wait_for("a group for each task", || {
        let notes = instance.gate("job")["notes"].to_string();
        notes.contains("each alone: 3 groups for tasks")
    });
    let mut tasks = children(command.pid());
    tasks.push(command.pid());
    let mut groups: Vec<String> = tasks.into_iter().map(cgroups_of).collect();
    groups.sort();
    groups.dedup();
    assert_eq!(groups.len(), 3, "{groups:#?}");
    drop(command);
    instance.gone();
}

#[test]
fn a_process_that_runs_is_capped_and_goes_home() {
    let instance = or_skip!(Instance::new("home"));
    let hog = Background::start(&["sh", "-c", "while :; do :; done"]);
    let home = cgroups_of(hog.pid());
    let target = format!("pid:{}", hog.pid());
    instance.ok(&["set", &target, "cap_hard=20%", "cap_scope=process"]);
    let at = cgroups_of(hog.pid());
    assert!(
        at.contains(&format!("{}-p{}", instance.prefix(), hog.pid())),
        "{at}"
    );
    wait_for("its cap to throttle it", || {
        let gate = instance.gate(&target);
        gate["nr_throttled"].as_u64() > Some(0)
    });
    wait_for("the reason", || {
        instance.json(&["explain", &target])["gate"]["held"]["limit"] == "cap"
    });
    instance.ok(&["unset", &target]);
    assert_eq!(cgroups_of(hog.pid()), home);
    drop(hog);
    instance.gone();
}

#[test]
fn what_throttles_other_side_work_is_not_counted_as_a_gates_own() {
    let instance = or_skip!(Instance::new("own-counts"));
    let flags = ["--side", "--headroom", "90%", "--name", "hog"];
    let hog = instance.background(&flags, &["sh", "-c", "while :; do :; done"]);
    let flags = ["--side", "--cap", "0.5cpu", "--name", "job"];
    let job = instance.background(&flags, &["sleep", "60"]);
    wait_for("side work to be throttled", || {
        instance.gate("hog")["nr_throttled"].as_u64() > Some(0)
    });
    assert_eq!(instance.gate("job")["nr_throttled"], 0);
    drop((hog, job));
    instance.gone();
}
