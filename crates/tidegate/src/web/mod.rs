//! The page in a browser: its files, the agent's calls that only read, and a recording. It is
//! served at a loopback address, and nothing in it changes anything.

mod calls;
pub mod recording;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{ALLOW, CONTENT_TYPE, HeaderName};
use axum::http::{HeaderValue, Method, Request, Response, StatusCode};
use axum::response::IntoResponse;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tidegate_agent::loopback::check_host;
use tidegate_api::{ApiError, ErrorKind};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::identity::become_nobody;
use crate::render;
use tidegate_api::Exit;
use tidegate_api::cli::Failure;

use recording::Shown;

/// Each as path, media type and bytes; none where there was no uPlot at the build.
const FILES: &[(&str, &str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/page.rs"));

const CONNECTIONS_MAX: usize = 64;

const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// On every answer: the page loads nothing from elsewhere, and no other page may frame it.
const HEADERS: &[(&str, &str)] = &[
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
];

pub struct Sources {
    pub socket: PathBuf,
    pub recording: Option<Shown>,
}

pub fn check_build() -> Result<(), Failure> {
    match FILES.is_empty() {
        true => Err(failed(
            "the page: it is not in this build; run `npm ci --prefix web` in the source, and build again",
        )),
        false => Ok(()),
    }
}

fn failed(why: &str) -> Failure {
    Failure::new(Exit::Failure, format!("web: {why}"))
}

pub fn serve(address: SocketAddr, sources: Sources) -> Result<Exit, Failure> {
    check_build()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| failed(&format!("tokio: {error}")))?;
    runtime.block_on(async {
        let no_listener = |error| {
            failed(&format!(
                "--listen: {address}: {error}; choose another port"
            ))
        };
        let listener = TcpListener::bind(address).await.map_err(no_listener)?;
        let at = listener.local_addr().map_err(no_listener)?;
        // The page is everybody's on this machine, and so is its budget.
        become_nobody()?;
        render::print(&addresses(at, &sources))?;
        let sources = Arc::new(sources);
        let free = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    // Without a permit the connection is closed.
                    if let Ok(permit) = Arc::clone(&free).try_acquire_owned() {
                        let sources = Arc::clone(&sources);
                        tokio::spawn(async move {
                            converse(stream, sources).await;
                            drop(permit);
                        });
                    }
                }
                // Out of descriptors, or a caller that left at once.
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
    })
}

fn addresses(at: SocketAddr, sources: &Sources) -> String {
    let mut lines = format!(
        "http://{at}/ shows the agent of {}\n",
        sources.socket.display()
    );
    if let Some(shown) = &sources.recording {
        lines += &format!("http://{at}/#/recording shows {}\n", shown.name);
    }
    lines
}

/// One connection. What it fails by is the browser's business.
async fn converse(stream: TcpStream, sources: Arc<Sources>) {
    let answer = service_fn(|request| answer(request, &sources));
    // With a timer, a caller that sends no request is cut off after half a minute.
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), answer);
    let _ = connection.await;
}

async fn answer(
    request: Request<Incoming>,
    sources: &Sources,
) -> Result<Response<Body>, Infallible> {
    let found = find(&request, sources).await;
    let mut response = found.unwrap_or_else(IntoResponse::into_response);
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        let name = HeaderName::from_static(name);
        headers.insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}

enum Found {
    File(&'static str, Bytes),
    Call,
}

impl Found {
    fn at(path: &str, sources: &Sources) -> Option<Found> {
        if let Some((_, media, bytes)) = FILES.iter().find(|(name, ..)| *name == path) {
            return Some(Found::File(media, Bytes::from_static(bytes)));
        }
        if calls::PASSED_ON.contains(&path) {
            return Some(Found::Call);
        }
        // Where there is none the answer is `null`: the browser would tell of a 404 as an error.
        (path == "/recording.json").then(|| {
            let shown = sources.recording.as_ref();
            let json = shown.map_or_else(|| "null".to_owned(), |shown| shown.json.clone());
            Found::File("application/json", json.into())
        })
    }
}

async fn find(request: &Request<Incoming>, sources: &Sources) -> Result<Response<Body>, ApiError> {
    check_host(request.headers())?;
    let path = request.uri().path();
    let Some(found) = Found::at(path, sources) else {
        let error = ApiError::new(ErrorKind::NotFound, format!("web: there is no {path}"));
        return Err(error.with_remedy("open /"));
    };
    if request.method() != Method::GET {
        return Ok((StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "GET")]).into_response());
    }
    match found {
        Found::File(media, bytes) => Ok(([(CONTENT_TYPE, media)], bytes).into_response()),
        Found::Call => calls::pass_on(request, &sources.socket).await,
    }
}
