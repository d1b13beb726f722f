//! A replay in `tidegate web`: in a real browser, without an agent.
//! `tidegate-lab` beside `tidegate` makes it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tidegate_recording::{Event, Machine, Recording, Second, Work, WorkSecond, save};

use crate::common::{Background, describe, ends_with, stderr};
use crate::web::{browser, has_page, pictures, top};

const MARKUP: &str = "<img src=x onerror=\"document.title=1\">";
const CLOSING: &str = "</script><script>document.title=2</script>";
const REPLAY: &[&str] = &["--replay", "night.json"];

fn tidegate(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command
        .current_dir(dir)
        .env("TIDEGATE_RUN_DIR", dir.join("run"))
        .args(args);
    command
}

fn output(dir: &Path, args: &[&str]) -> Output {
    tidegate(dir, args).output().unwrap()
}

/// A hundred seconds of a server and a backup on two CPUs; one gate's name and an event are markup.
fn recording() -> Recording {
    let work = |id, name: &str, cgroup: &str, class: &str| Work {
        id,
        name: name.to_owned(),
        is_gate: class != "neutral",
        class: class.to_owned(),
        cgroup: cgroup.to_owned(),
        ..Work::default()
    };
    let works = [
        work(0, "web", "/system.slice/web.service", "main"),
        work(1, "backup", "/system.slice/backup.service", "side"),
        work(2, MARKUP, "/markup", "main"),
        work(3, CLOSING, "/closing", "neutral"),
    ];
    let used = |id, used_cpus, allowance_cpus| WorkSecond {
        id,
        used_cpus,
        allowance_cpus,
        processes: 2,
        ..WorkSecond::default()
    };
    let second = |nth: u16| {
        let level = if (40..70).contains(&nth) { 0.9 } else { 0.4 };
        let web = level + f32::from((nth * 37) % 13) / 100.0;
        Second {
            unix_ms: 1_795_766_400_000 + u64::from(nth) * 1_000,
            capacity_cpus: 2.0,
            main_cpus: web + 0.1,
            side_cpus: 1.5 - web,
            idle_cpus: 0.4,
            allowance_cpus: 1.5 - web,
            headroom_pct: 20.0,
            tolerance_pct: 1.0,
            main_turns: 600,
            main_wait_us: 60_000,
            main_wait_p99_us: 1_024,
            works: vec![
                used(0, web, None),
                used(1, 1.5 - web, Some(1.5 - web)),
                used(2, 0.05, None),
                used(3, 0.05, None),
            ],
            ..Second::default()
        }
    };
    let event = |second: u64, kind: &str, message: &str| Event {
        unix_ms: 1_795_766_400_000 + second * 1_000,
        kind: kind.to_owned(),
        gate: Some("web".to_owned()),
        message: message.to_owned(),
    };
    Recording {
        machine: Machine {
            cpus: 2,
            threads_per_core: 1,
            engine: "cgroup".to_owned(),
            sensing: "bpf".to_owned(),
            ..Machine::default()
        },
        works: works
            .into_iter()
            .map(|work| (work.id, work))
            .collect::<BTreeMap<_, _>>(),
        seconds: (1..=100).map(second).collect(),
        events: vec![
            event(40, "decision.cut", "main rose to 1.00 CPUs"),
            event(70, "decision.cut", CLOSING),
        ],
        ..Recording::default()
    }
}

fn lab_program() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_tidegate")).with_file_name("tidegate-lab")
}

/// The laboratory's command, where it was built beside ours.
fn lab(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(lab_program());
    let made = command.current_dir(dir).args(args).output().unwrap();
    assert!(made.status.success(), "{}", describe(&made));
    made
}

fn has_lab() -> bool {
    let program = lab_program();
    if !program.exists() {
        eprintln!("skipped: web: {} is not built", program.display());
    }
    program.exists()
}

/// A folder with the replay of the recording under two policies.
fn bed() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    save(&recording(), &dir.path().join("night.tgr")).unwrap();
    for (file, headroom) in [("bold.toml", "5%"), ("shy.toml", "50%")] {
        let text = format!(
            "version = 1\n[[rule]]\nname = \"web\"\nmatch = {{ unit = \"web.service\" }}\nterms = {{ class = \"main\", headroom = \"{headroom}\" }}\n\
             [[rule]]\nname = \"backups\"\nmatch = {{ unit = \"backup.service\" }}\nterms = {{ class = \"side\" }}\n"
        );
        std::fs::write(dir.path().join(file), text).unwrap();
    }
    let replay = "replay night.tgr --policy bold.toml --policy shy.toml --json";
    let replay = lab(dir.path(), &replay.split(' ').collect::<Vec<_>>());
    std::fs::write(dir.path().join("night.json"), replay.stdout).unwrap();
    dir
}

/// The page of the replay, and where it says what is.
fn served(dir: &Path) -> (Background, Vec<String>) {
    let mut child = tidegate(dir, &["web", "--listen", "127.0.0.1:0"])
        .args(REPLAY)
        .process_group(0)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let said = lines.take(2).map(Result::unwrap).collect();
    (Background(child), said)
}

#[test]
fn a_recording_is_shown_without_an_agent() {
    let (Some(chromium), true) = (browser(), has_page() && has_lab()) else {
        return;
    };
    let bed = bed();
    let dir = bed.path();
    let (_web, said) = served(dir);
    let url = said[0].split(' ').next().unwrap();
    assert_eq!(said[1], format!("{url}#/recording shows night.json"));
    let output = Command::new("node")
        .arg(top().join("web/test/recording.mjs"))
        .args([url, pictures().to_str().unwrap()])
        .env("CHROMIUM", chromium)
        .output()
        .unwrap();
    eprint!("{}", stderr(&output));
    assert!(output.status.success(), "{}", describe(&output));
}

#[test]
fn what_cannot_be_shown_is_told_with_its_remedy() {
    if !has_page() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let replay = r#"{"arms":[],"recording":{}}"#;
    for (name, text) in [
        ("night.json", replay),
        ("other.json", "{}"),
        ("night.tgr", "TGR"),
    ] {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    for (args, code, expected) in [
        (
            &["--replay", "no.json"][..],
            5,
            "web: --replay: no.json: No such file or directory (os error 2); name a file that `tidegate-lab replay --json` wrote",
        ),
        (&["--replay", "other.json"], 2, "it is no replay"),
        (&["--replay", "night.tgr"], 2, "expected value at line 1"),
    ] {
        let refused = output(dir.path(), &[&["web"], args].concat());
        let said = ends_with(&refused, code);
        assert!(said.contains(expected), "{said}");
    }
}
