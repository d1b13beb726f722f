//! HTTP over the socket: a request, its answer, and how long that is waited for.

use std::path::Path;

use crate::{ApiError, ApiResult, ErrorKind};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

/// The longest answer is the status of as many gates as an agent takes, some 20 MB.
pub const ANSWER_BYTES_MAX: usize = 64 << 20;

pub(crate) const JSON: &str = "application/json";

pub(crate) fn internal(path: &str, what: &str) -> ApiError {
    ApiError::new(ErrorKind::Internal, format!("agent: {path}: {what}"))
}

pub(crate) fn request(
    method: Method,
    path: &str,
    accept: &str,
    payload: Vec<u8>,
) -> ApiResult<Request<Full<Bytes>>> {
    Request::builder()
        .method(method)
        .uri(path)
        .header("host", "tidegate")
        .header("accept", accept)
        .header("content-type", JSON)
        .body(Full::new(Bytes::from(payload)))
        .map_err(|error| internal(path, &error.to_string()))
}

pub(crate) fn refusal(path: &str, status: StatusCode, bytes: &[u8]) -> ApiError {
    serde_json::from_slice(bytes).unwrap_or_else(|_| {
        let body = String::from_utf8_lossy(bytes);
        internal(path, &format!("HTTP {status}: {body}"))
    })
}

/// Waits for an answer for this many polls, so long each; `None` when there was none. Polls are
/// counted, not time: `run` waits in the gate that it was just put into, and its quota may stop it
/// for longer than any patience while the answer is there.
pub(crate) async fn patiently<T>(
    answer: impl Future<Output = T>,
    (poll, polls): (std::time::Duration, u32),
) -> Option<T> {
    let patience = async {
        for _ in 0..polls {
            tokio::time::sleep(poll).await;
        }
    };
    tokio::select! {
        answer = answer => Some(answer),
        () = patience => None,
    }
}

pub(crate) type Broken = Box<dyn std::error::Error + Send + Sync>;

pub(crate) async fn exchange(
    socket: &Path,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, Bytes), Broken> {
    let (response, driver) = begin(socket, request).await?;
    let status = response.status();
    let bytes = whole(response.into_body()).await?;
    driver.abort();
    Ok((status, bytes))
}

/// A body, unless it is longer than any that an agent sends.
pub(crate) async fn whole(body: Incoming) -> Result<Bytes, Broken> {
    Ok(Limited::new(body, ANSWER_BYTES_MAX)
        .collect()
        .await?
        .to_bytes())
}

/// An answer whose body is still to come, and the task that its connection is driven by.
pub(crate) async fn begin(
    socket: &Path,
    request: Request<Full<Bytes>>,
) -> Result<(Response<Incoming>, JoinHandle<hyper::Result<()>>), Broken> {
    let stream = UnixStream::connect(socket).await;
    let stream = stream.map_err(|error| format!("{}: {error}", socket.display()))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    Ok((sender.send_request(request).await?, driver))
}

/// Percent-encoded, as the value of a query's parameter.
pub(crate) fn in_query(text: &str) -> PercentEncode<'_> {
    /// Kept as they are: RFC 3986's unreserved characters, and the slash.
    const ENCODED: AsciiSet = NON_ALPHANUMERIC
        .remove(b'-')
        .remove(b'_')
        .remove(b'.')
        .remove(b'~')
        .remove(b'/');
    utf8_percent_encode(text, &ENCODED)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn encodes_what_a_query_cannot_carry() {
        let encoded = in_query("cgroup:/a b&c").to_string();
        assert_eq!(encoded, "cgroup%3A/a%20b%26c");
    }

    #[test]
    fn an_answer_that_came_during_a_long_stop_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let (told, answered) = std::sync::mpsc::channel();
        let agent = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; 512];
            assert!(stream.read(&mut head).unwrap() > 0);
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
            std::io::Write::write_all(&mut stream, answer).unwrap();
            told.send(()).unwrap();
            // Until the caller is through.
            let _ = stream.read(&mut head);
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let poll = std::time::Duration::from_millis(20);
        let request = Request::builder()
            .uri("/v1/status")
            .header("host", "tidegate")
            .body(Full::new(Bytes::new()))
            .unwrap();
        let answer = runtime.block_on(async {
            // Nothing of this thread runs from before the answer until long after its patience.
            tokio::spawn(async move {
                tokio::time::sleep(poll / 2).await;
                answered.recv().unwrap();
                std::thread::sleep(poll * 20);
            });
            patiently(exchange(&socket, request), (poll, 10)).await
        });
        // With it goes the connection.
        drop(runtime);
        let (status, body) = answer.expect("the answer was there").unwrap();
        assert!(status.is_success() && body == "ok");
        agent.join().unwrap();
    }
}
