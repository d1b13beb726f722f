//! The agent's calls that the page makes, passed on without command lines: by a loopback address
//! every user of the machine may ask, and the agent sees only the one who runs this.

use std::path::Path;

use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Request, Response};
use futures_util::stream::unfold;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::Value;
use tidegate_api::client::ANSWER_BYTES_MAX;
use tidegate_api::{ApiError, EVENT_STREAM, ErrorKind};

pub const PASSED_ON: &[&str] = &[
    "/v1/status",
    "/v1/explain",
    "/v1/events",
    "/v1/history",
    "/v1/policy",
    "/v1/stream",
];

pub async fn pass_on(
    request: &Request<Incoming>,
    socket: &Path,
) -> Result<Response<Body>, ApiError> {
    let uri = request.uri();
    let call = uri.path_and_query().map_or(uri.path(), |all| all.as_str());
    let last_event = request.headers().get("last-event-id").cloned();
    let answer = tidegate_api::client::pass_on(socket, call, last_event).await?;
    let (head, body) = answer.into_parts();
    let media = head.headers.get(CONTENT_TYPE);
    let is_stream = media.is_some_and(|media| media == EVENT_STREAM);
    let body = match is_stream {
        true => Body::from_stream(unfold((body, Vec::new()), next_lines)),
        false => {
            let broken = |error: Box<dyn std::error::Error + Send + Sync>| {
                ApiError::new(ErrorKind::Unreachable, format!("agent: {call}: {error}"))
            };
            let bytes = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            let bytes = bytes.map_err(broken)?.to_bytes();
            Body::from(without_commands(&bytes))
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = head.status;
    for name in ["content-type", "tidegate-agent-pid"] {
        if let Some(value) = head.headers.get(name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    Ok(response)
}

type Lines = (Incoming, Vec<u8>);

async fn next_lines((mut body, mut rest): Lines) -> Option<(Result<Bytes, hyper::Error>, Lines)> {
    loop {
        if let Some(end) = rest.iter().rposition(|byte| *byte == b'\n') {
            let begun = rest.split_off(end + 1);
            return Some((Ok(lines_without_commands(&rest)), (body, begun)));
        }
        if rest.len() > ANSWER_BYTES_MAX {
            return None;
        }
        match body.frame().await? {
            Ok(frame) => rest.extend(frame.into_data().unwrap_or_default()),
            Err(error) => return Some((Err(error), (body, rest))),
        }
    }
}

fn lines_without_commands(lines: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(lines.len());
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        match line.strip_prefix(b"data: ") {
            Some(data) => {
                out.extend(b"data: ");
                out.extend(without_commands(data));
                out.push(b'\n');
            }
            None => out.extend(line),
        }
    }
    out.into()
}

/// A JSON text without any field `command`. What is no JSON might hide one, and is left out.
fn without_commands(text: &[u8]) -> Vec<u8> {
    let mut value: Value = serde_json::from_slice(text).unwrap_or_default();
    take_commands(&mut value);
    value.to_string().into_bytes()
}

fn take_commands(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("command");
            fields.values_mut().for_each(take_commands);
        }
        Value::Array(items) => items.iter_mut().for_each(take_commands),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_are_taken_out_of_answers_and_of_streams() {
        let status = r#"{"gates":[{"command":"x --password y","name":"a"}]}"#;
        let clean = r#"{"gates":[{"name":"a"}]}"#;
        assert_eq!(without_commands(status.as_bytes()), clean.as_bytes());
        let stream = format!("retry: 1000\n\nid: 7\nevent: status\ndata: {status}\n\n: here\n");
        let clean = format!("retry: 1000\n\nid: 7\nevent: status\ndata: {clean}\n\n: here\n");
        assert_eq!(lines_without_commands(stream.as_bytes()), clean);
        assert_eq!(without_commands(b"command: x"), b"null");
    }
}
