//! `tidegate measure` on the running kernel: a result, refusals, and what is restored when its
//! client or the agent dies in the middle.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{Background, Instance, cpu_mount, or_skip, quota_file, stderr, wait_for};
use crate::support_kill::processes::{kill9, signal};

const MAIN: [&str; 3] = [
    "sh",
    "-c",
    "while :; do i=0; while [ $i -lt 300 ]; do i=$((i+1)); done; sleep 0.01; done",
];
const HOG: [&str; 3] = ["sh", "-c", "while :; do :; done"];

struct Bed {
    _running: Vec<Background>,
    instance: Instance,
}

impl Bed {
    /// Main work and two side gates, where run delay can be measured.
    fn new(name: &str) -> Option<Bed> {
        let instance = Instance::new(name)?;
        let running = vec![
            instance.background(&["--main", "--name", "web"], &MAIN),
            instance.background(&["--side", "--name", "build"], &HOG),
            instance.background(&["--side", "--name", "backup"], &HOG),
        ];
        for gate in ["web", "build", "backup"] {
            instance.gate(gate);
        }
        let bed = Bed {
            _running: running,
            instance,
        };
        if bed.status()["sensing"] != "bpf" {
            eprintln!("skipped: {name}: no BPF sensing");
            return None;
        }
        Some(bed)
    }

    fn status(&self) -> Value {
        self.instance.json(&["status"])
    }

    /// `tidegate measure WORDS --json`, once it runs.
    fn start(&self, words: &[&str]) -> Child {
        let mut all = vec!["measure", "--json"];
        all.extend(words);
        let mut command = self.instance.tidegate(&all);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let client = command.stderr(Stdio::piped()).spawn().unwrap();
        wait_for("the measurement", || self.is_measuring());
        client
    }

    fn is_measuring(&self) -> bool {
        !self.status()["measuring"].is_null()
    }

    /// How long until nothing of the measurement is in force.
    fn restored(&self) -> Duration {
        let began = Instant::now();
        wait_for("the end of the measurement", || !self.is_measuring());
        began.elapsed()
    }

    fn ended_because(&self) -> String {
        let mut found = String::new();
        wait_for("the event", || {
            let lines = self.instance.ok(&["events", "--json"]);
            let ended = lines.lines().rfind(|line| line.contains("measure.ended"));
            found = ended.unwrap_or_default().to_owned();
            !found.is_empty()
        });
        found
    }

    fn quota(&self, gate: &str) -> String {
        let group = self.instance.gate(gate)["cgroup"]
            .as_str()
            .unwrap()
            .to_owned();
        let dir = cpu_mount().0.join(group.trim_start_matches('/'));
        let text = std::fs::read_to_string(quota_file(&dir, None).0).unwrap();
        text.split_ascii_whitespace().next().unwrap().to_owned()
    }

    fn is_free(&self, gate: &str) -> bool {
        matches!(self.quota(gate).as_str(), "-1" | "max")
    }
}

fn result(client: Child) -> (Option<i32>, Value) {
    let output = client.wait_with_output().unwrap();
    let why = stderr(&output);
    let view = serde_json::from_slice(&output.stdout);
    (
        output.status.code(),
        view.unwrap_or_else(|error| panic!("{error}: {why}")),
    )
}

#[test]
fn a_short_measurement_has_a_result_and_a_second_one_is_refused_meanwhile() {
    let bed = or_skip!(Bed::new("measure"));
    let client = bed.start(&["--for", "6s", "--levels", "0"]);
    let said = bed
        .instance
        .fails(&["measure", "--for", "6s", "--levels", "0"], 4);
    assert!(said.contains("a measurement by uid 0 runs"), "{said}");
    let measuring = bed.status()["measuring"]["sentence"].to_string();
    assert!(measuring.contains("started by uid 0"), "{measuring}");
    let (code, view) = result(client);
    assert_eq!(
        (code, &view["state"]),
        (Some(0), &Value::from("done")),
        "{view}"
    );
    assert_eq!(view["main"], serde_json::json!(["web"]));
    let effect = &view["levels"][0]["effect"];
    let slowdown = &effect["slowdown_ratio"];
    assert!(
        slowdown["lower"].as_f64() <= slowdown["upper"].as_f64(),
        "{view}"
    );
    let side_cpus = effect["side_cpus"].as_f64().unwrap();
    let reference = view["reference_side_cpus"].as_f64().unwrap();
    // A machine that is full of other work leaves side work nothing.
    let is_full = view["advice"]
        .to_string()
        .contains("other work left it none");
    assert!(is_full || side_cpus > reference, "{view}");
    assert!(
        view["advice"]
            .as_str()
            .is_some_and(|text| text.ends_with('.')),
        "{view}"
    );
    assert!(!bed.is_measuring());
    let tells = bed.status()["behind_side"].is_object();
    assert_eq!(effect["behind_side_ratio"].is_f64(), tells, "{view}");
    let explained = bed.instance.ok(&["explain", "gate:web"]);
    let is_told = explained.contains("a second behind side work");
    assert_eq!(is_told, tells, "{explained}");
    let text = bed
        .instance
        .ok(&["measure", "--for", "6s", "--by-gate", "--quiet"]);
    assert!(text.contains("backup") && text.contains("build"), "{text}");
    wait_for("both gates free", || {
        bed.is_free("build") && bed.is_free("backup")
    });
}

#[test]
fn a_killed_client_ends_it_within_the_lease_and_ctrl_c_at_once_with_a_partial_result() {
    let bed = or_skip!(Bed::new("measure-client"));
    let mut client = bed.start(&["--for", "60s"]);
    std::thread::sleep(Duration::from_millis(700));
    kill9(client.id() as i32);
    client.wait().unwrap();
    let took = bed.restored();
    eprintln!("restored {took:?} after the client was killed");
    assert!(took < Duration::from_millis(3_500), "{took:?}");
    assert!(bed.ended_because().contains("no sign of life"));
    let headroom = bed.status()["headroom_ratio"].as_f64();
    assert_eq!(headroom, Some(0.0), "what the gates ask for");

    let client = bed.start(&["--for", "60s", "--levels", "0"]);
    std::thread::sleep(Duration::from_millis(4_700));
    signal(client.id() as i32, libc::SIGINT);
    let (code, view) = result(client);
    assert_eq!((code, &view["state"]), (Some(1), &Value::from("ended")));
    assert!(
        view["levels"][0]["effect"]["rounds"].as_u64() >= Some(3),
        "{view}"
    );
    bed.restored();
}

#[test]
fn a_killed_agent_leaves_nothing_of_it_to_the_next() {
    let bed = or_skip!(Bed::new("measure-agent"));
    let client = bed.start(&["--for", "60s", "--by-gate"]);
    wait_for("a gate that is held", || {
        !bed.is_free("build") || !bed.is_free("backup")
    });
    let began = Instant::now();
    bed.instance.kill_agent();
    wait_for("both gates free", || {
        bed.is_free("build") && bed.is_free("backup")
    });
    eprintln!("restored {:?} after the agent was killed", began.elapsed());
    assert!(!bed.is_measuring());
    let (code, view) = result(client);
    assert_eq!(
        (code, &view["state"]),
        (Some(1), &Value::from("ended")),
        "{view}"
    );
}

#[test]
fn without_main_or_side_work_it_says_what_to_do() {
    let instance = or_skip!(Instance::new("measure-none"));
    let _side = instance.sleeper("job");
    let said = instance.fails(&["measure"], 5);
    assert!(
        said.contains("no main gate") && said.contains("class=main"),
        "{said}"
    );
    let _main = instance.background(&["--main", "--name", "web"], &["sleep", "1000"]);
    instance.gate("web");
    let said = instance.fails(&["measure", "web"], 2);
    assert!(said.contains("gate web is not side work"), "{said}");
    let said = instance.fails(&["measure", "--for", "3s"], 2);
    assert!(said.contains("3 s is not from 8 s"), "{said}");
    let said = instance.fails(&["measure", "--for", "100d"], 2);
    assert!(said.contains("write a time up to 1h, as in 2m"), "{said}");
    let output = instance.by_nobody(&["measure"]).output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
}
