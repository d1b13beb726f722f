//! What a newcomer is told: one sentence, which names the input and one remedy.

use std::process::{Command, Output, Stdio};

use crate::common::{Background, Instance, describe, or_skip, stderr};

/// Who asks for what; the exit code; the input as the sentence names it; the remedy. In a
/// `container`, root has its own numbers of processes and a cgroup tree that is read-only; `notree`
/// is root where no cgroup tree is mounted.
const WITHOUT_AGENT: &str = r#"
nobody | run true | 0 | side work by nice 19, slices of 20 ms, idle I/O | which yields to
nobody | run --quota 50% true | 125 | /run: Permission denied | put sudo before tidegate
nobody | run --side --quota 50% true | 0 | not in force: quota | put sudo before tidegate
nobody | run --strict true | 125 | /run: Permission denied | put sudo before tidegate
nobody | set pid:1 class=side | 3 | /run: Permission denied | put sudo before tidegate
nobody | policy apply | 3 | /run: Permission denied | put sudo before tidegate
nobody | agent run | 4 | /run: Permission denied | put sudo before tidegate
nobody | recording save | 5 | /recording:  | start an agent
nobody | unset x | 3 | /tidegate.sock: no agent | `sudo tidegate run` or an administrator starts one
nobody | status | 3 | /tidegate.sock: no agent | `sudo tidegate run` or an administrator starts one
nobody | explain x | 3 | /tidegate.sock: no agent | `sudo tidegate run` or an administrator starts one
nobody | top --once | 3 | /tidegate.sock: no agent | `sudo tidegate run` or an administrator starts one
nobody | events | 3 | /tidegate.sock: no agent | `sudo tidegate run` or an administrator starts one
nobody | metrics | 3 | /tidegate.sock: no agent | `sudo tidegate run` or an administrator starts one
nobody | report x 5ms | 3 | /tidegate.sock: no agent | `sudo tidegate run` or an administrator starts one
nobody | policy show | 3 | /tidegate.sock: no agent | `sudo tidegate run` or an administrator starts one
nobody | policy confirm | 3 | /tidegate.sock: no agent | `sudo tidegate run` or an administrator starts one
nobody | policy rollback | 3 | /tidegate.sock: no agent | `sudo tidegate run` or an administrator starts one
container | run true | 0 | /sys/fs/cgroup | mount the cgroup tree read-write
container | run --strict true | 125 | /sys/fs/cgroup | mount the cgroup tree read-write
container | set pid:1 class=side | 3 | /sys/fs/cgroup | mount the cgroup tree read-write
container | agent run | 4 | /sys/fs/cgroup | mount the cgroup tree read-write
notree | run --main true | 125 | no cgroup mount at all | mount -t cgroup2 none /sys/fs/cgroup
notree | agent run | 4 | no cgroup mount at all | mount -t cgroup2 none /sys/fs/cgroup
root | run no-such-command | 127 | no-such-command: command not found | check the spelling
"#;

const WITH_AGENT: &str = r#"
root | agent run | 1 | /agent.lock: another agent runs | see `tidegate status`
root | set pid:ENDED class=side | 5 | process ENDED: no such process | ps -p ENDED
root | set cgroup:/no/such class=side | 5 | cgroup:/no/such: there is no such group | list the groups with: find /
root | set nosuch weight=5 | 5 | gate:nosuch: there is no such gate | see `tidegate status`
root | unset nosuch | 5 | gate:nosuch: there is no such gate | see `tidegate status`
root | explain nosuch | 5 | gate:nosuch: there is no such gate | see `tidegate status`
root | status nosuch | 5 | gate:nosuch: there is no such gate | see `tidegate status`
root | explain pid:ENDED | 5 | pid:ENDED | see `tidegate status`
root | set job headrom=30% | 2 | headrom: set: no such term | did you mean headroom?
root | set job headroom | 2 | "headroom": set: | write it as in headroom=30%
root | set job headroom=30 | 2 | headroom: set: "30" has no unit | did you mean 30%?
root | set pod:a/b class=side | 2 | "pod:a/b" | use an annotation of the pod
root | run --headroom 130% true | 125 | headroom: run flag: "130%" is above 100% | as in 30%
root | run --tolerance 0 true | 125 | tolerance: run flag: "0" would let side work starve | write more than 0%
root | run --quota 0.5ms true | 125 | quota: run flag: "0.5ms" is below 1ms | as in 50ms
root | run --period 2s --quota 5ms true | 125 | period: run flag: "2s" is above 1s | write a time from 1ms to 1s
root | run --burst 20ms true | 125 | burst: run flag: "20ms" needs a quota | as in quota=20ms burst=max
root | run --cap 5 true | 125 | cap_hard: run flag: "5" has no unit | did you mean 5cpu?
root | run --weight 0 true | 125 | weight: run flag: "0" is below 1 | write a whole number
root | run --latency 30 true | 125 | latency: run flag: "30" is above 19 | write a whole number from -20
root | run --objective p99 true | 125 | objective: run flag: "p99" is neither | as in p99<5ms
root | report job 5 | 2 | latency: "5" has no unit | did you mean 5ms?
root | policy apply --for 10 | 2 | --for: "10" is not a time | as in 10m
nobody | run --main true | 125 | class = main: this takes CPU from others | ask root or a member of the group `tidegate`
nobody | set pid:1 class=side | 4 | pid:1: it belongs to uid 0 | ask root or a member of the group `tidegate`
nobody | unset job | 4 | job | ask root or a member of the group `tidegate`
nobody | agent repair | 4 | /agent.lock: Permission denied | run as root
nobody | recording save | 4 | /recording: Permission denied | run as root
nobody | agent stop | 4 | stop: without privilege | ask root or a member of the group `tidegate`
nobody | policy apply | 4 | apply: the policy is the administrator's | ask root or a member of the group `tidegate`
"#;

/// Runs the command in namespaces of its own after this script.
fn inside(instance: &Instance, flags: &str, script: &str, words: &[&str]) -> Output {
    let mut command = instance.on(Command::new("unshare"));
    command.args(["--mount", "--propagation", "private"]);
    command.args(flags.split_ascii_whitespace());
    command.args(["sh", "-c", &format!("{script}; exec \"$@\""), "sh"]);
    command.arg(instance.binary()).args(words);
    command
        .current_dir("/")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn ask(instance: &Instance, by: &str, words: &[&str]) -> Output {
    const READ_ONLY: &str = "for at in $(awk '$3 ~ /^cgroup/ { print $2 }' /proc/self/mounts); do \
                             mount -o remount,bind,ro $at; done";
    match by {
        "root" => instance.output(words),
        "nobody" => instance.by_nobody(words).output().unwrap(),
        "container" => inside(
            instance,
            "--cgroup --pid --fork --mount-proc",
            READ_ONLY,
            words,
        ),
        "notree" => inside(instance, "", "umount -Rl /sys/fs/cgroup", words),
        other => panic!("{other}"),
    }
}

fn each_is_one_sentence(instance: &Instance, table: &str, ended: &str) {
    let mut wrong = Vec::new();
    for row in table.trim().lines() {
        let row = row.replace("ENDED", ended);
        let [by, words, code, input, remedy] = row.split(" | ").collect::<Vec<_>>()[..] else {
            panic!("{row}");
        };
        let output = ask(instance, by, &words.split(' ').collect::<Vec<_>>());
        let said = stderr(&output);
        // The agent in the foreground logs as well.
        let sentences: Vec<&str> = said
            .lines()
            .filter(|line| line.starts_with("tidegate: "))
            .collect();
        let is_right = output.status.code() == code.parse().ok()
            && sentences.len() == 1
            && sentences[0].contains(input)
            && sentences[0].matches(remedy).count() == 1;
        if !is_right {
            wrong.push(format!("{row}\n{}", describe(&output)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_newcomer_is_told_what_is_wrong_and_what_helps() {
    let instance = or_skip!(Instance::new("words"));
    each_is_one_sentence(&instance, WITHOUT_AGENT, "");
    let doctor = ask(&instance, "container", &["doctor"]);
    let page = String::from_utf8_lossy(&doctor.stdout);
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(doctor.status.code(), Some(1), "{page}");
    assert!(
        page.contains("in a container: mount it read-write"),
        "{page}"
    );

    let _job = instance.sleeper("job");
    let ended = Background::start(&["true"]);
    let pid = ended.pid().to_string();
    drop(ended);
    each_is_one_sentence(&instance, WITH_AGENT, &pid);
    let unit = instance.output(&["set", "unit:no-such.service", "class=side"]);
    let said = stderr(&unit);
    assert!(
        !unit.status.success() && said.contains("unit no-such.service: "),
        "{said}"
    );
    assert!(
        said.contains("cgroup:/PATH") || said.contains("systemctl list-units"),
        "{said}"
    );
}
