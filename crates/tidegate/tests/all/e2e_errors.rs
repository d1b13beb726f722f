//! Failures on their way from the agent to the exit code: each kind by itself, and three of a real
//! agent.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};

use crate::common::{Instance, ends_with, or_skip};
use tidegate_api::{ApiError, ErrorKind};

/// Answers each call with `error`, after the connection that only looks whether an agent listens.
fn answer_with(listener: &UnixListener, error: &ApiError) {
    drop(listener.accept().unwrap());
    let (mut stream, _) = listener.accept().unwrap();
    let mut head = [0; 1024];
    assert!(stream.read(&mut head).unwrap() > 0);
    let body = serde_json::to_string(error).unwrap();
    let status = error.kind.status();
    write!(
        stream,
        "HTTP/1.1 {status}\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
}

#[test]
fn the_exit_code_follows_from_the_kind_and_the_sentence_is_the_agents() {
    let instance = or_skip!(Instance::new("errors"));
    std::fs::create_dir(instance.run_dir()).unwrap();
    let socket = instance.run_dir().join("tidegate.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    for kind in ErrorKind::ALL {
        let error = ApiError::new(*kind, "gate x: a test").with_remedy("read on");
        let output = std::thread::scope(|scope| {
            scope.spawn(|| answer_with(&listener, &error));
            instance.output(&["status"])
        });
        let said = ends_with(&output, kind.exit() as i32);
        let expected = "tidegate: gate x: a test; read on";
        assert!(said.contains(expected), "{kind:?}: {said}");
    }
    std::fs::remove_file(&socket).unwrap();
}

/// The status line, the headers and the body of a call.
pub fn call(instance: &Instance, request: &str) -> (String, serde_json::Value) {
    let mut stream = UnixStream::connect(instance.run_dir().join("tidegate.sock")).unwrap();
    write!(stream, "{request}\r\nhost: tidegate\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), serde_json::from_str(body).unwrap())
}

#[test]
fn an_agent_says_what_is_wrong_and_the_command_ends_with_its_code() {
    let instance = or_skip!(Instance::new("problems"));
    instance.fails(&["status"], 3);
    let _gate = instance.background(&["--side"], &["sleep", "60"]);
    instance.gate("sleep");
    instance.fails(&["set", "sleep", "headroom=much"], 2);
    // A term of the right form that only the agent can refuse.
    let said = instance.fails(&["set", "sleep", "class=main"], 2);
    assert!(said.contains("start it again with --main"), "{said}");
    let said = instance.fails(&["explain", "no-such-gate"], 5);
    assert!(said.contains("see `tidegate status`"), "{said}");

    let explain = "GET /v1/explain?target=gate:no-such-gate HTTP/1.1";
    let (head, body) = call(&instance, explain);
    assert!(head.starts_with("HTTP/1.1 404 Not Found\r\n"), "{head}");
    let of_type = "content-type: application/problem+json";
    assert!(head.lines().any(|line| line == of_type), "{head}");
    assert_eq!(body["type"], "urn:tidegate:error:not_found");
    assert_eq!(body["status"], 404);
    assert_eq!(body["kind"], "not_found");
    assert_eq!(body["detail"], "gate:no-such-gate: there is no such gate");
    assert_eq!(body["remedy"], "see `tidegate status`");
    let (head, body) = call(&instance, "GET /v1/nothing HTTP/1.1");
    assert!(head.starts_with("HTTP/1.1 404 "), "{head}");
    assert_eq!(body["detail"], "socket: there is no call GET /v1/nothing");
    let (head, body) = call(&instance, "DELETE /v1/status HTTP/1.1");
    assert!(head.starts_with("HTTP/1.1 404 "), "{head}");
    assert_eq!(body["kind"], "not_found");
    let (head, body) = call(&instance, "POST /v1/set HTTP/1.1");
    assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
    assert_eq!(body["kind"], "usage");
}
