//! The calls that only read, over TCP (`api_listen`), for programs of this machine: what a caller
//! sees, any user of the machine may see on the socket.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use tidegate_engine::sync::lock;
use tokio::net::TcpListener;

use super::calls::{Connection, read_routes};
use super::connection::{self, Connections, converse, refuse};
use crate::agent::Agent;
use crate::loopback::check_host;

const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

async fn with_own_host(request: Request, next: Next) -> Response {
    match check_host(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

/// Listens at `address` until the agent leaves. Where that cannot be, an alert says so: gates
/// matter more.
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
    let routes = read_routes().layer(from_fn(with_own_host));
    let mut connections = Connections::new(&connection::CALLS);
    loop {
        tokio::select! {
            () = agent.left() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => match connections.admit(None) {
                    Ok(token) => {
                        let (routes, call) = (routes.clone(), call.clone());
                        tokio::spawn(converse(stream, routes, call, token));
                    }
                    Err(error) => refuse(&stream, &error),
                },
                // Out of descriptors, or a caller that left at once.
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
        }
    }
}
