//! Who runs what as whom, and who may ask for what.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use crate::common::{Instance, describe, ends_with, or_skip, stdout};

/// `tidegate WORDS` by a user without rights.
fn by_nobody(instance: &Instance, words: &str) -> Output {
    let words: Vec<&str> = words.split(' ').collect();
    instance.by_nobody(&words).output().unwrap()
}

#[test]
fn under_sudo_the_command_runs_as_the_caller() {
    let instance = or_skip!(Instance::new("sudo"));
    // A parent of that name, as the real one waits for the command.
    let sudo = instance.path().join("sudo");
    std::fs::write(&sudo, "#!/bin/sh\n\"$@\"\nexit $?\n").unwrap();
    std::fs::set_permissions(&sudo, std::fs::Permissions::from_mode(0o755)).unwrap();
    let after_sudo = |mut command: Command| {
        command
            .env("SUDO_UID", "65534")
            .env("SUDO_GID", "65534")
            .env("SUDO_USER", "nobody");
        command
            .env("HOME", "/root")
            .current_dir("/")
            .output()
            .unwrap()
    };
    let with_sudo = |words: &[&str]| {
        let mut command = instance.on(Command::new(&sudo));
        command.arg(instance.binary()).args(words);
        after_sudo(command)
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
    let output = with_sudo(&["run", "--side", "true"]);
    let said = ends_with(&output, 0);
    assert!(
        said.contains("true runs as nobody (--as-root keeps root)"),
        "{said}"
    );
    // A root shell of `sudo -s`, or a script that was started by sudo.
    let shell = after_sudo(instance.tidegate(&["run", "--side", "--quiet", "--", "id", "-u"]));
    assert_eq!(stdout(&shell), "0\n", "{}", describe(&shell));
    // A group that stays root's would be a way back.
    let files = with_sudo(&["run", "--side", "--quiet", "--", "cat", "/etc/shadow"]);
    assert!(
        !files.status.success() && files.stdout.is_empty(),
        "{}",
        describe(&files)
    );
}

#[test]
fn without_rights_and_without_an_agent_the_remedy_is_said() {
    let instance = or_skip!(Instance::new("bare"));
    let refused = ends_with(&by_nobody(&instance, "run --side --strict -- true"), 125);
    assert!(refused.contains("sudo"), "{refused}");
    // Side work holds itself back by its nice level, and keeps its policy, field 41.
    let words = [
        "run",
        "--side",
        "--",
        "cut",
        "-d",
        " ",
        "-f19,41",
        "/proc/self/stat",
    ];
    let place = instance.by_nobody(&words).output().unwrap();
    assert_eq!(stdout(&place), "19 0\n", "{}", describe(&place));
    let words = ["run", "--main", "--or-bare", "--", "sh", "-c", "exit 3"];
    let bare = instance.by_nobody(&words).output().unwrap();
    let said = ends_with(&bare, 3);
    assert!(said.contains("without a gate"), "{said}");
    let doctor = by_nobody(&instance, "doctor");
    ends_with(&doctor, 1);
    assert!(stdout(&doctor).contains("sudo"), "{}", describe(&doctor));
    let verify = by_nobody(&instance, "doctor --verify-sched-ext");
    ends_with(&verify, 4);
    assert!(verify.stdout.is_empty(), "{}", describe(&verify));
}

#[test]
fn a_user_may_yield_and_may_not_claim() {
    let instance = or_skip!(Instance::new("claim"));
    let keeper = instance.sleeper("keeper");
    let side = by_nobody(&instance, "run --side --quiet -- id -u");
    assert_eq!(stdout(&side), "65534\n", "{}", describe(&side));
    ends_with(&by_nobody(&instance, "run --main -- true"), 125);
    let keepers = format!("set pid:{} weight=1", keeper.pid());
    for words in [
        "set pid:1 class=side",
        &keepers,
        "unset keeper",
        "agent stop",
    ] {
        ends_with(&by_nobody(&instance, words), 4);
    }
    assert_eq!(instance.gate("keeper")["processes"], 1);
}
