//! The socket: routes, credentials, errors. What the calls do is [`crate::owner::Owner`]'s.

use std::sync::Arc;

use axum::Json;
use axum::Router;
use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::extract::{DefaultBodyLimit, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::IncomingStream;
use serde::Deserialize;
use tokio::net::UnixListener;

use crate::api::{
    Done, ErrorView, ExplainView, GateView, RunReply, RunRequest, SetRequest, StatusView,
    UnsetRequest,
};
use crate::owner::Owner;
use crate::peer::Peer;

/// A command line is at most 2 MiB on Linux, but no sensible request comes near this.
const BODY_BYTES_MAX: usize = 256 * 1024;

/// The kind of refusal of an owner that leaves: the next one may be asked.
pub const LEAVING: &str = "leaving";

/// A call that the owner refuses.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// As in [`ErrorView`].
    pub kind: &'static str,
    /// What, where, why; and the mend.
    pub message: String,
}

impl Refusal {
    /// A refusal of this kind.
    pub fn new(kind: &'static str, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = match self.kind {
            "usage" => StatusCode::BAD_REQUEST,
            "denied" => StatusCode::FORBIDDEN,
            "not_found" => StatusCode::NOT_FOUND,
            "busy" => StatusCode::TOO_MANY_REQUESTS,
            LEAVING => StatusCode::SERVICE_UNAVAILABLE,
            "unsupported" => StatusCode::NOT_IMPLEMENTED,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let view = ErrorView {
            kind: self.kind.to_owned(),
            message: self.message,
        };
        (status, Json(view)).into_response()
    }
}

/// The peer of one connection; `None` when the kernel would not say, which is then nobody.
#[derive(Clone, Debug)]
struct Caller(Option<Peer>);

impl Connected<IncomingStream<'_, UnixListener>> for Caller {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Self {
        use std::os::fd::AsFd;
        Self(Peer::of(stream.io().as_fd()).ok())
    }
}

impl Caller {
    fn peer(&self) -> Result<&Peer, Refusal> {
        self.0.as_ref().ok_or_else(|| {
            Refusal::new(
                "denied",
                "socket: the kernel does not say who you are; connect again",
            )
        })
    }
}

type Answer<T> = Result<Json<T>, Refusal>;
type App = State<Arc<Owner>>;

async fn run(
    State(owner): App,
    ConnectInfo(caller): ConnectInfo<Caller>,
    body: JsonBody<RunRequest>,
) -> Answer<RunReply> {
    owner.run(caller.peer()?, &body.take()?).map(Json)
}

async fn set(
    State(owner): App,
    ConnectInfo(caller): ConnectInfo<Caller>,
    body: JsonBody<SetRequest>,
) -> Answer<GateView> {
    owner.set(caller.peer()?, &body.take()?).map(Json)
}

async fn unset(
    State(owner): App,
    ConnectInfo(caller): ConnectInfo<Caller>,
    body: JsonBody<UnsetRequest>,
) -> Answer<Done> {
    owner.unset(caller.peer()?, &body.take()?).map(Json)
}

async fn stop(State(owner): App, ConnectInfo(caller): ConnectInfo<Caller>) -> Answer<Done> {
    owner.stop(caller.peer()?).map(Json)
}

async fn status(State(owner): App) -> Json<StatusView> {
    Json(owner.status())
}

async fn gates(State(owner): App) -> Json<Vec<GateView>> {
    Json(owner.status().gates)
}

#[derive(Deserialize)]
struct ExplainQuery {
    target: String,
}

async fn explain(State(owner): App, Query(query): Query<ExplainQuery>) -> Answer<ExplainView> {
    owner.explain(&query.target).map(Json)
}

async fn no_route() -> Refusal {
    Refusal::new(
        "not_found",
        "socket: there is no such call; see `tidegate --help`",
    )
}

/// A JSON body whose refusal speaks our dialect.
struct JsonBody<T>(Result<T, Refusal>);

impl<T> JsonBody<T> {
    fn take(self) -> Result<T, Refusal> {
        self.0
    }
}

impl<T, S> axum::extract::FromRequest<S> for JsonBody<T>
where
    T: serde::de::DeserializeOwned,
    S: Send + Sync,
{
    type Rejection = std::convert::Infallible;

    async fn from_request(
        request: axum::extract::Request,
        state: &S,
    ) -> Result<Self, Self::Rejection> {
        let parsed = Json::<T>::from_request(request, state).await;
        Ok(Self(parsed.map(|Json(value)| value).map_err(|rejection| {
            Refusal::new(
                "usage",
                format!("socket: request body: {}", rejection.body_text()),
            )
        })))
    }
}

/// The routes.
pub fn router(owner: Arc<Owner>) -> Router {
    Router::new()
        .route("/v1/run", post(run))
        .route("/v1/set", post(set))
        .route("/v1/unset", post(unset))
        .route("/v1/stop", post(stop))
        .route("/v1/status", get(status))
        .route("/v1/gates", get(gates))
        .route("/v1/explain", get(explain))
        .fallback(no_route)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(owner)
}

/// Serves until the owner leaves.
pub async fn serve(listener: UnixListener, owner: Arc<Owner>) -> std::io::Result<()> {
    let left = Arc::clone(&owner);
    let service = router(owner).into_make_service_with_connect_info::<Caller>();
    axum::serve(listener, service)
        .with_graceful_shutdown(async move { left.left().await })
        .await
}
