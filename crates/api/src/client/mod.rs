//! A blocking client of the agent's socket: a function for each call, with the types of this crate.
//!
//! ```no_run
//! # fn main() -> tidegate_api::ApiResult<()> {
//! let agent = tidegate_api::client::Client::connect("/run/tidegate/tidegate.sock")?;
//! println!("{} CPUs for side work", agent.status()?.decision.allowance_cpus);
//! # Ok(())
//! # }
//! ```

mod http;
mod stream;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{
    ApiError, ApiResult, ApplyRequest, Done, ErrorKind, EventsView, ExplainView, GateView,
    HistoryView, MeasureRequest, MeasureView, PolicyChangeView, PolicyView, ReportRequest,
    RunReply, RunRequest, SetRequest, StatusView, UnsetRequest,
};
use hyper::body::{Bytes, Incoming};
use hyper::header::HeaderValue;
use hyper::{Method, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

pub use http::ANSWER_BYTES_MAX;
use http::{JSON, begin, exchange, in_query, internal, patiently, refusal, request};
pub use stream::{EventStream, Message};

/// A client of one agent. Each call is a connection of its own.
pub struct Client {
    socket: PathBuf,
    log: Option<PathBuf>,
    start_next: Option<StartNext>,
    runtime: tokio::runtime::Runtime,
}

pub type StartNext = Box<dyn Fn() -> ApiResult<()>>;

/// How often an agent that dies or leaves under a call is followed by the next, and the pause
/// between.
const AGENTS_MAX: u32 = 20;
const NEXT_AGENT: Duration = Duration::from_millis(50);

/// How long one call may take, in polls. The agent's slowest call makes a few directories.
const CALL_PATIENCE: (Duration, u32) = (Duration::from_secs(1), 10);

impl Client {
    /// A client of the agent that runs now.
    pub fn connect(socket: impl Into<PathBuf>) -> ApiResult<Self> {
        let client = Self::at(socket)?;
        client.probe()?;
        Ok(client)
    }

    /// A client that has not looked yet whether an agent runs: a call reports that none does.
    pub fn at(socket: impl Into<PathBuf>) -> ApiResult<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| ApiError::new(ErrorKind::Internal, format!("tokio: {error}")))?;
        Ok(Self {
            socket: socket.into(),
            log: None,
            start_next: None,
            runtime,
        })
    }

    pub fn with_log(self, log: PathBuf) -> Self {
        Self {
            log: Some(log),
            ..self
        }
    }

    /// The same, which starts the next agent where one dies or leaves under a call that may be
    /// repeated.
    pub fn with_start_next(self, start_next: StartNext) -> Self {
        Self {
            start_next: Some(start_next),
            ..self
        }
    }

    /// A call that the next agent may be asked again when this one dies or leaves under it: doing
    /// it twice must come to the same as doing it once.
    fn call_any_agent<B: Serialize, R: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
    ) -> ApiResult<R> {
        let mut answer = self.call(Method::POST, path, Some(body));
        for _ in 0..AGENTS_MAX {
            let start_next = match (&answer, &self.start_next) {
                (Err(error), Some(start_next)) if error.kind.is_agent_gone() => start_next,
                _ => break,
            };
            std::thread::sleep(NEXT_AGENT);
            start_next()?;
            answer = self.call(Method::POST, path, Some(body));
        }
        answer
    }

    pub fn run(&self, request: &RunRequest) -> ApiResult<RunReply> {
        self.call_any_agent("/v1/run", request)
    }

    pub fn set(&self, request: &SetRequest) -> ApiResult<GateView> {
        self.call_any_agent("/v1/set", request)
    }

    pub fn unset(&self, request: &UnsetRequest) -> ApiResult<Done> {
        self.call(Method::POST, "/v1/unset", Some(request))
    }

    pub fn report(&self, request: &ReportRequest) -> ApiResult<Done> {
        self.call_any_agent("/v1/report", request)
    }

    /// Starts a measurement, which this client then asks after by its number.
    pub fn measure(&self, request: &MeasureRequest) -> ApiResult<MeasureView> {
        self.call(Method::POST, "/v1/measure", Some(request))
    }

    /// How far the measurement is: its client is still there.
    pub fn measured(&self, id: u64) -> ApiResult<MeasureView> {
        let path = format!("/v1/measure?id={id}");
        self.call(Method::GET, &path, None::<&()>)
    }

    pub fn end_measure(&self) -> ApiResult<MeasureView> {
        self.call(Method::DELETE, "/v1/measure", None::<&()>)
    }

    pub fn status(&self) -> ApiResult<StatusView> {
        self.call(Method::GET, "/v1/status", None::<&()>)
    }

    /// The same without gates, which costs the agent the same however many there are.
    pub fn status_without_gates(&self) -> ApiResult<StatusView> {
        self.call(Method::GET, "/v1/status?gates=none", None::<&()>)
    }

    pub fn explain(&self, target: &str) -> ApiResult<ExplainView> {
        let path = format!("/v1/explain?target={}", in_query(target));
        self.call(Method::GET, &path, None::<&()>)
    }

    /// What has happened after event number `since`.
    pub fn events(&self, since: u64) -> ApiResult<EventsView> {
        let path = format!("/v1/events?since={since}");
        self.call(Method::GET, &path, None::<&()>)
    }

    /// What happens after event number `since`, as it happens.
    pub fn stream_events(&self, since: u64) -> ApiResult<EventStream<'_>> {
        let path = format!("/v1/stream?topics=events&since={since}");
        EventStream::open(self, &path)
    }

    /// The same, with the machine at a glance every `period_seconds`.
    pub fn stream_all(&self, since: u64, period_seconds: u64) -> ApiResult<EventStream<'_>> {
        let path = format!(
            "/v1/stream?topics=events,status&since={since}&period_seconds={period_seconds}"
        );
        EventStream::open(self, &path)
    }

    /// The machine's figures of the last `seconds`, a point for each.
    pub fn history(&self, seconds: u64) -> ApiResult<HistoryView> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let to = now.map_or(0, |since| since.as_secs());
        let path = format!(
            "/v1/history?from={}&to={to}&step=1",
            to.saturating_sub(seconds)
        );
        self.call(Method::GET, &path, None::<&()>)
    }

    pub fn policy(&self) -> ApiResult<PolicyView> {
        self.call(Method::GET, "/v1/policy", None::<&()>)
    }

    pub fn diff(&self) -> ApiResult<PolicyChangeView> {
        self.call(Method::POST, "/v1/policy/diff", None::<&()>)
    }

    pub fn apply(&self, request: &ApplyRequest) -> ApiResult<PolicyChangeView> {
        self.call(Method::POST, "/v1/policy/apply", Some(request))
    }

    pub fn confirm(&self) -> ApiResult<Done> {
        self.call(Method::POST, "/v1/policy/confirm", None::<&()>)
    }

    /// The policy before is in force again.
    pub fn rollback(&self) -> ApiResult<PolicyChangeView> {
        self.call(Method::POST, "/v1/policy/rollback", None::<&()>)
    }

    /// The figures as text of this media type, as a scrape gets them.
    pub fn metrics(&self, media_type: &str) -> ApiResult<String> {
        let path = "/metrics";
        let bytes = self.ask(Method::GET, path, media_type, Vec::new())?;
        String::from_utf8(bytes.into()).map_err(|error| internal(path, &error.to_string()))
    }

    /// Ends the agent: everything that is still its own is restored.
    pub fn stop(&self) -> ApiResult<Done> {
        self.call(Method::POST, "/v1/stop", None::<&()>)
    }

    fn probe(&self) -> ApiResult<()> {
        let path = &self.socket;
        std::os::unix::net::UnixStream::connect(path)
            .map(drop)
            .map_err(|error| {
                let remedy = "start it with `tidegate agent run` (or `systemctl start tidegate`)";
                let detail = format!("agent: {}: {error}", path.display());
                let kind = match error.kind() {
                    std::io::ErrorKind::PermissionDenied => ErrorKind::Denied,
                    _ => ErrorKind::Unreachable,
                };
                ApiError::new(kind, detail).with_remedy(remedy)
            })
    }

    fn call<B: Serialize, R: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&B>,
    ) -> ApiResult<R> {
        let failed = |error: serde_json::Error| internal(path, &error.to_string());
        let payload = body.map_or(Ok(Vec::new()), serde_json::to_vec);
        let bytes = self.ask(method, path, JSON, payload.map_err(failed)?)?;
        serde_json::from_slice(&bytes).map_err(failed)
    }

    /// The body of the answer to a call that succeeded.
    fn ask(&self, method: Method, path: &str, accept: &str, payload: Vec<u8>) -> ApiResult<Bytes> {
        let request = request(method, path, accept, payload)?;
        // A policy may be on thousands of groups.
        let (poll, polls) = match path.starts_with("/v1/policy") {
            true => (CALL_PATIENCE.0, 12 * CALL_PATIENCE.1),
            false => CALL_PATIENCE,
        };
        let answer = patiently(exchange(&self.socket, request), (poll, polls));
        let silence = || self.silence(path, (poll * polls).as_secs());
        // A silent agent is there, a broken connection tells of one that is not.
        let answer = self.runtime.block_on(answer).ok_or_else(silence)?;
        let (status, bytes) = answer.map_err(|why| {
            ApiError::new(ErrorKind::Unreachable, format!("agent: {path}: {why}"))
        })?;
        if status.is_success() {
            return Ok(bytes);
        }
        Err(refusal(path, status, &bytes))
    }

    fn silence(&self, path: &str, waited_s: u64) -> ApiError {
        let refused = |detail: String| ApiError::new(ErrorKind::NoAnswer, detail);
        let detail = format!("agent: {path}: no answer within {waited_s} s");
        match (self.runtime.block_on(self.stopped_agent()), &self.log) {
            (Some(pid), _) => {
                refused(format!("{detail}: process {pid} is stopped")).with_remedy(format!(
                    "side work is held at the tolerance meanwhile; go on with: kill -CONT {pid}, \
                     or end it with: kill -KILL {pid}; tidegate agent repair"
                ))
            }
            (None, Some(log)) => refused(detail).with_remedy(format!("see {}", log.display())),
            (None, None) => refused(detail),
        }
    }

    /// The agent's process, if that is stopped by a signal.
    async fn stopped_agent(&self) -> Option<i32> {
        let stream = UnixStream::connect(&self.socket).await.ok()?;
        let pid = stream.peer_cred().ok()?.pid()?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.starts_with('T').then_some(pid)
    }
}

/// For a program between the agent and others: the answer of the agent at `socket` as it comes,
/// whatever its status. `last_event` is the header `Last-Event-ID` of a stream.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_that_no_agent_runs_and_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let error = Client::connect(dir.path().join("tidegate.sock"))
            .err()
            .unwrap();
        assert_eq!(error.kind, ErrorKind::Unreachable);
        assert!(
            error.detail.contains("tidegate.sock")
                && error.remedy.unwrap().contains("tidegate agent")
        );
    }
}
