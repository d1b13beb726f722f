//! Who runs what as whom, and who may ask for what.

use std::process::{Command, Output};

use crate::common::{Instance, describe, stderr, stdout};

const NOBODY: &str = "65534";

/// `tidegate WORDS` by a user without rights.
fn as_nobody(instance: &Instance, words: &[&str]) -> Output {
    let mut command = instance.on(Command::new("setpriv"));
    command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
    command
        .arg(instance.binary())
        .args(words)
        .current_dir("/")
        .output()
        .unwrap()
}

#[test]
fn under_sudo_the_command_runs_as_the_caller() {
    let Some(instance) = Instance::new("sudo") else {
        return;
    };
    let with_sudo = |words: &[&str]| {
        let mut command = instance.tidegate(words);
        command
            .env("SUDO_UID", NOBODY)
            .env("SUDO_GID", NOBODY)
            .env("SUDO_USER", "nobody");
        command
            .env("HOME", "/root")
            .current_dir("/")
            .output()
            .unwrap()
    };
    let ask = "id -u; id -g; id -G; echo $USER $LOGNAME; grep ^Cap /proc/self/status";
    let output = with_sudo(&["run", "--side", "--quiet", "--", "sh", "-c", ask]);
    assert!(output.status.success(), "{}", describe(&output));
    let text = stdout(&output);
    assert!(
        text.starts_with("65534\n65534\n65534\nnobody nobody\n"),
        "{text}"
    );
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert!(
            text.contains(&format!("{set}:\t0000000000000000")),
            "{text}"
        );
    }
    let home = with_sudo(&["run", "--side", "--quiet", "--", "sh", "-c", "echo $HOME"]);
    assert_ne!(stdout(&home), "/root\n");
    let root = with_sudo(&["run", "--side", "--quiet", "--as-root", "--", "id", "-u"]);
    assert_eq!(stdout(&root), "0\n", "{}", describe(&root));
    // A group that stays root's would be a way back.
    let files = with_sudo(&["run", "--side", "--quiet", "--", "cat", "/etc/shadow"]);
    assert!(
        !files.status.success() && files.stdout.is_empty(),
        "{}",
        describe(&files)
    );
}

#[test]
fn without_rights_and_without_an_agent_the_mend_is_said() {
    let Some(instance) = Instance::new("bare") else {
        return;
    };
    let refused = as_nobody(&instance, &["run", "--side", "--", "true"]);
    assert_eq!(refused.status.code(), Some(125), "{}", describe(&refused));
    assert!(stderr(&refused).contains("sudo"), "{}", describe(&refused));
    let bare = as_nobody(
        &instance,
        &["run", "--side", "--or-bare", "--", "sh", "-c", "exit 3"],
    );
    assert_eq!(bare.status.code(), Some(3), "{}", describe(&bare));
    assert!(
        stderr(&bare).contains("without a gate"),
        "{}",
        describe(&bare)
    );
    let doctor = as_nobody(&instance, &["doctor"]);
    assert_eq!(doctor.status.code(), Some(1), "{}", describe(&doctor));
    assert!(stdout(&doctor).contains("sudo"), "{}", describe(&doctor));
    let verify = as_nobody(&instance, &["doctor", "--verify-sched-ext"]);
    assert_eq!(verify.status.code(), Some(4), "{}", describe(&verify));
    assert!(stdout(&verify).is_empty(), "{}", describe(&verify));
}

#[test]
fn a_user_may_yield_and_may_not_claim() {
    let Some(instance) = Instance::new("claim") else {
        return;
    };
    let keeper = instance.background(&["--side", "--name", "keeper"], &["sleep", "60"]);
    instance.gate("keeper");
    let side = as_nobody(&instance, &["run", "--side", "--quiet", "--", "id", "-u"]);
    assert_eq!(stdout(&side), "65534\n", "{}", describe(&side));
    let main = as_nobody(&instance, &["run", "--main", "--", "true"]);
    assert_eq!(main.status.code(), Some(125), "{}", describe(&main));
    let pid = format!("pid:{}", keeper.pid());
    for words in [
        &["set", "pid:1", "class=side"][..],
        &["set", &pid, "weight=1"],
        &["unset", "keeper"],
        &["agent", "stop"],
    ] {
        let output = as_nobody(&instance, words);
        assert_eq!(
            output.status.code(),
            Some(4),
            "{words:?}: {}",
            describe(&output)
        );
    }
    assert_eq!(instance.gate("keeper")["processes"], 1);
}
