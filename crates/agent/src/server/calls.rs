//! The calls as functions: each takes what its row in the table of calls says.

use std::fmt::Display;
use std::sync::{Arc, LazyLock, Mutex};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::RawQuery;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, Method, Uri};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use axum::{Extension, Json, Router};
use serde::de::DeserializeOwned;
use tidegate_api::{
    ApiError, ApiResult, ApplyRequest, CALLS, Call as Row, CallId, Done, ErrorKind, EventsView,
    ExplainView, GateView, HistoryView, MeasureView, PolicyChangeView, PolicyView, RunReply,
    StatusView, Verb,
};

use tidegate_engine::clock::since_1970;
use tidegate_engine::sync::lock;

use super::connection::Connections;
use super::query;
use super::stream::{self, Asked};
use crate::agent::Agent;
use crate::api::measure;
use crate::api::reads::{admit, check_ready, events_for, explain_for, figures_for, status_for};
use crate::api::report::report;
use crate::metrics::{self, Format};
use crate::peer::Peer;
use crate::policy::apply as rules;
use crate::view::Detail;

/// A command line is at most 2 MiB on Linux, but no sensible request comes near this.
const BODY_BYTES_MAX: usize = 256 * 1024;

#[derive(Clone)]
pub(super) struct Connection {
    pub(super) agent: Arc<Agent>,
    /// `None` when the kernel does not say: then it may change nothing.
    pub(super) peer: Option<Peer>,
    pub(super) streams: Arc<Mutex<Connections>>,
}

impl Connection {
    fn peer(&self) -> ApiResult<&Peer> {
        self.peer.as_ref().ok_or_else(|| {
            let detail = "socket: the kernel does not say who you are";
            ApiError::new(ErrorKind::Denied, detail).with_remedy("connect again")
        })
    }
}

type Call = Extension<Connection>;
type Answer<T> = ApiResult<Json<T>>;

pub(super) fn routes() -> Router {
    routes_of(CALLS.iter())
}

pub(super) fn read_routes() -> Router {
    routes_of(CALLS.iter().filter(|row| row.verb == Verb::Get))
}

fn routes_of(rows: impl Iterator<Item = &'static Row>) -> Router {
    rows.fold(Router::new(), |router, row| {
        let refuse_unknown = from_fn(
            move |RawQuery(query): RawQuery, request, next: Next| async {
                query::check_names(&query.unwrap_or_default(), row)?;
                Ok::<Response, ApiError>(next.run(request).await)
            },
        );
        router.route(row.path, function(row).route_layer(refuse_unknown))
    })
    .fallback(unknown)
    .method_not_allowed_fallback(unknown)
}

fn function(row: &Row) -> MethodRouter {
    let verb = match row.verb {
        Verb::Get => MethodFilter::GET,
        Verb::Post => MethodFilter::POST,
        Verb::Delete => MethodFilter::DELETE,
    };
    match row.id {
        CallId::Run => on(verb, run),
        CallId::Set => on(verb, set),
        CallId::Unset => on(verb, unset),
        CallId::Report => on(verb, report_latency),
        CallId::MeasureStart => on(verb, measure_start),
        CallId::Measure => on(verb, measured),
        CallId::MeasureEnd => on(verb, measure_end),
        CallId::Status => on(verb, status),
        CallId::Explain => on(verb, explain),
        CallId::Events => on(verb, events),
        CallId::History => on(verb, history),
        CallId::Policy => on(verb, policy),
        CallId::PolicyDiff => on(verb, diff),
        CallId::PolicyApply => on(verb, apply),
        CallId::PolicyConfirm => on(verb, confirm),
        CallId::PolicyRollback => on(verb, rollback),
        CallId::Stream => on(verb, stream),
        CallId::Metrics => on(verb, metrics_text),
        CallId::OpenApi => on(verb, openapi),
        CallId::Health => on(verb, health),
        CallId::Ready => on(verb, ready),
        CallId::Stop => on(verb, stop),
    }
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

async fn report_latency(call: Call, body: Body) -> Answer<Done> {
    let answer = report(&call.agent, call.peer()?, &read(body).await?)?;
    Ok(Json(answer))
}

async fn measure_start(call: Call, body: Body) -> Answer<MeasureView> {
    measure::start(&call.agent, call.peer()?, &read(body).await?).map(Json)
}

async fn measured(call: Call, RawQuery(query): RawQuery) -> Answer<MeasureView> {
    let id = query::whole(&query.unwrap_or_default(), "id")?;
    measure::read(&call.agent, call.peer.as_ref(), id).map(Json)
}

async fn measure_end(call: Call) -> Answer<MeasureView> {
    measure::end(&call.agent, call.peer()?).map(Json)
}

async fn stop(call: Call) -> Answer<Done> {
    call.agent.stop(call.peer()?).map(Json)
}

async fn status(call: Call, RawQuery(query): RawQuery) -> Answer<StatusView> {
    let detail = match query::wants_gates(&query.unwrap_or_default())? {
        true => Detail::Whole,
        false => Detail::NoGates,
    };
    status_for(&call.agent, call.peer.as_ref(), detail).map(Json)
}

async fn explain(call: Call, RawQuery(query): RawQuery) -> Answer<ExplainView> {
    let target = query::target(&query.unwrap_or_default())?;
    explain_for(&call.agent, call.peer.as_ref(), &target).map(Json)
}

async fn events(call: Call, RawQuery(query): RawQuery) -> Answer<EventsView> {
    let since = query::whole(&query.unwrap_or_default(), "since")?.unwrap_or(0);
    events_for(&call.agent, call.peer.as_ref(), since).map(Json)
}

async fn history(call: Call, RawQuery(query): RawQuery) -> Answer<HistoryView> {
    admit(&call.agent, call.peer.as_ref())?;
    let now_s = since_1970().as_secs();
    let (from, to, step) = query::stretch(&query.unwrap_or_default(), now_s)?;
    Ok(Json(call.agent.runtime.history.view(from, to, step)))
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

async fn metrics_text(call: Call, headers: HeaderMap) -> ApiResult<impl IntoResponse> {
    let figures = figures_for(&call.agent, call.peer.as_ref())?;
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = Format::accepted(accept.unwrap_or_default());
    let head = [(CONTENT_TYPE, format.content_type())];
    Ok((head, metrics::text(&figures, format)))
}

static OPENAPI: LazyLock<Bytes> =
    LazyLock::new(|| tidegate_api::openapi().to_string().into_bytes().into());

async fn openapi(call: Call) -> ApiResult<([(HeaderName, &'static str); 1], Bytes)> {
    admit(&call.agent, call.peer.as_ref())?;
    Ok(([(CONTENT_TYPE, "application/json")], OPENAPI.clone()))
}

async fn stream(call: Call, RawQuery(query): RawQuery, headers: HeaderMap) -> ApiResult<Response> {
    let Extension(call) = call;
    admit(&call.agent, call.peer.as_ref())?;
    let asked = Asked::read(&query.unwrap_or_default(), &headers)?;
    let place = lock(&call.streams).admit(call.peer.as_ref())?;
    Ok(stream::answer(call.agent, call.peer, &asked, place))
}

async fn health() -> &'static str {
    HEALTHY
}

async fn ready(call: Call) -> ApiResult<&'static str> {
    check_ready(&call.agent).map(|()| HEALTHY)
}

const HEALTHY: &str = "ok\n";

async fn unknown(method: Method, uri: Uri) -> ApiError {
    let path = uri.path();
    let detail = format!("socket: there is no call {method} {path}");
    ApiError::new(ErrorKind::NotFound, detail).with_remedy("see GET /v1/openapi.json")
}

/// A request's body, whatever content type it names.
async fn read<T: DeserializeOwned>(body: Body) -> ApiResult<T> {
    let bytes = to_bytes(body, BODY_BYTES_MAX).await;
    parse(&bytes.map_err(wrong_body)?)
}

pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> ApiResult<T> {
    serde_json::from_slice(body).map_err(wrong_body)
}

fn wrong_body(why: impl Display) -> ApiError {
    ApiError::new(ErrorKind::Usage, format!("socket: request body: {why}"))
}
