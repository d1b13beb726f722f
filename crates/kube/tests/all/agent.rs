//! An agent that says what a test wants, over a real socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde_json::{Value, json};
use tidegate_api::{GateView, StatusView, TermView};

/// What it says and was asked.
#[derive(Default)]
pub struct State {
    pub main_cpus: f64,
    pub is_starved: bool,
    pub gates: Vec<GateView>,
    /// Of each gate that is set.
    pub notes: Vec<String>,
    /// Each call that changes something: its path and body.
    pub calls: Vec<(String, Value)>,
}

pub struct FakeAgent {
    folder: tempfile::TempDir,
    state: Arc<Mutex<State>>,
}

impl FakeAgent {
    /// An agent of a node with 16 CPUs' worth of time and no headroom, whose main uses so many.
    pub fn start(main_cpus: f64) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = UnixListener::bind(folder.path().join("tidegate.sock")).expect("a socket");
        let state = Arc::new(Mutex::new(State {
            main_cpus,
            ..State::default()
        }));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            let started = Instant::now();
            for stream in listener.incoming().flatten() {
                answer(stream, &shared, started);
            }
        });
        FakeAgent { folder, state }
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("tidegate.sock")
    }

    pub fn cgroups(&self) -> &Path {
        self.folder.path()
    }

    pub fn with<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        act(&mut self.state.lock().expect("no test panics with it"))
    }

    /// The terms of a gate, by its group below [`FakeAgent::cgroups`].
    pub fn terms_of(&self, group: &str) -> Vec<String> {
        let group = format!("/{group}");
        let shown = |term: &TermView| format!("{}={}", term.name, term.value);
        self.with(|state| {
            let gates = state.gates.iter().filter(|gate| gate.cgroup == group);
            gates.flat_map(|gate| &gate.terms).map(shown).collect()
        })
    }

    /// It leaves: nothing is at its socket any more.
    pub fn leave(&self) {
        std::fs::remove_file(self.socket()).expect("it was there");
    }
}

fn answer(mut stream: UnixStream, state: &Mutex<State>, started: Instant) {
    let mut reader = BufReader::new(stream.try_clone().expect("a socket can be shared"));
    let mut first = String::new();
    // A caller that only looks whether we are there says nothing.
    if reader.read_line(&mut first).unwrap_or(0) == 0 {
        return;
    }
    let path = first
        .split_whitespace()
        .nth(1)
        .unwrap_or_default()
        .to_owned();
    let mut length = 0;
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|read| read > 0) && line.trim() != "" {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader
        .read_exact(&mut body)
        .expect("the body that was announced");
    let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let answer = reply(
        &path,
        body,
        &mut state.lock().expect("no test panics with it"),
        started,
    );
    let text = match path.as_str() {
        "/metrics" => "tidegate_agent_up 1\n".to_owned(),
        _ => answer.to_string(),
    };
    // A caller that is killed meanwhile does not read it.
    let _ = write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
        text.len()
    );
}

fn reply(path: &str, body: Value, state: &mut State, started: Instant) -> Value {
    let target = body["target"]
        .as_str()
        .unwrap_or_default()
        .trim_start_matches("cgroup:")
        .to_owned();
    match path {
        "/metrics" => Value::Null,
        "/v1/status" => json!(StatusView {
            gates: state.gates.clone(),
            ..StatusView::default()
        }),
        "/v1/status?gates=none" => {
            let uptime_seconds = started.elapsed().as_secs_f64();
            let status = StatusView {
                pid: 1,
                // As many as this machine has, of 16: those that are no pod's own are counted here.
                cpus: std::thread::available_parallelism().map_or(1, |count| count.get() as u32),
                capacity_cpus: 16.0,
                main_cpus: state.main_cpus,
                uptime_seconds,
                at_tolerance_seconds: if state.is_starved {
                    uptime_seconds
                } else {
                    0.0
                },
                ..StatusView::default()
            };
            json!(status)
        }
        "/v1/set" => {
            let terms = body["terms"].as_object().cloned().unwrap_or_default();
            let term = |(name, value): (&String, &Value)| TermView {
                name: name.clone(),
                value: value.as_str().unwrap_or_default().into(),
                source: "set".into(),
                ..TermView::default()
            };
            let gate = GateView {
                cgroup: target.clone(),
                terms: terms.iter().map(term).collect(),
                notes: state.notes.clone(),
                ..GateView::default()
            };
            state.gates.retain(|one| one.cgroup != target);
            state.gates.push(gate.clone());
            state.calls.push((path.into(), body));
            json!(gate)
        }
        _ => {
            state.gates.retain(|one| one.cgroup != target);
            state.calls.push((path.into(), body));
            json!({"message": "done"})
        }
    }
}
