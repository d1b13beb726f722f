//! The calls that only read, over TCP (`api_listen`), for programs of this machine: what a caller sees, any user of the machine may see on
//! the socket.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::HOST;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use tidegate_api::{ApiError, ErrorKind};
use tidegate_knobs::sync::lock;
use tokio::net::TcpListener;

use super::calls::{Connection, read_routes};
use super::connection::{self, Connections, converse, refuse};
use crate::agent::Agent;

/// After a connection that could not be taken.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

async fn with_own_host(request: Request, next: Next) -> Response {
    match check_host(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
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
    let detail = format!("tcp: host \"{host}\" is not this machine");
    ApiError::new(ErrorKind::Denied, detail).with_mend("ask 127.0.0.1, [::1] or localhost")
}

/// Listens at `address` until the agent leaves. Where that cannot be, an alert says so: gates matter more.
pub(super) async fn serve(
    address: SocketAddr,
    agent: Arc<Agent>,
    streams: Arc<Mutex<Connections>>,
) {
    let listener = match TcpListener::bind(address).await {
        Ok(listener) => listener,
        Err(error) => {
            let alert = format!("api_listen: {address}: {error}; there is no API over TCP");
            tracing::warn!("{alert}");
            lock(&agent.runtime.alerts).insert(alert);
            return;
        }
    };
    let call = Connection {
        agent: Arc::clone(&agent),
        // The kernel names no user of a TCP connection.
        peer: None,
        streams,
    };
    let routes = read_routes().layer(from_fn(with_own_host)).with_state(call);
    let mut connections = Connections::new(&connection::CALLS);
    loop {
        tokio::select! {
            () = agent.left() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => match connections.admit(None) {
                    Ok(token) => drop(tokio::spawn(converse(stream, routes.clone(), token))),
                    Err(error) => refuse(&stream, &error),
                },
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
