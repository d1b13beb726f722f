//! Builds in gates with a jobserver: real clients find it, and nothing that clients or the agent
//! meet with makes a build wait for ever.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::{
    AS_NOBODY, Instance, children, describe, ends_with, or_skip, stdout, wait_for,
};
use crate::support_kill::processes::kill9;

/// Side work has the whole machine by its tolerance, so that two jobs at once are its due however
/// busy the machine is.
const FLAGS: [&str; 4] = ["--side", "--jobserver", "--tolerance", "100%"];

/// An instance, where two jobs may run at once.
fn instance(name: &str) -> Option<Instance> {
    if std::thread::available_parallelism().unwrap().get() < 2 {
        eprintln!("skipped: {name}: one CPU is one job");
        return None;
    }
    Instance::new(name)
}

fn is_there(program: &str, least: (u32, u32)) -> bool {
    let output = Command::new(program).arg("--version").output();
    let text = output.map(|output| stdout(&output)).unwrap_or_default();
    let number = text
        .split_whitespace()
        .find(|word| word.as_bytes()[0].is_ascii_digit());
    let mut parts = number
        .unwrap_or_default()
        .split('.')
        .map(|part| part.parse().unwrap_or(0));
    let is_new = (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= least;
    if number.is_none() || !is_new {
        eprintln!(
            "skipped: {program}: not here in version {}.{}",
            least.0, least.1
        );
    }
    number.is_some() && is_new
}

/// A job that ends only when `other` runs beside it.
fn meets(own: &str, other: &str) -> String {
    format!("touch {own}; while ! test -e {other}; do sleep 0.02; done")
}

fn two_jobs_of_make(dir: &Path) {
    let text = format!(
        "all: a b\na:\n\t{}\nb:\n\t{}\n",
        meets("a.on", "b.on"),
        meets("b.on", "a.on")
    );
    std::fs::write(dir.join("Makefile"), text).unwrap();
}

fn fifo(instance: &Instance, gate: &str) -> PathBuf {
    instance.run_dir().join("jobservers").join(gate)
}

/// Runs a command with two jobs that wait for each other.
fn run_in(instance: &Instance, dir: &Path, command: &[&str]) -> String {
    let words = [&["timeout", "60"], command].concat();
    let words = [&["run"][..], &FLAGS, &["--name", "build", "--"], &words].concat();
    let mut run = instance.tidegate(&words);
    run.current_dir(dir).stdin(Stdio::null());
    for wrapper in ["RUSTC_WRAPPER", "CARGO_TARGET_DIR"] {
        run.env_remove(wrapper);
    }
    let output = run.output().unwrap();
    ends_with(&output, 0);
    describe(&output)
}

#[test]
fn two_jobs_of_ninja_run_at_once() {
    let instance = or_skip!(instance("ninja"));
    if is_there("ninja", (1, 13)) {
        let rule = |one: &str, other: &str| {
            let command = meets(&format!("{one}.on"), &format!("{other}.on"));
            format!("rule {one}\n command = {command}\nbuild {one}: {one} first\n")
        };
        // 1.13 looks for tokens when a job ends.
        let first = "rule first\n command = sleep 2; touch first\nbuild first: first\n";
        let text = first.to_owned() + &rule("a", "b") + &rule("b", "a");
        std::fs::write(instance.path().join("build.ninja"), text).unwrap();
        let told = run_in(&instance, instance.path(), &["ninja"]);
        assert!(told.contains("Jobserver mode detected"), "{told}");
    }
    instance.gone();
}

#[test]
fn two_build_scripts_of_cargo_run_at_once() {
    let instance = or_skip!(instance("cargo"));
    if is_there("cargo", (1, 70)) {
        let root = instance.path();
        let members = "[workspace]\nresolver = \"2\"\nmembers = [\"a\", \"b\"]\n";
        std::fs::write(root.join("Cargo.toml"), members).unwrap();
        for (own, other) in [("a", "b"), ("b", "a")] {
            let dir = root.join(own);
            std::fs::create_dir_all(dir.join("src")).unwrap();
            let package = format!("[package]\nname = \"{own}\"\nversion = \"0.1.0\"\n");
            std::fs::write(dir.join("Cargo.toml"), package).unwrap();
            std::fs::write(dir.join("src/lib.rs"), "").unwrap();
            let root = root.display();
            let script = format!(
                "fn main() {{\n std::fs::write(\"{root}/{own}.on\", \"\").unwrap();\n \
                 while !std::path::Path::new(\"{root}/{other}.on\").exists() {{\n \
                 std::thread::sleep(std::time::Duration::from_millis(20)); }} }}\n"
            );
            std::fs::write(dir.join("build.rs"), script).unwrap();
        }
        // Its own number of jobs would let only one run.
        run_in(&instance, root, &["cargo", "build", "--offline", "-j1"]);
    }
    instance.gone();
}

#[test]
fn gcc_hands_the_jobserver_to_its_link_time_jobs() {
    let instance = or_skip!(instance("lto"));
    // Before 13 it takes a descriptor, which is there with a make before 4.4.
    let is_old_make = !is_there("make", (4, 4));
    let has_gcc = if is_old_make {
        is_there("gcc", (5, 0))
    } else {
        is_there("gcc", (13, 0))
    };
    if has_gcc && is_there("make", (4, 0)) {
        let dir = instance.path();
        std::fs::write(dir.join("one.c"), "int main(void) { return 0; }\n").unwrap();
        std::fs::write(dir.join("two.c"), "int two(void) { return 2; }\n").unwrap();
        let make = "#!/bin/sh\necho \"flags $MAKEFLAGS\" >&2\nexec make \"$@\"\n";
        std::fs::write(dir.join("make.sh"), make).unwrap();
        let line = "chmod +x make.sh; MAKE=$PWD/make.sh \
                    gcc -O1 -flto=jobserver -flto-partition=max one.c two.c -o out";
        let told = run_in(&instance, dir, &["sh", "-c", line]);
        assert!(
            told.contains("flags") && told.contains("--jobserver-auth="),
            "{told}"
        );
    }
    instance.gone();
}

#[test]
fn what_killed_builds_held_comes_back_to_a_gate_that_goes_on() {
    let instance = or_skip!(instance("killed"));
    if !is_there("make", (4, 0)) {
        return;
    }
    let dir = instance.path().display().to_string();
    two_jobs_of_make(instance.path());
    let held = "all: a b\na b:\n\ttouch held.$@; exec sleep 1000\n";
    std::fs::write(instance.path().join("held.mk"), held).unwrap();
    let line = format!("cd {dir}; make -f held.mk; make && touch done; sleep 1000");
    let flags = [&FLAGS[..], &["--name", "build"]].concat();
    let shell = instance.background(&flags, &["sh", "-c", &line]);
    let has = |name: &str| instance.path().join(name).exists();
    wait_for("two jobs", || has("held.a") && has("held.b"));
    let build = children(shell.pid())[0];
    for pid in [vec![build], children(build)].concat() {
        kill9(pid as i32);
    }
    wait_for("two jobs of another build", || has("done"));
    drop(shell);
    instance.gone();
}

#[test]
fn a_build_goes_on_under_the_next_agent() {
    let instance = or_skip!(instance("next"));
    if !is_there("make", (4, 0)) {
        return;
    }
    let dir = instance.path().display().to_string();
    two_jobs_of_make(instance.path());
    let line = format!(
        "cd {dir}; while ! test -e go; do sleep 0.05; done; make && touch done; sleep 1000"
    );
    let flags = [&FLAGS[..], &["--name", "build"]].concat();
    let shell = instance.background(&flags, &["sh", "-c", &line]);
    instance.gate("build");
    let inode = || {
        std::fs::metadata(fifo(&instance, "build"))
            .map(|fifo| fifo.ino())
            .ok()
    };
    let before = inode();
    instance.kill_agent();
    std::fs::write(instance.path().join("go"), "").unwrap();
    wait_for("two jobs", || instance.path().join("done").exists());
    assert_eq!(inode(), before);
    let note = instance.ok(&["explain", "build"]);
    assert!(note.contains("its jobserver lets it run"), "{note}");
    drop(shell);
    wait_for("the fifo to go", || !fifo(&instance, "build").exists());
    instance.gone();
}

#[test]
fn a_fifo_is_its_users_alone_and_may_be_flooded() {
    let instance = or_skip!(instance("flood"));
    let user = 65_534;
    let run = [
        "run",
        "-q",
        "--side",
        "--jobserver",
        "--name",
        "theirs",
        "--",
        "sleep",
        "1000",
    ];
    let root_flags = [&FLAGS[..], &["--name", "ours"]].concat();
    let ours = instance.background(&root_flags, &["sleep", "1000"]);
    instance.gate("ours");
    let mut theirs = instance.by_nobody(&run).spawn().unwrap();
    instance.gate("theirs");
    let path = fifo(&instance, "theirs");
    let fifo_of = |gate| std::fs::metadata(fifo(&instance, gate)).unwrap();
    assert_eq!(
        (fifo_of("theirs").uid(), fifo_of("theirs").mode() & 0o777),
        (user, 0o600)
    );
    let mut intruder = Command::new(AS_NOBODY[0]);
    intruder.args(&AS_NOBODY[1..]).args(["sh", "-c"]);
    let other = fifo(&instance, "ours");
    intruder.arg(format!(
        "! (echo > {0}) && ! (: < {0}) && ! rm -f {0}",
        other.display()
    ));
    assert!(intruder.stderr(Stdio::null()).status().unwrap().success());
    // A million tokens are more than the fifo holds: this ends as the agent takes them away.
    let mut flood = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    (0..1_000).for_each(|_| flood.write_all(&[b'+'; 1_000]).unwrap());
    let cpus = instance.json(&["status"])["cpus"].as_u64().unwrap();
    wait_for("the flood to be drained", || {
        rustix::io::ioctl_fionread(&flood).unwrap() <= cpus
    });
    let jobs = instance.json(&["status", "theirs"])["jobs"]
        .as_u64()
        .unwrap();
    assert!((1..=cpus).contains(&jobs), "{jobs}");
    theirs.kill().unwrap();
    theirs.wait().unwrap();
    drop(ours);
    instance.gone();
}

#[test]
fn without_the_term_the_environment_is_the_callers() {
    let instance = or_skip!(Instance::new("plainenv"));
    for flags in [&["--side"][..], &["--side", "--jobserver=no"]] {
        let words = [
            &["run", "-q"],
            flags,
            &["--", "sh", "-c", "env; ls /proc/self/fd"],
        ]
        .concat();
        let output = instance
            .tidegate(&words)
            .env_remove("MAKEFLAGS")
            .output()
            .unwrap();
        assert!(
            !stdout(&output).contains("--jobserver-auth"),
            "{}",
            describe(&output)
        );
        assert!(!stdout(&output).lines().any(|line| line == "100"));
    }
    let said = instance.fails(&["run", "--main", "--jobserver", "true"], 125);
    assert!(said.contains("jobserver"), "{said}");
    let output = instance.output(&[
        "run",
        "--side",
        "--jobserver",
        "--",
        "make",
        "-j3",
        "--version",
    ]);
    assert!(ends_with(&output, 0).contains("make -j3 overrides it"));
    instance.gone();
}
