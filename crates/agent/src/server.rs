//! The socket: routes, credentials, errors. What the calls do is in [`crate::api`].

mod connection;
mod scrape;

use std::fmt::Display;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, Method, Uri};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;
use tidegate_api::{
    ApiError, ApplyRequest, Done, ErrorKind, EventsView, ExplainView, GateView, PolicyChangeView,
    PolicyView, RunReply, StatusView,
};
use tidegate_terms::MetricsListen;
use tokio::net::UnixListener;
use tokio::task::JoinSet;

use crate::agent::Agent;
use crate::api::reads::{admit, events_for, explain_for, status_for};
use crate::api::report::report as report_to;
use crate::peer::Peer;
use crate::policy::apply as rules;
use crate::server::connection::{CONNECTIONS_MAX, Connections, converse, refuse};

/// A command line is at most 2 MiB on Linux, but no sensible request comes near this.
const BODY_BYTES_MAX: usize = 256 * 1024;

/// One connection's caller, and the agent that is called.
#[derive(Clone)]
struct Connection {
    agent: Arc<Agent>,
    /// `None` when the kernel does not say: then it may change nothing.
    peer: Option<Peer>,
}

impl Connection {
    fn peer(&self) -> Result<&Peer, ApiError> {
        self.peer.as_ref().ok_or_else(|| {
            ApiError::new(
                ErrorKind::Denied,
                "socket: the kernel does not say who you are",
            )
            .with_mend("connect again")
        })
    }
}

type Call = State<Connection>;
type Answer<T> = Result<Json<T>, ApiError>;

/// The calls.
fn routes() -> Router<Connection> {
    Router::new()
        .route("/v1/run", post(run))
        .route("/v1/set", post(set))
        .route("/v1/unset", post(unset))
        .route("/v1/objective", post(report))
        .route("/v1/stop", post(stop))
        .route("/v1/status", get(status))
        .route("/v1/gates", get(gates))
        .route("/v1/explain", get(explain))
        .route("/v1/events", get(events))
        .route("/v1/policy", get(policy))
        .route("/v1/policy/diff", post(diff))
        .route("/v1/policy/apply", post(apply))
        .route("/v1/policy/confirm", post(confirm))
        .route("/v1/policy/rollback", post(rollback))
        .route("/metrics", get(metrics))
        .fallback(unknown)
        .method_not_allowed_fallback(unknown)
}

async fn run(call: Call, body: Body) -> Answer<RunReply> {
    let answer = call.agent.run(call.peer()?, &read(body).await?)?;
    Ok(Json(answer))
}

async fn set(call: Call, body: Body) -> Answer<GateView> {
    let answer = call.agent.set(call.peer()?, &read(body).await?)?;
    Ok(Json(answer))
}

async fn unset(call: Call, body: Body) -> Answer<Done> {
    let answer = call.agent.unset(call.peer()?, &read(body).await?)?;
    Ok(Json(answer))
}

async fn report(call: Call, body: Body) -> Answer<Done> {
    let answer = report_to(&call.agent, call.peer()?, &read(body).await?)?;
    Ok(Json(answer))
}

async fn stop(call: Call) -> Answer<Done> {
    call.agent.stop(call.peer()?).map(Json)
}

async fn status(call: Call) -> Answer<StatusView> {
    status_for(&call.agent, call.peer.as_ref()).map(Json)
}

async fn gates(call: Call) -> Answer<Vec<GateView>> {
    let status = status_for(&call.agent, call.peer.as_ref())?;
    Ok(Json(status.gates))
}

async fn explain(call: Call, RawQuery(query): RawQuery) -> Answer<ExplainView> {
    let target = target(&query.unwrap_or_default())?;
    explain_for(&call.agent, call.peer.as_ref(), &target).map(Json)
}

async fn events(call: Call, RawQuery(query): RawQuery) -> Answer<EventsView> {
    let since = since(&query.unwrap_or_default())?;
    events_for(&call.agent, call.peer.as_ref(), since).map(Json)
}

async fn policy(call: Call) -> Answer<PolicyView> {
    admit(&call.agent, call.peer.as_ref())?;
    Ok(Json(rules::view(&call.agent, call.peer.as_ref())))
}

async fn diff(call: Call) -> Answer<PolicyChangeView> {
    rules::diff(&call.agent, call.peer()?).map(Json)
}

async fn apply(call: Call, body: Body) -> Answer<PolicyChangeView> {
    let asked: ApplyRequest = read(body).await?;
    rules::apply(&call.agent, call.peer()?, &asked).map(Json)
}

async fn confirm(call: Call) -> Answer<Done> {
    rules::confirm(&call.agent, call.peer()?).map(Json)
}

async fn rollback(call: Call) -> Answer<PolicyChangeView> {
    rules::rollback(&call.agent, call.peer()?).map(Json)
}

async fn metrics(call: Call, headers: HeaderMap) -> Result<impl IntoResponse, ApiError> {
    scrape::text_of(&status_for(&call.agent, call.peer.as_ref())?, &headers)
}

async fn unknown(method: Method, uri: Uri) -> ApiError {
    let path = uri.path();
    let detail = format!("socket: there is no call {method} {path}");
    ApiError::new(ErrorKind::NotFound, detail).with_mend("see `tidegate --help`")
}

/// A request's body, whatever content type it names.
async fn read<T: DeserializeOwned>(body: Body) -> Result<T, ApiError> {
    let bytes = to_bytes(body, BODY_BYTES_MAX).await;
    parse(&bytes.map_err(wrong_body)?)
}

pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body).map_err(wrong_body)
}

fn wrong_body(why: impl Display) -> ApiError {
    ApiError::new(ErrorKind::Usage, format!("socket: request body: {why}"))
}

/// The `target` of a query, percent-decoded. A plus is itself: it may stand in a group's name.
fn target(query: &str) -> Result<String, ApiError> {
    let wrong = |why: &str| {
        ApiError::new(ErrorKind::Usage, format!("socket: query: {why}"))
            .with_mend("write ?target=TARGET")
    };
    let mut pairs = query.split('&');
    let encoded = pairs.find_map(|pair| pair.strip_prefix("target="));
    let encoded = encoded.ok_or_else(|| wrong("no target"))?;
    let decoded = percent_decode_str(encoded).decode_utf8();
    let decoded = decoded.map_err(|_| wrong("the target is not UTF-8"))?;
    Ok(decoded.into_owned())
}

/// The `since` of a query: a number; 0 where there is none.
fn since(query: &str) -> Result<u64, ApiError> {
    let Some(text) = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("since="))
    else {
        return Ok(0);
    };
    text.parse().map_err(|_| {
        ApiError::new(ErrorKind::Usage, "socket: query: since is no number")
            .with_mend("write ?since=N")
    })
}

/// How long a call that is under way when the agent leaves may take to be answered: the next agent is waited for.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// Serves until the agent leaves; calls under way then are answered first. What has asked for nothing by then is not waited for.
pub async fn serve(listener: UnixListener, agent: Arc<Agent>) -> std::io::Result<()> {
    if let MetricsListen::At(address) = agent.runtime.settings.metrics_listen.value {
        tokio::spawn(scrape::serve(address, Arc::clone(&agent)));
    }
    let routes = routes();
    let mut calls = JoinSet::new();
    let mut connections = Connections::default();
    loop {
        tokio::select! {
            () = agent.left() => break,
            Some(_) = calls.join_next() => {}
            accepted = listener.accept(), if calls.len() < CONNECTIONS_MAX => match accepted {
                Ok((stream, _)) => {
                    let peer = Peer::of(stream.as_fd()).ok();
                    match connections.admit(peer.as_ref()) {
                        Ok(token) => {
                            let agent = Arc::clone(&agent);
                            let routes = routes.clone().with_state(Connection { agent, peer });
                            calls.spawn(converse(stream, routes, token));
                        }
                        Err(error) => refuse(&stream, &error),
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
    let answered = async { while calls.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(LAST_ANSWERS, answered).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_an_event_is_a_number() {
        assert_eq!(since("").unwrap(), 0);
        assert_eq!(since("x=1&since=7").unwrap(), 7);
        for wrong in ["since=", "since=-1", "since=99999999999999999999"] {
            assert_eq!(since(wrong).unwrap_err().kind, ErrorKind::Usage, "{wrong}");
        }
    }

    #[test]
    fn targets_are_decoded_or_refused() {
        assert_eq!(target("target=cgroup%3A/a%20b").unwrap(), "cgroup:/a b");
        assert_eq!(target("x=1&target=a+b%").unwrap(), "a+b%");
        for wrong in ["", "target", "target=%ff"] {
            assert_eq!(target(wrong).unwrap_err().kind, ErrorKind::Usage, "{wrong}");
        }
    }
}
