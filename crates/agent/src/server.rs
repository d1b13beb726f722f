//! The socket: routes, credentials, errors. What the calls do is [`crate::agent::Agent`]'s.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_api::{ApiError, ErrorKind, PROBLEM_JSON};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use crate::agent::Agent;
use crate::peer::Peer;

/// A command line is at most 2 MiB on Linux, but no sensible request comes near this.
const BODY_BYTES_MAX: usize = 256 * 1024;

fn failed(error: &ApiError) -> Response<Full<Bytes>> {
    let status = error.kind.status();
    // A kind's status is a valid one, and strings and numbers can be serialised.
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = serde_json::to_vec(error).unwrap_or_default();
    response(status, PROBLEM_JSON, body)
}

/// How long one connection may take in all; a slow caller must not hold an agent that leaves.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

fn response(status: StatusCode, of_type: &'static str, body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let of_type = hyper::header::HeaderValue::from_static(of_type);
    response
        .headers_mut()
        .insert(hyper::header::CONTENT_TYPE, of_type);
    response
}

/// The peer of one connection; `None` when the kernel would not say, and then it may change nothing.
#[derive(Clone, Debug)]
struct Caller(Option<Peer>);

impl Caller {
    fn peer(&self) -> Result<&Peer, ApiError> {
        self.0.as_ref().ok_or_else(|| {
            ApiError::new(
                ErrorKind::Denied,
                "socket: the kernel does not say who you are",
            )
            .with_mend("connect again")
        })
    }
}

/// The calls.
async fn answer(
    agent: &Agent,
    caller: &Caller,
    request: Request<Incoming>,
) -> Result<Vec<u8>, ApiError> {
    let (head, body) = request.into_parts();
    match (&head.method, head.uri.path()) {
        (&Method::POST, "/v1/run") => json(&agent.run(caller.peer()?, &read(body).await?)?),
        (&Method::POST, "/v1/set") => json(&agent.set(caller.peer()?, &read(body).await?)?),
        (&Method::POST, "/v1/unset") => json(&agent.unset(caller.peer()?, &read(body).await?)?),
        (&Method::POST, "/v1/stop") => json(&agent.stop(caller.peer()?)?),
        (&Method::GET, "/v1/status") => json(&agent.status()),
        (&Method::GET, "/v1/gates") => json(&agent.status().gates),
        (&Method::GET, "/v1/explain") => {
            json(&agent.explain(&target(head.uri.query().unwrap_or_default())?)?)
        }
        _ => Err(ApiError::new(
            ErrorKind::NotFound,
            format!(
                "socket: there is no call {} {}",
                head.method,
                head.uri.path()
            ),
        )
        .with_mend("see `tidegate --help`")),
    }
}

fn json<T: Serialize>(value: &T) -> Result<Vec<u8>, ApiError> {
    serde_json::to_vec(value).map_err(|error| {
        ApiError::new(ErrorKind::Internal, format!("socket: answer: {error}"))
            .with_mend("please report it")
    })
}

async fn read<T: DeserializeOwned>(body: Incoming) -> Result<T, ApiError> {
    let refuse =
        |why: String| ApiError::new(ErrorKind::Usage, format!("socket: request body: {why}"));
    let whole = Limited::new(body, BODY_BYTES_MAX).collect().await;
    let bytes = whole.map_err(|error| refuse(error.to_string()))?.to_bytes();
    serde_json::from_slice(&bytes).map_err(|error| refuse(error.to_string()))
}

/// The `target` of a query, percent-decoded. A plus is itself: it may stand in a group's name.
fn target(query: &str) -> Result<String, ApiError> {
    let wrong = |why: &str| {
        ApiError::new(ErrorKind::Usage, format!("socket: query: {why}"))
            .with_mend("write ?target=TARGET")
    };
    let encoded = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("target="))
        .ok_or_else(|| wrong("no target"))?;
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        match (digit(rest.next()), digit(rest.next())) {
            // Two hexadecimal digits: at most 255.
            (Some(high), Some(low)) => bytes.push((high * 16 + low) as u8),
            _ => return Err(wrong("a percent sign without two hexadecimal digits")),
        }
    }
    String::from_utf8(bytes).map_err(|_| wrong("the target is not UTF-8"))
}

/// One connection is one call: a client that calls again connects again, and no open connection holds back an agent that
/// leaves.
async fn converse(stream: UnixStream, caller: Caller, agent: Arc<Agent>, _token: Arc<()>) {
    let service = service_fn(|request| {
        let (agent, caller) = (Arc::clone(&agent), caller.clone());
        async move {
            let answered = answer(&agent, &caller, request).await;
            let response = match answered {
                Ok(body) => response(StatusCode::OK, "application/json", body),
                Err(error) => failed(&error),
            };
            Ok::<_, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // A caller that goes away or is too slow has no answer to get.
    let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
}

/// Connections at once, in all and of one user who is not root. Each holds a descriptor, and an agent that has none left
/// cannot write a quota; the rest wait in the socket's queue, or are closed unanswered.
const CONNECTIONS_MAX: usize = 128;
const CONNECTIONS_OF_USER_MAX: usize = 16;

/// How many connections each user has: a token is held by each of them.
#[derive(Default)]
struct Connections {
    users: BTreeMap<u32, Arc<()>>,
}

impl Connections {
    /// A token for one more of `peer`'s; `None` when they have enough.
    fn admit(&mut self, peer: Option<&Peer>) -> Option<Arc<()>> {
        let uid = peer.map_or(u32::MAX, |peer| peer.uid);
        self.users.retain(|_, token| Arc::strong_count(token) > 1);
        let token = self.users.entry(uid).or_default();
        // One of the tokens is the table's own.
        let room = uid == 0 || Arc::strong_count(token) <= CONNECTIONS_OF_USER_MAX;
        room.then(|| Arc::clone(token))
    }
}

/// Serves until the agent leaves; calls under way then are answered first.
pub async fn serve(listener: UnixListener, agent: Arc<Agent>) -> std::io::Result<()> {
    let mut calls = JoinSet::new();
    let mut connections = Connections::default();
    loop {
        tokio::select! {
            () = agent.left() => break,
            Some(_) = calls.join_next() => {}
            accepted = listener.accept(), if calls.len() < CONNECTIONS_MAX => match accepted {
                Ok((stream, _)) => {
                    let caller = Caller(Peer::of(stream.as_fd()).ok());
                    if let Some(token) = connections.admit(caller.0.as_ref()) {
                        calls.spawn(converse(stream, caller, Arc::clone(&agent), token));
                    }
                }
                // Out of descriptors, or a caller that left at once: neither ends the agent.
                Err(error) => {
                    tracing::warn!("socket: {error}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
        }
    }
    while calls.join_next().await.is_some() {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_cannot_take_every_connection() {
        let mut connections = Connections::default();
        let user = |uid| Peer {
            uid,
            ..Peer::default()
        };
        let held: Vec<_> = (0..100)
            .filter_map(|_| connections.admit(Some(&user(1000))))
            .collect();
        assert_eq!(held.len(), CONNECTIONS_OF_USER_MAX);
        assert!(connections.admit(Some(&user(1001))).is_some());
        assert!((0..100).all(|_| connections.admit(Some(&user(0))).is_some()));
        drop(held);
        assert!(connections.admit(Some(&user(1000))).is_some());
    }

    #[test]
    fn targets_are_decoded_or_refused() {
        assert_eq!(target("target=cgroup%3A/a%20b").unwrap(), "cgroup:/a b");
        assert_eq!(target("x=1&target=a+b").unwrap(), "a+b");
        for wrong in [
            "",
            "target",
            "target=%",
            "target=%4",
            "target=%zz",
            "target=%ff",
        ] {
            assert_eq!(target(wrong).unwrap_err().kind, ErrorKind::Usage, "{wrong}");
        }
    }
}
