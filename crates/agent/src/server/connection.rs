//! One connection: the limits on their number and duration, and the error that answers bytes which are no HTTP request.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tidegate_api::{ApiError, ErrorKind, PROBLEM_JSON};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::peer::Peer;

/// How long one connection may take in all; a slow caller must not hold an agent that leaves.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Connections at once: in all, of all users who are not root, of one of them. Each holds a descriptor, and an agent that has none
/// left cannot write a quota. Users' are refused; root's wait in the socket's queue.
pub(super) const CONNECTIONS_MAX: usize = 128;
const OF_USERS_MAX: usize = CONNECTIONS_MAX - CONNECTIONS_MAX / 8;
const OF_USER_MAX: usize = 16;

/// How many connections users have: each holds its tokens.
#[derive(Default)]
pub(super) struct Connections {
    users: BTreeMap<u32, Arc<()>>,
    of_users: Arc<()>,
}

/// Held by a connection for as long as it is open.
pub(super) type Token = (Arc<()>, Option<Arc<()>>);

impl Connections {
    /// A token for one more of `peer`'s.
    ///
    /// # Errors
    /// There are enough.
    pub(super) fn admit(&mut self, peer: Option<&Peer>) -> Result<Token, ApiError> {
        let uid = peer.map_or(u32::MAX, Peer::charged_to);
        self.users.retain(|_, token| Arc::strong_count(token) > 1);
        let token = self.users.entry(uid).or_default();
        if uid == 0 {
            return Ok((Arc::clone(token), None));
        }
        let full = |detail: String| {
            let error = ApiError::new(ErrorKind::Busy, format!("budget: {detail}"));
            Err(error.with_mend("close some, and ask again"))
        };
        // One of the tokens is the table's own.
        if Arc::strong_count(token) > OF_USER_MAX {
            return full(format!(
                "uid {uid} has {OF_USER_MAX} connections, as many as one user may have"
            ));
        }
        if Arc::strong_count(&self.of_users) > OF_USERS_MAX {
            return full(format!("users have {OF_USERS_MAX} connections"));
        }
        Ok((Arc::clone(token), Some(Arc::clone(&self.of_users))))
    }
}

/// Sends an error as the whole answer of a connection. The socket's own buffer holds it; a full one is no reason to wait.
pub(super) fn refuse(stream: impl AsFd, error: &ApiError) {
    let body = serde_json::to_string(error).unwrap_or_default();
    let status = error.kind.status();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {PROBLEM_JSON}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let _ = rustix::io::write(stream, (head + &body).as_bytes());
}

/// Of a request's head, and of what is read ahead of its body.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// One connection is one call: a client that calls again connects again. A caller that goes away or is too slow has no answer to get.
pub(super) async fn converse<S, T>(stream: S, calls: Router, _token: T)
where
    S: AsyncRead + AsyncWrite + AsFd + Unpin,
{
    let asked = Arc::new(AtomicBool::new(false));
    let io = Muted {
        stream,
        asked: Arc::clone(&asked),
    };
    let calls = TowerToHyperService::new(calls);
    let service = hyper::service::service_fn(|request| {
        asked.store(true, Ordering::Relaxed);
        Box::pin(calls.call(request))
    });
    let mut connection = http1::Builder::new()
        .keep_alive(false)
        .half_close(true)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(io), service);
    let conversation = async {
        let Err(why) = poll_fn(|context| connection.poll_without_shutdown(context)).await else {
            return;
        };
        if !asked.load(Ordering::Relaxed) && why.is_parse() {
            let detail = format!("socket: request: {why}");
            let error = ApiError::new(ErrorKind::Usage, detail)
                .with_mend("send one HTTP/1.1 request, its head below 100 lines and 64 KiB");
            refuse(&connection.into_parts().io.into_inner().stream, &error);
        }
    };
    let _ = tokio::time::timeout(TIMEOUT, conversation).await;
}

/// The caller's stream. What hyper itself answers to bytes that are no request has no body, so until there is a request nothing
/// is sent.
struct Muted<S> {
    stream: S,
    asked: Arc<AtomicBool>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Muted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Muted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if !self.asked.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_cannot_take_every_connection() {
        let mut connections = Connections::default();
        let user = |uid| Peer {
            uid,
            ..Peer::default()
        };
        let held: Vec<_> = (0..100)
            .filter_map(|_| connections.admit(Some(&user(1000))).ok())
            .collect();
        assert_eq!(held.len(), OF_USER_MAX);
        let refused = connections.admit(Some(&user(1000))).unwrap_err();
        assert!(refused.detail.contains("uid 1000 has 16"), "{refused}");
        let others: Vec<_> = (1001..1100)
            .filter_map(|uid| connections.admit(Some(&user(uid))).ok())
            .collect();
        assert_eq!(held.len() + others.len(), OF_USERS_MAX);
        assert!((0..100).all(|_| connections.admit(Some(&user(0))).is_ok()));
        drop(held);
        assert!(connections.admit(Some(&user(1000))).is_ok());
    }
}
