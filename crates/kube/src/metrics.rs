//! `/metrics` on the pod's address, for callers that the cluster lets read it: the API server names
//! the caller by its bearer token (TokenReview), and says whether it may get the non-resource URL
//! `/metrics` (SubjectAccessReview), as kube-rbac-proxy has it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tracing::warn;

use crate::agent::Agent;
use crate::ready::Health;

const PATH: &str = "/metrics";
/// Connections at once. Others wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 8;
/// A connection lasts no longer. Prometheus waits for 10 s.
const PATIENCE: Duration = Duration::from_secs(10);
/// For TLS and the head of a request: silent callers must not keep others out.
const HEAD_PATIENCE: Duration = Duration::from_secs(2);
/// A caller that was allowed is not reviewed again for this long.
const ALLOWED_FOR: Duration = Duration::from_secs(60);
/// For this long, its reviews do not count among those of new tokens.
const KNOWN_FOR: Duration = Duration::from_secs(3600);
/// A caller that was refused is not reviewed again for this long.
const REFUSED_FOR: Duration = Duration::from_secs(10);
const REMEMBERED_MAX: usize = 64;
/// The API server reviews one unknown token per period, because any caller can invent tokens.
const REVIEW_PERIOD: Duration = Duration::from_secs(1);
/// So many may be at once, after a pause.
const REVIEW_BURST: u32 = 5;
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

pub struct Metrics {
    pub client: Client,
    pub agent: Agent,
    pub health: Health,
    /// Without it the port is plain HTTP.
    pub tls: Option<Tls>,
    pub callers: Callers,
}

/// `tls.crt` and `tls.key` of a folder, as they were last read.
pub struct Tls {
    folder: PathBuf,
    last: Mutex<Option<([SystemTime; 2], TlsAcceptor)>>,
}

/// What the API server said of callers, and how much more it may be asked.
#[derive(Default)]
pub struct Callers(Mutex<Memory>);

#[derive(Default)]
struct Memory {
    /// By the SHA-256 of the token.
    verdicts: HashMap<Vec<u8>, (Verdict, Instant)>,
    /// Until when the reviews that were granted use up the allowance.
    spent_until: Option<Instant>,
}

#[derive(Clone, Debug, PartialEq)]
enum Verdict {
    Allowed,
    /// No user has this token.
    Unknown,
    Forbidden(String),
}

#[derive(Debug, PartialEq)]
enum Recalled {
    Verdict(Verdict),
    /// The API server may be asked.
    Review,
    /// It was asked too often.
    Later,
}

impl Metrics {
    pub async fn serve(self, address: SocketAddr) -> anyhow::Result<SocketAddr> {
        if let Some(tls) = &self.tls {
            tls.acceptor()?;
        }
        let listener = TcpListener::bind(address).await;
        let listener = listener.with_context(|| format!("{address}"))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(self);
        tokio::spawn(async move {
            let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
            while let Ok(slot) = Arc::clone(&slots).acquire_owned().await {
                let Ok((stream, _)) = listener.accept().await else {
                    // Out of descriptors, most likely: Prometheus asks again.
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                };
                let conversation = Arc::clone(&shared).converse(stream);
                tokio::spawn(async move {
                    // A caller that is too slow, or leaves, has no answer to get.
                    let _ = tokio::time::timeout(PATIENCE, conversation).await;
                    drop(slot);
                });
            }
        });
        Ok(address)
    }

    async fn converse(self: Arc<Self>, stream: TcpStream) -> anyhow::Result<()> {
        let deadline = Instant::now() + HEAD_PATIENCE;
        match &self.tls {
            None => self.exchange(stream, deadline).await,
            Some(tls) => {
                let acceptor = tls.acceptor().inspect_err(|error| warn!("{error:#}"))?;
                let stream = tokio::time::timeout_at(deadline, acceptor.accept(stream)).await??;
                self.exchange(stream, deadline).await
            }
        }
    }

    async fn exchange(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        head_deadline: Instant,
    ) -> anyhow::Result<()> {
        let service = service_fn(async |request| Ok::<_, Infallible>(self.answer(request).await));
        http1::Builder::new()
            .keep_alive(false)
            .timer(TokioTimer::new())
            .header_read_timeout(head_deadline.saturating_duration_since(Instant::now()))
            .serve_connection(TokioIo::new(stream), service)
            .await
            .context("HTTP")
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        if request.uri().path() != PATH || request.method() != Method::GET {
            return response(StatusCode::NOT_FOUND, format!("there is GET {PATH}\n"));
        }
        let value = request.headers().get(AUTHORIZATION);
        let value = value.and_then(|value| value.to_str().ok());
        let token = value.and_then(|value| value.strip_prefix("Bearer "));
        let Some(token) = token.map(str::trim) else {
            return response(StatusCode::UNAUTHORIZED, "send a bearer token\n".into());
        };
        let digest = digest(token);
        let verdict = match self.callers.recall(&digest, Instant::now()) {
            Recalled::Verdict(verdict) => Ok(verdict),
            Recalled::Review => {
                let reviewed = self.review(token).await;
                reviewed.inspect(|verdict| {
                    self.callers
                        .remember(digest, verdict.clone(), Instant::now());
                })
            }
            Recalled::Later => {
                let why = "too many new tokens at once: try again in a few seconds\n";
                return response(StatusCode::SERVICE_UNAVAILABLE, why.into());
            }
        };
        match verdict {
            Ok(Verdict::Allowed) => response(StatusCode::OK, self.text().await),
            Ok(Verdict::Unknown) => response(
                StatusCode::UNAUTHORIZED,
                "the API server does not know this token\n".into(),
            ),
            Ok(Verdict::Forbidden(user)) => response(
                StatusCode::FORBIDDEN,
                format!("{user} may not get the non-resource URL {PATH}\n"),
            ),
            Err(error) => {
                warn!("metrics: a caller's token: {error:#}");
                response(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "the API server does not review the token\n".into(),
                )
            }
        }
    }

    async fn review(&self, token: &str) -> anyhow::Result<Verdict> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                ..TokenReviewSpec::default()
            },
            ..TokenReview::default()
        };
        let reviews = Api::<TokenReview>::all(self.client.clone());
        let reviewed = reviews.create(&PostParams::default(), &review).await;
        let status = reviewed.context("TokenReview")?.status.unwrap_or_default();
        let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
            return Ok(Verdict::Unknown);
        };
        let name = user.username.clone().unwrap_or_default();
        let reviews = Api::<SubjectAccessReview>::all(self.client.clone());
        let reviewed = reviews
            .create(&PostParams::default(), &access_review(user))
            .await;
        let status = reviewed.context("SubjectAccessReview")?.status;
        Ok(match status.is_some_and(|status| status.allowed) {
            true => Verdict::Allowed,
            false => Verdict::Forbidden(name),
        })
    }

    async fn text(&self) -> String {
        let own = self.health.metrics(std::time::Instant::now());
        match self.agent.metrics().await {
            Ok(text) => text + &own,
            // As the agent's own command has it.
            Err(_) => format!("# TYPE tidegate_agent_up gauge\ntidegate_agent_up 0\n{own}"),
        }
    }
}

impl Verdict {
    fn holds_for(&self) -> Duration {
        match self {
            Verdict::Allowed => ALLOWED_FOR,
            Verdict::Unknown | Verdict::Forbidden(_) => REFUSED_FOR,
        }
    }
}

impl Callers {
    fn recall(&self, digest: &[u8], now: Instant) -> Recalled {
        let mut memory = self.0.lock().expect("nothing panics with it");
        if let Some((verdict, at)) = memory.verdicts.get(digest) {
            let age = now.duration_since(*at);
            if age < verdict.holds_for() {
                return Recalled::Verdict(verdict.clone());
            }
            // Invented tokens must not use up the reviews of Prometheus.
            if *verdict == Verdict::Allowed && age < KNOWN_FOR {
                return Recalled::Review;
            }
        }
        let since = memory.spent_until.map_or(now, |until| until.max(now));
        let until = since + REVIEW_PERIOD;
        if until > now + REVIEW_PERIOD * REVIEW_BURST {
            return Recalled::Later;
        }
        memory.spent_until = Some(until);
        Recalled::Review
    }

    fn remember(&self, digest: Vec<u8>, verdict: Verdict, now: Instant) {
        let mut memory = self.0.lock().expect("nothing panics with it");
        memory.verdicts.retain(|of, (verdict, at)| {
            let kept_for = match verdict {
                Verdict::Allowed => KNOWN_FOR,
                refusal => refusal.holds_for(),
            };
            *of != digest && now.duration_since(*at) < kept_for
        });
        if memory.verdicts.len() < REMEMBERED_MAX {
            memory.verdicts.insert(digest, (verdict, now));
        }
    }
}

/// The SHA-256 of a token, by the TLS library.
fn digest(token: &str) -> Vec<u8> {
    let suite = ring::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13();
    let suite = suite.expect("it is one of TLS 1.3");
    let digest = suite.common.hash_provider.hash(token.as_bytes());
    digest.as_ref().to_vec()
}

fn access_review(user: UserInfo) -> SubjectAccessReview {
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: user.username,
            uid: user.uid,
            groups: user.groups,
            extra: user.extra,
            non_resource_attributes: Some(NonResourceAttributes {
                path: Some(PATH.to_owned()),
                verb: Some("get".to_owned()),
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

impl Tls {
    pub fn of(folder: PathBuf) -> Self {
        let last = Mutex::default();
        Tls { folder, last }
    }

    /// Reads the files again when their modification time has changed, as after a renewal.
    fn acceptor(&self) -> anyhow::Result<TlsAcceptor> {
        let [certificate, key] = ["tls.crt", "tls.key"].map(|name| self.folder.join(name));
        let modified = [modified(&certificate)?, modified(&key)?];
        let mut last = self.last.lock().expect("nothing panics with it");
        if let Some((at, acceptor)) = &*last
            && *at == modified
        {
            return Ok(acceptor.clone());
        }
        let acceptor = acceptor(&certificate, &key)?;
        *last = Some((modified, acceptor.clone()));
        Ok(acceptor)
    }
}

fn modified(file: &Path) -> anyhow::Result<SystemTime> {
    let modified = std::fs::metadata(file).and_then(|file| file.modified());
    modified.with_context(|| format!("{}", file.display()))
}

fn acceptor(certificate: &Path, key: &Path) -> anyhow::Result<TlsAcceptor> {
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
    let chain: Vec<_> = chain.with_context(|| format!("{}", certificate.display()))?;
    let key_of_chain =
        PrivateKeyDer::from_pem_file(key).with_context(|| format!("{}", key.display()))?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .context("TLS")?
        .with_no_client_auth()
        .with_single_cert(chain, key_of_chain)
        .with_context(|| format!("{}", certificate.display()))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn response(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let text_format = "text/plain; version=0.0.4; charset=utf-8";
    headers.insert(CONTENT_TYPE, text_format.parse().expect("it is ASCII"));
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, "Bearer".parse().expect("it is ASCII"));
    }
    response
}

#[cfg(test)]
mod tests;
