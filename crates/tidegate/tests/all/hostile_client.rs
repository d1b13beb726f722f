//! What a hostile client sends the agent's socket, byte by byte, as a user without rights. After each, root is answered within a
//! second by the same process, main's gate is there, no descriptor is held, and what was refused is named.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Background, Instance, wait_for};
use crate::support_fault::tell;
use crate::support_kill::stage::Stage;
use crate::support_kill::wait;

/// Root is answered within this.
const ROOT_WAITS: Duration = Duration::from_secs(1);
/// The agent gives a connection ten seconds in all.
const CONNECTION: Duration = Duration::from_secs(13);
const MIB: usize = 1 << 20;

/// Does the work on a thread that is nobody's, without groups; the others stay root's.
fn as_nobody<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    const NOBODY: libc::c_long = 65_534;
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: the calls take numbers and an empty list. Made without libc's wrappers, they are about this thread alone,
            // which ends with the work.
            let done = unsafe {
                libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()) == 0
                    && libc::syscall(libc::SYS_setresgid, NOBODY, NOBODY, NOBODY) == 0
                    && libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) == 0
            };
            assert!(done, "nobody: {}", std::io::Error::last_os_error());
            work()
        });
        thread.join().unwrap()
    })
}

fn connect(socket: &Path) -> UnixStream {
    let stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(CONNECTION)).unwrap();
    stream.set_write_timeout(Some(CONNECTION)).unwrap();
    stream
}

/// Sends the bytes, as many as are taken, and reads the answer.
fn ask(socket: &Path, bytes: &[u8]) -> String {
    let mut stream = connect(socket);
    // Refused before its end.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    // What was not read of the request is an error after the answer.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn request(call: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{call} HTTP/1.1\r\nhost: tidegate\r\n{headers}\r\n").into_bytes();
    bytes.extend(body);
    bytes
}

fn post(call: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let length = format!("content-length: {}\r\n", body.len());
    request(&format!("POST {call}"), &length, body)
}

fn set(target: &str) -> Vec<u8> {
    let body = serde_json::json!({ "target": target, "terms": { "class": "side" } });
    post("/v1/set", body.to_string())
}

fn run(fields: &str) -> Vec<u8> {
    let rest = r#""command": ["x"], "terms": {"class": "side"}"#;
    post("/v1/run", format!("{{{fields}, {rest}}}"))
}

/// The body of `set` with these headers instead of its length.
fn set_with(headers: &str, body: &[u8]) -> Vec<u8> {
    request("POST /v1/set", headers, body)
}

/// Requests by what they are, with the status and what the refusal names. All but the first are of some form.
fn requests() -> Vec<(&'static str, Vec<u8>, u16, &'static str)> {
    let chunked = "transfer-encoding: chunked\r\n";
    let body = br#"{"target": "gate:main", "terms": {"class": "side"}}"#;
    let long = |bytes: usize| "a".repeat(bytes);
    let noise: Vec<u8> = (0..8 * MIB)
        .map(|nth| (nth * nth / 7) as u8 | 128)
        .collect();
    let get = |path: &str| request(&format!("GET {path}"), "", b"");
    vec![
        ("8 MiB of garbage", noise, 400, "request: "),
        (
            "a header line without end",
            request(&format!("GET / HTTP/1.1\r\nx: {}", long(MIB)), "", b""),
            400,
            "too large",
        ),
        (
            "1,000 header lines",
            request("GET /", &"x: y\r\n".repeat(1000), b""),
            400,
            "too large",
        ),
        (
            "a path of 70 KB",
            get(&format!("/{}", long(70_000))),
            400,
            "URI too long",
        ),
        (
            "a path of 60 KB",
            get(&format!("/{}", long(60_000))),
            404,
            "no call GET /aaa",
        ),
        (
            "HTTP/2",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            400,
            "request: ",
        ),
        (
            "HTTP/9.9",
            b"GET / HTTP/9.9\r\n\r\n".to_vec(),
            400,
            "version",
        ),
        (
            "a length that is too long",
            set_with("content-length: 1000\r\n", body),
            400,
            "body",
        ),
        (
            "a length that is too short",
            set_with("content-length: 5\r\n", body),
            400,
            "EOF",
        ),
        (
            "a negative length",
            set_with("content-length: -5\r\n", body),
            400,
            "content-length",
        ),
        (
            "two lengths",
            set_with("content-length: 5\r\ncontent-length: 51\r\n", body),
            400,
            "content-length",
        ),
        (
            "a length of 2^64 - 1",
            set_with("content-length: 18446744073709551615\r\n", body),
            400,
            "too large",
        ),
        (
            "a body of 8 MiB",
            post("/v1/set", long(8 * MIB)),
            400,
            "length limit",
        ),
        (
            "a chunk of 2^64 - 1",
            set_with(chunked, b"ffffffffffffffff\r\nx"),
            400,
            "body",
        ),
        (
            "a chunk of 2^68",
            set_with(chunked, b"100000000000000000\r\nx"),
            400,
            "body",
        ),
        (
            "chunks of no number",
            set_with(chunked, b"zz\r\nx"),
            400,
            "body",
        ),
        (
            "100,000 brackets",
            post("/v1/set", "[".repeat(100_000)),
            400,
            "column 1",
        ),
        (
            "nested terms",
            post(
                "/v1/set",
                format!(r#"{{"target":"x","terms":{}"#, r#"{"a":"#.repeat(30_000)),
            ),
            400,
            "invalid type",
        ),
        (
            "1e999",
            run(r#""pid": 1e999, "name": null"#),
            400,
            "number out of range",
        ),
        (
            "process 99999999999",
            run(r#""pid": 99999999999, "name": null"#),
            400,
            "99999999999",
        ),
        (
            "process -1",
            run(r#""pid": -1, "name": null"#),
            404,
            "process -1",
        ),
        (
            "process -2^31",
            run(r#""pid": -2147483648, "name": null"#),
            404,
            "-2147483648",
        ),
        (
            "another's process",
            run(r#""pid": 1, "name": null"#),
            403,
            "process 1",
        ),
        ("an escaped NUL", set("gate:ma\0in"), 400, r#"ma\\0in"#),
        (
            "a NUL",
            post("/v1/set", "{\"target\": \"ma\0in\", \"terms\": {}}"),
            400,
            "control character",
        ),
        (
            "no UTF-8",
            post("/v1/set", b"{\"target\": \"\xff\", \"terms\": {}}"),
            400,
            "unicode",
        ),
        (
            "a name of 1 MiB",
            run(&format!(r#""pid": 0, "name": "{}""#, long(MIB))),
            400,
            "length limit",
        ),
        ("a target of 200 KB", set(&long(200_000)), 400, "gate name"),
        (
            "a field of 200 KB",
            post("/v1/set", format!(r#"{{"{}": 1}}"#, long(200_000))),
            400,
            "unknown field",
        ),
        (
            "a gate of 200 KB",
            post(
                "/v1/unset",
                format!(r#"{{"target":"{}","terms":[]}}"#, long(200_000)),
            ),
            404,
            "no such gate",
        ),
        ("a group above", set("cgroup:/../.."), 400, "/../.."),
        ("the root group", set("cgroup:/"), 400, "root group"),
        ("process 0", set("pid:0"), 400, "pid:0"),
        ("process -1 as a target", set("pid:-1"), 400, "pid:-1"),
        (
            "process 99999999999 as a target",
            set("pid:99999999999"),
            400,
            "pid:99999999999",
        ),
        ("another's process as a target", set("pid:1"), 403, "uid 0"),
        ("a gate above", set("gate:../x"), 400, "../x"),
        ("a unit above", set("unit:../x"), 400, "../x"),
        ("main's gate", set("gate:main"), 403, "uid 0"),
        (
            "an unknown field",
            post("/v1/set", r#"{"target":"a","terms":{},"more":1}"#),
            400,
            "`more`",
        ),
        (
            "a field twice",
            post("/v1/set", r#"{"target":"a","target":"b","terms":{}}"#),
            400,
            "duplicate field `target`",
        ),
        (
            "a body that is no object",
            post("/v1/set", "7"),
            400,
            "invalid type",
        ),
        ("no body", post("/v1/set", ""), 400, "EOF"),
        (
            "a wrong method",
            request("DELETE /v1/set", "", b""),
            404,
            "DELETE /v1/set",
        ),
        (
            "a method of its own",
            request("BREW /v1/status", "", b""),
            404,
            "BREW /v1/status",
        ),
        (
            "a path above",
            get("/../../etc/shadow"),
            404,
            "/../../etc/shadow",
        ),
        (
            "a target of no UTF-8",
            get("/v1/explain?target=%ff"),
            400,
            "not UTF-8",
        ),
        (
            "a target of controls",
            get("/v1/explain?target=%00%0d%0a"),
            404,
            "no such gate",
        ),
        ("stop", post("/v1/stop", ""), 403, "stop"),
    ]
}

/// The agent as it was before the attack.
struct Before {
    socket: PathBuf,
    agent: u64,
    descriptors: usize,
}

impl Before {
    fn new(socket: PathBuf) -> Before {
        let agent = status(&socket)["pid"].as_u64().unwrap();
        let mut before = Before {
            socket,
            agent,
            descriptors: 0,
        };
        before.descriptors = before.open();
        before
    }

    fn open(&self) -> usize {
        let list = std::fs::read_dir(format!("/proc/{}/fd", self.agent));
        list.unwrap().count()
    }

    /// Root reads and changes within a second, main's gate is there, and the agent is the same process.
    fn check_root(&self, what: &str) {
        let began = Instant::now();
        let status = status(&self.socket);
        let body = r#"{"target": "gate:main", "terms": {"headroom": "30%"}}"#;
        let changed = ask(&self.socket, &post("/v1/set", body));
        let waited = began.elapsed();
        assert!(waited < ROOT_WAITS * 2, "{what}: root waited {waited:?}");
        assert!(changed.starts_with("HTTP/1.1 200"), "{what}: {changed}");
        assert_eq!(status["pid"], self.agent, "{what}: another agent");
        let gates = status["gates"].as_array().unwrap();
        let is_main = |gate: &&serde_json::Value| gate["name"] == "main";
        assert_eq!(gates.iter().filter(is_main).count(), 1, "{what}: {gates:?}");
    }

    /// A thread of the agent's opens a kernel file now and then.
    fn check_descriptors(&self, what: &str) {
        wait_for(&format!("{what}: the agent's descriptors"), || {
            self.open() <= self.descriptors + 2
        });
    }
}

fn status(socket: &Path) -> serde_json::Value {
    let answer = ask(socket, &request("GET /v1/status", "", b""));
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

/// An instance with main in a gate; `None` where there can be none, or the test is not root's.
fn protected(name: &str) -> Option<(Instance, Background, Before)> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: {name}: it becomes nobody, which takes root");
        return None;
    }
    let instance = Instance::new(name)?;
    let main = instance.background(
        &["--main", "--name", "main", "--headroom", "30%"],
        &["sleep", "1000"],
    );
    instance.gate("main");
    let before = Before::new(instance.run_dir().join("tidegate.sock"));
    Some((instance, main, before))
}

#[test]
fn requests_of_any_form_are_refused_by_name() {
    let Some((_instance, _main, before)) = protected("requests") else {
        return;
    };
    let requests = requests();
    let count = requests.len() as u64;
    for (what, bytes, status, names) in requests {
        let answer = as_nobody(|| ask(&before.socket, &bytes));
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        assert!(
            head.starts_with(&format!("HTTP/1.1 {status} ")),
            "{what}: {answer}"
        );
        assert!(
            head.contains("application/problem+json"),
            "{what}: {answer}"
        );
        let problem: serde_json::Value = serde_json::from_str(body).unwrap();
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(names), "{what}: {detail}");
        assert!(body.len() < 2_048, "{what}: {} bytes", body.len());
        before.check_root(what);
        before.check_descriptors(what);
    }
    tell("hostile requests", count);
}

/// How a client keeps connections and asks for nothing.
fn connections() -> Vec<(&'static str, usize, Vec<u8>)> {
    let half = request("POST /v1/run", "content-length: 1000\r\n", b"{");
    vec![
        ("100 that say nothing", 100, Vec::new()),
        ("100 with half a line", 100, b"GET /v1/st".to_vec()),
        ("100 with half a body", 100, half),
        (
            "1,000 requests in a row",
            1,
            request("GET /v1/status", "", b"").repeat(1000),
        ),
        (
            "100 that do not read",
            100,
            request("GET /v1/status", "", b""),
        ),
    ]
}

#[test]
fn connections_that_are_held_or_dropped_hold_up_nobody() {
    let Some((_instance, _main, before)) = protected("connections") else {
        return;
    };
    for (what, count, bytes) in connections() {
        for dropped in [true, false] {
            let held: Vec<UnixStream> = as_nobody(|| {
                (0..count)
                    .map(|_| {
                        let mut stream = connect(&before.socket);
                        let _ = stream.write_all(&bytes);
                        stream
                    })
                    .filter(|_| !dropped)
                    .collect()
            });
            before.check_root(what);
            assert!(
                before.open() <= before.descriptors + 18,
                "{what}: 16 of a user's"
            );
            drop(held);
            before.check_descriptors(what);
        }
    }
    tell("connections held or dropped", 10);
}

/// A byte a second from each of 16 clients: they are cut off in the end, and root is answered all the while.
#[test]
fn slow_clients_are_cut_off() {
    let Some((_instance, _main, before)) = protected("slow") else {
        return;
    };
    let mut slow: Vec<UnixStream> =
        as_nobody(|| (0..16).map(|_| connect(&before.socket)).collect());
    let refused = as_nobody(|| ask(&before.socket, b""));
    assert!(
        refused.contains("uid 65534 has 16 connections"),
        "{refused}"
    );
    let began = Instant::now();
    for byte in request("GET /v1/status", "", b"") {
        slow.retain_mut(|stream| stream.write_all(&[byte]).is_ok());
        if slow.is_empty() {
            break;
        }
        before.check_root("a byte a second");
        std::thread::sleep(Duration::from_secs(1));
    }
    let lived = began.elapsed();
    assert!(
        slow.is_empty() && lived < CONNECTION,
        "{} after {lived:?}",
        slow.len()
    );
    before.check_descriptors("a byte a second");
    tell("slow clients", 16);
}

/// All at once, beside a main that works and side work that takes what it can: side work stays limited, it is cut to the tolerance when
/// main needs the machine, and root is answered.
#[test]
fn all_at_once_main_stays_protected() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: hostile: it becomes nobody, which takes root");
        return;
    }
    let Some(stage) = Stage::new("hostile") else {
        return;
    };
    let before = Before::new(stage.instance.run_dir().join("tidegate.sock"));
    let over = AtomicBool::new(false);
    let attack = |bytes: Vec<u8>, held_for: Duration| {
        let (socket, over) = (before.socket.clone(), &over);
        move || {
            as_nobody(|| {
                let mut made = 0_u64;
                while !over.load(Ordering::Relaxed) {
                    let mut stream = connect(&socket);
                    let _ = stream.write_all(&bytes);
                    std::thread::sleep(held_for);
                    made += 1;
                }
                made
            })
        }
    };
    let noise = vec![0xff; 8 * MIB];
    let half = request("POST /v1/run", "content-length: 1000\r\n", b"{");
    let deep = post("/v1/set", "[".repeat(100_000));
    let read = request("GET /v1/status", "", b"");
    let moment = Duration::from_millis(1);
    let asked: u64 = std::thread::scope(|scope| {
        let mut attacks = vec![
            scope.spawn(attack(noise, moment)),
            scope.spawn(attack(deep, moment)),
            scope.spawn(attack(read, moment)),
        ];
        for _ in 0..20 {
            attacks.push(scope.spawn(attack(half.clone(), Duration::from_millis(500))));
        }
        let runs = scope.spawn(|| many_runs(&stage.instance, &over));
        let cuts = cuts(&stage, &before);
        over.store(true, Ordering::Relaxed);
        let asked = attacks
            .into_iter()
            .map(|attack| attack.join().unwrap())
            .sum::<u64>();
        assert!(runs.join().unwrap() >= 100, "gates were asked for");
        eprintln!(
            "figure: hostile: a cut within {:.3} s, at most",
            cuts.as_secs_f64()
        );
        asked
    });
    stage.watch.check();
    before.check_root("after all");
    tell("hostile connections at once", asked);
    stage.end();
}

/// How often and for how long main takes the machine; says the slowest cut to the tolerance.
fn cuts(stage: &Stage, before: &Before) -> Duration {
    const ROUNDS: u32 = 3;
    let limit = stage.limit();
    let mut slowest = Duration::ZERO;
    for _ in 0..ROUNDS {
        std::thread::sleep(Duration::from_millis(500));
        before.check_root("all at once");
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let hog = "while :; do :; done & ".repeat(cpus) + "wait";
        let hogs = stage.instance.background(&["--main"], &["sh", "-c", &hog]);
        slowest = slowest.max(wait("the cut", Duration::from_secs(5), || {
            limit.is_at_floor()
        }));
        before.check_root("all at once, main takes all");
        drop(hogs);
    }
    slowest
}

/// A user that asks for one gate after the other; says how often it asked.
fn many_runs(instance: &Instance, over: &AtomicBool) -> u64 {
    let mut running = Vec::new();
    let mut asked = 0;
    while !over.load(Ordering::Relaxed) && asked < 1_000 {
        let mut command = instance.on(std::process::Command::new("setpriv"));
        command
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .arg(instance.binary())
            .args(["run", "--side", "--quiet", "--", "sleep", "1000"])
            .stderr(std::process::Stdio::null())
            .current_dir("/");
        running.push(Background(command.spawn().unwrap()));
        asked += 1;
        std::thread::sleep(Duration::from_millis(5));
    }
    asked
}
