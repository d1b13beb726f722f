//! Rules of policy files, through the command: checked, shown, tried, kept and gone back from, on
//! what starts later, and after `kill -9` of the agent.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use crate::common::{
    Background, Instance, OtherGroup, cgroups_of, ends_with, or_skip, stdout, wait_for,
};
use crate::support_kill::processes::kill9;

fn write(instance: &Instance, name: &str, text: &str) {
    let dir = instance.run_dir().join("tidegate.toml.d");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join(name), text).unwrap();
}

fn batch_rule(instance: &Instance, mode: &str) -> String {
    format!(
        "[[rule]]\nname = \"batch\"\nmatch = {{ cgroup = \"/batch-*-{}\" }}\nmode = \"{mode}\"\nterms = {{ class = \"side\", weight = 50 }}\n",
        instance.prefix()
    )
}

/// An agent that a side command keeps, a group, and a rule for it in this mode that is not in force
/// yet.
fn begun(name: &str, mode: &str) -> Option<(Instance, OtherGroup, Background)> {
    let instance = Instance::new(name)?;
    let batch = OtherGroup::named(&instance, "batch-1");
    let keeper = instance.sleeper("keeper");
    write(&instance, "10-batch.toml", &batch_rule(&instance, mode));
    Some((instance, batch, keeper))
}

const MISTAKES: &str = "\
tidegate: weihgt: RUN_DIR/tidegate.toml.d/10-batch.toml:5:27: no such term; did you mean weight?
";

#[test]
fn a_mistake_is_shown_with_its_place_and_changes_nothing() {
    let (instance, batch, _keeper) = or_skip!(begun("pol-check", "enforce"));
    let fresh = batch.values();
    let said = instance.ok(&["policy", "check"]);
    assert_eq!(said, "1 file, 1 rule: no mistake\n");
    instance.ok(&["policy", "apply"]);
    assert_ne!(batch.values(), fresh);
    // The loop moves the quota.
    let terms = || instance.gate(&batch.name)["terms"].clone();
    let ruled = terms();
    let wrong = batch_rule(&instance, "enforce").replace("weight", "weihgt");
    write(&instance, "10-batch.toml", &wrong);
    let checked = instance.fails(&["policy", "check"], 2);
    let run_dir = instance.run_dir().display().to_string();
    assert_eq!(checked.replace(&run_dir, "RUN_DIR"), MISTAKES);
    for command in ["apply", "reload", "diff"] {
        let said = instance.fails(&["policy", command], 2);
        assert!(said.contains("10-batch.toml:5:27: no such term"), "{said}");
    }
    assert_eq!(terms(), ruled, "the policy in force stays");
    assert_ne!(batch.values(), fresh);
    let page = instance.ok(&["policy", "show"]);
    assert!(page.contains("the files were refused"), "{page}");
    let metrics = instance.ok(&["metrics"]);
    assert!(
        metrics.contains("\ntidegate_policy_last_reload_success 0.0\n"),
        "{metrics}"
    );
}

#[test]
fn a_trial_ends_by_itself_or_is_confirmed_and_can_be_gone_back_from() {
    let (instance, batch, _keeper) = or_skip!(begun("pol-trial", "observe"));
    let fresh = batch.values();
    instance.ok(&["policy", "apply"]);
    let page = instance.ok(&["policy", "show"]);
    let told = format!("cgroup:/{} would have class=side weight=50", batch.name);
    assert!(page.contains(&told), "{page}");
    assert_eq!(batch.values(), fresh, "observed only");

    write(
        &instance,
        "10-batch.toml",
        &batch_rule(&instance, "enforce"),
    );
    instance.fails(&["policy", "diff"], 1);
    let made = format!("+ cgroup:/{} [batch]: class=side weight=50\n", batch.name);
    let tried = instance.ok(&["policy", "apply", "--for", "2s"]);
    assert!(tried.starts_with(&made), "{tried}");
    assert_ne!(batch.values(), fresh, "on trial");
    wait_for("the end of the trial", || batch.values() == fresh);
    instance.fails(&["policy", "confirm"], 2);

    instance.ok(&["policy", "apply", "--for", "1h"]);
    let left = instance.json(&["policy", "show"])["trial_seconds_left"].as_f64();
    assert!(left.is_some_and(|left| left > 3_000.0), "{left:?}");
    instance.ok(&["policy", "confirm"]);
    let view = instance.json(&["policy", "show"]);
    assert!(view["trial_seconds_left"].is_null(), "{view}");
    assert_ne!(batch.values(), fresh, "confirmed");
    let later = OtherGroup::named(&instance, "batch-2");
    wait_for("a group that was made later", || later.values() != fresh);

    instance.ok(&["policy", "rollback"]);
    assert_eq!(batch.values(), fresh, "gone back");
    assert_eq!(later.values(), fresh, "gone back");
    let view = instance.json(&["policy", "show"]);
    assert_eq!(view["files_differ"], true, "{view}");
}

/// A copy of `sleep` that no other process runs.
fn own_sleep(instance: &Instance) -> PathBuf {
    let path = instance.path().join("own-sleep");
    // By another process: see Instance::new.
    let copied = Command::new("cp")
        .args(["/bin/sleep".into(), path.clone()])
        .status();
    assert!(copied.unwrap().success());
    path
}

#[test]
fn a_program_that_starts_later_is_gated_and_a_killed_agent_leaves_its_trial_to_the_next() {
    let instance = or_skip!(Instance::new("pol-later"));
    let sleep = own_sleep(&instance);
    let rule = format!(
        "[[rule]]\nname = \"sleeps\"\nmatch = {{ exe = \"{}\" }}\nterms = {{ class = \"side\", weight = 30 }}\n",
        sleep.display()
    );
    write(&instance, "20-sleeps.toml", &rule);
    // Nothing matches, and the agent stays for what starts later.
    instance.ok(&["policy", "apply", "--for", "1h"]);
    let side = format!("{}-side/", instance.prefix());
    let path = sleep.display().to_string();
    let started = Instant::now();
    let first = Background::start(&[&path, "60"]);
    wait_for("the gate of a program started later", || {
        cgroups_of(first.pid()).contains(&side)
    });
    eprintln!("gated after {:?}", started.elapsed());
    assert_eq!(instance.ok(&["policy", "diff"]), "no gate would change\n");

    let agent = instance.agent().unwrap();
    kill9(agent as i32);
    // The next command starts an agent where the guardian has not done so yet.
    instance.ok(&["run", "--side", "--", "true"]);
    let view = instance.json(&["policy", "show"]);
    let left = view["trial_seconds_left"].as_f64();
    assert!(left.is_some_and(|left| left > 3_000.0), "{view}");
    assert_ne!(instance.agent(), Some(agent));
    assert!(cgroups_of(first.pid()).contains(&side), "still gated");
    let log = std::fs::read_to_string(instance.run_dir().join("agent.log")).unwrap();
    assert!(
        !log.contains("no longer matches"),
        "at no moment ungated: {log}"
    );
    let second = Background::start(&[&path, "60"]);
    wait_for("the gate of another start", || {
        cgroups_of(second.pid()).contains(&side)
    });

    instance.ok(&["policy", "rollback"]);
    let gates = instance.json(&["policy", "show"]);
    assert_eq!(gates["rules"].as_array().map(Vec::len), Some(0), "{gates}");
    assert!(!cgroups_of(first.pid()).contains(&side), "gone back");
    assert!(!cgroups_of(second.pid()).contains(&side), "gone back");
}

#[test]
fn a_diff_needs_no_agent_and_starts_none() {
    let instance = or_skip!(Instance::new("pol-diff"));
    let batch = OtherGroup::named(&instance, "batch-1");
    let fresh = batch.values();
    assert_eq!(
        instance.ok(&["policy", "diff"]),
        "no gate would change\n",
        "without files"
    );
    write(
        &instance,
        "10-batch.toml",
        &batch_rule(&instance, "enforce"),
    );
    let differs = instance.output(&["policy", "diff"]);
    ends_with(&differs, 1);
    let diff = stdout(&differs);
    let made = format!("+ cgroup:/{} [batch]: class=side weight=50\n", batch.name);
    assert!(diff.starts_with(&made), "{diff}");
    let file = batch.path.join("cpu.idle");
    let idle = format!(
        "{}: 0 -> 1
",
        file.display()
    );
    assert!(diff.contains(&idle), "{diff}");
    assert_eq!(batch.values(), fresh, "a diff writes nothing");
    // No agent was started.
    instance.fails(&["status"], 3);
}
