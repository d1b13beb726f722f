//! One connection: the limits on their number and duration, and the error that answers bytes which
//! are no HTTP request.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rustix::event::{PollFd, PollFlags, Timespec};
use tidegate_api::{ApiError, ApiResult, ErrorKind, PROBLEM_JSON};
use tidegate_engine::sync::lock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::peer::Peer;

/// How long one connection may take in all; a slow caller must not hold an agent that leaves.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A stream's reader that takes nothing for so long, while there is something for it, is cut off.
const READER_PATIENCE: Duration = Duration::from_secs(10);

const STREAM_CHECK: Duration = Duration::from_secs(1);

/// Connections at once: each holds a descriptor, and an agent that has none left cannot write a
/// quota. Users' are refused; root's wait in the socket's queue.
pub(super) const CONNECTIONS_MAX: usize = 128;
pub(super) const CALLS: Limits = Limits {
    what: "connections",
    of_users: CONNECTIONS_MAX - CONNECTIONS_MAX / 8,
    of_user: 16,
    of_root: CONNECTIONS_MAX,
};
/// Of the connections, those that stay: most are left for calls.
pub(super) const STREAMS: Limits = Limits {
    what: "streams",
    of_users: 32,
    of_user: 4,
    of_root: 32,
};

/// How many there may be at once: of all users who are not root, of one of them, of root.
pub(super) struct Limits {
    what: &'static str,
    of_users: usize,
    of_user: usize,
    of_root: usize,
}

pub(super) struct Connections {
    limits: &'static Limits,
    users: BTreeMap<u32, Arc<()>>,
    of_users: Arc<()>,
}

pub(super) type Token = (Arc<()>, Option<Arc<()>>);

impl Connections {
    pub(super) fn new(limits: &'static Limits) -> Self {
        Self {
            limits,
            users: BTreeMap::new(),
            of_users: Arc::default(),
        }
    }

    pub(super) fn admit(&mut self, peer: Option<&Peer>) -> ApiResult<Token> {
        let Limits { what, .. } = self.limits;
        let uid = peer.map_or(u32::MAX, Peer::charged_to);
        self.users.retain(|_, token| Arc::strong_count(token) > 1);
        let token = self.users.entry(uid).or_default();
        let full = |detail: String| {
            let error = ApiError::new(ErrorKind::Busy, format!("budget: {detail}"));
            Err(error.with_remedy("close some, and ask again"))
        };
        let of_one = match uid {
            0 => self.limits.of_root,
            _ => self.limits.of_user,
        };
        // One of the tokens is the table's own.
        if Arc::strong_count(token) > of_one {
            return full(format!(
                "uid {uid} has {of_one} {what}, as many as one user may have"
            ));
        }
        if uid == 0 {
            return Ok((Arc::clone(token), None));
        }
        let of_users = self.limits.of_users;
        if Arc::strong_count(&self.of_users) > of_users {
            return full(format!("users have {of_users} {what}"));
        }
        Ok((Arc::clone(token), Some(Arc::clone(&self.of_users))))
    }
}

/// Sends an error as the whole answer of a connection. The socket's own buffer holds it; a full one
/// is no reason to wait.
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

/// Marks an answer that goes on: its connection lasts for as long as its reader takes what it is
/// sent.
#[derive(Clone, Copy)]
pub(super) struct Streaming;

/// One connection is one call: a client that calls again connects again. A caller that goes away or
/// is too slow has no answer to get.
///
/// `connection` is an extension of the request. As the state of the router, it would need a copy of
/// the router for each connection.
pub(super) async fn converse<S, C, T>(stream: S, calls: Router, connection: C, _token: T)
where
    S: AsyncRead + AsyncWrite + AsFd + Unpin,
    C: Clone + Send + Sync + 'static,
{
    let state = Arc::new(Conversation::new(stream));
    let io = Muted(Arc::clone(&state));
    let calls = TowerToHyperService::new(calls);
    let service = hyper::service::service_fn(|mut request: Request<Incoming>| {
        state.asked.store(true, Ordering::Relaxed);
        request.extensions_mut().insert(connection.clone());
        let answer = calls.call(request);
        let state = Arc::clone(&state);
        Box::pin(async move {
            let answer = answer.await?;
            if answer.extensions().get::<Streaming>().is_some() {
                state.streaming.notify_one();
            }
            Ok::<_, Infallible>(answer)
        })
    });
    let mut served = http1::Builder::new()
        .keep_alive(false)
        .half_close(true)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(io), service);
    let conversation = async {
        let talk = poll_fn(|context| served.poll_without_shutdown(context));
        let Err(why) = talk.await else {
            return;
        };
        if !state.asked.load(Ordering::Relaxed) && why.is_parse() {
            let detail = format!("socket: request: {why}");
            let error = ApiError::new(ErrorKind::Usage, detail)
                .with_remedy("send one HTTP/1.1 request, its head below 100 lines and 64 KiB");
            refuse(&*lock(&state.stream), &error);
        }
    };
    tokio::select! {
        () = conversation => {}
        () = state.expires() => {}
    }
}

/// What is known of a connection. All of it is used by one task; the locks are never waited for.
struct Conversation<S> {
    stream: Mutex<S>,
    asked: AtomicBool,
    streaming: Notify,
    /// Since when the caller takes nothing more.
    blocked_since: Mutex<Option<Instant>>,
}

impl<S: AsFd> Conversation<S> {
    fn new(stream: S) -> Self {
        Self {
            stream: Mutex::new(stream),
            asked: AtomicBool::new(false),
            streaming: Notify::new(),
            blocked_since: Mutex::default(),
        }
    }

    /// Waits until the connection has lasted for long enough.
    async fn expires(&self) {
        tokio::select! {
            () = sleep(TIMEOUT) => return,
            () = self.streaming.notified() => {}
        }
        while !self.is_blocked() && !self.is_hung_up() {
            sleep(STREAM_CHECK).await;
        }
    }

    fn is_blocked(&self) -> bool {
        let since = *lock(&self.blocked_since);
        since.is_some_and(|since| since.elapsed() >= READER_PATIENCE)
    }

    /// Whether the caller has closed its end: one that only sends nothing more has not.
    fn is_hung_up(&self) -> bool {
        let stream = lock(&self.stream);
        let fd = stream.as_fd();
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::empty())];
        let now = Timespec::default();
        let found = rustix::event::poll(&mut fds, Some(&now));
        let is_over = PollFlags::HUP | PollFlags::ERR;
        found.is_ok() && fds[0].revents().intersects(is_over)
    }
}

/// The caller's stream. What hyper itself answers to bytes that are no request has no body, so
/// until there is a request nothing is sent.
struct Muted<S>(Arc<Conversation<S>>);

impl<S: AsyncRead + Unpin> AsyncRead for Muted<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *lock(&self.0.stream)).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Muted<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if !self.0.asked.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = Pin::new(&mut *lock(&self.0.stream)).poll_write(context, bytes);
        let mut blocked_since = lock(&self.0.blocked_since);
        match &written {
            Poll::Pending => drop(blocked_since.get_or_insert_with(Instant::now)),
            Poll::Ready(_) => *blocked_since = None,
        }
        written
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *lock(&self.0.stream)).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *lock(&self.0.stream)).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_cannot_take_every_connection() {
        let mut connections = Connections::new(&CALLS);
        let user = |uid| Peer {
            uid,
            ..Peer::default()
        };
        let held: Vec<_> = (0..100)
            .filter_map(|_| connections.admit(Some(&user(1000))).ok())
            .collect();
        assert_eq!(held.len(), CALLS.of_user);
        let refused = connections.admit(Some(&user(1000))).unwrap_err();
        assert!(refused.detail.contains("uid 1000 has 16"), "{refused}");
        let others: Vec<_> = (1001..1100)
            .filter_map(|uid| connections.admit(Some(&user(uid))).ok())
            .collect();
        assert_eq!(held.len() + others.len(), CALLS.of_users);
        assert!((0..100).all(|_| connections.admit(Some(&user(0))).is_ok()));
        drop(held);
        assert!(connections.admit(Some(&user(1000))).is_ok());
    }
}
