//! Scrapes over TCP (`metrics_listen`): metrics alone, read-only, from this machine alone. What a scrape sees, any user of the machine may
//! see on the socket.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_TYPE, HOST};
use axum::http::{HeaderMap, HeaderName};
use axum::routing::get;
use tidegate_api::{ApiError, ErrorKind, StatusView};
use tidegate_knobs::sync::lock;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::connection::converse;
use crate::agent::Agent;
use crate::metrics::{self, Format};

/// At once; a scrape takes milliseconds.
const SCRAPES_MAX: usize = 8;

/// After a connection that could not be taken.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

type Metrics = Result<([(HeaderName, &'static str); 1], String), ApiError>;

/// The text for a caller that has been admitted, in the format that its headers ask for.
pub(super) fn text_of(status: &StatusView, headers: &HeaderMap) -> Metrics {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = Format::accepted(accept.unwrap_or_default());
    let head = [(CONTENT_TYPE, format.content_type())];
    Ok((head, metrics::text(status, format)))
}

/// A page in a browser may send it to an address of this machine under a name of its own; that is refused.
fn check_host(headers: &HeaderMap) -> Result<(), ApiError> {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = host.unwrap_or_default();
    let with_port = host.parse::<SocketAddr>().map(|address| address.ip());
    let address = with_port.or_else(|_| host.trim_matches(['[', ']']).parse());
    let name = host.split_once(':').map_or(host, |(name, _)| name);
    match address {
        Ok(address) => check_local(address, host),
        Err(_) if name == "localhost" => Ok(()),
        Err(_) => Err(wrong_host(host)),
    }
}

fn check_local(address: IpAddr, host: &str) -> Result<(), ApiError> {
    match address.is_loopback() {
        true => Ok(()),
        false => Err(wrong_host(host)),
    }
}

fn wrong_host(host: &str) -> ApiError {
    let detail = format!("metrics: host \"{host}\" is not this machine");
    ApiError::new(ErrorKind::Denied, detail).with_mend("ask 127.0.0.1, [::1] or localhost")
}

async fn scrape(State(agent): State<Arc<Agent>>, headers: HeaderMap) -> Metrics {
    check_host(&headers)?;
    // One status a second serves all of them, however many ask.
    text_of(&agent.shared(), &headers)
}

/// Listens at `address` until the agent leaves. Where that cannot be, an alert says so: gates matter more.
pub(super) async fn serve(address: SocketAddr, agent: Arc<Agent>) {
    let listener = match TcpListener::bind(address).await {
        Ok(listener) => listener,
        Err(error) => {
            let alert =
                format!("metrics_listen: {address}: {error}; there are no metrics over TCP");
            tracing::warn!("{alert}");
            lock(&agent.runtime.alerts).insert(alert);
            return;
        }
    };
    let routes = Router::new()
        .route("/metrics", get(scrape))
        .with_state(Arc::clone(&agent));
    let room = Arc::new(Semaphore::new(SCRAPES_MAX));
    loop {
        let next = async {
            let token = Arc::clone(&room).acquire_owned().await;
            (token, listener.accept().await)
        };
        tokio::select! {
            () = agent.left() => return,
            (token, accepted) = next => match accepted {
                Ok((stream, _)) => drop(tokio::spawn(converse(stream, routes.clone(), token))),
                // Out of descriptors, or a caller that left at once.
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_browser_may_be_led_by_are_refused() {
        let check = |host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, host.parse().unwrap());
            check_host(&headers)
        };
        for host in [
            "127.0.0.1:9469",
            "127.0.0.1",
            "localhost:9469",
            "localhost",
            "[::1]:9469",
            "[::1]",
        ] {
            assert_eq!(check(host), Ok(()), "{host}");
        }
        for host in [
            "evil.example:9469",
            "10.0.0.1:9469",
            "127.0.0.1.evil.example",
            "",
        ] {
            assert_eq!(check(host).unwrap_err().kind, ErrorKind::Denied, "{host}");
        }
        assert!(check_host(&HeaderMap::new()).is_err());
    }
}
