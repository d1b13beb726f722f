//! Failures on their way from the agent to the exit code, each kind by itself.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;

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
