//! `tidegate run` on this machine: what the command is, sees and answers is its own.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::common::{Instance, cgroups_of, describe, ends_with, or_skip, stdout, wait_for};

#[test]
fn the_commands_exit_code_or_signal_is_the_answer() {
    let instance = or_skip!(Instance::new("exit"));
    for code in [0, 1, 7, 125, 255] {
        let output = instance.output(&["run", "--side", "--", "sh", "-c", &format!("exit {code}")]);
        ends_with(&output, code);
        assert_eq!(stdout(&output), "");
    }
    for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGSEGV, libc::SIGPIPE] {
        let kill = format!("kill -{signal} $$");
        let output = instance.output(&["run", "--side", "--", "sh", "-c", &kill]);
        assert_eq!(
            output.status.signal(),
            Some(signal),
            "{}",
            describe(&output)
        );
    }
    instance.gone();
}

#[test]
fn a_command_without_terms_is_side_work() {
    let instance = or_skip!(Instance::new("bare"));
    let output = instance.output(&["run", "cat", "/proc/self/cgroup"]);
    let said = ends_with(&output, 0);
    assert!(said.contains("run: side work, which yields"), "{said}");
    let groups = stdout(&output);
    assert!(groups.contains("side/cat"), "{groups}");
    let said = ends_with(&instance.output(&["run", "--quota", "50%", "true"]), 0);
    assert!(!said.contains("side work"), "{said}");
    // The second example of `run --help`.
    let kept = ["run", "--headroom", "30%", "--tolerance", "2%", "true"];
    let said = ends_with(&instance.output(&kept), 0);
    assert!(said.contains("run: side work, which yields"), "{said}");
    instance.fails(&["run", "--side", "--headrom", "30%", "true"], 125);
    instance.gone();
}

#[test]
fn a_name_is_free_when_its_last_task_is_gone() {
    let instance = or_skip!(Instance::new("again"));
    let _other = instance.background(&["--quota", "80%", "--name", "other"], &["sleep", "60"]);
    for _ in 0..5 {
        instance.ok(&["run", "-q", "--side", "--name", "backup", "true"]);
    }
    let words = ["run", "-q", "--side", "--name", "other", "true"];
    let said = instance.fails(&words, 125);
    assert!(said.contains("a gate of that name has tasks"), "{said}");
    let words = ["run", "-q", "--side", "--join", "--name", "other", "true"];
    let said = instance.fails(&words, 125);
    assert!(said.contains("it is of class neutral"), "{said}");
}

#[test]
fn a_second_command_joins_a_gate() {
    let instance = or_skip!(Instance::new("join"));
    let first = ["--side", "--name", "both", "--join"];
    let _first = instance.background(&first, &["sleep", "60"]);
    instance.gate("both");
    let group = [
        "run",
        "-q",
        "--name",
        "both",
        "--join",
        "cat",
        "/proc/self/cgroup",
    ];
    let group = instance.ok(&group);
    assert!(group.contains("side/both\n"), "{group}");
    let gates = instance.json(&["status"]);
    assert_eq!(gates["gates"].as_array().unwrap().len(), 1, "{gates}");
    let command = instance.json(&["status", "both"])["command"].to_string();
    assert!(command.contains("sleep"), "{command}");
}

#[test]
fn as_many_arguments_as_the_kernel_takes() {
    let instance = or_skip!(Instance::new("long"));
    let words: Vec<String> = (0..20_000)
        .map(|number| format!("access-2026-11-28-host-{number:06}.example.com.log"))
        .collect();
    let mut command = instance.tidegate(&["run", "-q", "--side", "sh", "-c", "echo $#", "sh"]);
    let output = command.args(&words).output().unwrap();
    ends_with(&output, 0);
    assert_eq!(stdout(&output), "20000\n");
}

#[test]
fn an_agent_has_nothing_of_the_command_that_started_it() {
    let instance = or_skip!(Instance::new("state"));
    let line =
        "ulimit -S -t 60; ulimit -S -f 100; umask 0; exec nice -n 19 chrt -i 0 taskset -c 0 \"$@\"";
    let mut shell = instance.on(Command::new("sh"));
    shell.args(["-c", line, "sh"]).arg(instance.binary());
    shell.args(["run", "-q", "sleep", "60"]).env("SECRET", "1");
    let mut starter = shell.stdin(Stdio::null()).spawn().unwrap();
    wait_for("an agent", || instance.agent().is_some());
    let pid = instance.agent().unwrap();
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap();
    let of = |text: &str, start: &str| {
        let line = text.lines().find(|line| line.starts_with(start));
        line.unwrap_or_default().to_owned()
    };
    let limits = read("limits");
    for limit in ["Max cpu time", "Max file size"] {
        assert!(of(&limits, limit).contains("unlimited"), "{limits}");
    }
    let status = read("status");
    assert_eq!(of(&status, "Umask"), "Umask:\t0022");
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    assert_eq!(of(&status, "Cpus_allowed:"), of(&own, "Cpus_allowed:"));
    let stat = read("stat");
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    // Fields 19 and 41 of proc_pid_stat(5), the first here being 3.
    assert_eq!(
        (fields[16], fields[38]),
        ("0", "0"),
        "nice level and policy"
    );
    assert!(!read("environ").contains("SECRET"));
    let log = std::fs::metadata(instance.run_dir().join("agent.log")).unwrap();
    assert_eq!(log.permissions().mode() & 0o777, 0o600);
    starter.kill().unwrap();
    starter.wait().unwrap();
    instance.gone();
}

#[test]
fn bytes_pass_through_unchanged() {
    let instance = or_skip!(Instance::new("bytes"));
    // Every byte value, more than a pipe holds.
    let sent: Vec<u8> = (0..1_u32 << 20)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let mut command = instance.tidegate(&["run", "--side", "--", "cat"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let copy = sent.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&copy));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.stdout == sent, "{} bytes", output.stdout.len());
    assert!(output.status.success());
}

/// Runs a shell line once as it is and once with `run` before `exec`'s command, and insists on the
/// same output.
fn same_with_and_without(instance: &Instance, before: &str, command: &str) {
    let binary = instance.binary().display();
    let run = |line: String| {
        let mut shell = instance.on(Command::new("sh"));
        shell.arg("-c").arg(line).stdin(Stdio::null());
        let output = shell.output().unwrap();
        assert!(output.status.success(), "{}", describe(&output));
        stdout(&output)
    };
    let bare = run(format!("{before} exec {command}"));
    let gated = run(format!(
        "{before} exec {binary} run --side --quiet -- {command}"
    ));
    assert_eq!(bare, gated, "{before} {command}");
    assert!(!bare.is_empty(), "{before} {command}");
}

#[test]
fn the_command_inherits_what_we_inherited() {
    let instance = or_skip!(Instance::new("inherit"));
    let signals = "grep -E '^Sig(Blk|Ign|Cgt)|^Groups|^Seccomp:' /proc/self/status";
    same_with_and_without(&instance, "", signals);
    same_with_and_without(&instance, "trap '' PIPE USR1 INT;", signals);
    same_with_and_without(
        &instance,
        "exec 7</etc/passwd 9>/dev/null;",
        "ls -l --time-style=+ /proc/self/fd/ | wc -l; true",
    );
    same_with_and_without(
        &instance,
        "exec 7</etc/passwd 0<&-;",
        "readlink /proc/self/fd/7",
    );
    same_with_and_without(
        &instance,
        "exec 0<&-;",
        "sh -c '[ -e /proc/self/fd/0 ] && echo open || echo closed'",
    );
    same_with_and_without(
        &instance,
        "cd /usr; umask 027; ulimit -n 77; A='b c'; export A;",
        "sh -c 'env | grep -v ^_= | sort; pwd; umask; ulimit -n'",
    );
    same_with_and_without(&instance, "", "sh -c 'cut -d\" \" -f19 /proc/self/stat'");
}

#[test]
fn commands_that_cannot_be_executed_leave_no_trace() {
    let instance = or_skip!(Instance::new("missing"));
    let script = instance.path().join("bad-interpreter");
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    let plain = instance.path().join("no-shebang");
    std::fs::write(&plain, "exit 9\n").unwrap();
    for file in [&script, &plain] {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    instance.fails(&["run", "--side", "--", "no-such-command"], 127);
    assert!(
        !instance.run_dir().exists(),
        "an agent was started for nothing"
    );
    let said = instance.fails(&["run", "--side", "--", script.to_str().unwrap()], 126);
    assert!(said.contains("interpreter"), "{said}");
    // As in a shell.
    instance.fails(&["run", "--side", "--", plain.to_str().unwrap()], 9);
    instance.gone();
}

#[test]
fn siblings_and_nested_runs_each_have_their_gate() {
    let instance = or_skip!(Instance::new("nest"));
    let binary = instance.binary().to_str().unwrap().to_owned();
    let one = instance.background(&["--side", "--name", "one"], &["sleep", "60"]);
    let gate = instance.gate("one");
    assert_eq!(gate["class"], "side");
    assert_eq!(gate["processes"], 1);
    let place = cgroups_of(one.pid());
    assert!(
        place.contains(&format!("{}-side/one", instance.prefix())),
        "{place}"
    );
    let status = instance.json(&["status"]);
    assert_eq!(
        status["headroom_from"], "default",
        "where no gate names one"
    );
    assert_eq!(status["headroom_ratio"], 0.0);
    assert_eq!(status["decision"]["groups"][0]["quota_us"], Value::Null);
    let _two = instance.background(
        &["--main", "--name", "two", "--headroom", "35%"],
        &["sleep", "60"],
    );
    let inner = [
        &binary, "run", "--side", "--quiet", "--name", "inner", "--", "sleep", "60",
    ];
    let mut outer_words = vec!["sh", "-c", "\"$@\"; true", "sh"];
    outer_words.extend(inner);
    let _outer = instance.background(&["--side", "--name", "outer"], &outer_words);
    instance.gate("two");
    instance.gate("outer");
    let inner = instance.gate("inner");
    assert_eq!(inner["parent"], "outer");
    let status = instance.json(&["status"]);
    assert_eq!(status["gates"].as_array().map(Vec::len), Some(4));
    assert_eq!(status["headroom_ratio"], 0.35);
    let page = instance.ok(&["explain", "inner"]);
    assert!(
        page.lines().count() <= 44 && page.contains("inner"),
        "{page}"
    );
}

#[test]
fn a_terminal_session_is_the_commands_own() {
    let instance = or_skip!(Instance::new("pty"));
    let on_a_terminal = |line: &str| {
        // A shell's background job ignores SIGINT, and so would what is started by it.
        let mut script = instance.on(Command::new("env"));
        script
            .args(["--default-signal=INT", "script", "-qec", line, "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        script
    };
    let binary = instance.binary().display().to_string();
    let line = format!(
        "{binary} run --side --quiet -- sh -c 'test -t 0 && test -t 1 && tty && ps -o stat= -p $$'"
    );
    let output = on_a_terminal(&line).output().unwrap();
    let text = stdout(&output);
    assert!(
        output.status.success() && text.contains("/dev/pts/"),
        "{}",
        describe(&output)
    );
    // In the foreground of its session, so that Ctrl-C and Ctrl-Z reach it.
    assert!(text.contains('+'), "{text}");

    let started = instance.path().join("started");
    let line = format!(
        "{binary} run --side --quiet -- sh -c 'touch {}; exec sleep 60'",
        started.display()
    );
    let mut session = on_a_terminal(&line).spawn().unwrap();
    wait_for("the command on the terminal", || started.exists());
    // Again, as a person would who sees nothing happen: one was lost once, on a busy machine, while
    // the shell became the command.
    let mut status = None;
    wait_for("the end of the session", || {
        let typed = session.stdin.as_mut().unwrap().write_all(b"\x03");
        std::thread::sleep(Duration::from_millis(300));
        status = session.try_wait().unwrap();
        status.is_some() || typed.is_err()
    });
    let status = status.unwrap_or_else(|| session.wait().unwrap());
    assert_eq!(status.code(), Some(128 + 2), "Ctrl-C ends the session");
    instance.gone();
}

#[test]
fn a_command_that_outlives_a_stop_leaves_no_group() {
    let instance = or_skip!(Instance::new("outlives"));
    let running = instance.sleeper("last");
    let said = instance.ok(&["agent", "stop"]);
    assert!(said.contains("one side command that runs keeps"), "{said}");
    assert_ne!(instance.groups_left(), Vec::<std::path::PathBuf>::new());
    drop(running);
    instance.gone();
    wait_for("the records to go", || {
        !instance.run_dir().join("gates.json").exists()
    });
}

/// A panic there has cost seconds of symbols, in the gate that the killed starter was in.
#[test]
fn an_agent_whose_starter_is_dead_gives_up_without_a_panic() {
    let instance = or_skip!(Instance::new("unread"));
    let _work = instance.sleeper("work");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let errors = instance.path().join("errors");
    let mut second = instance.tidegate(&["agent", "run", "--on-demand"]);
    second
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(std::fs::File::create(&errors).unwrap());
    assert!(
        second.status().unwrap().success(),
        "it goes on as another process"
    );
    wait_for("the second agent to end", || {
        std::fs::read_to_string(&errors)
            .unwrap()
            .contains("another agent runs")
    });
    std::thread::sleep(Duration::from_millis(200));
    let said = std::fs::read_to_string(&errors).unwrap();
    assert!(!said.contains("panicked"), "{said}");
}
