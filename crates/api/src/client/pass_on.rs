//! For a program between the agent and others.

use std::path::Path;

use crate::{ApiError, ApiResult, ErrorKind};
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::{Method, Response};

use super::CALL_PATIENCE;
use super::http::{JSON, begin, patiently, request};

/// Asks the agent at `socket`: its answer as it comes, whatever its status. `last_event` is the
/// header `Last-Event-ID` of a stream.
pub async fn pass_on(
    socket: &Path,
    path_and_query: &str,
    last_event: Option<HeaderValue>,
) -> ApiResult<Response<Incoming>> {
    let mut request = request(Method::GET, path_and_query, JSON, Vec::new())?;
    if let Some(id) = last_event {
        request.headers_mut().insert("last-event-id", id);
    }
    let answer = patiently(begin(socket, request), CALL_PATIENCE).await;
    let failed =
        |kind, why: String| ApiError::new(kind, format!("agent: {}: {why}", socket.display()));
    let answer = answer.ok_or_else(|| failed(ErrorKind::NoAnswer, "no answer".to_owned()))?;
    // The connection's task ends with the answer's body.
    let (response, _driver) =
        answer.map_err(|error| failed(ErrorKind::Unreachable, error.to_string()))?;
    Ok(response)
}
