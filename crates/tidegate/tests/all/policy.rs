//! Rules of policy files, through the command: checked, shown, tried, kept and gone back from, on what starts later, and after
//! `kill -9` of the agent.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::common::{
    Background, Instance, cgroups_of, cpu_mount, describe, stderr, stdout, wait_for,
};

/// A group that the rules match, and that other software owns.
struct Batch {
    path: PathBuf,
    name: String,
}

impl Batch {
    fn make(instance: &Instance, name: &str) -> Batch {
        // Not the instance's prefix: what is left is not looked for there.
        let name = format!("{name}-{}", instance.prefix());
        let path = cpu_mount().0.join(&name);
        std::fs::create_dir(&path).unwrap();
        Batch { path, name }
    }

    /// The values that gates change.
    fn values(&self) -> Vec<String> {
        let files = match cpu_mount().1 {
            true => ["cpu.cfs_quota_us", "cpu.shares", "cpu.idle"],
            false => ["cpu.max", "cpu.weight", "cpu.idle"],
        };
        let read = |file: &&str| std::fs::read_to_string(self.path.join(file)).unwrap_or_default();
        files
            .iter()
            .map(|file| read(file).trim().to_owned())
            .collect()
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.path);
    }
}

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

/// The part of a golden text that differs between runs.
fn without_names(instance: &Instance, text: &str) -> String {
    text.replace(&instance.run_dir().display().to_string(), "RUN_DIR")
        .replace(instance.prefix(), "PREFIX")
}

/// An agent that a side command keeps, a group, and a rule for it in this mode that is not in force yet.
fn begun(name: &str, mode: &str) -> Option<(Instance, Batch, Background)> {
    let instance = Instance::new(name)?;
    let batch = Batch::make(&instance, "batch-1");
    let keeper = instance.background(&["--side", "--name", "keeper"], &["sleep", "60"]);
    instance.gate("keeper");
    write(&instance, "10-batch.toml", &batch_rule(&instance, mode));
    Some((instance, batch, keeper))
}

const MISTAKES: &str = "\
tidegate: weihgt: RUN_DIR/tidegate.toml.d/10-batch.toml:5:27: no such term; did you mean weight?
";

#[test]
fn a_mistake_is_shown_with_its_place_and_changes_nothing() {
    let Some((instance, batch, _keeper)) = begun("pol-check", "enforce") else {
        return;
    };
    let fresh = batch.values();
    let said = instance.ok(&["policy", "check"]);
    assert_eq!(said, "1 file, 1 rule: no mistake\n");
    instance.ok(&["policy", "apply"]);
    let ruled = batch.values();
    assert_ne!(ruled, fresh);
    let wrong = batch_rule(&instance, "enforce").replace("weight", "weihgt");
    write(&instance, "10-batch.toml", &wrong);
    let checked = instance.output(&["policy", "check"]);
    assert_eq!(checked.status.code(), Some(2), "{}", describe(&checked));
    assert_eq!(without_names(&instance, &stderr(&checked)), MISTAKES);
    for command in ["apply", "reload", "diff"] {
        let refused = instance.output(&["policy", command]);
        assert_eq!(refused.status.code(), Some(2), "{}", describe(&refused));
        let said = stderr(&refused);
        assert!(said.contains("10-batch.toml:5:27: no such term"), "{said}");
    }
    assert_eq!(batch.values(), ruled, "the policy in force stays");
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
    let Some((instance, batch, _keeper)) = begun("pol-trial", "observe") else {
        return;
    };
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
    let differs = instance.output(&["policy", "diff"]);
    assert_eq!(differs.status.code(), Some(1), "{}", describe(&differs));
    let diff = stdout(&differs);
    let made = format!("+ cgroup:/{} [batch]: class=side weight=50\n", batch.name);
    assert!(diff.starts_with(&made), "{diff}");
    let file = batch.path.join("cpu.idle");
    let idle = format!("{}: 0 -> 1\n", file.display());
    assert!(diff.contains(&idle), "{diff}");
    assert_eq!(batch.values(), fresh, "a diff writes nothing");

    let tried = instance.ok(&["policy", "apply", "--for", "2s"]);
    assert!(tried.starts_with(&made), "{tried}");
    assert_ne!(batch.values(), fresh, "on trial");
    wait_for("the end of the trial", || batch.values() == fresh);
    let refused = instance.output(&["policy", "confirm"]);
    assert_eq!(refused.status.code(), Some(2), "{}", describe(&refused));

    instance.ok(&["policy", "apply", "--for", "1h"]);
    let left = instance.json(&["policy", "show"])["trial_seconds_left"].as_f64();
    assert!(left.is_some_and(|left| left > 3_000.0), "{left:?}");
    instance.ok(&["policy", "confirm"]);
    let view = instance.json(&["policy", "show"]);
    assert!(view["trial_seconds_left"].is_null(), "{view}");
    assert_ne!(batch.values(), fresh, "confirmed");
    let later = Batch::make(&instance, "batch-2");
    let later_fresh = fresh.clone();
    wait_for("a group that was made later", || {
        later.values() != later_fresh
    });

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
    let Some(instance) = Instance::new("pol-later") else {
        return;
    };
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

    let agent = instance.json(&["status"])["pid"].as_u64().unwrap();
    let killed = Command::new("kill")
        .args(["-KILL", &agent.to_string()])
        .stdin(Stdio::null())
        .status();
    assert!(killed.unwrap().success());
    // The next command starts an agent where the guardian has not done so yet.
    instance.ok(&["run", "--side", "--", "true"]);
    let view = instance.json(&["policy", "show"]);
    let left = view["trial_seconds_left"].as_f64();
    assert!(left.is_some_and(|left| left > 3_000.0), "{view}");
    assert_ne!(instance.json(&["status"])["pid"].as_u64(), Some(agent));
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
    let Some(instance) = Instance::new("pol-diff") else {
        return;
    };
    let batch = Batch::make(&instance, "batch-1");
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
    assert_eq!(differs.status.code(), Some(1), "{}", describe(&differs));
    let diff = stdout(&differs);
    let made = format!("+ cgroup:/{} [batch]: class=side weight=50\n", batch.name);
    assert!(diff.starts_with(&made), "{diff}");
    let file = batch.path.join("cpu.idle");
    assert!(
        diff.contains(&format!("{}: 0 -> 1\n", file.display())),
        "{diff}"
    );
    assert_eq!(batch.values(), fresh, "a diff writes nothing");
    let status = instance.output(&["status"]);
    assert_eq!(status.status.code(), Some(3), "no agent was started");
}
