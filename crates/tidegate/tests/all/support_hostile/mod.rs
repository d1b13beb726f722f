//! What the tests with a hostile client share: a socket by hand, another user, and what must hold
//! after each attack.

pub mod pen;
pub mod requests;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::common::{Background, Instance, wait_for};

/// Root is answered within this.
pub const ROOT_WAITS: Duration = Duration::from_secs(1);
/// The agent gives a connection ten seconds in all.
pub const CONNECTION: Duration = Duration::from_secs(13);
pub const MIB: usize = 1 << 20;

/// Does the work on a thread that is nobody's, without groups; the others stay root's.
pub fn as_nobody<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    const NOBODY: libc::c_long = 65_534;
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: the calls take numbers and an empty list. Made without libc's wrappers, they
            // are about this thread alone, which ends with the work.
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

pub fn connect(socket: &Path) -> UnixStream {
    let stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(CONNECTION)).unwrap();
    stream.set_write_timeout(Some(CONNECTION)).unwrap();
    stream
}

/// Sends the bytes, as many as are taken, and reads the answer.
pub fn ask(socket: &Path, bytes: &[u8]) -> String {
    let mut stream = connect(socket);
    // Refused before its end.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    // What was not read of the request is an error after the answer.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

pub fn request(call: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{call} HTTP/1.1\r\nhost: tidegate\r\n{headers}\r\n").into_bytes();
    bytes.extend(body);
    bytes
}

pub fn post(call: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let length = format!("content-length: {}\r\n", body.len());
    request(&format!("POST {call}"), &length, body)
}

pub fn set(target: &str) -> Vec<u8> {
    let body = serde_json::json!({ "target": target, "terms": { "class": "side" } });
    post("/v1/set", body.to_string())
}

pub fn run(fields: &str) -> Vec<u8> {
    let rest = r#""command": ["x"], "terms": {"class": "side"}"#;
    post("/v1/run", format!("{{{fields}, {rest}}}"))
}

/// The agent as it was before the attack.
pub struct Before {
    pub socket: PathBuf,
    agent: u64,
    pub descriptors: usize,
}

impl Before {
    pub fn new(socket: PathBuf) -> Before {
        let agent = get(&socket, "/v1/status")["pid"].as_u64().unwrap();
        let mut before = Before {
            socket,
            agent,
            descriptors: 0,
        };
        before.descriptors = before.settled();
        before
    }

    /// As many as have been open for a second: threads that start open theirs.
    fn settled(&self) -> usize {
        let (mut open, mut since) = (self.open(), Instant::now());
        while since.elapsed() < Duration::from_secs(1) {
            std::thread::sleep(Duration::from_millis(20));
            let now = self.open();
            if now > open {
                (open, since) = (now, Instant::now());
            }
        }
        open
    }

    pub fn open(&self) -> usize {
        let list = std::fs::read_dir(format!("/proc/{}/fd", self.agent));
        list.unwrap().count()
    }

    /// Root reads and changes within a second, main's gate is there, and the agent is the same
    /// process.
    pub fn check_root(&self, what: &str) {
        let began = Instant::now();
        let status = get(&self.socket, "/v1/status");
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
    pub fn check_descriptors(&self, what: &str) {
        wait_for(&format!("{what}: the agent's descriptors"), || {
            self.open() <= self.descriptors + 2
        });
    }
}

pub fn get(socket: &Path, path: &str) -> serde_json::Value {
    let answer = ask(socket, &request(&format!("GET {path}"), "", b""));
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

/// An instance with main in a gate; `None` where there can be none, or the test is not root's.
pub fn protected(name: &str) -> Option<(Instance, Background, Before)> {
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
