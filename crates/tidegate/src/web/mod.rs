//! The page in a browser: its files, and the agent's calls that only read. It is served at a loopback address, and nothing in it
//! changes anything.

mod calls;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
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

use crate::exit::{Exit, Failure};
use crate::render;

/// Each as path, media type and bytes; none where there was no uPlot at the build.
const FILES: &[(&str, &str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/page.rs"));

/// After a connection that could not be taken.
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

/// Serves the page of the agent at `socket` until the command is ended.
pub fn serve(address: SocketAddr, socket: &Path) -> Result<Exit, Failure> {
    let failed = |why: String| Failure::new(Exit::Failure, format!("web: {why}"));
    if FILES.is_empty() {
        let why = "the page: it is not in this build; run `npm ci --prefix web` in the source, and build again";
        return Err(failed(why.to_owned()));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| failed(format!("tokio: {error}")))?;
    runtime.block_on(async {
        let no_listener =
            |error| failed(format!("--listen: {address}: {error}; choose another port"));
        let listener = TcpListener::bind(address).await.map_err(no_listener)?;
        let at = listener.local_addr().map_err(no_listener)?;
        let shown = socket.display();
        render::print(&format!("http://{at}/ shows the agent of {shown}\n"))?;
        let socket: Arc<Path> = socket.into();
        loop {
            match listener.accept().await {
                Ok((stream, _)) => drop(tokio::spawn(converse(stream, Arc::clone(&socket)))),
                // Out of descriptors, or a caller that left at once.
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
    })
}

/// One connection. What it fails by is the browser's business.
async fn converse(stream: TcpStream, socket: Arc<Path>) {
    let answer = service_fn(|request| answer(request, &socket));
    // With a timer, a caller that sends no request is cut off after half a minute.
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), answer);
    let _ = connection.await;
}

async fn answer(request: Request<Incoming>, socket: &Path) -> Result<Response<Body>, Infallible> {
    let found = find(&request, socket).await;
    let mut response = found.unwrap_or_else(IntoResponse::into_response);
    for (name, value) in HEADERS {
        let name = HeaderName::from_static(name);
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}

async fn find(request: &Request<Incoming>, socket: &Path) -> Result<Response<Body>, ApiError> {
    check_host(request.headers())?;
    let path = request.uri().path();
    let file = FILES.iter().find(|(name, ..)| *name == path);
    if file.is_none() && !calls::PASSED_ON.contains(&path) {
        let error = ApiError::new(ErrorKind::NotFound, format!("web: there is no {path}"));
        return Err(error.with_mend("open /"));
    }
    if request.method() != Method::GET {
        return Ok((StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "GET")]).into_response());
    }
    match file {
        Some((_, media, bytes)) => Ok(([(CONTENT_TYPE, *media)], *bytes).into_response()),
        None => calls::pass_on(request, socket).await,
    }
}
