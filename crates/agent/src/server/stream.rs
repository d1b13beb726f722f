//! Server-sent events: what happens, as it happens, and a status now and then.
//!
//! A reader pulls: while the connection's buffers are full, nothing is made for it. What it then
//! missed is in the ring of events, or is told as a gap. So a slow reader costs its buffers, and
//! one that reads nothing at all its connection ([`super::connection`]).

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::HeaderMap;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use serde::Serialize;
use tidegate_api::{ApiError, ApiResult, EVENT_STREAM, ErrorKind, GapView};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::connection::{Streaming, Token};
use super::query;
use crate::agent::Agent;
use crate::api::reads::shared_status_for;
use crate::peer::Peer;
use crate::view::Detail;

/// A comment tells reader and agent that the other is there.
const HEARTBEAT: Duration = Duration::from_secs(15);

const EVENTS_MAX: usize = 64;

const PERIOD_MAX_S: u64 = 3_600;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    events: bool,
    status: Option<Duration>,
    since: Option<u64>,
}

impl Asked {
    pub(super) fn read(query: &str, headers: &HeaderMap) -> ApiResult<Self> {
        let period_s = query::whole(query, "period_seconds")?.unwrap_or(1);
        if !(1..=PERIOD_MAX_S).contains(&period_s) {
            let why = format!("period_seconds is not from 1 to {PERIOD_MAX_S}");
            return Err(query::wrong(&why, "write ?period_seconds=1"));
        }
        let mut asked = Asked {
            since: query::whole(query, "since")?,
            ..Asked::default()
        };
        let topics = query::value(query, "topics").unwrap_or("events");
        for topic in topics.split(',') {
            match topic {
                "events" => asked.events = true,
                "status" => asked.status = Some(Duration::from_secs(period_s)),
                _ => {
                    let why = format!("there is no topic \"{topic}\"");
                    return Err(query::wrong(&why, "write ?topics=events,status"));
                }
            }
        }
        let Some(last) = headers.get("last-event-id") else {
            return Ok(asked);
        };
        let last = last.to_str().ok().and_then(|text| text.parse().ok());
        let number = last.ok_or_else(|| {
            let why = "socket: header: Last-Event-ID is not a whole number";
            ApiError::new(ErrorKind::Usage, why).with_remedy("leave it out")
        })?;
        asked.since = Some(number);
        Ok(asked)
    }
}

/// The answer, which goes on until the agent leaves or the reader does.
pub(super) fn answer(
    agent: Arc<Agent>,
    peer: Option<Peer>,
    asked: &Asked,
    place: Token,
) -> Response {
    let reader = Reader::new(agent, peer, asked, place);
    let messages = unfold(reader, async |mut reader: Reader| {
        let message = reader.next().await?;
        Some((
            Ok::<Bytes, std::convert::Infallible>(message.into()),
            reader,
        ))
    });
    let headers = [
        (CONTENT_TYPE, EVENT_STREAM.to_owned()),
        (CACHE_CONTROL, "no-store".to_owned()),
    ];
    let agent = [("tidegate-agent-pid", std::process::id().to_string())];
    let mut response = (headers, agent, Body::from_stream(messages)).into_response();
    response.extensions_mut().insert(Streaming);
    response
}

struct Reader {
    agent: Arc<Agent>,
    peer: Option<Peer>,
    events: Option<Cursor>,
    status: Option<(Duration, Instant)>,
    greeting: Option<String>,
    _place: Token,
}

struct Cursor {
    since: u64,
    told: watch::Receiver<u64>,
}

impl Reader {
    fn new(agent: Arc<Agent>, peer: Option<Peer>, asked: &Asked, place: Token) -> Self {
        // An EventSource connects again after this many milliseconds.
        let mut greeting = "retry: 1000\n\n".to_owned();
        let events = asked.events.then(|| {
            let mut told = agent.runtime.events.told();
            let total = *told.borrow_and_update();
            let since = match asked.since {
                Some(since) if since > total => {
                    greeting += &gap(None, 1);
                    0
                }
                Some(since) => since,
                None => total,
            };
            Cursor { since, told }
        });
        Self {
            agent,
            peer,
            events,
            status: asked.status.map(|period| (period, Instant::now())),
            greeting: Some(greeting),
            _place: place,
        }
    }

    /// The next message; `None` where the agent leaves.
    async fn next(&mut self) -> Option<String> {
        if let Some(greeting) = self.greeting.take() {
            return Some(greeting);
        }
        let heartbeat = Instant::now() + HEARTBEAT;
        loop {
            if let Some(message) = self.status_due() {
                return Some(message);
            }
            if let Some(message) = self.events.as_mut().and_then(|at| at.next(&self.agent)) {
                return Some(message);
            }
            let due = self.status.map_or(heartbeat, |(_, due)| due.min(heartbeat));
            tokio::select! {
                () = self.agent.left() => return None,
                () = changed(self.events.as_mut()) => {}
                () = sleep_until(due) => {
                    if heartbeat <= Instant::now() {
                        return Some(": still here\n\n".to_owned());
                    }
                }
            }
        }
    }

    fn status_due(&mut self) -> Option<String> {
        let (period, due) = self.status.as_mut()?;
        let now = Instant::now();
        if now < *due {
            return None;
        }
        *due = now + *period;
        let view = shared_status_for(&self.agent, self.peer.as_ref(), Detail::Whole);
        Some(message(None, "status", &view))
    }
}

async fn changed(cursor: Option<&mut Cursor>) {
    match cursor {
        // The sender is the agent's.
        Some(cursor) => drop(cursor.told.changed().await),
        None => std::future::pending().await,
    }
}

impl Cursor {
    fn next(&mut self, agent: &Agent) -> Option<String> {
        if *self.told.borrow_and_update() <= self.since {
            return None;
        }
        let found = agent.runtime.events.some_after(self.since, EVENTS_MAX);
        self.since = found.last_seq;
        let mut text = match (found.lost, found.events.first()) {
            (1.., Some(first)) => gap(Some(found.lost), first.seq),
            _ => String::new(),
        };
        for event in &found.events {
            text += &message(Some(event.seq), &event.kind, event);
        }
        Some(text)
    }
}

fn gap(lost: Option<u64>, next_seq: u64) -> String {
    message(None, "gap", &GapView { lost, next_seq })
}

fn message(id: Option<u64>, event: &str, data: &impl Serialize) -> String {
    let mut text = String::new();
    if let Some(id) = id {
        let _ = writeln!(text, "id: {id}");
    }
    // Views can be serialised.
    let data = serde_json::to_string(data).unwrap_or_default();
    let _ = writeln!(text, "event: {event}\ndata: {data}\n");
    text
}

#[cfg(test)]
mod tests;
