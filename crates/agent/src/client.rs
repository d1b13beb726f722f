//! The blocking client of the agent's socket, and starting an agent when none runs.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Stdio;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_api::{
    ApiError, ApplyRequest, Done, ErrorKind, EventsView, ExplainView, GateView, PolicyChangeView,
    PolicyView, ReportRequest, RunReply, RunRequest, SetRequest, StatusView, UnsetRequest,
};
use tokio::net::UnixStream;

use crate::metrics::Format;
use crate::paths::{RunDir, open_lock};
use crate::process::liveness::{agent_lives, next_agent_lives};
use crate::process::program::own_program;

/// A client of one instance's agent. Each call is a connection of its own.
pub struct Client {
    run_dir: RunDir,
    may_start: bool,
    runtime: tokio::runtime::Runtime,
}

/// How often an agent that dies or leaves under a call is followed by the next, and the pause between.
const AGENTS_MAX: u32 = 20;
const NEXT_AGENT: std::time::Duration = std::time::Duration::from_millis(50);

/// How long one call may take, in polls. The agent's slowest call makes a few directories.
const CALL_PATIENCE: (std::time::Duration, u32) = (std::time::Duration::from_secs(1), 10);

impl Client {
    /// A client of the agent that runs now.
    pub fn connect(run_dir: &RunDir) -> Result<Self, ApiError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| ApiError::new(ErrorKind::Internal, format!("tokio: {error}")))?;
        let client = Self {
            run_dir: run_dir.clone(),
            may_start: false,
            runtime,
        };
        client.probe()?;
        Ok(client)
    }

    /// A client of the agent, which is started first when none runs.
    pub fn connect_or_start(run_dir: &RunDir) -> Result<Self, ApiError> {
        let connected = match Self::connect(run_dir) {
            Err(error) if error.kind == ErrorKind::Unreachable => {
                start_agent(run_dir, None)?;
                Self::connect(run_dir)
            }
            other => other,
        };
        connected.map(|client| Self {
            may_start: true,
            ..client
        })
    }

    /// A call that the next agent may be asked again when this one dies or leaves under it: doing it twice must come to the
    /// same as doing it once.
    fn call_any_agent<B: Serialize, R: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
    ) -> Result<R, ApiError> {
        let mut answer = self.call(Method::POST, path, Some(body));
        for _ in 0..AGENTS_MAX {
            match &answer {
                Err(error) if error.kind.is_agent_gone() && self.may_start => {}
                _ => break,
            }
            std::thread::sleep(NEXT_AGENT);
            start_agent(&self.run_dir, None)?;
            answer = self.call(Method::POST, path, Some(body));
        }
        answer
    }

    /// A new gate.
    pub fn run(&self, request: &RunRequest) -> Result<RunReply, ApiError> {
        self.call_any_agent("/v1/run", request)
    }

    /// Terms for something that runs already.
    pub fn set(&self, request: &SetRequest) -> Result<GateView, ApiError> {
        self.call_any_agent("/v1/set", request)
    }

    /// Takes terms back.
    pub fn unset(&self, request: &UnsetRequest) -> Result<Done, ApiError> {
        self.call(Method::POST, "/v1/unset", Some(request))
    }

    /// Main's latency, for the objective of its gate.
    pub fn report(&self, request: &ReportRequest) -> Result<Done, ApiError> {
        self.call_any_agent("/v1/objective", request)
    }

    /// The machine at a glance.
    pub fn status(&self) -> Result<StatusView, ApiError> {
        self.call(Method::GET, "/v1/status", None::<&()>)
    }

    /// Every gate.
    pub fn gates(&self) -> Result<Vec<GateView>, ApiError> {
        self.call(Method::GET, "/v1/gates", None::<&()>)
    }

    /// Why a gate runs as it does.
    pub fn explain(&self, target: &str) -> Result<ExplainView, ApiError> {
        let path = format!("/v1/explain?target={}", in_query(target));
        self.call(Method::GET, &path, None::<&()>)
    }

    /// What has happened after event number `since`.
    pub fn events(&self, since: u64) -> Result<EventsView, ApiError> {
        let path = format!("/v1/events?since={since}");
        self.call(Method::GET, &path, None::<&()>)
    }

    /// The policy in force.
    pub fn policy(&self) -> Result<PolicyView, ApiError> {
        self.call(Method::GET, "/v1/policy", None::<&()>)
    }

    /// What the files would change.
    pub fn diff(&self) -> Result<PolicyChangeView, ApiError> {
        self.call(Method::POST, "/v1/policy/diff", None::<&()>)
    }

    /// Puts the files in force.
    pub fn apply(&self, request: &ApplyRequest) -> Result<PolicyChangeView, ApiError> {
        self.call(Method::POST, "/v1/policy/apply", Some(request))
    }

    /// What is on trial stays.
    pub fn confirm(&self) -> Result<Done, ApiError> {
        self.call(Method::POST, "/v1/policy/confirm", None::<&()>)
    }

    /// The policy before is in force again.
    pub fn rollback(&self) -> Result<PolicyChangeView, ApiError> {
        self.call(Method::POST, "/v1/policy/rollback", None::<&()>)
    }

    /// The figures as text, as a scrape gets them.
    pub fn metrics(&self, format: Format) -> Result<String, ApiError> {
        let path = "/metrics";
        let bytes = self.ask(Method::GET, path, format.media_type(), Vec::new())?;
        String::from_utf8(bytes.into()).map_err(|error| internal(path, &error.to_string()))
    }

    /// Ends the agent: everything that is still its own is restored.
    pub fn stop(&self) -> Result<Done, ApiError> {
        self.call(Method::POST, "/v1/stop", None::<&()>)
    }

    fn probe(&self) -> Result<(), ApiError> {
        let path = self.run_dir.socket();
        std::os::unix::net::UnixStream::connect(&path)
            .map(drop)
            .map_err(|error| {
                let mend = "start it with `tidegate agent` (or `systemctl start tidegate`)";
                let detail = format!("agent: {}: {error}", path.display());
                let kind = match error.kind() {
                    std::io::ErrorKind::PermissionDenied => ErrorKind::Denied,
                    _ => ErrorKind::Unreachable,
                };
                ApiError::new(kind, detail).with_mend(mend)
            })
    }

    fn call<B: Serialize, R: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&B>,
    ) -> Result<R, ApiError> {
        let failed = |error: serde_json::Error| internal(path, &error.to_string());
        let payload = body.map_or(Ok(Vec::new()), serde_json::to_vec);
        let bytes = self.ask(method, path, JSON, payload.map_err(failed)?)?;
        serde_json::from_slice(&bytes).map_err(failed)
    }

    /// The body of the answer to a call that succeeded.
    fn ask(
        &self,
        method: Method,
        path: &str,
        accept: &str,
        payload: Vec<u8>,
    ) -> Result<Bytes, ApiError> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "tidegate")
            .header("accept", accept)
            .header("content-type", JSON)
            .body(Full::new(Bytes::from(payload)))
            .map_err(|error| internal(path, &error.to_string()))?;
        let exchange = async {
            let answer = exchange(self.run_dir.socket(), request);
            // A policy may be on thousands of groups.
            let (poll, polls) = match path.starts_with("/v1/policy") {
                true => (CALL_PATIENCE.0, 12 * CALL_PATIENCE.1),
                false => CALL_PATIENCE,
            };
            patiently(answer, (poll, polls)).await.ok_or_else(|| {
                let waited_s = (poll * polls).as_secs();
                let log = self.run_dir.log();
                let detail = format!("agent: {path}: no answer within {waited_s} s");
                ApiError::new(ErrorKind::NoAnswer, detail)
                    .with_mend(format!("see {}", log.display()))
            })
        };
        // A silent agent is there, a broken connection tells of one that is not.
        let (status, bytes) = self.runtime.block_on(exchange)?.map_err(|why| {
            ApiError::new(ErrorKind::Unreachable, format!("agent: {path}: {why}"))
        })?;
        if status.is_success() {
            return Ok(bytes);
        }
        Err(serde_json::from_slice(&bytes).unwrap_or_else(|_| {
            let body = String::from_utf8_lossy(&bytes);
            internal(path, &format!("HTTP {status}: {body}"))
        }))
    }
}

const JSON: &str = "application/json";

fn internal(path: &str, what: &str) -> ApiError {
    ApiError::new(ErrorKind::Internal, format!("agent: {path}: {what}"))
}

/// Waits for an answer for this many polls, so long each; `None` when there was none. Polls are counted, not time: `run` waits
/// in the gate that it was just put into, and its quota may stop it for longer than any patience while the answer is there.
async fn patiently<T>(
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

async fn exchange(
    socket: PathBuf,
    request: Request<Full<Bytes>>,
) -> Result<(hyper::StatusCode, Bytes), Box<dyn std::error::Error + Send + Sync>> {
    let stream = UnixStream::connect(socket).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let response = sender.send_request(request).await?;
    let status = response.status();
    let bytes = response.into_body().collect().await?.to_bytes();
    driver.abort();
    Ok((status, bytes))
}

/// Percent-encoded, as the value of a query's parameter.
fn in_query(text: &str) -> PercentEncode<'_> {
    /// Kept as they are: RFC 3986's unreserved characters, and the slash.
    const ENCODED: AsciiSet = NON_ALPHANUMERIC
        .remove(b'-')
        .remove(b'_')
        .remove(b'.')
        .remove(b'~')
        .remove(b'/');
    utf8_percent_encode(text, &ENCODED)
}

/// Starts an agent in the background and waits until it serves or says why it can't.
///
/// The caller may exec another program next, so the agent must not stay its child: `agent --on-demand` forks and
/// its first process, which is waited for here, leaves at once. The agent reports over its standard output,
/// which it then turns into its log.
pub(crate) fn start_agent(run_dir: &RunDir, engine: Option<&str>) -> Result<(), ApiError> {
    let failed = |why: String| {
        let mend = "run as root, or have the service started (`systemctl start tidegate`)";
        let detail = format!("agent: cannot be started: {why}");
        ApiError::new(ErrorKind::Unreachable, detail).with_mend(mend)
    };
    run_dir.make().map_err(|why| {
        let message = format!("agent: cannot be started: {why}");
        ApiError::new(ErrorKind::Unreachable, message)
    })?;
    // Two `run`s at once: the second waits here and then finds the first one's agent.
    let lock_path = run_dir.start_lock();
    let lock = open_lock(&lock_path)
        .map_err(|error| failed(format!("{}: {error}", lock_path.display())))?;
    lock.lock()
        .map_err(|error| failed(format!("{}: {error}", lock_path.display())))?;
    if next_agent_lives(run_dir) {
        return Ok(());
    }
    let log_path = run_dir.log();
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&log_path)
        .map_err(|error| failed(format!("{}: {error}", log_path.display())))?;
    let mut command = own_program();
    command
        .args(["agent", "--on-demand"])
        .args(engine.map(|engine| format!("--engine={engine}")))
        .envs(run_dir.env())
        .current_dir("/");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .process_group(0);
    let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
    let mut report = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        let _ = stdout.read_to_string(&mut report);
    }
    let _ = child.wait();
    match report.trim() {
        "ready" => Ok(()),
        // A starter that was killed has left one behind, and that was faster.
        _ if agent_lives(run_dir) => Ok(()),
        "" => Err(failed(format!(
            "it ended without a word; see {}",
            log_path.display()
        ))),
        why => Err(failed(why.to_owned())),
    }
}

#[cfg(test)]
mod tests {
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
            patiently(exchange(socket, request), (poll, 10)).await
        });
        // With it goes the connection.
        drop(runtime);
        let (status, body) = answer.expect("the answer was there").unwrap();
        assert!(status.is_success() && body == "ok");
        agent.join().unwrap();
    }

    #[test]
    fn says_that_no_agent_runs_and_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let error = Client::connect(&RunDir::new(dir.path(), "x"))
            .err()
            .unwrap();
        assert_eq!(error.kind, ErrorKind::Unreachable);
        assert!(
            error.detail.contains("tidegate.sock")
                && error.mend.unwrap().contains("tidegate agent")
        );
    }
}
